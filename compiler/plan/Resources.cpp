#include "compiler/plan/Resources.h"

#include "dsl/Division.h"

#include <algorithm>

namespace rho::compiler {

namespace {

// What a CTA's only tile needs behind its last k tile fits where its stages were, but for their
// barriers, or has a place of its own.
void placeOverStages(std::vector<SharedBuffer> &buffers, int64_t alignment) {
  // Of less it is no use: all warps wait for each other before they write there.
  constexpr int64_t fewestBytes = 8192;
  using Role = SharedBuffer::Role;
  auto isBehind = [](const SharedBuffer &buffer) {
    return buffer.role == Role::Sums || buffer.role == Role::Slices;
  };
  int64_t stages = 0, behind = 0;
  for (const SharedBuffer &buffer : buffers) {
    const int64_t bytes = roundUp(buffer.bytes * buffer.stages, alignment);
    if (buffer.role == Role::Stage && buffer.of.component != StageBuffer::barriers)
      stages += bytes;
    else if (isBehind(buffer))
      behind += bytes;
  }
  for (SharedBuffer &buffer : buffers)
    buffer.overStages = isBehind(buffer) && behind >= fewestBytes && behind <= stages;
}

} // namespace

std::vector<SharedBuffer> sharedBuffers(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                        const Geometry &g, const Schedule &schedule,
                                        const Problem &problem) {
  using Role = SharedBuffer::Role;
  std::vector<SharedBuffer> result;
  result.reserve(16); // as stageBuffers()
  const int64_t stages = bufferStages(g, schedule, problem.k);
  for (const StageBuffer &buffer : stageBuffers(gemm, placed, g))
    result.push_back({Role::Stage, buffer.bytes, stages, buffer});
  if (std::optional<PieceRing> ring = pieceRing(gemm, placed, g, stages)) {
    result.push_back({Role::Pieces, ring->pieceBytes, ring->places});
    result.push_back({Role::PiecePlaces, PieceRing::placeBytes, stages});
  }
  if (int64_t bytes = sumsBytes(g))
    result.push_back({Role::Sums, bytes, 1});
  if (std::optional<OutputSlices> slices = outputSlices(gemm, g, problem))
    result.push_back({Role::Slices, slices->bytes, slices->slots});
  if (int64_t bytes = tokenBytes(gemm, placed, g, problem))
    result.push_back({Role::Tokens, bytes, g.warpgroups()});
  if (int64_t bytes = operandBytes(g)) {
    constexpr int64_t barriers = 16;
    result.push_back({Role::Operand, bytes, operandStages(placed)});
    result.push_back({Role::OperandBarriers, barriers, operandStages(placed)});
  }
  if (const int64_t tables = placed.decode.program.tables(); tables > 0)
    result.push_back({Role::Pairs, DecodeProgram::tableBytes(tables), 1});
  if (g.specialized() && schedule.hasOneTile())
    placeOverStages(result, g.sharedAlignment());
  return result;
}

int64_t sharedBytes(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                    const Schedule &schedule, const Problem &problem) {
  const int64_t alignment = g.sharedAlignment();
  int64_t bytes = 0;
  for (const SharedBuffer &buffer : sharedBuffers(gemm, placed, g, schedule, problem))
    if (!buffer.overStages)
      bytes += roundUp(buffer.bytes * buffer.stages, alignment);
  return bytes;
}

namespace {

// What a residual adds: sums of its own and the codes of a piece.
int64_t residualRegisters(const PlacedGemm &placed, const Geometry &g) {
  if (placed.sparseBits > 0) // codes of the chunks of two batches, and where they are
    return 2 * g.rowTiles() * g.planeWords(g.sparseBits) + 8;
  if (!placed.residual)
    return 0;
  Geometry piece = pieceGeometry(placed, g);
  int64_t sums = g.rowTiles() * g.batchTiles() * 4;
  bool partial = placed.residual->flushK > 0 && placed.flushK == 0;
  int64_t codes = g.rowTiles() * piece.chunkCodes() * piece.weightBits / 32;
  return sums * (partial ? 2 : 1) + codes;
}

// Codes and row parameters on their way, sums, the activations of a chunk.
int64_t gemvRegisters(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                      int pipeline) {
  int64_t codes = g.chunks() * g.rowTiles() * g.planeWords(g.weightBits);
  for (const dsl::Component &component : gemm.weight.components)
    if (component.extent == dsl::Extent::Group)
      codes += std::max<int64_t>(1, g.tileK / g.parameterK(extentK(component))) *
               divideUp(g.rowsPerThread() * dsl::unitBits(component.type), 32);
  int64_t sums = g.rowsPerThread() * g.tileM * (placed.flushK > 0 ? 2 : 1);
  int64_t run = g.tileM * g.chunkK() / (placed.integerAccumulator ? 16 : 4);
  return codes * pipeline + sums + run + 32;
}

// Of warps that multiply by themselves, with runs of k or more batch rows than one instruction has:
// ptxas starts all loads of a k tile's activations before its first product.
int64_t loadedAhead(const Geometry &g) {
  if (g.warpgroupsMultiply() || (g.batchTiles() == 1 && !g.hasRuns))
    return 0;
  const int64_t others = (g.hasRuns ? 8 : 20) + 40 * g.rowTiles();
  return 2 * g.batchTiles() * g.tileK / g.mmaK + others;
}

// Sums, operand A of the batches on their way, codes and addresses.
int64_t specializedRegisters(const PlacedGemm &placed, const Geometry &g) {
  int64_t sums = g.rowTiles() * g.tileM / 2;
  int64_t steps = 2 * batchSteps(g) + 1;
  int64_t others = 48;
  if (placed.flushK > 0) { // with partial sums of up to two groups
    int64_t extent = std::min(placed.flushK, g.tileK);
    int64_t batch = groupBatchSteps(g, extent);
    steps = batch * (batch * g.mmaK < g.tileK ? 2 : 1);
    sums *= extent < g.tileK ? 3 : 2;
    // Many sums leave few registers for others, with which ptxas gets along in simple loops.
    constexpr int64_t fewest = 8, most = 32;
    others = std::max(fewest, most - sums / 8);
    if (g.warpsK > 1)
      others = std::max(2 * fewest, others);
    // ptxas loads scales of further groups ahead, those of columns most of all.
    if (2 * extent < g.tileK)
      others = std::max(fewest * (placed.accumulator.size() > 1 ? 8
                                  : g.warpsK > 1                ? 6
                                  : placed.integerAccumulator   ? 4
                                                                : 3),
                        others);
    // What long decodes hold, and parameters of all rows and groups.
    constexpr int longDecode = 20;
    const int64_t ofParameter = g.warpgroupsMultiply() ? 4 * g.rowTiles() * g.rowTiles() : 16;
    others += std::max(0, 8 * placed.decode.instructions() / placed.decode.codes - longDecode) +
              ofParameter * static_cast<int64_t>(placed.decode.params.size());
  } else if (g.warpgroupsMultiply() && placed.operandGroup > 0 &&
             placed.operandGroup <= g.mmaK) { // each instruction has scales of its own
    constexpr int64_t ofParameter = 2;
    others += ofParameter * g.rowTiles() * static_cast<int64_t>(placed.decode.params.size());
  }
  int64_t operand = g.decodesApart() ? 0 : g.rowTiles() * steps * 4;
  return std::max(sums + operand + others, loadedAhead(g));
}

int64_t uniformRegisters(const PlacedGemm &placed, const Geometry &g) {
  int64_t accumulators = g.rowTiles() * g.batchTiles() * 4;
  int64_t partial = accumulators * (mmaChains(g) - (placed.flushK > 0 ? 0 : 1));
  int64_t activations = g.batchTiles() * g.stepsPerChunk() * 2;
  int64_t scales = placed.flushK > 0 || !placed.decode.params.empty() ? g.rowsPerThread() * 2 : 0;
  int64_t tables = 0;
  for (bool ofWeight : {true, false})
    if (placed.blockScaling && placed.blockScaling->split(ofWeight))
      tables += ofWeight ? 12 : 4; // and operand A
  if (placed.blockScaling)
    activations *= placed.blockScaling->parts(false);
  // Sums of half an instruction's k: operands of which the other half is zero.
  int64_t halves =
      placed.flushK > 0 && placed.flushK < placed.mmaK && !placed.integerAccumulator ? 40 : 0;
  return accumulators + partial + activations + scales + tables + halves + 52;
}

// Of activations in parts the most that one has, with the scaled sums of those before.
int registersOfParts(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                     int pipeline) {
  int most = 0;
  int64_t sums = g.specialized() ? g.rowTiles() * g.tileM / 2 : g.rowTiles() * g.batchTiles() * 4;
  forEachGemm(gemm, placed, [&](const dsl::Gemm &one, const PlacedGemm &part) {
    most = std::max(most, estimateRegisters(one, part, geometryOfPart(part, g), pipeline));
  });
  bool together = std::all_of(placed.parts.begin(), placed.parts.end(), addsToSums);
  return most + (together ? 0 : static_cast<int>(sums));
}

} // namespace

int estimateRegisters(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                      int pipeline) {
  if (!placed.parts.empty())
    return registersOfParts(gemm, placed, g, pipeline);
  if (g.gemv())
    return static_cast<int>(gemvRegisters(gemm, placed, g, pipeline));
  return static_cast<int>(residualRegisters(placed, g) + (g.specialized()
                                                              ? specializedRegisters(placed, g)
                                                              : uniformRegisters(placed, g)));
}

} // namespace rho::compiler
