#include "compiler/decode/NotFinite.h"

#include <algorithm>
#include <cmath>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

constexpr uint32_t signOfHalf = 0x8000;

// What register 0 holds in its low half of a code.
uint32_t laneOf(const DecodeSequence &sequence, uint32_t code) {
  std::vector<uint32_t> words(static_cast<size_t>(sequence.program.words()));
  sequence.put(code, 0, 0, words);
  return sequence.program.run(words, {})[0] & 0xffff;
}

bool isKept(double number, double lane) {
  if (std::isnan(number))
    return std::isnan(lane);
  return !std::isinf(number) || number == lane;
}

bool keepsAll(const DecodeSequence &sequence, dsl::ElementType element, dsl::ElementType operand) {
  for (uint32_t code = 0; code < 1U << element.bits(); ++code)
    if (!isKept(element.decode(code), operand.decode(laneOf(sequence, code))))
      return false;
  return true;
}

} // namespace

std::optional<DecodeSequence> keepingNotFinite(DecodeSequence halves, dsl::ElementType element,
                                               std::string_view mmaType) {
  const dsl::ElementType operand = dsl::ElementType::get(mmaType);
  if (keepsAll(halves, element, operand))
    return halves;
  uint32_t finite = 0, others = signOfHalf; // the largest magnitude, and the smallest
  for (uint32_t code = 0; code < 1U << element.bits(); ++code) {
    const uint32_t magnitude = laneOf(halves, code) & ~signOfHalf;
    if (std::isfinite(element.decode(code)))
      finite = std::max(finite, magnitude);
    else
      others = std::min(others, magnitude);
  }
  if (finite >= others)
    return std::nullopt;
  // Theirs get the exponent of all ones and keep their mantissas: zero that of infinity.
  const uint32_t exponent = signOfHalf - (1U << operand.mantissaBits()),
                 twice = signOfHalf | signOfHalf << 16;
  DecodeProgram &p = halves.program;
  for (size_t r = 0; r < halves.registers(); ++r) {
    Operand magnitude = p.add(Op::And, p.outputAt(r), constant(~twice));
    Operand top =
        p.add(Op::Mad, magnitude, constant(1),
              constant((signOfHalf - others) * 0x10001U)); // the top bit where it is theirs
    Operand mask = p.add(Op::Prmt, top, top, constant(0xbb99));
    p.setOutput(r, p.add(Op::AndOr, mask, constant(exponent * 0x10001U), p.outputAt(r)));
  }
  return keepsAll(halves, element, operand) ? std::optional(std::move(halves)) : std::nullopt;
}

} // namespace rho::compiler
