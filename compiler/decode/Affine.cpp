#include "compiler/decode/Affine.h"

#include "compiler/decode/ElementCore.h"
#include "compiler/decode/Extension.h"
#include "compiler/decode/Extract.h"
#include "compiler/decode/Line.h"
#include "compiler/decode/Narrow.h"
#include "compiler/decode/RoundedProduct.h"
#include "compiler/decode/Within.h"
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

bool isByte(dsl::ElementType type) { return type.isInteger() && type.bits() <= 8; }
bool isSigned(dsl::ElementType type) { return type.kind() == dsl::ElementType::Kind::Signed; }

// Whether all parts of the core's numbers are integers of bytes. Of products they have no sign:
// codes are in offset binary, whose offset would be multiplied, too.
bool areOfBytes(const dsl::Format &format, const dsl::Expr &core, const Affine &affine) {
  auto typeOf = [&](int component) {
    return format.components[static_cast<size_t>(component)].type;
  };
  auto fits = [&](const RowNumber::Term &term) {
    const bool isProduct = term.components.size() > 1;
    return term.factor == std::floor(term.factor) && std::abs(term.factor) <= 65536 &&
           std::all_of(term.components.begin(), term.components.end(), [&](int component) {
             return isByte(typeOf(component)) && !(isProduct && isSigned(typeOf(component)));
           });
  };
  const dsl::ElementType element = format.element().type;
  if (!isByte(element) || !isWithin(core, format, -128, 127) || affine.slope.terms.size() != 1)
    return false;
  for (const RowNumber *number : {&affine.slope, &affine.offset})
    if (!std::all_of(number->terms.begin(), number->terms.end(), fits))
      return false;
  const RowNumber::Term &slope = affine.slope.terms[0];
  return slope.components.empty() || (slope.components.size() == 1 && slope.factor == 1 &&
                                      !isSigned(element) && !isSigned(typeOf(slope.components[0])));
}

// Codes of up to 8 bits in bytes, signed ones in offset binary.
DecodeSequence codesInBytes(dsl::ElementType type) {
  const int bits = type.bits();
  const uint32_t renamed = isSigned(type) ? 1U << (bits - 1) : 0;
  if (bits < 8) // then they are numbers of s8
    for (const SynthesizedDecode &found :
         knownDecodes(valuesOf(dsl::ElementType::get("u" + std::to_string(bits))), "s8", 0))
      if (found.sequence.log2Factor == 0)
        return withCodesRenamed(found.sequence, renamed);
  return extractBytes(type);
}

// Bytes of number + 128: sums of multiples of whole registers, whose bytes are numbers from 0 to
// 255 in the end, whatever carries on the way there.
class ByteSums {
public:
  ByteSums(const dsl::Format &format, const Affine &affine)
      : format(format), affine(affine), result(codesInBytes(format.element().type)) {}

  DecodeSequence decode() {
    const RowNumber::Term &slope = affine.slope.terms[0];
    for (size_t r = 0; r < result.registers(); ++r) {
      const int row = static_cast<int>(r & 1);
      Operand sum = constant(bytes(start()));
      for (const RowNumber::Term &term : affine.offset.terms)
        if (!term.components.empty())
          sum = plus(term, row, sum);
      const Operand factor = slope.components.empty()
                                 ? whole(slope.factor)
                                 : param(DecodeParam::Form::Byte, slope.components[0], row);
      const Operand number = p.add(Op::Mad, p.outputAt(r), factor, sum);
      p.setOutput(r, p.add(Op::Xor, number, constant(0x80808080)));
    }
    return std::move(result);
  }

private:
  const dsl::Format &format;
  const Affine &affine;
  DecodeSequence result;
  Extension extension{result, "s8"};
  DecodeProgram &p = result.program;

  // Codes in offset binary are numbers and this.
  static double biasOf(dsl::ElementType type) {
    return isSigned(type) ? std::ldexp(1.0, type.bits() - 1) : 0;
  }
  dsl::ElementType typeOf(int component) const {
    return format.components[static_cast<size_t>(component)].type;
  }
  static Operand whole(double value) {
    return constant(static_cast<uint32_t>(static_cast<int64_t>(value)));
  }
  static uint32_t bytes(double value) { return whole(value).value * 0x01010101U; }
  Operand param(DecodeParam::Form form, int component, int row) {
    return extension.param({form, component, row, {}});
  }

  // What is constant in all numbers.
  double start() const {
    double sum = 128 + affine.offset.constant() -
                 biasOf(format.element().type) * affine.slope.terms[0].factor;
    for (const RowNumber::Term &term : affine.offset.terms)
      if (!term.components.empty())
        sum -= term.factor * biasOf(typeOf(term.components[0]));
    return sum;
  }

  // `sum` and a term with components in every byte.
  Operand plus(const RowNumber::Term &term, int row, Operand sum) {
    const int first = term.components[0];
    if (term.components.size() == 1) {
      Operand value = param(DecodeParam::Form::Bytes, first, row);
      if (isSigned(typeOf(first)))
        value = p.add(Op::Xor, value, constant(bytes(biasOf(typeOf(first)))));
      return p.add(Op::Mad, value, whole(term.factor), sum);
    }
    Operand product = param(DecodeParam::Form::Byte, first, row);
    for (size_t i = 1; i < term.components.size(); ++i)
      product = p.add(Op::Mad, product, param(DecodeParam::Form::Byte, term.components[i], row),
                      constant(0));
    return p.add(Op::Mad, product, constant(bytes(term.factor)), sum);
  }
};

} // namespace

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

std::optional<Affine> affineCore(const dsl::Format &format, const dsl::Expr &core) {
  return AffineReader(format).read(core);
}

std::optional<DecodeSequence> affineDecode(const dsl::Format &format, const dsl::Expr &core,
                                           std::string_view mmaType) {
  if (core.kind == Expr::Kind::Cast && mmaType == "e4m3" && core.type->name() == mmaType) {
    const std::optional<Affine> inner = affineCore(format, *core.operands[0]);
    return inner ? roundedProduct(format, *inner) : std::nullopt;
  }
  std::optional<Affine> affine = affineCore(format, core);
  if (!affine || affine->slope.terms.empty())
    return std::nullopt;
  if (mmaType == "s8")
    return areOfBytes(format, core, *affine) ? std::optional(ByteSums(format, *affine).decode())
                                             : std::nullopt;
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
