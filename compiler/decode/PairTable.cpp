#include "compiler/decode/PairTable.h"

#include "compiler/decode/ElementCore.h"
#include "compiler/decode/Remap.h"
#include "compiler/decode/Throughput.h"

#include <cmath>

namespace rho::compiler {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

std::optional<DecodeSequence> pairDecode(const dsl::Format &format, const dsl::Expr &core,
                                         std::string_view mmaType, int log2Factor) {
  if (format.element().remap)
    return isBareElement(core) ? remappedPairs(format, mmaType, log2Factor) : std::nullopt;
  const dsl::ElementType operand = dsl::ElementType::get(mmaType);
  const std::optional<ElementCore> alone = elementCore(format, core);
  if (!alone || alone->values.size() != DecodeProgram::lanesOfTable || operand.bits() != 16)
    return std::nullopt;
  std::vector<uint16_t> lanes;
  int roundings = 0;
  for (uint32_t code = 0; code < DecodeProgram::lanesOfTable; ++code) {
    const double value = std::ldexp(alone->values[code ^ alone->renamed], log2Factor);
    const uint32_t lane = operand.encode(value);
    if (!(std::abs(value) <= operand.maxFinite()))
      return std::nullopt;
    roundings = operand.decode(lane) == value ? roundings : 1;
    lanes.push_back(static_cast<uint16_t>(lane));
  }
  DecodeSequence sequence = pairSequence(std::move(lanes), {});
  sequence.roundings = roundings;
  sequence.log2Factor = log2Factor;
  return sequence;
}

DecodeSequence pairSequence(std::vector<uint16_t> lanes, const RowNumber &number) {
  DecodeSequence sequence;
  DecodeProgram &p = sequence.program;
  p.lanes = std::move(lanes);
  const uint32_t rowHalves = p.tables() > 1 ? 2 : 1; // which may have other selectors
  for (uint32_t half = 0; half < rowHalves; ++half)
    sequence.params.push_back({DecodeParam::Form::Pairs, 0, static_cast<int>(half), number});
  sequence.params.push_back({DecodeParam::Form::PairsBegin, 0, 0});
  p.params = static_cast<int>(sequence.params.size());
  const Operand begin = DecodeProgram::param(p.params - 1);
  for (uint32_t byte = 0; byte < 4; ++byte) { // behind the lowest of an address
    const Operand ofRow = DecodeProgram::param(static_cast<int>(byte % rowHalves));
    const Operand place =
        p.add(Op::Prmt, DecodeProgram::word(), ofRow, constant(0x7604 | byte << 4));
    p.output(p.add(Op::Pair, place, begin));
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
