#include "compiler/plan/CostModel.h"

#include "compiler/LayoutMap.h"

#include "compiler/Targets.h"
#include "compiler/plan/InstructionCounts.h"
#include "compiler/plan/Resources.h"

#include <algorithm>
#include <cmath>

namespace rho::compiler {

namespace {

using Class = dsl::InstructionClass;
using Part = Cost::Part;

// A rate of the declaration, or of the operands that a product of this type is widened to.
double rateOf(const std::map<std::string, double, std::less<>> &rates, const std::string &type) {
  auto found = rates.find(type);
  if (found != rates.end())
    return found->second;
  if (type == "s4")
    return rateOf(rates, "s8");
  return type == "e4m3" ? rateOf(rates, "f16") : 0;
}

// Dense multiply-adds per cycle and SM through mma.sync; where nothing is declared, the kernel is
// not to be chosen.
double mmaPerCycle(const DeviceModel &device, const std::string &type) {
  double rate = rateOf(device.rates.mma, type);
  if (rate <= 0)
    rate = rateOf(device.rates.tensor, type);
  return std::max(rate, 1.0);
}

// Of operands that are read again and again, the share that L2 has: all up to 0.7 of its size, none
// from 1.25 on. So on A100 and H200, sets of growing size (te42kyfo/gpu-benches, gpu-l2-cache);
// Ada's L2, in one part, keeps all up to its full size (the same, L40).
double cachedShare(double bytes, const DeviceModel &device) {
  constexpr double all = 0.7, none = 1.25;
  return std::clamp((none - bytes / static_cast<double>(device.l2Bytes)) / (none - all), 0.0, 1.0);
}

// A warm device as a product of so many bytes finds it: memory as fast as it and L2 are together.
DeviceModel warmed(double bytes, DeviceModel device) {
  device.warm = false;
  double cached = cachedShare(bytes, device);
  double fromCache = std::max(device.l2BandwidthGBs, device.bandwidthGBs);
  device.bandwidthGBs = 1 / (cached / fromCache + (1 - cached) / device.bandwidthGBs);
  return device;
}

double operandBytes(const Problem &problem, double weightBits, double activationBits) {
  auto m = static_cast<double>(problem.m), n = static_cast<double>(problem.n),
       k = static_cast<double>(problem.k);
  return (n * weightBits + m * activationBits) * k / 8 + 2 * m * n;
}

constexpr double launchMicroseconds = 2.0;
constexpr double l2Share = 0.9; // of L2 that one operand can have
// One warp alone: cycles from one instruction to the next that depends on it, averaged over a k
// tile, and those of the tile's barrier, which grow with the warps that meet there. Fitted to 108
// schedules of int4 g128 x f16 at n = k = 8192, m = 1 and 16 on an H200.
constexpr double dependentCycles = 2.6;
constexpr double barrierCycles = 100;
constexpr double barrierCyclesPerWarp = 20;
constexpr int issuePerCycle = 4;   // warp instructions per cycle and SM
constexpr double issueStall = 1.3; // cycles to those that are issued
// Scaling follows the product that it scales and precedes the next one into the same registers, and
// its pipes are not kept full: cycles to those of the pipes. Fitted to APEX4's group kernels (A100
// 0.43 to 0.47 and L40S 1.9 to 2.1 times f16), on which the same constant does for both
// conversions.
constexpr double scalingStall = 2.3;
// On Hopper mma.sync takes longer than this says (NVFP4 x bf16, m = 1 and 16, on an H200; standard
// deviation 0.19), between dependent launches only where instructions are what takes long (RaZeR x
// bf16).
constexpr double uniformBesideWgmma = 1.2;
// Of launches there that overlap: the start of one, and cycles of a k tile of which the above knows
// nothing. Fitted to 1400 of int4 g128 and LiquidQuant x s8, int4 g128 and NVFP4 x bf16, RaZeR x
// f16, m = 1 and 16, at four shapes.
constexpr double uniformDependentMicroseconds = 1.48, uniformDependentCycles = 467;

constexpr double choiceInstructions = 4; // the selector, its code, the table's places, the number

// Instructions of one warp that make the decode's parameters for one k tile.
double parameterInstructions(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g) {
  double result = 0;
  for (const DecodeParam &param : placed.decode.params) {
    bool isChosen = param.number.fewChoices(gemm.weight) != 0;            // from those of a k tile
    double ofNumber = 4 * static_cast<double>(param.number.terms.size()); // to f32, and back
    if (isChosen)
      result += static_cast<double>(g.rowTiles()) * ofNumber;
    if (param.form == DecodeParam::Form::Choices)
      continue;
    const dsl::Component &component = gemm.weight.components[param.component];
    int64_t group = extentK(component);
    for (int used : param.number.uses())
      group = std::min(group, extentK(gemm.weight.components[used]));
    int64_t ofThread = g.groupsPerTile(group) / g.groupsPerChunk(group);
    auto groups = static_cast<double>(ofThread);
    double perScale = 1;
    if (param.form == DecodeParam::Form::Number)
      perScale = isChosen ? choiceInstructions : ofNumber;
    if (param.form == DecodeParam::Form::Multiplier)
      if (auto scales = scaleSequence(multiplierType(gemm.weight, param.component), placed.mmaType,
                                      placed.decode.scaleLog2))
        perScale = static_cast<double>(scales->instructions.size()) /
                   static_cast<double>(scales->outputs.size());
    result += groups * static_cast<double>(g.rowTiles()) * (perScale + 0.5);
  }
  return result;
}

// What one warp issues for one k tile, without the scaling of its accumulators.
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

// The scaling of one warp's accumulators for one k tile.
InstructionCounts scalingPerTile(const PlacedGemm &placed, const Geometry &g,
                                 dsl::ScheduleDecl::Sums sums) {
  if (placed.flushK == 0)
    return {};
  double flushes = static_cast<double>(std::max<int64_t>(1, g.tileK / placed.flushK));
  return flushes * static_cast<double>(g.rowTiles() * g.batchTiles()) * 4 *
         countScaling(placed, sums);
}

// What the stored blocks of a residual add to one k tile: expected values, as many as the budget
// allows.
struct ResidualShare {
  double bytes = 0;         // of a CTA
  double macs = 0;          // of a CTA
  InstructionCounts issued; // of a warp
};
ResidualShare residualPerTile(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g) {
  ResidualShare result;
  if (!placed.storesBlocks())
    return result;
  // Loop, bits of the list, addresses: instructions a piece; and the list's of a tile.
  constexpr double perPiece = 30, perTile = 12;
  const dsl::Part &part = gemm.weight.residual->part;
  double stored = part.budget.value_or(100) / 100;
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

// What a k tile brings into a stage's buffer but for pieces of a residual.
double copiedBytes(const StageBuffer &buffer) {
  return buffer.component == StageBuffer::pieces ? 0 : static_cast<double>(buffer.bytes);
}

// Bytes that one CTA moves in and out of shared memory for one k tile: every warp reads its codes,
// and the activations once for each group of weight rows.
double sharedTraffic(const Geometry &g, double tileBytes) {
  int64_t activations = g.warpsN * g.tileM * g.activationRowBytes();
  return tileBytes + static_cast<double>(g.warpsM * g.codeBytes() + activations);
}

// --- wgmma kernels with warps in roles. Constants fitted to the order of 7600 candidates of eight
// gemms (int4 channel, int4 g128, LiquidQuant and a residual x s8, int4 g128 and NVFP4 x bf16,
// RaZeR x f16, int4 g128 x e4m3) at seven shapes, m = 1 to 512, one in eleven a serial launch; to
// the choice among two or three plans for the cells of the llama suite; and to the times of all
// these, on an H200. What is predicted fastest takes 1.017 times the fastest of those candidates.

constexpr double sustainedClock = 0.855; // of the boost clock, under matrix load
constexpr double l2BytesPerCycle = 100;  // of one SM, in cycles of the boost clock
// What one SM gets of memory at most, in such cycles: while the next kernel loads on the SMs that
// this one leaves free, and in a last wave that leaves SMs idle.
constexpr double memoryBytesPerCycle = 27, lastMemoryBytesPerCycle = 21.5;
constexpr double rereadShare = 0.11;        // of memory's time, from L2
constexpr double instructionMinCycles = 13; // of one wgmma instruction of 8 or 16 columns, measured
constexpr double decodeIssueShare = 0.64;   // cycles of a decode's instruction to a bitwise one's
constexpr double stepCycles = 3.9;          // descriptors and the order of one step along k
constexpr double tileCycles = 54;           // barriers and addresses of one k tile
// Of one warp alone, to its issue; scaling has sums that do not depend on each other. Of its
// products a warp waits for the start of the last, and for more before it scales a tile's only
// group.
constexpr double decodeDependentFactor = 2.04, scalingDependentFactor = 1.22;
constexpr double startedShare = 0.51, waitedShare = 0.41;
constexpr double sharedSmFactor = 1.035, unevenShare = 0.3; // of CTAs that share an SM
// Where the CTAs of the next kernel find room beside all of this one, its start is hidden, the more
// the less this one computes; but where these leave few SMs free, they share the memory of theirs.
// Where they leave many, deep rings cost something, the more the more they hold.
constexpr double fewSmsFree = 0.8; // from this share of them in use
constexpr double besideMicroseconds = 2.9, besideSharpness = 6, besideLoadFactor = 1.18;
constexpr double ringKilobytes = 124, ringShare = 0.2;
// Of warps with runs of k.
constexpr double runMmaCycles = 1, runTileCycles = 58;
constexpr double runDependentFactor = 1.15, runSharedSmFactor = 1.05;
constexpr double runSharedShare = 0.67; // of what is read from shared memory, that takes time
// Of CTAs with half the rows of weights of an instruction of wgmma: 28 candidates at n = 4096, k =
// 14336, m = 1 and 16.
constexpr double narrowFactor = 0.94;
// Of three warpgroups with few rows of the batch, more with operands of 16 bits, or with many rows
// whose partial sums leave few registers to run ahead: 109 of 210 candidates at n = 6144 to 28672.
// The others took what the terms say.
constexpr double threeFactor = 1.08, threeWideFactor = 1.16;
constexpr int64_t threeMostBatch = 64;
// Of shares of k that wait for room.
constexpr double laterWavesFactor = 1.1;
constexpr double flushIssueShare = 1.25; // the same of conversion and multiply-add
constexpr double epilogueMicroseconds = 0.62, epiloguePer32KOutputs = 1.9;
constexpr double sumsPerMicrosecond = 11000; // through shared memory
constexpr double splitMicroseconds = 1.37, clusterMicroseconds = 0.58;
constexpr double streamMicroseconds = 1.29; // of equal shares of k
constexpr double startMicroseconds = 0.5, serialMicroseconds = 1.24, loadMicroseconds = 0.95;
// The loader of a residual's pieces reads which a k tile has, and waits for their places.
constexpr double pieceMicroseconds = 0.15;

// Cycles that one warp issues for one k tile.
struct WarpCycles {
  double decode, scaling;
  double sum() const { return decode + scaling; }
};
WarpCycles warpCycles(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                      const dsl::DeviceRates &rates) {
  double units =
      static_cast<double>(g.chunks() * g.rowTiles() * g.chunkCodes()) / placed.decode.codes;
  double decode =
      units * (placed.decode.instructions() + 0.5) + parameterInstructions(gemm, placed, g);
  int64_t stepsAlongK = g.tileK / g.mmaK;
  double cycles = decode * decodeIssueShare * issueCycles(Class::Lop3, rates);
  if (g.hasRuns)
    cycles += runMmaCycles * static_cast<double>(stepsAlongK * g.rowTiles() * g.batchTiles()) +
              runTileCycles;
  else
    cycles += static_cast<double>(stepsAlongK) * stepCycles + tileCycles;
  if (placed.flushK == 0)
    return {cycles, 0};
  double flushes = static_cast<double>(std::max<int64_t>(1, g.tileK / placed.flushK));
  double sums = static_cast<double>(g.rowTiles() * g.batchTiles()) * 4;
  double convert = issueCycles(Class::I2f, rates);
  double multiplies = placed.accumulator.size() > 1 ? 2 : 1; // where both operands have scales
  double perSum =
      multiplies * issueCycles(Class::Ffma, rates) + (placed.integerAccumulator ? convert : 0);
  // Between the products of a warp that multiplies alone its scales become f32.
  double scales = g.warpsMultiply ? static_cast<double>(g.rowsPerThread()) * convert : 0;
  return {cycles, flushes * (sums * flushIssueShare * perSum + scales)};
}

Cost predictSpecialized(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                        const Problem &problem, const DeviceModel &device) {
  Geometry g = makeGeometry(placed, schedule);
  double boost = device.clockGHz * 1e3, clock = boost * sustainedClock; // cycles per microsecond
  int64_t tiles = divideUp(problem.n, g.tileN) * divideUp(problem.m, g.tileM);
  int64_t tilesK = divideUp(problem.k, g.tileK);
  double ctas = 0, slots = 0, steps = 0;
  if (g.streamK) {
    slots = static_cast<double>(schedule.residentCtas);
    ctas = std::min(static_cast<double>(tiles * tilesK), slots);
    steps = std::ceil(static_cast<double>(tiles * tilesK) / ctas);
  } else {
    slots = static_cast<double>(device.smCount * schedule.ctasPerSm);
    ctas = static_cast<double>(tiles * schedule.splitK);
    steps = static_cast<double>(divideUp(tilesK, schedule.splitK));
  }
  double resident = std::min(slots / device.smCount, std::ceil(ctas / device.smCount));
  if (g.streamK) // on an SM that has any
    resident = std::max(resident, 1.0);
  double waves = std::ceil(ctas / slots);
  double active = std::min(ctas, slots);

  double weightBytes = 0, activationBytes = 0;
  ResidualShare residual = residualPerTile(gemm, placed, g);
  for (const StageBuffer &buffer : stageBuffers(gemm, placed, g))
    (buffer.weight ? weightBytes : activationBytes) += copiedBytes(buffer);
  weightBytes += residual.bytes;
  // Rows past the batch are zeros that no memory gives.
  activationBytes *= std::min(1.0, static_cast<double>(problem.m) / static_cast<double>(g.tileM));
  double bandwidth = device.bandwidthGBs * 1e3;
  double load = weightBytes * active / bandwidth;
  if (schedule.dependent && 2 * active > device.smCount) // else the next kernel has SMs of its own
    load = std::max(load, weightBytes * resident / (memoryBytesPerCycle * boost));
  if (problem.m > g.tileM) { // weights are read again from L2
    double times = std::min(4.0, static_cast<double>(divideUp(problem.m, g.tileM)));
    load *= (1 + rereadShare * (times - 1)) / times;
  }
  if (resident > 1 && ctas < slots) // some SMs have more CTAs than others
    load *= 1 + unevenShare * (resident * device.smCount / active - 1);
  bool nextBeside = schedule.dependent && schedule.splitK == 1 && schedule.ctasPerSm > 1 &&
                    slots - active >= active;
  bool fewFree = active > fewSmsFree * device.smCount;
  if (nextBeside && fewFree)
    load *= besideLoadFactor;
  double cache =
      (weightBytes + activationBytes) * active / (l2BytesPerCycle * device.smCount * boost);
  int64_t perWarpgroup = g.rowTiles() * g.tileK / g.mmaK;
  auto instructions = static_cast<double>(perWarpgroup * g.warpgroups());
  double perCycle = std::max(rateOf(device.rates.tensor, placed.mmaType), 1.0);
  double perInstruction =
      std::max(instructionMinCycles, 64.0 * static_cast<double>(g.tileM * g.mmaK) / perCycle);
  double tensor = resident * instructions * perInstruction / clock;
  if (residual.macs > 0) {
    bool together = warpgroupsShareBlocks(*gemm.weight.residual, g);
    tensor += resident * residual.macs /
              (together ? perCycle : mmaPerCycle(device, placed.mmaType)) / clock;
  }
  WarpCycles warp = warpCycles(gemm, placed, g, device.rates);
  warp.decode += residual.issued.total();
  double cycles = warp.sum();
  double warpsPerScheduler = static_cast<double>(g.warpsM * g.warpsN) / 4;
  double issue = resident * warpsPerScheduler * cycles / clock;
  // What one group of warps does for a tile one after the other; groups along k take turns.
  double own = cycles * runDependentFactor;
  if (!g.hasRuns) {
    double waited = startedShare + (placed.flushK >= g.tileK ? waitedShare : 0);
    own = warp.decode * decodeDependentFactor + warp.scaling * scalingDependentFactor +
          waited * static_cast<double>(perWarpgroup) * perInstruction;
  }
  double latency = own / static_cast<double>(g.warpsK) / clock;
  // A group of warps holds the stage that it multiplies half of the time; longer for its pieces.
  double held = static_cast<double>(schedule.warpsK) * 0.5 + (placed.storesBlocks() ? 0.5 : 0);
  double wait = loadMicroseconds / std::max(0.5, schedule.pipeline - held);
  double pieces = placed.storesBlocks() ? pieceMicroseconds : 0;
  double shared = 0; // memory, from which each warp reads all activations
  if (g.hasRuns)
    shared = runSharedShare * resident * sharedTraffic(g, weightBytes + activationBytes) /
             sharedBytesPerCycle(device) / clock;
  double factor = 1;
  if (resident > 1)
    factor *= g.hasRuns ? runSharedSmFactor : sharedSmFactor;
  if (schedule.splitK > 1 && waves > 1)
    factor *= laterWavesFactor;
  if (g.tileN <= Geometry::instructionRows / 2)
    factor *= narrowFactor;
  if (g.warpgroups() == 3) {
    bool scales = placed.flushK > 0, few = g.tileM <= threeMostBatch;
    if (placed.isWide() && few)
      factor *= threeWideFactor;
    else if (scales != few)
      factor *= threeFactor;
  }
  // With shares of memory's time, of the CTAs that run at a time, and of those of an SM.
  auto stepOf = [&](double ofMemory, double ofAll, double ofSm) {
    constexpr double sharpness = 4;
    double sum = 0;
    for (double part : {load * ofMemory, cache * ofAll, issue * ofSm, tensor * ofSm, shared * ofSm,
                        latency, wait, pieces})
      sum += std::pow(part, sharpness);
    return factor * std::pow(sum, 1 / sharpness);
  };
  double step = stepOf(1, 1, 1), lastStep = step; // of the last wave
  if (!g.streamK) {
    double last = ctas - (waves - 1) * slots, share = last / active;
    double ofSms = lastMemoryBytesPerCycle * boost * device.smCount;
    lastStep = stepOf(std::min(1.0, std::max(share, bandwidth / ofSms)), share,
                      std::ceil(last / device.smCount) / resident);
  }
  double outputs = static_cast<double>(g.tileM * g.tileN);
  double epilogue = epilogueMicroseconds + outputs * resident / 32768 * epiloguePer32KOutputs;
  int64_t otherSums = g.warpsK - 1 + g.clusterK - 1;
  double tail = outputs * static_cast<double>(otherSums) / sumsPerMicrosecond;
  if (g.clusterK > 1)
    tail += clusterMicroseconds;
  else if (schedule.splitK != 1) // through memory
    tail +=
        (g.streamK ? streamMicroseconds : splitMicroseconds) + ctas * outputs * 8 / (bandwidth * 2);
  double finished = waves; // outputs of a CTA, one after the other
  if (g.streamK)           // the first and the last of them in part
    finished = steps / static_cast<double>(tilesK) + 1;
  // The first tile fills the ring.
  double start = startMicroseconds + (schedule.dependent ? 0 : serialMicroseconds) + step;
  if (nextBeside)
    start = std::max(0.0, start - besideMicroseconds *
                                      std::pow(std::min(1.0, load / step), besideSharpness));
  if (!fewFree) {
    double ring = schedule.pipeline * (weightBytes + activationBytes) - ringKilobytes * 1024;
    tail += ringShare * std::max(0.0, ring) * device.smCount / bandwidth;
  }
  Cost cost;
  cost.microseconds = start + ((waves - 1) * step + lastStep) * steps + finished * epilogue + tail;
  double all = waves * steps;
  cost[Part::Load] = all * std::max(load, cache);
  cost[Part::Decode] = all * issue * warp.decode / cycles;
  cost[Part::Scaling] = all * issue * warp.scaling / cycles;
  cost[Part::Tensor] = all * tensor;
  cost[Part::Latency] = all * std::max(latency, wait);
  cost[Part::Overhead] = start + finished * epilogue + tail;
  return cost;
}

Cost predictUniform(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                    const Problem &problem, const DeviceModel &device) {
  Geometry g = makeGeometry(placed, schedule);
  double clock = device.clockGHz * 1e3; // cycles per microsecond
  int64_t perCta = sharedBytes(gemm, placed, g, schedule, problem);
  int registers = estimateRegisters(gemm, placed, g, schedule.pipeline);
  int64_t perSm = std::min({device.sharedPerSm / (perCta + DeviceModel::reservedPerCta),
                            device.registersPerSm / (registers * g.threads()),
                            device.threadsPerSm / g.threads()});
  perSm = std::max<int64_t>(perSm, 1);
  int64_t tiles = divideUp(problem.n, g.tileN) * divideUp(problem.m, g.tileM);
  int64_t tilesK = divideUp(problem.k, g.tileK);
  int64_t ctas = tiles * schedule.splitK;
  int64_t steps = divideUp(tilesK, schedule.splitK == 0 ? 1 : schedule.splitK);
  if (g.streamK) {
    ctas = std::min(tiles * tilesK, schedule.residentCtas);
    steps = divideUp(tiles * tilesK, ctas);
    perSm = schedule.ctasPerSm;
  }
  double waves = std::ceil(static_cast<double>(ctas) / static_cast<double>(perSm * device.smCount));
  // CTAs that share an SM in a full or in the only wave.
  double resident =
      std::min(static_cast<double>(perSm), std::ceil(static_cast<double>(ctas) / device.smCount));
  double active =
      std::min<double>(static_cast<double>(ctas), static_cast<double>(perSm * device.smCount));

  // Activations of one batch tile are shared by all CTAs of a row and come from L2. Weights are
  // read from memory once, if they stay in L2 until the next batch tile. If not, the CTAs of a grid
  // that run side by side on the same weights share them; CTAs with equal shares of k are each at
  // another place (APEX4's RTX 3090 and A40).
  double batches = static_cast<double>(divideUp(problem.m, g.tileM));
  double activationTile = 0, weightTile = 0;
  ResidualShare residual = residualPerTile(gemm, placed, g);
  for (const StageBuffer &buffer : stageBuffers(gemm, placed, g))
    (buffer.weight ? weightTile : activationTile) += copiedBytes(buffer);
  weightTile += residual.bytes;
  double tileBytes = weightTile + 0.3 * activationTile;
  auto tilesN = static_cast<double>(divideUp(problem.n, g.tileN));
  double weights = weightTile * tilesN * static_cast<double>(tilesK);
  double fromMemory = tileBytes / batches;
  if (weights >= l2Share * static_cast<double>(device.l2Bytes)) {
    double sideBySide = active / (tilesN * static_cast<double>(schedule.splitK));
    double readers = g.streamK ? 1 : std::clamp(sideBySide, 1.0, batches);
    fromMemory = weightTile / readers + 0.3 * activationTile;
  }
  double bandwidth = device.bandwidthGBs * 1e3 * 0.9; // bytes per microsecond, as copies reach it
  double load = std::max(fromMemory * active / bandwidth,
                         memoryLatencyMicroseconds / std::max(1, schedule.pipeline - 1));
  double warps = resident * static_cast<double>(schedule.warpsM * schedule.warpsN); // of an SM
  InstructionCounts perWarp = issuePerTile(placed, g),
                    scaling = scalingPerTile(placed, g, schedule.sums);
  perWarp.others += parameterInstructions(gemm, placed, g);
  perWarp += residual.issued;
  double issued = perWarp.total() + scaling.total();
  bool overlaps = schedule.dependent && targetOf(device.target).hasWgmma;
  double issue = warps * issued / issuePerCycle / clock * issueStall;
  if (overlaps)
    issue *= uniformBesideWgmma;
  double pipes = warps * pipeCycles(perWarp, device.rates).slowest() / clock;
  double macs =
      static_cast<double>(g.tileM * g.tileN * g.tileK * placed.products()) + residual.macs;
  double tensor = resident * macs / mmaPerCycle(device, placed.mmaType) / clock;
  double scale = scalingStall * warps * pipeCycles(scaling, device.rates).sum() / clock;
  double shared = resident * sharedTraffic(g, tileBytes) / sharedBytesPerCycle(device) / clock;
  // One warp's own dependences. CTAs of an SM overlap theirs.
  double own = static_cast<double>(schedule.warpsM * schedule.warpsN);
  double cycles = barrierCycles + barrierCyclesPerWarp * own + dependentCycles * issued;
  double latency = (cycles + (overlaps ? uniformDependentCycles : 0)) / clock;
  // The slowest decides; the others hide behind it the less the closer they come.
  constexpr double sharpness = 4;
  double step = 0;
  for (double part : {load, issue, pipes, tensor + scale, shared, latency})
    step += std::pow(part, sharpness);
  step = std::pow(step, 1 / sharpness);
  // Each tile of a CTA begins with an empty pipeline.
  double starts = waves * (g.streamK ? static_cast<double>(divideUp(steps, tilesK) + 1) : 1);
  double start = overlaps ? uniformDependentMicroseconds
                          : launchMicroseconds + starts * memoryLatencyMicroseconds;
  double outputBytes = static_cast<double>(problem.m * problem.n) * 2;
  double epilogue = 0.5 + outputBytes / bandwidth;
  if (schedule.splitK != 1)
    epilogue += 1.0 + static_cast<double>(ctas * g.tileM * g.tileN) * 8 / (bandwidth * 2);
  double all = waves * static_cast<double>(steps);
  Cost cost;
  cost.microseconds = start + all * step + epilogue;
  if (targetOf(device.target).hasWgmma && !overlaps)
    cost.microseconds *= uniformBesideWgmma;
  cost[Part::Load] = all * load;
  cost[Part::Decode] = all * std::max(issue, pipes);
  cost[Part::Tensor] = all * tensor;
  cost[Part::Scaling] = all * scale;
  cost[Part::Shared] = all * shared;
  cost[Part::Latency] = all * latency;
  cost[Part::Overhead] = start + epilogue;
  return cost;
}

} // namespace

double predictLibraryMicroseconds(const Problem &problem, const std::string &type,
                                  const DeviceModel &device) {
  int bits = dsl::ElementType::get(type).bits();
  double bytes = operandBytes(problem, bits, bits);
  if (device.warm)
    return predictLibraryMicroseconds(problem, type, warmed(bytes, device));
  // Of the peaks, as libraries reach them; Hopper's clock falls under matrix load (cuBLASLt on an
  // H200, results/h200/llama.csv: 0.94 of what was measured, standard deviation 0.08).
  constexpr double memoryShare = 0.9;
  double tensorShare = 0.85 * (targetOf(device.target).hasWgmma ? sustainedClock : 1);
  double memory = bytes / (device.bandwidthGBs * 1e3 * memoryShare);
  double perMicrosecond =
      rateOf(device.rates.tensor, type) * device.smCount * device.clockGHz * 1e3;
  double macs = static_cast<double>(problem.m * problem.n) * static_cast<double>(problem.k);
  double tensor = macs / std::max(perMicrosecond * tensorShare, 1.0);
  return launchMicroseconds + std::hypot(memory, tensor);
}

Cost predict(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
             const Problem &problem, const DeviceModel &device) {
  if (device.warm) {
    double bytes =
        operandBytes(problem, gemm.weight.bitsPerElement(), gemm.activation.bitsPerElement());
    return predict(gemm, placed, schedule, problem, warmed(bytes, device));
  }
  if (!placed.parts.empty())
    return predictParts(gemm, placed, schedule, problem, device);
  switch (schedule.roles) {
  case dsl::ScheduleDecl::Roles::Uniform:
    return predictUniform(gemm, placed, schedule, problem, device);
  case dsl::ScheduleDecl::Roles::Gemv:
    return predictGemv(gemm, placed, schedule, problem, device);
  case dsl::ScheduleDecl::Roles::ImFP:
  case dsl::ScheduleDecl::Roles::ExCP:
    break;
  }
  return predictSpecialized(gemm, placed, schedule, problem, device);
}

} // namespace rho::compiler
