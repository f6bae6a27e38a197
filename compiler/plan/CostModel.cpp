#include "compiler/plan/CostModel.h"

#include "compiler/LayoutMap.h"

#include "compiler/Targets.h"
#include "compiler/plan/InstructionCounts.h"
#include "compiler/plan/Resources.h"
#include "compiler/plan/TileCosts.h"

#include <algorithm>
#include <cmath>

namespace rho::compiler {

namespace {

using Part = Cost::Part;

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

double trafficBytes(const Problem &problem, double weightBits, double activationBits) {
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
  const ResidualShare residual = residualPerTile(gemm, placed, g);
  const auto [weightTile, activationTile] = bytesPerTile(gemm, placed, g, residual);
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
  double step = overlapped({load, issue, pipes, tensor + scale, shared, latency});
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
  double bytes = trafficBytes(problem, bits, bits);
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
        trafficBytes(problem, gemm.weight.bitsPerElement(), gemm.activation.bitsPerElement());
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
