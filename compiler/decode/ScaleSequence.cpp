#include "compiler/decode/ScaleSequence.h"

#include "dsl/DeriveEncode.h"

#include <algorithm>
#include <cmath>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

constexpr uint32_t lowTwice = 0x1010, highTwice = 0x3232; // halves of a word, by permutation
constexpr int topBit = 7;                                 // of a byte

// What multiplications with powers of two have to make of a scale's bits under a wider exponent.
int restoredLog2(dsl::ElementType type, dsl::ElementType operand, int log2Factor) {
  return type.leastExponent() - operand.leastExponent() + log2Factor;
}

// Bytes 1 and 3 of a word of four scales are made at once, then bytes 0 and 2: each, twice in its
// register.
DecodeProgram eachTwice(DecodeProgram &p, Operand even, Operand odd) {
  for (uint32_t selector : {lowTwice, highTwice})
    for (Operand pair : {even, odd})
      p.output(p.add(Op::Prmt, pair, pair, constant(selector)));
  return p;
}

// Two scales of the operands' own type.
DecodeProgram copied() {
  DecodeProgram p;
  for (uint32_t selector : {lowTwice, highTwice})
    p.output(p.add(Op::Prmt, DecodeProgram::word(), DecodeProgram::word(), constant(selector)));
  return p;
}

// Bytes that are exponents become others by an addition.
DecodeProgram movedExponents(dsl::ElementType operand, int log2Factor) {
  DecodeProgram p;
  const Operand word = DecodeProgram::word();
  const int low = operand.mantissaBits();
  const Operand more = constant(everywhere(static_cast<uint32_t>(log2Factor) << low, 16));
  const Operand even = p.add(Op::And, word, constant(0x00ff00ff));
  const Operand moved = p.add(Op::Shr, word, constant(static_cast<uint32_t>(8 - low)));
  const Operand odd = p.add(Op::And, moved, constant(everywhere(0xffU << low, 16)));
  const Operand evenMoved = p.add(Op::Mad, even, constant(1U << low), more);
  const Operand oddMoved = p.add(Op::Mad, odd, constant(1), more);
  return eachTwice(p, evenMoved, oddMoved);
}

// Bytes placed under a wider exponent, as LaneForms does with elements. What else a byte holds, a
// code in spare bits, is masked.
DecodeProgram placedScales(dsl::ElementType type, std::string_view mmaType, int log2Factor,
                           const ScaleTable &table, std::optional<int> signAt) {
  DecodeProgram p;
  const Operand word = DecodeProgram::word();
  const dsl::ElementType operand = dsl::ElementType::get(mmaType);
  const int drop = operand.mantissaBits() - type.mantissaBits();
  const int restore = restoredLog2(type, operand, log2Factor);
  const bool tabled = !table.codes.empty();
  const int largest = (1 << (operand.exponentBits() - 1)) - 1;
  const int digits = tabled ? 8 : type.exponentBits() + type.mantissaBits();
  const uint32_t field = ((1U << digits) - 1) * 0x00010001U << drop;
  Operand placed[2];
  for (int odd = 1; odd >= 0; --odd) {
    const int net = drop - (odd ? 8 : 0);
    Operand moved = word;
    if (net != 0)
      moved =
          p.add(net < 0 ? Op::Shr : Op::Shl, word, constant(static_cast<uint32_t>(std::abs(net))));
    if (tabled) {
      placed[odd] = p.add(Op::AndOr, moved, constant(field), constant(everywhere(table.rest, 16)));
      continue;
    }
    Operand value = p.add(Op::And, moved, constant(field));
    if (signAt) {
      const int up = topBit - *signAt + (odd ? 0 : 8);
      Operand top = up == 0 ? word : p.add(Op::Shl, word, constant(static_cast<uint32_t>(up)));
      value = p.add(Op::AndOr, top, constant(0x80008000), value);
    }
    for (int rest = restore; rest != 0;) { // beyond the type's range it takes two steps
      const int step = std::clamp(rest, -largest, largest);
      value = p.times(mmaType, value, DecodeProgram::number(mmaType, std::ldexp(1.0, step)));
      rest -= step;
    }
    placed[odd] = value;
  }
  return eachTwice(p, placed[0], placed[1]);
}

} // namespace

dsl::ElementType multiplierType(const dsl::Format &format, int component) {
  const dsl::Component &scale = format.components[static_cast<size_t>(component)];
  bool noSign = scale.type.name() == "e4m3" && dsl::isNeverNegative(format, scale);
  return noSign ? dsl::ElementType::get("ue4m3") : scale.type;
}

bool hasAllExponents(dsl::ElementType type, std::string_view mmaType) {
  return type.isFloat() && !type.hasSign() && type.mantissaBits() == 0 &&
         type.exponentBits() == dsl::ElementType::get(mmaType).exponentBits();
}

DecodeProgram multiplierSequence(const DecodeSequence &decode, const dsl::Format &format,
                                 int component, std::string_view mmaType) {
  const ScaleSign sign = decode.scaleSign;
  std::optional<int> signAt;
  if (sign.selector != 0)
    signAt = format.components[static_cast<size_t>(sign.selector)].shift + sign.bit;
  return *scaleSequence(multiplierType(format, component), mmaType, decode.scaleLog2,
                        decode.scaleTable, signAt);
}

int scaleHeadroom(dsl::ElementType type, std::string_view mmaType) {
  double room = dsl::ElementType::get(mmaType).maxFinite() / type.maxFinite();
  return static_cast<int>(std::floor(std::log2(room)));
}

std::optional<ScaleTable> scaleTable(dsl::ElementType type, std::string_view mmaType,
                                     int log2Factor) {
  const dsl::ElementType operand = dsl::ElementType::get(mmaType);
  const int largest = (1 << (operand.exponentBits() - 1)) - 1;
  if (!type.isFloat() || type.hasSign() || type.bits() > 8 || type.mantissaBits() == 0 ||
      operand.bits() != 16 || type.mantissaBits() > operand.mantissaBits() ||
      restoredLog2(type, operand, log2Factor) <= largest)
    return std::nullopt;
  constexpr uint32_t bytes = 256;
  const int mantissaBits = type.mantissaBits(), drop = operand.mantissaBits() - mantissaBits;
  const uint32_t ofByte = (bytes - 1) << drop;
  ScaleTable table{std::vector<uint8_t>(bytes), 0};
  std::vector<bool> isCode(bytes), isByte(bytes);
  for (uint32_t code = 0; code < 1U << type.bits(); ++code) {
    const double number = type.decode(code);
    if (!std::isfinite(number) || number <= 0)
      continue;
    const double scaled = std::ldexp(number, log2Factor);
    if (!exactIn(operand, scaled) || scaled < std::ldexp(1.0, operand.leastExponent()))
      return std::nullopt;
    const uint32_t bits = operand.encode(scaled), byte = bits >> drop & (bytes - 1);
    const uint32_t rest = bits & ~ofByte;
    if ((table.rest != 0 && table.rest != rest) || isByte[byte])
      return std::nullopt;
    table.rest = rest;
    table.codes[code] = static_cast<uint8_t>(byte);
    isCode[code] = isByte[byte] = true;
  }
  uint32_t byte = 0; // codes that are no numbers have those that are left over
  for (uint32_t code = 0; code < bytes; ++code) {
    if (isCode[code])
      continue;
    while (isByte[byte])
      ++byte;
    table.codes[code] = static_cast<uint8_t>(byte++);
  }
  return table;
}

std::optional<DecodeProgram> scaleSequence(dsl::ElementType type, std::string_view mmaType,
                                           int log2Factor, const ScaleTable &table,
                                           std::optional<int> signAt) {
  if (type.name() == mmaType && type.bits() == 16)
    return log2Factor == 0 && !signAt ? std::optional(copied()) : std::nullopt;
  if (!type.isFloat() || type.bits() > 8 || (mmaType != "f16" && mmaType != "bf16"))
    return std::nullopt;
  const dsl::ElementType operand = dsl::ElementType::get(mmaType);
  if (hasAllExponents(type, mmaType))
    return log2Factor > 0 && !signAt ? std::optional(movedExponents(operand, log2Factor))
                                     : std::nullopt;
  if (type.hasSign())
    signAt = topBit;
  if ((type.hasSign() && type.bits() != 8) || type.mantissaBits() == 0 ||
      type.exponentBits() >= operand.exponentBits() || type.mantissaBits() > operand.mantissaBits())
    return std::nullopt;
  return placedScales(type, mmaType, log2Factor, table, signAt);
}

} // namespace rho::compiler
