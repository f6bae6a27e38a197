// Predictions for wgmma kernels, whose warps have roles.
#include "compiler/decode/Throughput.h"
#include "compiler/plan/CostModel.h"

#include "compiler/plan/TileCosts.h"
#include "dsl/Division.h"

#include <algorithm>
#include <cmath>

namespace rho::compiler {

using Class = dsl::InstructionClass;
using Part = Cost::Part;

namespace {

// Constants fitted to the order of 8100 candidates of eleven gemms (int4 channel, int4 g128,
// LiquidQuant and a residual x s8, int4 g128, NVFP4, MXFP4, NF4 and RaZeR x bf16, RaZeR x f16,
// int4 g128 x e4m3) at seven shapes, m = 1 to 512, one in eleven a serial launch; to the choice
// among two or three plans for the cells of the llama suite; and to the times of all these, on an
// H200. What is predicted fastest takes 1.015 times the fastest of those candidates, 1.007 times
// that of 654 more for few rows of the batch (results/h200/candidates_few.csv), and 1.004 and 1.007
// times that of 1820 for the depth of rings (candidates_rings.csv).

constexpr double l2BytesPerCycle = 100; // of one SM, in cycles of the boost clock
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
// Of what looks numbers up in shared memory and waits for them: by warps of wgmma or with runs of
// k, or by others, whose products fill the wait.
constexpr double lookupFactor = 1.4, lookupAloneFactor = 0.78;
// Of the cycles of a decode's busiest pipe, where that has nearly all instructions.
constexpr double busiestShare = 0.7;
// Of CTAs that share an SM. With few rows of the batch the one works while the other's ring fills.
constexpr double sharedSmFactor = 1.02, unevenShare = 0.3, sharedFillShare = 0.65;
constexpr int64_t sharedFillRows = 16;
// Where the CTAs of the next kernel find room beside all of this one, its start is hidden, the more
// the less this one computes. Of few rows less of it is where these leave fewer SMs free, since on
// some SMs both CTAs are then of one kernel; and where they leave few, the next shares the memory
// of theirs.
constexpr double besideMicroseconds = 2.9, besideSharpness = 6, besideLoadFactor = 1.1;
constexpr double shownMicroseconds = 1, besideFree = 0.5; // where more than this share is in use
constexpr int64_t shownRows = 8, shownRowsIfFewFree = 16;
constexpr double fewSmsFree = 0.8; // from this share in use
// Of what rings hold of the weight: memory is used the better the more is on its way, up to so much
// an SM, or most of what its CTAs read. What is more than the other so much is loaded ahead of what
// other SMs wait for: a share of its time, the more the longer the kernel computes for each load,
// and most where all SMs start together. 566 candidates, most of which differ in stages alone, m =
// 1, 8 and 16, and 1254 of two plans each for m = 1 to 256 (results/h200/candidates_rings.csv).
constexpr double flightKilobytes = 152, flightOfAll = 0.8, flightShare = 0.08;
constexpr double ringKilobytes = 80, ringShare = 0.137, ringComputeShare = 0.45,
                 ringSerialShare = 0.38;
// Of warps with runs of k.
constexpr double runMmaCycles = 1, runTileCycles = 58;
constexpr double runDependentFactor = 1.15;
// Of what warps that multiply by themselves read from shared memory, that takes time.
constexpr double sharedShare = 0.67;
// Of CTAs with half the rows of weights of an instruction of wgmma: 28 candidates at n = 4096, k =
// 14336, m = 1 and 16.
constexpr double narrowFactor = 0.94;
// Of three warpgroups with few rows of the batch, or with many rows whose partial sums leave few
// registers to run ahead: 109 of 210 candidates at n = 6144 to 28672. The others took what the
// terms say. More where numbers are looked up in shared memory.
constexpr double threeFactor = 1.08, threeWideFactor = 1.07, threeLookupFactor = 1.16;
constexpr int64_t threeMostBatch = 64;
// Of shares of k that wait for room.
constexpr double laterWavesFactor = 1.1;
// Of CTAs that share activations where they have turns, and where each has one tile: int4 g128 x
// bf16 and LiquidQuant (results/h200/clusters.csv of commit c25de6d8; that of now says 0.986).
constexpr double sharedInTurnsFactor = 0.97, sharedOnceFactor = 1.03;
constexpr double flushIssueShare = 1.25; // the same of conversion and multiply-add
constexpr double epilogueMicroseconds = 0.62, epiloguePer32KOutputs = 1.9;
// What of it is saved where each CTA has one whole tile with many rows: no loop, and outputs over
// the stages.
constexpr double oneTileMicroseconds = 0.25;
constexpr int64_t oneTileRows = 64;
constexpr double sumsPerMicrosecond = 11000; // through shared memory
constexpr double splitMicroseconds = 1.37, clusterMicroseconds = 0.73;
constexpr double streamMicroseconds = 1.29; // of equal shares of k
constexpr double startMicroseconds = 0.5, serialMicroseconds = 1.05, loadMicroseconds = 0.87;
// The loader of a residual's pieces reads which a k tile has, and waits for their places.
constexpr double pieceMicroseconds = 0.15;
// Places for them that are seldom full cost time, too, for each stage more than a few.
constexpr double stageOfPieces = 0.005;
constexpr int64_t fewStages = 5;

// Cycles that one warp issues for one k tile.
struct WarpCycles {
  double decode, scaling;
  double lookups = 0; // of decode
  double sum() const { return decode + scaling; }
};
WarpCycles warpCycles(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                      const dsl::DeviceRates &rates) {
  double units =
      static_cast<double>(g.chunks() * g.rowTiles() * g.chunkCodes()) / placed.decode.codes;
  const DecodeProgram &program = placed.decode.program;
  const double busiest = busiestShare * cycles(countInstructions(program), InstructionRates());
  double decode = units * (std::max<double>(placed.decode.instructions(), busiest) + 0.5) +
                  parameterInstructions(gemm, placed, g);
  int64_t stepsAlongK = g.tileK / g.mmaK;
  const double perInstruction = decodeIssueShare * issueCycles(Class::Lop3, rates);
  const double lookups = lookedUpShare(placed.decode) * units * busiest * perInstruction;
  double ofWarp = decode * perInstruction;
  if (g.hasRuns)
    ofWarp += runMmaCycles * static_cast<double>(stepsAlongK * g.rowTiles() * g.batchTiles()) +
              runTileCycles;
  else
    ofWarp += static_cast<double>(stepsAlongK) * stepCycles + tileCycles;
  if (placed.flushK == 0)
    return {ofWarp, 0, lookups};
  double flushes = static_cast<double>(std::max<int64_t>(1, g.tileK / placed.flushK));
  double sums = static_cast<double>(g.rowTiles() * g.batchTiles()) * 4;
  double convert = issueCycles(Class::I2f, rates);
  double multiplies = placed.accumulator.size() > 1 ? 2 : 1; // where both operands have scales
  double perSum =
      multiplies * issueCycles(Class::Ffma, rates) + (placed.integerAccumulator ? convert : 0);
  // Between the products of a warp that multiplies alone its scales become f32.
  double scales = g.warpsMultiply ? static_cast<double>(g.rowsPerThread()) * convert : 0;
  return {ofWarp, flushes * (sums * flushIssueShare * perSum + scales), lookups};
}

// Times are in microseconds, of one k tile where nothing else is said.
class Specialized : PredictedKernel {
public:
  Specialized(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
              const Problem &problem, const DeviceModel &device)
      : PredictedKernel{gemm, placed, schedule, problem, device}, boost(device.clockGHz * 1e3),
        clock(boost * sustainedClock), bandwidth(device.bandwidthGBs * 1e3),
        warp(warpCycles(gemm, placed, g, device.rates)) {
    // Rows past the batch are zeros that no memory gives.
    bytes.activation *=
        std::min(1.0, static_cast<double>(problem.m) / static_cast<double>(g.tileM));
    warp.decode += residual.issued.total();
    occupy();
    times();
  }

  Cost cost() const {
    double step = stepOf(1, 1, 1), lastStep = step; // of the last wave
    if (!g.streamK) {
      double last = ctas - (waves - 1) * slots, share = last / active;
      double ofSms = lastMemoryBytesPerCycle * boost * device.smCount;
      lastStep = stepOf(std::min(1.0, std::max(share, bandwidth / ofSms)), share,
                        std::ceil(last / device.smCount) / resident);
    }
    double outputs = static_cast<double>(g.tileM * g.tileN);
    const bool oneTile = schedule.hasOneTile() && schedule.splitK == 1 && g.tileM >= oneTileRows;
    double epilogue = epilogueMicroseconds - (oneTile ? oneTileMicroseconds : 0) +
                      outputs * resident / 32768 * epiloguePer32KOutputs;
    double finished = waves; // outputs of a CTA, one after the other
    if (g.streamK)           // the first and the last of them in part
      finished = steps / static_cast<double>(tilesK) + 1;
    double start = startOf(step), tail = tailOf(outputs, step);
    double all = waves * steps;
    Cost cost;
    cost.microseconds =
        start + ((waves - 1) * step + lastStep) * steps + finished * epilogue + tail;
    cost[Part::Load] = all * std::max(load, cache);
    cost[Part::Decode] = all * issue * warp.decode / warp.sum();
    cost[Part::Scaling] = all * issue * warp.scaling / warp.sum();
    cost[Part::Tensor] = all * tensor;
    cost[Part::Latency] = all * std::max(latency, wait);
    cost[Part::Overhead] = start + finished * epilogue + tail;
    return cost;
  }

private:
  const double boost, clock, bandwidth; // cycles and bytes per microsecond
  WarpCycles warp;

  int64_t tilesK = 0;
  double ctas = 0, slots = 0, steps = 0; // all CTAs, those at a time, k tiles of one
  double waves = 0, active = 0;          // of CTAs, those of a full or of the only wave
  double resident = 0;                   // of these on an SM
  bool nextBeside = false, fewFree = false;

  double load = 0, cache = 0, issue = 0, tensor = 0, shared = 0; // shared memory
  double latency = 0, wait = 0, pieces = 0;
  double factor = 1; // of all

  void occupy() {
    int64_t tiles = outputTiles(problem, g.tileM, g.tileN);
    tilesK = divideUp(problem.k, g.tileK);
    if (g.streamK) {
      slots = static_cast<double>(schedule.residentCtas);
      ctas = std::min(static_cast<double>(tiles * tilesK), slots);
      steps = std::ceil(static_cast<double>(tiles * tilesK) / ctas);
    } else {
      slots = static_cast<double>(device.smCount * schedule.ctasPerSm);
      ctas = static_cast<double>(tiles * schedule.splitK);
      steps = static_cast<double>(divideUp(tilesK, schedule.splitK));
    }
    resident = std::min(slots / device.smCount, std::ceil(ctas / device.smCount));
    if (g.streamK) // on an SM that has any
      resident = std::max(resident, 1.0);
    waves = std::ceil(ctas / slots);
    active = std::min(ctas, slots);
    nextBeside = schedule.dependent && schedule.splitK == 1 && schedule.ctasPerSm > 1 &&
                 slots - active >= active;
    fewFree = active > fewSmsFree * device.smCount;
  }

  void times() {
    int64_t perWarpgroup = g.rowTiles() * g.tileK / g.mmaK; // instructions
    const double perCycle = rateOf(device.rates.tensor, placed.mmaType);
    double perInstruction =
        std::max(instructionMinCycles, 64.0 * static_cast<double>(g.tileM * g.mmaK) / perCycle);
    load = loadOf();
    cache = bytes.all() * active / (l2BytesPerCycle * device.smCount * boost);
    double instructions = static_cast<double>(perWarpgroup * g.warpsN) / 4;
    tensor = resident * instructions * perInstruction / clock;
    if (residual.macs > 0) {
      bool together = warpgroupsShareBlocks(*gemm.weight.residual, g);
      tensor +=
          resident * residual.macs / (together ? perCycle : mmaPerCycle(device, placed)) / clock;
    }
    // Of one group along k: in the mean, and of the scheduler that has most of them.
    double warpsPerScheduler = static_cast<double>(g.warpsN) / 4;
    double mostPerScheduler =
        static_cast<double>(divideUp(g.warpsN * g.warpsK, 4)) / static_cast<double>(g.warpsK);
    issue = resident * (warpsPerScheduler + mostPerScheduler) / 2 * warp.sum() / clock;
    // What one group of warps does for a tile one after the other; groups along k take turns.
    const double slower = g.warpsMultiply && !g.hasRuns ? lookupAloneFactor : lookupFactor;
    const double waits = warp.lookups * (slower - 1);
    double own = (warp.sum() + waits) * runDependentFactor;
    if (!g.hasRuns) {
      double waited = startedShare + (placed.flushK >= g.tileK ? waitedShare : 0);
      own = (warp.decode + waits) * decodeDependentFactor + warp.scaling * scalingDependentFactor +
            waited * static_cast<double>(perWarpgroup) * perInstruction;
    }
    latency = own / static_cast<double>(g.warpsK) / clock;
    // A group of warps holds the stage that it multiplies half of the time: longer where it has
    // two, of which one is read until its next tile starts, and for its pieces. With four groups
    // along k the stages of the others are enough.
    const bool hasTwo = schedule.pipeline == 2 * schedule.warpsK && schedule.warpsK <= 2 &&
                        g.warpgroupsMultiply() && !g.hasRuns;
    const double held = static_cast<double>(schedule.warpsK) * (hasTwo ? 0.75 : 0.5) +
                        (placed.storesBlocks() ? 0.5 : 0);
    wait = loadMicroseconds / std::max(0.5, schedule.pipeline - held);
    pieces = placed.storesBlocks() ? pieceMicroseconds : 0;
    // Each warp reads all activations. Those of one instruction's columns are read in time.
    if (g.hasRuns || (!g.warpgroupsMultiply() && g.batchTiles() > 1))
      shared = sharedShare * resident * sharedTraffic(g, bytes.all()) /
               sharedBytesPerCycle(device) / clock;
    if (!g.warpgroupsMultiply())
      shared += resident * lookupTraffic(placed, g) / sharedBytesPerCycle(device) / clock;
    factor = factorOf();
  }

  // Bytes of the weight that an SM has room for.
  double ring() const { return resident * schedule.pipeline * bytes.weight; }

  double loadOf() const {
    double time = bytes.weight * active / bandwidth;
    if (schedule.dependent && 2 * active > device.smCount) // else the next kernel has its own SMs
      time = std::max(time, bytes.weight * resident / (memoryBytesPerCycle * boost));
    if (problem.m > g.tileM) { // weights are read again from L2
      double times = std::min(4.0, static_cast<double>(divideUp(problem.m, g.tileM)));
      time *= (1 + rereadShare * (times - 1)) / times;
    }
    if (resident > 1 && ctas < slots) // some SMs have more CTAs than others
      time *= 1 + unevenShare * (resident * device.smCount / active - 1);
    const double enough =
        std::min(flightKilobytes * 1024, flightOfAll * resident * steps * bytes.weight);
    time *= 1 + flightShare * std::max(0.0, 1 - ring() / enough);
    return nextBeside && fewFree ? time * besideLoadFactor : time;
  }

  double factorOf() const {
    double result = 1;
    if (resident > 1 && !g.hasRuns)
      result *= sharedSmFactor;
    if (schedule.splitK > 1 && waves > 1)
      result *= laterWavesFactor;
    if (g.tileN <= Geometry::instructionRows / 2)
      result *= narrowFactor;
    if (placed.storesBlocks())
      result *= 1 + stageOfPieces *
                        static_cast<double>(std::max<int64_t>(0, schedule.pipeline - fewStages));
    if (g.clusterN > 1)
      result *= waves > 1 ? sharedInTurnsFactor : sharedOnceFactor;
    if (g.warpsN == 3 * 4 && g.warpgroupsMultiply()) {
      bool scales = placed.flushK > 0, few = g.tileM <= threeMostBatch;
      if (placed.isWide() && few)
        result *= placed.decode.program.lookups() > 0 ? threeLookupFactor : threeWideFactor;
      else if (scales != few)
        result *= threeFactor;
    }
    return result;
  }

  // With shares of memory's time, of the CTAs that run at a time, and of those of an SM.
  double stepOf(double ofMemory, double ofAll, double ofSm) const {
    return factor * overlapped({load * ofMemory, cache * ofAll, issue * ofSm, tensor * ofSm,
                                shared * ofSm, latency, wait, pieces});
  }

  // Of the launch. The first tile fills the ring.
  double startOf(double step) const {
    const bool fillsBeside = resident > 1 && waves == 1 && g.tileM <= sharedFillRows;
    double fill = fillsBeside ? (1 - sharedFillShare) * step : step;
    double start = startMicroseconds + (schedule.dependent ? 0 : serialMicroseconds) + fill;
    if (!nextBeside)
      return start;
    const double hidden =
        besideMicroseconds * std::pow(std::min(1.0, load / step), besideSharpness);
    double shown = 0;
    if (problem.m <= (fewFree ? shownRowsIfFewFree : shownRows))
      shown = shownMicroseconds * std::max(0.0, active / device.smCount - besideFree) /
              (1 - besideFree);
    return std::max(std::min(start, shown), start - hidden);
  }

  // Of the launch, behind the last k tile: sums that meet, and what a ring leaves.
  double tailOf(double outputs, double step) const {
    // Each CTA of a cluster adds those of every so manieth warpgroup.
    const int64_t warpgroups = divideUp(g.warpsN, 4);
    const double ofCta =
        static_cast<double>(divideUp(warpgroups, g.clusterK)) / static_cast<double>(warpgroups);
    const double otherSums =
        static_cast<double>(g.warpsK - 1) + ofCta * static_cast<double>(g.clusterK - 1);
    double tail = outputs * otherSums / sumsPerMicrosecond;
    if (g.clusterK > 1)
      tail += clusterMicroseconds;
    else if (schedule.splitK != 1) // through memory
      tail += (g.streamK ? streamMicroseconds : splitMicroseconds) +
              ctas * outputs * 8 / (bandwidth * 2);
    const double computes = std::max(0.0, 1 - load / step);
    const double share =
        ringShare + ringComputeShare * computes + (schedule.dependent ? 0 : ringSerialShare);
    return tail + share * std::max(0.0, ring() - ringKilobytes * 1024) * active / bandwidth;
  }
};

} // namespace

Cost predictSpecialized(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                        const Problem &problem, const DeviceModel &device) {
  return Specialized(gemm, placed, schedule, problem, device).cost();
}

} // namespace rho::compiler
