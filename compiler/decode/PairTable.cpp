#include "compiler/decode/PairTable.h"

#include "compiler/decode/ElementCore.h"
#include "compiler/decode/Throughput.h"

#include <cmath>

namespace rho::compiler {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

std::optional<DecodeSequence> pairDecode(const dsl::Format &format, const dsl::Expr &core,
                                         std::string_view mmaType, int log2Factor) {
  constexpr size_t codes = 16;
  const dsl::ElementType operand = dsl::ElementType::get(mmaType);
  const std::optional<ElementCore> alone = elementCore(format, core);
  if (!alone || alone->values.size() != codes || operand.bits() != 16)
    return std::nullopt;
  DecodeSequence sequence;
  DecodeProgram &p = sequence.program;
  for (uint32_t code = 0; code < codes; ++code) {
    const double value = std::ldexp(alone->values[code ^ alone->renamed], log2Factor);
    const uint32_t lane = operand.encode(value);
    if (!(std::abs(value) <= operand.maxFinite()))
      return std::nullopt;
    sequence.roundings = operand.decode(lane) == value ? sequence.roundings : 1;
    p.lanes.push_back(static_cast<uint16_t>(lane));
  }
  sequence.log2Factor = log2Factor;
  sequence.params.push_back({DecodeParam::Form::Pairs, 0, 0});
  p.params = 1;
  for (uint32_t byte = 0; byte < 4; ++byte) {
    const Operand pair =
        p.add(Op::Prmt, DecodeProgram::word(), constant(0), constant(0x4440 | byte));
    const Operand place =
        p.add(Op::Mad, pair, constant(DecodeProgram::pairStride), DecodeProgram::param(0));
    p.output(p.add(Op::Pair, place));
  }
  sequence.codes = 8;
  sequence.bits = bitsOfWholeCodes({{0, 1}, {2, 3}, {4, 5}, {6, 7}}, 4);
  return sequence;
}

bool isCheaper(const DecodeSequence &decode, const DecodeSequence &than) {
  auto cost = [](const DecodeSequence &of) {
    return static_cast<double>(cycles(countInstructions(of.program), InstructionRates())) /
           of.codes;
  };
  return decode.roundings <= than.roundings && cost(decode) < cost(than);
}

} // namespace rho::compiler
