#include "compiler/decode/Affine.h"

#include "compiler/decode/ElementCore.h"
#include "compiler/decode/Extension.h"
#include "compiler/decode/Extract.h"
#include "compiler/decode/Line.h"
#include "compiler/decode/Narrow.h"
#include "dsl/Evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace rho::compiler {

namespace {

using dsl::Expr;
using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

class AffineReader {
public:
  explicit AffineReader(const dsl::Format &format) : format(format) {}

  std::optional<Affine> read(const Expr &expr) const {
    switch (expr.kind) {
    case Expr::Kind::Integer:
      return Affine{{}, RowNumber::of(static_cast<double>(expr.integer))};
    case Expr::Kind::Real:
      return Affine{{}, RowNumber::of(expr.real)};
    case Expr::Kind::Component:
      if (expr.component == 0)
        return Affine{RowNumber::of(1), {}};
      return Affine{{}, {{{.factor = 1, .components = {expr.component}}}}};
    case Expr::Kind::Negate: {
      std::optional<Affine> a = read(*expr.operands[0]);
      if (a)
        *a = {a->slope.times(-1), a->offset.times(-1)};
      return a;
    }
    case Expr::Kind::Binary:
      return binary(expr);
    case Expr::Kind::Cast:
      return cast(expr);
    case Expr::Kind::Input:
    case Expr::Kind::Reduce:
    case Expr::Kind::Call:
      break;
    }
    return std::nullopt;
  }

private:
  const dsl::Format &format;

  std::optional<Affine> binary(const Expr &expr) const {
    std::optional<Affine> a = read(*expr.operands[0]), b = read(*expr.operands[1]);
    if (!a || !b)
      return std::nullopt;
    switch (expr.op) {
    case Expr::Op::Add:
    case Expr::Op::Sub: {
      double sign = expr.op == Expr::Op::Add ? 1 : -1;
      return Affine{a->slope.plus(b->slope.times(sign)), a->offset.plus(b->offset.times(sign))};
    }
    case Expr::Op::Mul:
      if (!a->slope.terms.empty() && !b->slope.terms.empty())
        return std::nullopt;
      return Affine{a->slope.times(b->offset).plus(b->slope.times(a->offset)),
                    a->offset.times(b->offset)};
    case Expr::Op::Div: {
      double divisor = b->offset.constant();
      if (!b->slope.terms.empty() || !b->offset.isConstant() || divisor == 0)
        return std::nullopt;
      return Affine{a->slope.times(1 / divisor), a->offset.times(1 / divisor)};
    }
    case Expr::Op::Shl: {
      if (!b->slope.terms.empty() || !b->offset.isConstant())
        return std::nullopt;
      double factor = std::ldexp(1.0, static_cast<int>(b->offset.constant()));
      return Affine{a->slope.times(factor), a->offset.times(factor)};
    }
    default:
      return std::nullopt;
    }
  }

  std::optional<Affine> cast(const Expr &expr) const {
    if (!expr.type->isInteger())
      return std::nullopt;
    const Expr &inner = *expr.operands[0];
    if (isWithin(inner, format, expr.type->minFinite(), expr.type->maxFinite()))
      return read(inner);
    int64_t top = int64_t{1} << (expr.type->bits() - 1);
    bool flips = inner.kind == Expr::Kind::Binary && inner.op == Expr::Op::Xor &&
                 inner.operands[1]->kind == Expr::Kind::Integer &&
                 inner.operands[1]->integer == top &&
                 expr.type->kind() == dsl::ElementType::Kind::Signed;
    if (!flips || !isWithin(*inner.operands[0], format, 0, static_cast<double>(2 * top - 1)))
      return std::nullopt;
    std::optional<Affine> a = read(*inner.operands[0]);
    if (a)
      a->offset = a->offset.plus(RowNumber::of(-static_cast<double>(top)));
    return a;
  }
};

// Largest integer up to which an operand type holds all.
double exactIntegers(dsl::ElementType type) { return std::ldexp(1.0, type.mantissaBits() + 1); }

bool fitsExactly(const RowNumber &number, const dsl::Format &format, double limit) {
  double min = 0, max = 0;
  for (const RowNumber::Term &term : number.terms) {
    double low = term.factor, high = term.factor;
    if (low != std::floor(low))
      return false;
    for (int component : term.components) {
      dsl::ElementType type = format.components[static_cast<size_t>(component)].type;
      if (!type.isInteger())
        return false;
      auto corners = {low * type.minFinite(), low * type.maxFinite(), high * type.minFinite(),
                      high * type.maxFinite()};
      low = std::min(corners);
      high = std::max(corners);
    }
    min += low;
    max += high;
  }
  return min >= -limit && max <= limit;
}

// Operands of 16 bits whose last multiply-add takes an offset of the row, rounding nothing. None
// where there is no such instruction, or not all that it adds is exact.
std::optional<DecodeSequence> shiftedDecode(DecodeSequence sequence, const Affine &affine,
                                            const dsl::Format &format, std::string_view mmaType) {
  dsl::ElementType operand = dsl::ElementType::get(mmaType);
  Extension extension(sequence, mmaType);
  for (size_t r = 0; r < sequence.registers(); ++r) {
    std::optional<Line> line = lineOf(sequence.program, r, mmaType);
    if (!line)
      return std::nullopt;
    // Offsets in units of what registers hold.
    double slope = affine.slope.constant() * line->slope;
    RowNumber units = affine.offset.plus(
        RowNumber::of(std::ldexp(affine.slope.constant() * line->offset, -sequence.log2Factor)));
    if (!exactIn(operand, slope) || !fitsExactly(units, format, exactIntegers(operand)))
      return std::nullopt;
    setLine(sequence.program, r, mmaType, extension.number(RowNumber::of(slope), r),
            extension.number(units.times(std::ldexp(1.0, sequence.log2Factor)), r));
  }
  return sequence;
}

// Whether the element as it stands, or the number, may be too large for the operand type. Of
// components of more than 8 bits no limit is known that they reach; a zero point among them is
// somewhere between the ends of the element.
bool leavesRange(const dsl::Format &format, const dsl::Expr &core, const Affine &affine,
                 dsl::ElementType operand) {
  dsl::ElementType element = format.element().type;
  double largest = element.maxMagnitude();
  std::vector<int> others = affine.offset.uses();
  for (int component : affine.slope.uses())
    others.push_back(component);
  bool narrow = std::all_of(others.begin(), others.end(), [&](int component) {
    return format.components[static_cast<size_t>(component)].type.bits() <= 8;
  });
  dsl::Range range = dsl::rangeOf(core, format);
  if (narrow)
    largest = std::max({largest, std::abs(range.min), std::abs(range.max)});
  else if (affine.slope.isConstant())
    largest = std::max(largest, std::abs(affine.slope.constant()) *
                                    (element.maxFinite() - element.minFinite()));
  return largest > operand.maxFinite();
}

// What a number of a row can be: its magnitude at most, and a power of two that divides it.
struct Extremes {
  double largest = 0, digit = std::numeric_limits<double>::infinity();
};
std::optional<Extremes> extremesOf(const RowNumber &number, const dsl::Format &format) {
  Extremes result;
  for (const RowNumber::Term &term : number.terms) {
    if (term.factor == 0)
      continue;
    Extremes product{std::abs(term.factor), lowestDigit(term.factor)};
    for (int component : term.components) {
      dsl::ElementType type = format.components[static_cast<size_t>(component)].type;
      if (type.isCodebook() || type.bits() > 16)
        return std::nullopt;
      product.largest *= type.maxMagnitude();
      if (type.isFloat())
        product.digit *= std::ldexp(1.0, type.leastExponent() - type.mantissaBits());
    }
    result.largest += product.largest;
    result.digit = std::min(result.digit, product.digit);
  }
  return result;
}

// The powers of two that registers of each row half are multiplied with last of all: which the
// number of a row that would multiply them next can take instead.
using LastPowers = std::array<int, 2>;
LastPowers lastPowers(const DecodeSequence &sequence, std::string_view mmaType) {
  LastPowers powers = {};
  for (size_t r = 0; r < sequence.registers(); ++r) {
    std::optional<Line> line = lineOf(sequence.program, r, mmaType);
    const bool isPower =
        line && line->offset == 0 && line->slope >= 1 && significantBits(line->slope) == 1;
    int power = isPower ? std::ilogb(line->slope) : 0;
    if (r >= powers.size() && power != powers[r & 1])
      return {};
    powers[r & 1] = power;
  }
  return powers;
}

// As many of the powers of two that a decode to bf16 leaves out as the slope, which then takes
// them and `powers`, and all numbers have room for, whatever their codes.
std::optional<int> leftToSlope(const DecodeSequence &base, const Affine &affine,
                               const dsl::Format &format, std::string_view mmaType,
                               const LastPowers &powers) {
  const dsl::ElementType operand = dsl::ElementType::get(mmaType);
  const std::optional<Extremes> slope = extremesOf(affine.slope, format),
                                offset = extremesOf(affine.offset, format);
  if (base.log2Factor >= smallestUsefulLog2 || !slope || !offset ||
      !format.element().type.isInteger())
    return std::nullopt;
  // One power is left: on its way a product with a fraction is that much larger (TileNumbers.cpp).
  const int room =
      std::ilogb(operand.maxFinite() / slope->largest) - 1 - std::max(powers[0], powers[1]);
  const int log2 = std::min(smallestUsefulLog2 - base.log2Factor, room);
  const double digit = std::min(slope->digit, offset->digit);
  if (base.log2Factor + log2 < smallestKeptLog2 ||
      std::ldexp(digit, smallestKeptLog2 - operand.leastExponent()) < 1)
    return std::nullopt;
  return log2;
}

std::optional<DecodeSequence> halfDecode(const dsl::Format &format, const dsl::Expr &core,
                                         const Affine &affine, std::string_view mmaType) {
  Expr elementExpr{};
  elementExpr.kind = Expr::Kind::Component;
  // As small as scales of 16 bits let it be, which may come on top.
  int leastLog2 = leastScaledLog2(dsl::ElementType::get("f16"), mmaType);
  std::optional<DecodeSequence> base = decodeSequence(format, elementExpr, mmaType, leastLog2);
  if (!base)
    return std::nullopt;
  double limit = exactIntegers(dsl::ElementType::get(mmaType));
  bool exact = base->roundings == 0 && isWithin(core, format, -limit, limit) &&
               fitsExactly(affine.slope, format, limit) &&
               fitsExactly(affine.offset, format, limit);
  if (!exact && dsl::isIntegerTyped(core, format))
    return std::nullopt;
  if (exact && affine.slope.isConstant())
    if (std::optional<DecodeSequence> shifted = shiftedDecode(*base, affine, format, mmaType))
      return shifted;
  std::optional<DecodeSequence> small; // whatever its factor
  if (mmaType == "bf16")
    small = decodeSequence(format, elementExpr, mmaType, -1000);
  LastPowers powers = {}; // that slopes take as well, where there is room
  std::optional<int> left;
  if (small)
    for (const LastPowers &each : {lastPowers(*small, mmaType), LastPowers()})
      if (!left) {
        powers = each;
        left = leftToSlope(*small, affine, format, mmaType, powers);
      }
  base = left ? small : decodeSequence(format, elementExpr, mmaType, 0);
  if (!base || leavesRange(format, core, affine, dsl::ElementType::get(mmaType)))
    return std::nullopt;
  if (left)
    base->log2Factor += *left;
  else
    base = restored(*std::move(base), mmaType);
  const RowNumber slope = affine.slope.times(std::ldexp(1.0, left.value_or(0))),
                  offset = affine.offset.times(std::ldexp(1.0, base->log2Factor));
  // Of the slope and of the offset, and of the number, which is no larger than both together.
  base->roundings = exact ? 0 : base->roundings + 2;
  Extension extension(*base, mmaType);
  DecodeProgram &p = base->program;
  for (size_t r = 0; r < base->registers(); ++r) {
    const int power = powers[r & 1];
    const Operand own = extension.number(slope.times(std::ldexp(1.0, power)), r),
                  plus = extension.number(offset, r);
    if (power == 0)
      p.setOutput(r, p.fma(mmaType, p.outputAt(r), own, plus));
    else
      setLine(p, r, mmaType, own, plus);
  }
  return base;
}

// Through f16: integers that e4m3 holds.
std::optional<DecodeSequence> narrowDecode(const dsl::Format &format, const dsl::Expr &core,
                                           const Affine &affine) {
  double limit = exactIntegers(dsl::ElementType::get("e4m3"));
  if (!isWithin(core, format, -limit, limit))
    return std::nullopt;
  std::optional<DecodeSequence> halves = halfDecode(format, core, affine, "f16");
  if (!halves || halves->roundings != 0)
    return std::nullopt;
  return narrowedToE4M3(*std::move(halves));
}

// Bytes of number + 128: sums of multiples of whole registers, whose bytes are numbers from 0 to
// 255 in the end, whatever carries on the way there.
std::optional<DecodeSequence> byteDecode(const dsl::Format &format, const dsl::Expr &core,
                                         const Affine &affine) {
  dsl::ElementType element = format.element().type;
  auto isWhole = [](double x) { return x == std::floor(x) && std::abs(x) <= 65536; };
  if (!element.isInteger() || element.bits() > 8 || !isWithin(core, format, -128, 127) ||
      affine.slope.terms.size() != 1)
    return std::nullopt;
  for (const RowNumber *number : {&affine.slope, &affine.offset})
    for (const RowNumber::Term &term : number->terms) {
      if (!isWhole(term.factor))
        return std::nullopt;
      for (int component : term.components) {
        dsl::ElementType type = format.components[static_cast<size_t>(component)].type;
        bool isUnsigned = type.kind() == dsl::ElementType::Kind::Unsigned;
        if (!type.isInteger() || type.bits() > 8 || (!isUnsigned && term.components.size() > 1))
          return std::nullopt;
      }
    }
  const RowNumber::Term &slope = affine.slope.terms[0];
  bool isSigned = element.kind() == dsl::ElementType::Kind::Signed;
  dsl::ElementType::Kind slopeKind = dsl::ElementType::Kind::Unsigned;
  if (!slope.components.empty())
    slopeKind = format.components[static_cast<size_t>(slope.components[0])].type.kind();
  if (!slope.components.empty() && (slope.factor != 1 || isSigned || slope.components.size() > 1 ||
                                    slopeKind != dsl::ElementType::Kind::Unsigned))
    return std::nullopt; // the offset of the codes would be multiplied too
  DecodeSequence result = extractBytes(element);
  Extension extension(result, "s8");
  DecodeProgram &p = result.program;
  auto bytes = [](double value) {
    return static_cast<uint32_t>(static_cast<int64_t>(value)) * 0x01010101U;
  };
  double bias = isSigned ? std::ldexp(1.0, element.bits() - 1) : 0; // codes hold number + bias
  double rest = 128 + affine.offset.constant() - bias * slope.factor;
  for (const RowNumber::Term &term : affine.offset.terms)
    if (!term.components.empty()) {
      dsl::ElementType type = format.components[static_cast<size_t>(term.components[0])].type;
      if (type.kind() == dsl::ElementType::Kind::Signed)
        rest -= term.factor * std::ldexp(1.0, type.bits() - 1);
    }
  for (size_t r = 0; r < result.registers(); ++r) {
    int row = static_cast<int>(r & 1);
    Operand sum = DecodeProgram::constant(bytes(rest));
    for (const RowNumber::Term &term : affine.offset.terms) {
      if (term.components.empty())
        continue;
      if (term.components.size() > 1) {
        std::optional<Operand> product;
        for (int component : term.components) {
          Operand value = extension.param({DecodeParam::Form::Byte, component, row, {}});
          product = product ? p.add(Op::Mad, *product, value, DecodeProgram::constant(0)) : value;
        }
        sum = p.add(Op::Mad, *product, DecodeProgram::constant(bytes(term.factor)), sum);
        continue;
      }
      int component = term.components[0];
      dsl::ElementType type = format.components[static_cast<size_t>(component)].type;
      Operand value = extension.param({DecodeParam::Form::Bytes, component, row, {}});
      if (type.kind() == dsl::ElementType::Kind::Signed) // in offset binary
        value = p.add(Op::Xor, value, DecodeProgram::constant(bytes(1 << (type.bits() - 1))));
      Operand factor =
          DecodeProgram::constant(static_cast<uint32_t>(static_cast<int64_t>(term.factor)));
      sum = p.add(Op::Mad, value, factor, sum);
    }
    Operand factor =
        slope.components.empty()
            ? DecodeProgram::constant(static_cast<uint32_t>(static_cast<int64_t>(slope.factor)))
            : extension.param({DecodeParam::Form::Byte, slope.components[0], row, {}});
    Operand number = p.add(Op::Mad, p.outputAt(r), factor, sum);
    p.setOutput(r, p.add(Op::Xor, number, DecodeProgram::constant(0x80808080)));
  }
  return result;
}

} // namespace

bool isWithin(const Expr &expr, const dsl::Format &format, double min, double max) {
  dsl::Range range = dsl::rangeOf(expr, format);
  if (!range.integer)
    return false;
  for (const dsl::Requirement &requirement : format.requirements)
    if (dsl::print(*requirement.expr, format) == dsl::print(expr, format)) {
      auto bound = static_cast<double>(requirement.bound);
      if (requirement.atMost)
        range.max = std::min(range.max, bound);
      else
        range.min = std::max(range.min, bound);
    }
  return range.min >= min && range.max <= max;
}

std::optional<Affine> affineCore(const dsl::Format &format, const dsl::Expr &core) {
  return AffineReader(format).read(core);
}

std::optional<DecodeSequence> affineDecode(const dsl::Format &format, const dsl::Expr &core,
                                           std::string_view mmaType) {
  std::optional<Affine> affine = affineCore(format, core);
  if (!affine || affine->slope.terms.empty())
    return std::nullopt;
  if (mmaType == "s8")
    return byteDecode(format, core, *affine);
  if (mmaType == "e4m3")
    return narrowDecode(format, core, *affine);
  if (dsl::ElementType::get(mmaType).bits() == 16)
    return halfDecode(format, core, *affine, mmaType);
  return std::nullopt;
}

DecodeSequence numberScaled(DecodeSequence sequence, const RowNumber &number, double largest,
                            int digits, bool groupsOfHalves, std::string_view mmaType) {
  double room = dsl::ElementType::get(mmaType).maxFinite() / largest;
  int carried = std::clamp(static_cast<int>(std::floor(std::log2(room))), 0, -sequence.log2Factor);
  if (sequence.log2Factor + carried < smallestUsefulLog2) {
    sequence = restored(std::move(sequence), mmaType);
    carried = 0;
  }
  sequence.log2Factor += carried;
  RowNumber factor = number.times(std::ldexp(1.0, carried));
  Extension extension(sequence, mmaType, groupsOfHalves);
  if (carried == 0 && !groupsOfHalves &&
      scaleLine(sequence, {extension.number(factor, 0), extension.number(factor, 1)}, largest,
                digits, mmaType))
    return sequence;
  DecodeProgram &p = sequence.program;
  for (size_t r = 0; r < sequence.registers(); ++r)
    p.setOutput(r, p.times(mmaType, p.outputAt(r), extension.number(factor, r)));
  return sequence;
}

} // namespace rho::compiler
