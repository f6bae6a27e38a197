// Predictions for mma.sync kernels, whose warps all do the same.
#include "compiler/plan/CostModel.h"

#include "compiler/Targets.h"
#include "compiler/plan/InstructionCounts.h"
#include "compiler/plan/Resources.h"
#include "compiler/plan/TileCosts.h"
#include "dsl/Division.h"

#include <algorithm>
#include <cmath>

namespace rho::compiler {

using Part = Cost::Part;

namespace {

constexpr double copiedBandwidthShare = 0.9; // of memory's, as copies reach it
constexpr double l2Share = 0.9;              // of L2 that one operand can have
constexpr double activationReadShare = 0.3;  // of memory's time, for what mostly comes from L2
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
constexpr double uniformEpilogueMicroseconds = 0.5, uniformSplitMicroseconds = 1.0;

// Times are in microseconds, of one k tile where nothing else is said.
class Uniform : PredictedKernel {
public:
  Uniform(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
          const Problem &problem, const DeviceModel &device)
      : PredictedKernel{gemm, placed, schedule, problem, device}, clock(device.clockGHz * 1e3),
        bandwidth(device.bandwidthGBs * 1e3 * copiedBandwidthShare),
        hasWgmma(targetOf(device.target).hasWgmma), overlaps(schedule.dependent && hasWgmma) {
    occupy();
    times();
  }

  Cost cost() const {
    double step = overlapped({load, issue, pipes, tensor + scale, shared, latency});
    double all = waves * static_cast<double>(steps);
    double start = startOf(), tail = tailOf();
    Cost cost;
    cost.microseconds = start + all * step + tail;
    if (hasWgmma && !overlaps)
      cost.microseconds *= uniformBesideWgmma;
    cost[Part::Load] = all * load;
    cost[Part::Decode] = all * std::max(issue, pipes);
    cost[Part::Tensor] = all * tensor;
    cost[Part::Scaling] = all * scale;
    cost[Part::Shared] = all * shared;
    cost[Part::Latency] = all * latency;
    cost[Part::Overhead] = start + tail;
    return cost;
  }

private:
  const double clock, bandwidth; // cycles and bytes per microsecond
  const bool hasWgmma, overlaps; // the latter: with the launch ahead of it

  int64_t tilesN = 0, tilesK = 0;
  int64_t ctas = 0, steps = 0;  // all CTAs, k tiles of one
  double waves = 0, active = 0; // of CTAs, those of a full or of the only wave
  double resident = 0;          // of these on an SM
  double load = 0, issue = 0, pipes = 0, tensor = 0, scale = 0;
  double shared = 0, latency = 0; // shared memory, one warp's own dependences

  // CTAs that an SM has room for.
  int64_t room() const {
    int64_t perCta = sharedBytes(gemm, placed, g, schedule, problem);
    int registers = estimateRegisters(gemm, placed, g, schedule.pipeline);
    int64_t fitting = std::min({device.sharedPerSm / (perCta + DeviceModel::reservedPerCta),
                                device.registersPerSm / (registers * g.threads()),
                                device.threadsPerSm / g.threads()});
    return std::max<int64_t>(fitting, 1);
  }

  void occupy() {
    int64_t perSm = room();
    tilesN = divideUp(problem.n, g.tileN);
    tilesK = divideUp(problem.k, g.tileK);
    int64_t tiles = tilesN * divideUp(problem.m, g.tileM);
    if (g.streamK) {
      ctas = std::min(tiles * tilesK, schedule.residentCtas);
      steps = divideUp(tiles * tilesK, ctas);
      perSm = schedule.ctasPerSm;
    } else {
      ctas = tiles * schedule.splitK;
      steps = divideUp(tilesK, schedule.splitK);
    }
    auto slots = static_cast<double>(perSm * device.smCount);
    waves = std::ceil(static_cast<double>(ctas) / slots);
    resident =
        std::min(static_cast<double>(perSm), std::ceil(static_cast<double>(ctas) / device.smCount));
    active = std::min(static_cast<double>(ctas), slots);
  }

  void times() {
    load = std::max(bytesFromMemory() * active / bandwidth,
                    memoryLatencyMicroseconds / std::max(1, schedule.pipeline - 1));
    const double ofCta = static_cast<double>(schedule.warpsM * schedule.warpsN);
    const double warps = resident * ofCta; // of an SM
    InstructionCounts perWarp = issuePerTile(placed, g),
                      scaling = scalingPerTile(placed, g, schedule.sums);
    perWarp.others += parameterInstructions(gemm, placed, g);
    perWarp += residual.issued;
    double issued = perWarp.total() + scaling.total();
    issue = warps * issued / issuePerCycle / clock * issueStall;
    if (overlaps)
      issue *= uniformBesideWgmma;
    perWarp[dsl::InstructionClass::Lds] = 0; // lookups have the pipe of other shared memory
    pipes = warps * pipeCycles(perWarp, device.rates).slowest() / clock;
    double macs =
        static_cast<double>(g.tileM * g.tileN * g.tileK * placed.products()) + residual.macs;
    tensor = resident * macs / mmaPerCycle(device, placed) / clock;
    scale = scalingStall * warps * pipeCycles(scaling, device.rates).sum() / clock;
    shared = resident * (sharedTraffic(g, copiedBytes()) + lookupTraffic(placed, g)) /
             sharedBytesPerCycle(device) / clock;
    // CTAs of an SM overlap theirs.
    double cycles = barrierCycles + barrierCyclesPerWarp * ofCta + dependentCycles * issued;
    latency = (cycles + (overlaps ? uniformDependentCycles : 0)) / clock;
  }

  double copiedBytes() const { return bytes.weight + activationReadShare * bytes.activation; }

  // Activations of one batch tile are shared by all CTAs of a row and come from L2. Weights are
  // read from memory once, if they stay in L2 until the next batch tile. If not, the CTAs of a grid
  // that run side by side on the same weights share them; CTAs with equal shares of k are each at
  // another place (APEX4's RTX 3090 and A40).
  double bytesFromMemory() const {
    auto batches = static_cast<double>(divideUp(problem.m, g.tileM));
    double weights = bytes.weight * static_cast<double>(tilesN) * static_cast<double>(tilesK);
    if (weights < l2Share * static_cast<double>(device.l2Bytes))
      return copiedBytes() / batches;
    double sideBySide =
        active / (static_cast<double>(tilesN) * static_cast<double>(schedule.splitK));
    double readers = g.streamK ? 1 : std::clamp(sideBySide, 1.0, batches);
    return bytes.weight / readers + activationReadShare * bytes.activation;
  }

  // Of the launch. Each tile of a CTA begins with an empty pipeline.
  double startOf() const {
    if (overlaps)
      return uniformDependentMicroseconds;
    double starts = waves * (g.streamK ? static_cast<double>(divideUp(steps, tilesK) + 1) : 1);
    return launchMicroseconds + starts * memoryLatencyMicroseconds;
  }

  // Of the launch, behind the last k tile: outputs, and sums that meet in memory.
  double tailOf() const {
    double outputBytes = static_cast<double>(problem.m * problem.n) * 2;
    double tail = uniformEpilogueMicroseconds + outputBytes / bandwidth;
    if (schedule.splitK != 1)
      tail += uniformSplitMicroseconds +
              static_cast<double>(ctas * g.tileM * g.tileN) * 8 / (bandwidth * 2);
    return tail;
  }
};

} // namespace

Cost predictUniform(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                    const Problem &problem, const DeviceModel &device) {
  return Uniform(gemm, placed, schedule, problem, device).cost();
}

} // namespace rho::compiler
