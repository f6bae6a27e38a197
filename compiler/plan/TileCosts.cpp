#include "compiler/plan/TileCosts.h"

#include "compiler/decode/RoundedProduct.h"
#include "compiler/decode/ScaleSequence.h"
#include "dsl/DeviceFields.h"
#include "dsl/Division.h"

#include <algorithm>

namespace rho::compiler {

double rateOf(const std::map<std::string, double, std::less<>> &rates, const std::string &type) {
  auto found = rates.find(type);
  if (found != rates.end())
    return found->second;
  if (type == "s4")
    return rateOf(rates, "s8");
  if (type == dsl::scaledE4m3)
    return rateOf(rates, "e4m3");
  return type == "e4m3" ? rateOf(rates, "f16") : 0;
}

double mmaPerCycle(const DeviceModel &device, const PlacedGemm &placed) {
  const std::string type = placed.blockScaling && placed.mmaType == "e4m3"
                               ? std::string(dsl::scaledE4m3)
                               : placed.mmaType;
  const double rate = rateOf(device.rates.mma, type);
  return rate > 0 ? rate : rateOf(device.rates.tensor, type);
}

namespace {

constexpr double choiceInstructions = 4; // the selector, its code, the table's places, the number
constexpr double tableInstructions = 2; // for one of four selectors in a word (tablePlacesSequence)
// Of what lookups read, as it takes time: NF4 and RaZeR x f16 and bf16 on an H200, 840 candidates
// with roles and 432 without.
constexpr double lookupShare = 0.4;

double instructionsOfEach(const DecodeProgram &program) {
  return static_cast<double>(program.instructions.size()) /
         static_cast<double>(program.outputs.size());
}

} // namespace

double parameterInstructions(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g) {
  double result = 0;
  for (const DecodeParam &param : placed.decode.params) {
    const bool isChosen = param.number.fewChoices(gemm.weight) != 0;      // from those of a k tile
    double ofNumber = 4 * static_cast<double>(param.number.terms.size()); // to f32, and back
    if (isChosen && !param.number.isOfTensor(gemm.weight))                // else before all k tiles
      result += static_cast<double>(g.rowTiles()) * ofNumber;
    using Form = DecodeParam::Form;
    const bool isAddress = param.form == Form::PairsBegin || param.form == Form::Pairs;
    if (param.form == Form::Choices || (isAddress && !param.hasNumber()))
      continue;
    const dsl::Component &component = gemm.weight.components[param.component];
    int64_t group = extentK(component);
    for (int used : param.number.uses())
      group = std::min(group, extentK(gemm.weight.components[used]));
    int64_t ofThread = g.groupsPerTile(group) / g.groupsPerChunk(group);
    auto groups = static_cast<double>(ofThread);
    double perScale = 1;
    if (param.form == Form::Pairs)
      perScale = tableInstructions;
    if (param.form == Form::Number)
      perScale = isChosen ? choiceInstructions : ofNumber;
    if (param.form == Form::LowProducts || param.form == Form::HighProducts) // both of one number
      perScale = ofNumber / 2 +
                 instructionsOfEach(productsSequence(gemm.weight.element().type, param.form));
    if (param.form == Form::Multiplier)
      perScale = instructionsOfEach(
          multiplierSequence(placed.decode, gemm.weight, param.component, placed.mmaType));
    result += groups * static_cast<double>(g.rowTiles()) * (perScale + 0.5);
  }
  return result;
}

InstructionCounts issuePerTile(const PlacedGemm &placed, const Geometry &g) {
  double fragments = static_cast<double>(g.chunks() * g.rowTiles());
  double units = fragments * static_cast<double>(g.chunkCodes()) / placed.decode.codes;
  double mmas = static_cast<double>(g.chunks() * g.stepsPerChunk() * g.rowTiles() * g.batchTiles() *
                                    placed.products());
  double activationLoads = static_cast<double>(g.chunks() * g.batchTiles() *
                                               std::max<int64_t>(1, g.stepsPerChunk() / 2));
  InstructionCounts counts = units * countDecode(placed.decode.program);
  counts.others = fragments + mmas + activationLoads + 20; // and loop, addresses, barrier
  if (placed.blockScaling) { // a word has the scales of two row tiles, or of four batch tiles
    int64_t words = g.tileK / (BlockScaling::perWord * placed.blockScaling->block);
    counts.others +=
        static_cast<double>(words * (divideUp(g.rowTiles(), 2) + divideUp(g.batchTiles(), 4)));
    for (bool ofWeight : {true, false})
      if (const std::optional<CodeSplit> &split = placed.blockScaling->split(ofWeight)) {
        int64_t registers = ofWeight ? 4 * g.rowTiles() : 2 * g.batchTiles();
        InstructionCounts each = countDecode(split->split);
        each.others += 1 + 2 / static_cast<double>(BlockScaling::perWord); // its selector
        counts += static_cast<double>(g.chunks() * g.stepsPerChunk() * registers) * each;
      }
  }
  return counts;
}

InstructionCounts scalingPerTile(const PlacedGemm &placed, const Geometry &g,
                                 dsl::ScheduleDecl::Sums sums) {
  if (placed.flushK == 0)
    return {};
  double flushes = static_cast<double>(std::max<int64_t>(1, g.tileK / placed.flushK));
  return flushes * static_cast<double>(g.rowTiles() * g.batchTiles()) * 4 *
         countScaling(placed, sums);
}

ResidualShare residualPerTile(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g) {
  ResidualShare result;
  if (!placed.storesBlocks())
    return result;
  // Loop, bits of the list, addresses: instructions a piece; and the list's of a tile.
  constexpr double perPiece = 30, perTile = 12;
  const dsl::Part &part = gemm.weight.residual->part;
  double stored = part.most();
  Geometry piece = pieceGeometry(placed, g);
  auto codes = static_cast<double>(g.tileN * g.tileK);
  if (placed.sparseBits > 0) {     // every chunk is decoded with both planes
    constexpr double perChunk = 4; // bits, addresses and the load, of some
    result.bytes = stored * codes * placed.sparseBits / 8;
    result.issued.others = perTile + perChunk * static_cast<double>(g.chunks());
    return result;
  }
  result.bytes = stored * codes * part.format->bitsPerElement() / 8;
  result.macs = stored * static_cast<double>(g.tileM * g.tileN * g.tileK);
  InstructionCounts ofPiece = issuePerTile(*placed.residual, piece);
  ofPiece += scalingPerTile(*placed.residual, piece, dsl::ScheduleDecl::Sums::Converted);
  ofPiece.others += perPiece;
  result.issued = stored * static_cast<double>(piecesOfWarp(g, piece)) * ofPiece;
  result.issued.others += perTile;
  return result;
}

TileBytes bytesPerTile(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                       const ResidualShare &residual) {
  TileBytes bytes;
  for (const StageBuffer &buffer : stageBuffers(gemm, placed, g))
    if (buffer.component != StageBuffer::pieces)
      (buffer.weight ? bytes.weight : bytes.activation) += static_cast<double>(buffer.bytes);
  bytes.weight += residual.bytes;
  return bytes;
}

double sharedTraffic(const Geometry &g, double copied) {
  int64_t activations = g.warpsN * g.tileM * g.activationRowBytes();
  return copied + static_cast<double>(g.warpsM * g.codeBytes() + activations);
}

double lookedUpShare(const DecodeSequence &decode) {
  return static_cast<double>(decode.program.lookups()) / static_cast<double>(decode.registers());
}

double lookupTraffic(const PlacedGemm &placed, const Geometry &g) {
  const int64_t operandBits = mmaRowBits / g.mmaK;
  return lookupShare * lookedUpShare(placed.decode) *
         static_cast<double>(g.warpsM * g.tileN * g.tileK * operandBits) / 8;
}

} // namespace rho::compiler
