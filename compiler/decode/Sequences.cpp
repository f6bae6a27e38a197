#include "compiler/decode/Sequences.h"

#include "compiler/decode/Affine.h"
#include "compiler/decode/Extract.h"
#include "dsl/Evaluate.h"

#include <bit>
#include <cmath>
#include <numeric>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

Operand constant(uint32_t value) { return DecodeProgram::constant(value); }

// The same number in both halves, or the same byte in all four.
uint32_t both(std::string_view type, double value) {
  uint32_t code = dsl::ElementType::get(type).encode(value);
  return code | (code << 16);
}
uint32_t fourTimes(uint32_t byte) { return byte * 0x01010101u; }

// Positions of codes for programs that take nibble pairs (r, r + 4) into register r.
std::vector<std::vector<int>> pairsAcrossHalves() { return {{0, 4}, {1, 5}, {2, 6}, {3, 7}}; }

void setPositions(DecodeSequence &sequence, const std::vector<std::vector<int>> &position,
                  int codeBits) {
  sequence.codes = 32 / codeBits;
  sequence.bits = bitsOfWholeCodes(position, codeBits);
}

Operand timesConstant(DecodeProgram &program, std::string_view mmaType, Operand x, int log2) {
  Operand factor = constant(both(mmaType, std::ldexp(1.0, log2)));
  return mmaType == "f16" ? program.add(Op::MulF16, x, factor)
                          : program.add(Op::FmaBF16, x, factor, constant(0x80008000));
}

// 4-bit integers to f16 by the exponent trick: the bits 0x6400 | u are the number 1024 + u, and
// 0x6400 | (u << 4) is 1024 + 16 u. (Kim et al., "Who says elephants can't run", 2022, section
// 3.3; Marlin.) Signed codes are stored in offset binary, u = s + 8.
DecodeSequence integerToF16(bool isSigned) {
  DecodeSequence result;
  double bias = isSigned ? 8 : 0;
  DecodeProgram &p = result.program;
  Operand shifted;
  for (int r = 0; r < 4; ++r) {
    if (r == 2)
      shifted = p.add(Op::Shr, DecodeProgram::word(), constant(8));
    Operand source = r < 2 ? DecodeProgram::word() : shifted;
    bool high = r & 1;
    Operand bits =
        p.add(Op::AndOr, source, constant(high ? 0x00f000f0 : 0x000f000f), constant(0x64006400));
    p.output(high ? p.add(Op::FmaF16, bits, constant(both("f16", 1.0 / 16)),
                          constant(both("f16", -64 - bias)))
                  : p.add(Op::AddF16, bits, constant(both("f16", -1024 - bias))));
  }
  setPositions(result, pairsAcrossHalves(), 4);
  result.codeXor = isSigned ? 8 : 0;
  return result;
}

// The same for bf16, whose 7 mantissa bits hold only the low nibble: 0x4300 | u is 128 + u.
DecodeSequence integerToBF16(bool isSigned) {
  DecodeSequence result;
  double bias = isSigned ? 8 : 0;
  DecodeProgram &p = result.program;
  for (int r = 0; r < 4; ++r) {
    Operand source =
        r == 0 ? DecodeProgram::word()
               : p.add(Op::Shr, DecodeProgram::word(), constant(static_cast<uint32_t>(4 * r)));
    Operand bits = p.add(Op::AndOr, source, constant(0x000f000f), constant(0x43004300));
    p.output(
        p.add(Op::FmaBF16, bits, constant(both("bf16", 1)), constant(both("bf16", -128 - bias))));
  }
  setPositions(result, pairsAcrossHalves(), 4);
  result.codeXor = isSigned ? 8 : 0;
  return result;
}

// A table of e4m3 codes, entry i the code of first + i: what Prmt selects from.
struct ByteTable {
  uint32_t low = 0, high = 0;
};
ByteTable e4m3From(int first) {
  ByteTable table;
  for (int i = 0; i < 8; ++i)
    (i < 4 ? table.low : table.high) |= dsl::ElementType::get("e4m3").encode(first + i)
                                        << (8 * (i % 4));
  return table;
}

// Positions of codes for programs that take four consecutive nibbles into each register.
std::vector<std::vector<int>> consecutive() { return {{0, 1, 2, 3}, {4, 5, 6, 7}}; }

// 4-bit integers to e4m3, where -8..15 are exact: one Prmt looks up four of eight bytes, so that
// codes below 8 and the others have a table each.
Operand lookUp(DecodeProgram &program, ByteTable table, Operand nibbles) {
  return program.add(Op::Prmt, constant(table.low), constant(table.high), nibbles);
}

DecodeSequence s4ToE4m3() {
  DecodeSequence result;
  DecodeProgram &p = result.program;
  Operand word = DecodeProgram::word();
  Operand index[2] = {p.add(Op::And, word, constant(0x77777777))};
  index[1] = p.add(Op::Shr, index[0], constant(16));
  // Bytes with nibbles 0 2 4 6 and 1 3 5 7 on top: repeating a nibble's top bit eight times gives
  // the mask of negative codes.
  Operand even = p.add(Op::Shl, word, constant(4));
  for (int r = 0; r < 2; ++r) {
    Operand positive = lookUp(p, e4m3From(0), index[r]);
    Operand negative = lookUp(p, e4m3From(-8), index[r]);
    Operand mask = p.add(Op::Prmt, even, word, constant(r == 0 ? 0xd9c8 : 0xfbea));
    p.output(p.add(Op::Select, mask, negative, positive));
  }
  setPositions(result, consecutive(), 4);
  return result;
}

// A nibble with bit 3 set repeats the top bit of the byte it selects, which is 0 in both tables.
DecodeSequence u4ToE4m3() {
  DecodeSequence result;
  DecodeProgram &p = result.program;
  Operand small = DecodeProgram::word();
  Operand large = p.add(Op::Xor, small, constant(0x88888888));
  for (int r = 0; r < 2; ++r) {
    if (r == 1) {
      small = p.add(Op::Shr, small, constant(16));
      large = p.add(Op::Shr, large, constant(16));
    }
    p.output(p.add(Op::Or, lookUp(p, e4m3From(0), small), lookUp(p, e4m3From(8), large)));
  }
  setPositions(result, consecutive(), 4);
  return result;
}

// e2m1 placed in e4m3: sign at bit 7, exponent and mantissa at bits 4..2. The number is
// value * 2^-6, subnormals too.
DecodeSequence e2m1ToE4m3() {
  DecodeSequence result;
  DecodeProgram &p = result.program;
  Operand word = DecodeProgram::word();
  Operand top[2] = {p.add(Op::Shl, word, constant(4)), word};
  Operand moved[2] = {p.add(Op::Shl, word, constant(2)), p.add(Op::Shr, word, constant(2))};
  for (int r = 0; r < 2; ++r) {
    Operand magnitude = p.add(Op::And, moved[r], constant(0x1c1c1c1c));
    p.output(p.add(Op::AndOr, top[r], constant(0x80808080), magnitude));
  }
  setPositions(result, {{0, 2, 4, 6}, {1, 3, 5, 7}}, 4);
  result.log2Factor = -6;
  return result;
}

// e2m1 placed under the wider exponent field: sign at bit 15, exponent and mantissa right-aligned
// to the wide type's top mantissa bit. The number is value * 2^(1 - wide bias), subnormals too.
DecodeSequence floatByPlacement(std::string_view mmaType) {
  DecodeSequence result;
  bool f16 = mmaType == "f16";
  int drop = f16 ? 3 : 6; // from bits 14..12 to the wide type's exponent and mantissa
  DecodeProgram &p = result.program;
  for (int r = 0; r < 4; ++r) {
    int left = 4 * (3 - r); // brings nibble r of each half to its top
    Operand top =
        left == 0 ? DecodeProgram::word()
                  : p.add(Op::Shl, DecodeProgram::word(), constant(static_cast<uint32_t>(left)));
    int net = left - drop;
    Operand moved = p.add(net < 0 ? Op::Shr : Op::Shl, DecodeProgram::word(),
                          constant(static_cast<uint32_t>(std::abs(net))));
    uint32_t field = 0x7000u >> drop;
    Operand magnitude = p.add(Op::And, moved, constant(field | (field << 16)));
    p.output(p.add(Op::AndOr, top, constant(0x80008000), magnitude));
  }
  setPositions(result, pairsAcrossHalves(), 4);
  result.log2Factor = f16 ? -14 : -126;
  return result;
}

// s4 to s8 by zero extension: the code in the high nibble of a byte is 16 times its value (COMET,
// section 4.3).
DecodeSequence s4ToS8() {
  DecodeSequence result;
  DecodeProgram &p = result.program;
  Operand shifted = p.add(Op::Shl, DecodeProgram::word(), constant(4));
  p.output(p.add(Op::And, shifted, constant(0xf0f0f0f0)));
  p.output(p.add(Op::And, DecodeProgram::word(), constant(0xf0f0f0f0)));
  setPositions(result, {{0, 2, 4, 6}, {1, 3, 5, 7}}, 4);
  result.log2Factor = 4;
  return result;
}

// Operands that are the packed codes themselves.
DecodeSequence unchanged(dsl::ElementType type) {
  DecodeSequence result;
  result.program.output(result.program.add(Op::Or, DecodeProgram::word(), constant(0)));
  std::vector<int> codes(static_cast<size_t>(32 / type.bits()));
  std::iota(codes.begin(), codes.end(), 0);
  setPositions(result, {codes}, type.bits());
  return result;
}

// Integer expressions over an unsigned 4-bit element, four codes to a register, one in each byte.
// Sound because every intermediate value is shown to stay in 0..255, so that nothing carries into
// the next byte (LiquidGEMM, section 4 and equation 12, is the case this was built for).
class BytewiseBuilder {
public:
  BytewiseBuilder(const dsl::Format &format) : format(format) {}

  std::optional<DecodeSequence> build(const dsl::Expr &core) {
    if (format.element().type != dsl::ElementType::get("u4"))
      return std::nullopt;
    const dsl::Expr *expr = &core;
    if (expr->kind == dsl::Expr::Kind::Cast) {
      if (expr->type != dsl::ElementType::get("s8"))
        return std::nullopt;
      expr = expr->operands[0].get();
    } else if (!within(*expr, 127)) {
      return std::nullopt; // as s8 it would be read as negative
    }
    DecodeProgram &p = sequence.program;
    Operand low = p.add(Op::And, DecodeProgram::word(), constant(0x0f0f0f0f));
    Operand shifted = p.add(Op::Shr, DecodeProgram::word(), constant(4));
    Operand high = p.add(Op::And, shifted, constant(0x0f0f0f0f));
    for (int half = 0; half < 2; ++half) {
      rowHalf = half;
      codes = half == 0 ? low : high;
      std::optional<Operand> value = bytes(*expr);
      if (!value || value->kind != Operand::Kind::Temp)
        return std::nullopt;
      p.output(*value);
    }
    setPositions(sequence, {{0, 2, 4, 6}, {1, 3, 5, 7}}, 4);
    p.params = static_cast<int>(sequence.params.size());
    return sequence;
  }

private:
  const dsl::Format &format;
  DecodeSequence sequence;
  int rowHalf = 0;
  Operand codes;

  // Whether 0 <= expr <= limit for every valid number: from the types, or from a requirement.
  bool within(const dsl::Expr &expr, int64_t limit) const {
    dsl::Range range = dsl::rangeOf(expr, format);
    if (!range.integer || range.min < 0)
      return false;
    if (range.max <= static_cast<double>(limit))
      return true;
    for (const dsl::Requirement &requirement : format.requirements)
      if (requirement.atMost && requirement.bound <= limit &&
          dsl::print(*requirement.expr, format) == dsl::print(expr, format))
        return true;
    return false;
  }

  Operand param(DecodeParam::Form form, int component) {
    DecodeParam wanted{form, component, rowHalf, {}};
    for (size_t i = 0; i < sequence.params.size(); ++i)
      if (sequence.params[i] == wanted)
        return DecodeProgram::param(static_cast<int>(i));
    sequence.params.push_back(wanted);
    return DecodeProgram::param(static_cast<int>(sequence.params.size() - 1));
  }

  static bool isElement(const dsl::Expr &expr) {
    return expr.kind == dsl::Expr::Kind::Component && expr.component == 0;
  }

  bool isByteComponent(const dsl::Expr &expr) const {
    return expr.kind == dsl::Expr::Kind::Component && !isElement(expr) &&
           format.components[expr.component].type == dsl::ElementType::get("u8");
  }

  // A value that is the same for all four codes, as one number (for multiplying) ...
  std::optional<Operand> uniformNumber(const dsl::Expr &expr) {
    if (expr.kind == dsl::Expr::Kind::Integer && expr.integer >= 0 && expr.integer <= 255)
      return constant(static_cast<uint32_t>(expr.integer));
    if (isByteComponent(expr))
      return param(DecodeParam::Form::Byte, expr.component);
    return std::nullopt;
  }
  // ... or in every byte (for adding and for bitwise operations).
  std::optional<Operand> uniformBytes(const dsl::Expr &expr) {
    if (expr.kind == dsl::Expr::Kind::Integer && expr.integer >= 0 && expr.integer <= 255)
      return constant(fourTimes(static_cast<uint32_t>(expr.integer)));
    if (isByteComponent(expr))
      return param(DecodeParam::Form::Bytes, expr.component);
    return std::nullopt;
  }

  // a * b with exactly one side uniform; the product is returned unemitted as (bytes, number).
  std::optional<std::pair<Operand, Operand>> product(const dsl::Expr &expr) {
    if (expr.kind != dsl::Expr::Kind::Binary || expr.op != dsl::Expr::Op::Mul)
      return std::nullopt;
    for (int side = 0; side < 2; ++side) {
      const dsl::Expr &varying = *expr.operands[side], &uniform = *expr.operands[1 - side];
      if (!isUniform(uniform))
        continue;
      std::optional<Operand> a = bytes(varying), b = uniformNumber(uniform);
      if (a && b)
        return std::pair(*a, *b);
    }
    return std::nullopt;
  }

  bool isUniform(const dsl::Expr &expr) const {
    return expr.kind == dsl::Expr::Kind::Integer ||
           (expr.kind == dsl::Expr::Kind::Component && !isElement(expr));
  }

  std::optional<Operand> bytes(const dsl::Expr &expr) {
    if (isElement(expr))
      return codes;
    if (expr.kind != dsl::Expr::Kind::Binary)
      return std::nullopt;
    // Sums and products must not carry; bitwise operations on bytes cannot.
    bool arithmetic = expr.op == dsl::Expr::Op::Mul || expr.op == dsl::Expr::Op::Add;
    if (arithmetic && !within(expr, 255))
      return std::nullopt;
    DecodeProgram &p = sequence.program;
    const dsl::Expr &left = *expr.operands[0], &right = *expr.operands[1];
    switch (expr.op) {
    case dsl::Expr::Op::Mul: {
      auto factors = product(expr);
      if (!factors)
        return std::nullopt;
      return p.add(Op::Mad, factors->first, factors->second, constant(0));
    }
    case dsl::Expr::Op::Add: {
      const dsl::Expr &varying = isUniform(left) ? right : left;
      std::optional<Operand> addend = uniformBytes(isUniform(left) ? left : right);
      if (!addend)
        return std::nullopt;
      if (auto factors = product(varying)) // the sum's bound covers the product's
        return p.add(Op::Mad, factors->first, factors->second, *addend);
      std::optional<Operand> value = bytes(varying);
      if (!value)
        return std::nullopt;
      return p.add(Op::Mad, *value, constant(1), *addend);
    }
    case dsl::Expr::Op::And:
    case dsl::Expr::Op::Or:
    case dsl::Expr::Op::Xor: {
      const dsl::Expr &varying = isUniform(left) ? right : left;
      std::optional<Operand> mask = uniformBytes(isUniform(left) ? left : right);
      std::optional<Operand> value = bytes(varying);
      if (!mask || !value)
        return std::nullopt;
      Op op = expr.op == dsl::Expr::Op::And  ? Op::And
              : expr.op == dsl::Expr::Op::Or ? Op::Or
                                             : Op::Xor;
      return p.add(op, *value, *mask);
    }
    default:
      return std::nullopt;
    }
  }
};

std::optional<DecodeSequence> bareElement(dsl::ElementType type, std::string_view mmaType) {
  std::string_view element = type.name();
  if (mmaType == "f16" && (element == "s4" || element == "u4"))
    return integerToF16(element == "s4");
  if (mmaType == "bf16" && (element == "s4" || element == "u4"))
    return integerToBF16(element == "s4");
  if ((mmaType == "f16" || mmaType == "bf16") && element == "e2m1")
    return floatByPlacement(mmaType);
  if (mmaType == "e4m3" && element == "s4")
    return s4ToE4m3();
  if (mmaType == "e4m3" && element == "u4")
    return u4ToE4m3();
  if (mmaType == "e4m3" && element == "e2m1")
    return e2m1ToE4m3();
  if (mmaType == "s8" && element == "s4")
    return s4ToS8();
  if (mmaType == element && type.bits() <= 8)
    return unchanged(type);
  return std::nullopt;
}

void restoreFactor(DecodeSequence &sequence, std::string_view mmaType) {
  for (int &output : sequence.program.outputs)
    output = static_cast<int>(timesConstant(sequence.program, mmaType,
                                            {Operand::Kind::Temp, static_cast<uint32_t>(output)},
                                            -sequence.log2Factor)
                                  .value);
  sequence.log2Factor = 0;
}

} // namespace

std::vector<int> planeBits(int codeBits) {
  std::vector<int> planes;
  for (auto rest = static_cast<unsigned>(codeBits); rest != 0; rest -= std::bit_floor(rest))
    planes.push_back(static_cast<int>(std::bit_floor(rest)));
  return planes;
}

std::vector<std::vector<std::vector<CodeBit>>>
bitsOfWholeCodes(const std::vector<std::vector<int>> &position, int codeBits) {
  std::vector<std::vector<std::vector<CodeBit>>> bits;
  for (const std::vector<int> &codes : position) {
    bits.emplace_back();
    for (int code : codes) {
      bits.back().emplace_back();
      for (int bit = 0; bit < codeBits; ++bit)
        bits.back().back().push_back({0, code * codeBits + bit});
    }
  }
  return bits;
}

int DecodeSequence::position(size_t r, size_t s, size_t plane) const {
  std::vector<int> planes = planeBits(static_cast<int>(bits[r][s].size()));
  int firstBit = std::accumulate(planes.begin(), planes.begin() + static_cast<int>(plane), 0);
  CodeBit at = bits[r][s][static_cast<size_t>(firstBit)];
  int firstWord = firstBit * codes / 32;
  return ((at.word - firstWord) * 32 + at.bit) / planes[plane];
}

int elementsPerRegister(std::string_view mmaType) {
  return 32 / dsl::ElementType::get(mmaType).bits();
}

std::optional<DecodeSequence> decodeSequence(const dsl::Format &format, const dsl::Expr &core,
                                             std::string_view mmaType) {
  bool bare = core.kind == dsl::Expr::Kind::Component && core.component == 0;
  std::optional<DecodeSequence> result;
  if (bare)
    result = bareElement(format.element().type, mmaType);
  if (!result && mmaType == "s8")
    result = BytewiseBuilder(format).build(core);
  if (!result)
    result =
        bare ? extractElement(format.element().type, mmaType) : affineDecode(format, core, mmaType);
  return result;
}

std::optional<DecodeSequence> withScale(DecodeSequence sequence, const dsl::Format &format,
                                        int component, std::string_view mmaType) {
  if (dsl::ElementType::get(mmaType).bits() != 16)
    return std::nullopt;
  dsl::ElementType type = format.components[component].type;
  // A power of two that the decode left out may travel in the scale instead, as far as the
  // operand type's range allows; the epilogue restores the rest.
  if (sequence.log2Factor < 0) {
    if (type.bits() > 8)
      restoreFactor(sequence, mmaType);
    else
      sequence.scaleLog2 = std::min(-sequence.log2Factor, scaleHeadroom(type, mmaType));
  }
  if (!scaleSequence(type, mmaType, sequence.scaleLog2))
    return std::nullopt;
  sequence.log2Factor += sequence.scaleLog2;
  int base = static_cast<int>(sequence.params.size());
  for (int half = 0; half < 2; ++half)
    sequence.params.push_back({DecodeParam::Form::Multiplier, component, half, {}});
  for (size_t r = 0; r < sequence.program.outputs.size(); ++r) {
    Operand value{Operand::Kind::Temp, static_cast<uint32_t>(sequence.program.outputs[r])};
    Operand scale = DecodeProgram::param(base + static_cast<int>(r & 1));
    Operand product = mmaType == "f16"
                          ? sequence.program.add(Op::MulF16, value, scale)
                          : sequence.program.add(Op::FmaBF16, value, scale, constant(0x80008000));
    sequence.program.outputs[r] = static_cast<int>(product.value);
  }
  sequence.program.params = static_cast<int>(sequence.params.size());
  return sequence;
}

DecodeSequence withoutScale(DecodeSequence sequence, std::string_view mmaType) {
  if (sequence.log2Factor < smallestUsefulLog2)
    restoreFactor(sequence, mmaType);
  return sequence;
}

DecodeSequence restored(DecodeSequence sequence, std::string_view mmaType) {
  if (sequence.log2Factor != 0)
    restoreFactor(sequence, mmaType);
  return sequence;
}

int scaleHeadroom(dsl::ElementType type, std::string_view mmaType) {
  double room = dsl::ElementType::get(mmaType).maxFinite() / type.maxFinite();
  return static_cast<int>(std::floor(std::log2(room)));
}

std::optional<DecodeProgram> scaleSequence(dsl::ElementType type, std::string_view mmaType,
                                           int log2Factor) {
  DecodeProgram p;
  Operand word = DecodeProgram::word();
  constexpr uint32_t lowTwice = 0x1010, highTwice = 0x3232;
  if (type.name() == mmaType && type.bits() == 16) {
    if (log2Factor != 0)
      return std::nullopt;
    p.output(p.add(Op::Prmt, word, word, constant(lowTwice)));
    p.output(p.add(Op::Prmt, word, word, constant(highTwice)));
    return p;
  }
  if (type.name() != "e4m3" || (mmaType != "f16" && mmaType != "bf16"))
    return std::nullopt;
  // e4m3 placed under the wider exponent field, as in floatByPlacement: bytes 1 and 3 of the word
  // at once, then bytes 0 and 2.
  bool f16 = mmaType == "f16";
  int drop = f16 ? 1 : 4;
  int restore = (f16 ? 8 : 120) + log2Factor;
  uint32_t field = 0x7f00u >> drop;
  field |= field << 16;
  Operand placed[2];
  for (int odd = 1; odd >= 0; --odd) {
    Operand top = odd ? word : p.add(Op::Shl, word, constant(8));
    int net = (odd ? 0 : 8) - drop;
    Operand moved =
        p.add(net < 0 ? Op::Shr : Op::Shl, word, constant(static_cast<uint32_t>(std::abs(net))));
    Operand value =
        p.add(Op::AndOr, top, constant(0x80008000), p.add(Op::And, moved, constant(field)));
    int rest = restore;
    int largest = f16 ? 15 : 127;
    while (rest != 0) { // powers of two beyond the type's range take two steps
      int step = std::min(rest, largest);
      value = timesConstant(p, mmaType, value, step);
      rest -= step;
    }
    placed[odd] = value;
  }
  for (uint32_t selector : {lowTwice, highTwice})
    for (Operand pair : placed)
      p.output(p.add(Op::Prmt, pair, pair, constant(selector)));
  return p;
}

} // namespace rho::compiler
