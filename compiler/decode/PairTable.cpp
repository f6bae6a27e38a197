#include "compiler/decode/PairTable.h"

#include "compiler/decode/ElementCore.h"
#include "compiler/decode/Remap.h"
#include "compiler/decode/Throughput.h"

#include <algorithm>
#include <cmath>
#include <utility>

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
  // Where row halves may have other selectors, each has half of a word, as permutations want it.
  const bool ofRows = p.tables() > 1;
  const uint32_t rowHalves = ofRows ? 2 : 1;
  for (uint32_t half = 0; half < rowHalves; ++half)
    sequence.params.push_back({DecodeParam::Form::Pairs, 0, static_cast<int>(half), number});
  sequence.params.push_back({DecodeParam::Form::PairsBegin, 0, 0});
  p.params = static_cast<int>(sequence.params.size());
  const Operand begin = DecodeProgram::param(p.params - 1);
  std::vector<std::vector<int>> positions;
  for (uint32_t r = 0; r < 4; ++r) { // bytes stand behind the lowest of an address
    const uint32_t byte = ofRows ? r % 2 * 2 + r / 2 : r;
    positions.push_back({static_cast<int>(2 * byte), static_cast<int>(2 * byte + 1)});
    const Operand ofRow = DecodeProgram::param(static_cast<int>(r % rowHalves));
    const Operand place =
        p.add(Op::Prmt, DecodeProgram::word(), ofRow, constant(0x7604 | byte << 4));
    p.output(p.add(Op::Pair, place, begin));
  }
  sequence.codes = 8;
  sequence.bits = bitsOfWholeCodes(positions, 4);
  return sequence;
}

namespace {

// `pairs` of codes that are stored as `owner` says.
DecodeSequence renamedAs(const DecodeSequence &owner, DecodeSequence pairs) {
  std::vector<uint16_t> &lanes = pairs.program.lanes;
  const std::vector<uint16_t> before = lanes;
  for (uint32_t i = 0; i < lanes.size(); ++i) {
    const uint32_t code = i % DecodeProgram::lanesOfTable;
    lanes[i - code + owner.stored(code)] = before[i];
  }
  pairs.codeXor = owner.codeXor;
  pairs.codeTable = owner.codeTable;
  return pairs;
}

// A sequence whose words are those of a chunk, one unit of 8 codes after the other.
class Units {
public:
  explicit Units(DecodeSequence pairs) : all(std::move(pairs)) {
    all.program.instructions.clear();
    all.program.outputs.clear();
    all.bits.clear();
    all.codes = 0;
  }

  void add(const DecodeSequence &unit) {
    const int word = all.codes / unit.codes;
    DecodeProgram program = unit.program;
    for (DecodeInstr &instr : program.instructions)
      for (Operand &operand : instr.operands) {
        if (operand.kind == Operand::Kind::Word)
          operand.value += static_cast<uint32_t>(word);
        if (operand.kind == Operand::Kind::Param)
          operand.value = placeOf(unit.params[operand.value]);
      }
    all.program.append(program);
    for (auto ofRegister : unit.bits) {
      for (auto &code : ofRegister)
        for (CodeBit &bit : code)
          bit.word += word;
      all.bits.push_back(std::move(ofRegister));
    }
    all.codes += unit.codes;
    all.roundings = std::max(all.roundings, unit.roundings);
  }

  DecodeSequence take() && { return std::move(all); }

private:
  DecodeSequence all;

  // Groups whose scale is negative hold the opposite numbers.
  uint32_t placeOf(DecodeParam param) {
    if (param.form != DecodeParam::Form::Pairs && all.scaleSign.selector != 0)
      param.number = param.number.negatedWhere(all.scaleSign.selector, all.scaleSign.bit);
    return static_cast<uint32_t>(all.param(param));
  }
};

} // namespace

std::optional<DecodeSequence> mixedDecode(const DecodeSequence &pairs,
                                          const DecodeSequence &registers) {
  if (registers.bits != pairs.bits || registers.log2Factor != pairs.log2Factor ||
      registers.scaleLog2 != pairs.scaleLog2 || !registers.scaleTable.codes.empty())
    return std::nullopt;
  Units units(renamedAs(registers, pairs));
  for (int word = 0; word < mixedWords; ++word)
    units.add(word + 1 < mixedWords ? pairs : registers);
  return std::move(units).take();
}

bool isCheaper(const DecodeSequence &decode, const DecodeSequence &than) {
  auto cost = [](const DecodeSequence &of) {
    return static_cast<double>(cycles(countInstructions(of.program), InstructionRates())) /
           of.codes;
  };
  return decode.roundings <= than.roundings && cost(decode) < cost(than);
}

} // namespace rho::compiler
