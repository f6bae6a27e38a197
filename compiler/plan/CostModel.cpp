#include "compiler/plan/CostModel.h"

#include <algorithm>
#include <cmath>

namespace rho::compiler {

namespace {

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Dense multiply-adds per cycle and SM through mma.sync. Datasheet rates; sm_90a reaches about 0.62
// of its wgmma rate this way, runs s4 as several s8 instructions and e4m3 as f16 ones.
double mmaPerCycle(const std::string &target, const std::string &type) {
  double half = target == "sm_80" ? 1024 : target == "sm_90a" ? 1270 : 512;
  if (type == "s8" || (type == "e4m3" && target != "sm_90a"))
    return 2 * half;
  if (type == "s4")
    return target == "sm_90a" ? 0.5 * half : 4 * half;
  return half;
}

constexpr double memoryLatencyMicroseconds = 0.8;
constexpr double launchMicroseconds = 2.0;
// One warp alone: cycles from one instruction to the next that depends on it, averaged over a k
// tile, and those of the tile's barrier, which grow with the warps that meet there. Fitted to 108
// schedules of int4 g128 x f16 at n = k = 8192, m = 1 and 16 on an H200.
constexpr double dependentCycles = 2.6;
constexpr double barrierCycles = 100;
constexpr double barrierCyclesPerWarp = 20;
constexpr double sharedBytesPerCycle =
    96;                          // of one SM, as measured through ldmatrix and 16-byte loads
constexpr int issuePerCycle = 4; // warp instructions per cycle and SM

// Warp instructions that one warp issues for one k tile.
double issuePerTile(const PlacedGemm &placed, const Geometry &g) {
  double fragments = static_cast<double>(g.chunks() * g.rowTiles());
  double units = fragments * static_cast<double>(g.chunkCodes()) / placed.decode.codes;
  double mmas = static_cast<double>(g.chunks() * g.stepsPerChunk() * g.rowTiles() * g.batchTiles());
  double activationLoads = static_cast<double>(g.chunks() * g.batchTiles() *
                                               std::max<int64_t>(1, g.stepsPerChunk() / 2));
  double result = fragments + units * placed.decode.instructions() + mmas + activationLoads;
  result += static_cast<double>(placed.decode.params.size()) * static_cast<double>(g.rowTiles()) *
            static_cast<double>(g.chunks());
  if (placed.flushK > 0) {
    double flushes = static_cast<double>(std::max<int64_t>(1, g.tileK / placed.flushK));
    double perAccumulator = placed.integerAccumulator ? 3 : 1; // convert, combine scales, FMA
    result += flushes * static_cast<double>(g.rowTiles() * g.batchTiles()) * 4 * perAccumulator;
  }
  return result + 20; // loop, addresses, barrier
}

// Bytes that one CTA moves in and out of shared memory for one k tile: every warp reads its codes,
// and the activations once for each group of weight rows.
double sharedTraffic(const Geometry &g, double tileBytes) {
  int64_t activations = g.warpsN * g.tileM * g.activationRowBytes();
  return tileBytes + static_cast<double>(g.warpsM * g.codeBytes() + activations);
}

// --- wgmma kernels with warps in roles. Constants fitted (9% rms) to 680 runs of int4 channel and
// int4 g128 x s8, LiquidQuant and int4 g128 x bf16 at three shapes, m = 1 to 4096, on an H200.

// Dense multiply-adds per cycle and SM through wgmma.
double wgmmaPerCycle(const PlacedGemm &placed) { return placed.mmaK == 32 ? 4096 : 2048; }
constexpr double sustainedClock = 0.855;     // of the boost clock, under matrix load
constexpr double l2Bandwidth = 17.2e6;       // bytes per microsecond, of all SMs together
constexpr double instructionMinCycles = 12;  // of one wgmma instruction, however few its columns
constexpr double decodeCyclesPerIssue = 1.2; // some bitwise and integer operations take two cycles
constexpr double stepCycles = 8;             // descriptors and the order of one step along k
constexpr double stageCycles = 50;           // from a full barrier to the first instruction
constexpr double dependentFactor = 2.7;      // of one warp alone, to its issue
constexpr double flushCyclesPerSum = 2.4;    // conversion and multiply-add, of one warp
constexpr double epilogueMicroseconds = 0.27, epiloguePer32KOutputs = 1.8;
constexpr double splitMicroseconds = 1.2;
constexpr double startMicroseconds = 1.45, serialMicroseconds = 1.05;
constexpr double stageLatencyMicroseconds = 0.85;

// Instructions of one warp that make the decode's parameters for one k tile.
double parameterInstructions(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g) {
  double result = 0;
  for (const DecodeParam &param : placed.decode.params) {
    const dsl::Component &component = gemm.weight.components[param.component];
    int64_t group = extentK(component);
    for (int used : param.number.uses())
      group = std::min(group, extentK(gemm.weight.components[used]));
    auto groups = static_cast<double>(g.groupsPerTile(group));
    double perScale = 1;
    if (param.form == DecodeParam::Form::Number) // to f32, products, and back
      perScale = 4 * static_cast<double>(param.number.terms.size());
    if (param.form == DecodeParam::Form::Multiplier)
      if (auto scales = scaleSequence(component.type, placed.mmaType, placed.decode.scaleLog2))
        perScale = static_cast<double>(scales->instructions.size()) /
                   static_cast<double>(scales->outputs.size());
    result += groups * static_cast<double>(g.rowTiles()) * (perScale + 0.5);
  }
  return result;
}

// Cycles that one warp issues for one k tile.
double warpCycles(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g) {
  double units =
      static_cast<double>(g.chunks() * g.rowTiles() * g.chunkCodes()) / placed.decode.codes;
  double decode =
      units * (placed.decode.instructions() + 0.5) + parameterInstructions(gemm, placed, g);
  int64_t stepsAlongK = g.tileK / g.mmaK;
  double cycles = decode * decodeCyclesPerIssue + static_cast<double>(stepsAlongK) * stepCycles;
  if (placed.flushK > 0) {
    double flushes = static_cast<double>(std::max<int64_t>(1, g.tileK / placed.flushK));
    double sums = static_cast<double>(g.rowTiles() * g.batchTiles()) * 4;
    cycles += flushes * sums * flushCyclesPerSum;
  }
  return cycles;
}

double predictSpecialized(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                          const Problem &problem, const DeviceModel &device) {
  Geometry g = makeGeometry(placed, schedule);
  double clock = device.clockGHz * 1e3 * sustainedClock; // cycles per microsecond
  int64_t tiles = ceilDiv(problem.n, g.tileN) * ceilDiv(problem.m, g.tileM);
  int64_t tilesK = ceilDiv(problem.k, g.tileK);
  double ctas = 0, slots = 0, steps = 0;
  if (g.streamK) {
    slots = static_cast<double>(schedule.residentCtas);
    ctas = std::min(static_cast<double>(tiles * tilesK), slots);
    steps = std::ceil(static_cast<double>(tiles * tilesK) / ctas);
  } else {
    slots = static_cast<double>(device.smCount * schedule.ctasPerSm);
    ctas = static_cast<double>(tiles * schedule.splitK);
    steps = static_cast<double>(ceilDiv(tilesK, schedule.splitK));
  }
  double resident = std::min(slots / device.smCount, std::ceil(ctas / device.smCount));
  double waves = std::ceil(ctas / slots);
  double active = std::min(ctas, slots);

  double weightBytes = 0, activationBytes = 0;
  for (const StageBuffer &buffer : stageBuffers(gemm, placed, g))
    (buffer.weight ? weightBytes : activationBytes) += static_cast<double>(buffer.bytes);
  // Rows past the batch are zeros that no memory gives.
  activationBytes *= std::min(1.0, static_cast<double>(problem.m) / static_cast<double>(g.tileM));
  double bandwidth = device.bandwidthGBs * 1e3;
  double load = weightBytes * active / bandwidth;
  if (problem.m > g.tileM) // weights are read again from L2
    load /= std::min(4.0, static_cast<double>(ceilDiv(problem.m, g.tileM)));
  double cache = (weightBytes + activationBytes) * active / l2Bandwidth;
  int64_t perWarpgroup = g.rowTiles() * g.tileK / g.mmaK;
  int64_t warpgroups = g.warpsN / 4;
  auto instructions = static_cast<double>(perWarpgroup * warpgroups);
  double perInstruction = std::max(
      instructionMinCycles, 64.0 * static_cast<double>(g.tileM * g.mmaK) / wgmmaPerCycle(placed));
  double tensor = resident * instructions * perInstruction / clock;
  double cycles = warpCycles(gemm, placed, g);
  double warpsPerScheduler = static_cast<double>(g.warpsM * g.warpsN) / 4;
  double issue = resident * warpsPerScheduler * cycles / clock;
  // What one group of warps does for a tile one after the other; groups along k take turns.
  double own = cycles * dependentFactor + stageCycles;
  if (placed.flushK >= g.tileK) // a tile's only group is waited for before it is scaled
    own += static_cast<double>(perWarpgroup) * perInstruction;
  double latency = own / static_cast<double>(g.warpsK) / clock;
  constexpr double sharpness = 4;
  double step = 0;
  double wait = stageLatencyMicroseconds / (schedule.pipeline * resident);
  for (double part : {load, cache, issue, tensor, latency, wait})
    step += std::pow(part, sharpness);
  step = std::pow(step, 1 / sharpness);
  double outputs = static_cast<double>(g.tileM * g.tileN);
  double epilogue = epilogueMicroseconds + outputs * resident / 32768 * epiloguePer32KOutputs;
  double tail = outputs * static_cast<double>(g.warpsK - 1) / 9000;
  if (schedule.splitK != 1)
    tail += splitMicroseconds + ctas * outputs * 8 / (bandwidth * 2);
  double launch = startMicroseconds + (schedule.dependent ? 0 : serialMicroseconds);
  return launch + step + waves * (steps * step + epilogue) + tail; // the first tile fills the ring
}

double predictUniform(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                      const Problem &problem, const DeviceModel &device) {
  Geometry g = makeGeometry(placed, schedule);
  double clock = device.clockGHz * 1e3; // cycles per microsecond
  int64_t perCta = sharedBytes(gemm, placed, g, schedule, problem);
  int registers = estimateRegisters(gemm, placed, g, schedule.pipeline);
  int64_t perSm = std::min({device.sharedPerSm / (perCta + 1024), 65536 / (registers * g.threads()),
                            2048 / g.threads()});
  perSm = std::max<int64_t>(perSm, 1);
  int64_t tiles = ceilDiv(problem.n, g.tileN) * ceilDiv(problem.m, g.tileM);
  int64_t ctas = tiles * schedule.splitK;
  int64_t steps = ceilDiv(ceilDiv(problem.k, g.tileK), schedule.splitK);
  double waves = std::ceil(static_cast<double>(ctas) / static_cast<double>(perSm * device.smCount));
  // CTAs that share an SM in a full or in the only wave.
  double resident =
      std::min(static_cast<double>(perSm), std::ceil(static_cast<double>(ctas) / device.smCount));
  double active =
      std::min<double>(static_cast<double>(ctas), static_cast<double>(perSm * device.smCount));

  double tileBytes = 0;
  for (const StageBuffer &buffer : stageBuffers(gemm, placed, g)) {
    // Activations of one batch tile are shared by all CTAs of a row and come from L2.
    double weightOf = buffer.weight ? 1.0 : 0.3;
    tileBytes += weightOf * static_cast<double>(buffer.bytes);
  }
  double bandwidth = device.bandwidthGBs * 1e3 * 0.9; // bytes per microsecond, as copies reach it
  double load = std::max(tileBytes * active / bandwidth,
                         memoryLatencyMicroseconds / std::max(1, schedule.pipeline - 1));
  double issue = resident * static_cast<double>(schedule.warpsM * schedule.warpsN) *
                 issuePerTile(placed, g) / issuePerCycle / clock * 1.3;
  double macs = static_cast<double>(g.tileM * g.tileN * g.tileK);
  double tensor = resident * macs / mmaPerCycle(device.target, placed.mmaType) / clock;
  double shared = resident * sharedTraffic(g, tileBytes) / sharedBytesPerCycle / clock;
  // One warp's own dependences. CTAs of an SM overlap theirs.
  double warps = static_cast<double>(schedule.warpsM * schedule.warpsN);
  double latency =
      (barrierCycles + barrierCyclesPerWarp * warps + dependentCycles * issuePerTile(placed, g)) /
      clock;
  // The slowest decides; the others hide behind it the less the closer they come.
  constexpr double sharpness = 4;
  double step = 0;
  for (double part : {load, issue, tensor, shared, latency})
    step += std::pow(part, sharpness);
  step = std::pow(step, 1 / sharpness);
  double fill = memoryLatencyMicroseconds;
  double outputBytes = static_cast<double>(problem.m * problem.n) * 2;
  double epilogue = 0.5 + outputBytes / bandwidth;
  if (schedule.splitK > 1)
    epilogue += 1.0 + static_cast<double>(ctas * g.tileM * g.tileN) * 8 / (bandwidth * 2);
  return launchMicroseconds + waves * (fill + static_cast<double>(steps) * step) + epilogue;
}

// --- gemv kernels. Constants fitted (16% rms, worst where one CTA has an SM for itself) to 288
// runs of the same formats at three shapes, m = 1, 2 and 4, on an H200.

constexpr double loadedLatencyMicroseconds = 0.42; // of memory at nearly its full bandwidth
constexpr double smBandwidthShare = 1.5;           // of one SM, to its share of the device's
constexpr double gemvDependentFactor = 1.25;       // of one warp alone, to its issue
constexpr double gemvStartMicroseconds = 0.6;      // the first loads, activations, sums over warps
constexpr double gemvSerialMicroseconds = 0.4;

// Cycles that a warp keeps one of an SM's four schedulers busy with one k tile. Bitwise operations,
// by which bf16 is widened too, and dp4a have half the rate of multiply-adds.
double gemvCycles(const PlacedGemm &placed, const Geometry &g) {
  auto chunks = static_cast<double>(g.chunks());
  double units = chunks * static_cast<double>(g.rowTiles() * g.chunkCodes()) / placed.decode.codes;
  double registers = chunks * static_cast<double>(g.stepsPerChunk() * g.rowTiles()) * 4;
  auto rows = static_cast<double>(g.tileM);
  double run = static_cast<double>(g.chunkK()) / 4;
  double widening = placed.mmaType == "bf16" ? 2 : 1; // of a number
  double cycles = units * placed.decode.instructions() * 1.5;
  if (placed.integerAccumulator)
    cycles += registers * rows * 2;
  else
    cycles += registers * (2 * widening + 2 * rows) + chunks * rows * run * widening;
  if (placed.flushK > 0)
    cycles += static_cast<double>(ceilDiv(g.tileK, g.parameterK(placed.flushK))) * 3 *
              static_cast<double>(g.rowsPerThread()) * rows;
  return cycles + chunks * rows * 4 + 20;
}

double predictGemv(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                   const Problem &problem, const DeviceModel &device) {
  Geometry g = makeGeometry(placed, schedule);
  double clock = device.clockGHz * 1e3; // cycles per microsecond
  double bitsPerCode = placed.weightBits;
  for (const dsl::Component &component : gemm.weight.components)
    if (component.extent == dsl::Extent::Group)
      bitsPerCode +=
          static_cast<double>(component.type.bits()) / static_cast<double>(component.group);
  int64_t tilesK = ceilDiv(problem.k, g.tileK);
  int64_t ctas = ceilDiv(problem.n, g.tileN) * ceilDiv(problem.m, g.tileM);
  auto busiest = static_cast<double>(ceilDiv(ctas, device.smCount)); // CTAs of one SM
  double resident = std::min(busiest, static_cast<double>(schedule.ctasPerSm));
  double perCta = static_cast<double>(g.tileN * tilesK * g.tileK) * bitsPerCode / 8;
  double bandwidth = device.bandwidthGBs * 1e3; // bytes per microsecond
  double perSm = bandwidth / device.smCount * smBandwidthShare;
  double inFlight = resident * static_cast<double>(g.tileN * g.tileK * g.warpsK) * bitsPerCode / 8 *
                    (schedule.pipeline - 0.5);
  double load = std::max({static_cast<double>(ctas) * perCta / bandwidth, busiest * perCta / perSm,
                          busiest * perCta * loadedLatencyMicroseconds / inFlight});
  double warpTiles = static_cast<double>(ceilDiv(tilesK, g.warpsK));
  double cycles = gemvCycles(placed, g) * warpTiles;
  double issue = busiest * static_cast<double>(g.warpsN * g.warpsK) * cycles / 4 / clock;
  double waves = std::ceil(busiest / resident);
  double latency = waves * cycles * gemvDependentFactor / clock;
  constexpr double sharpness = 4;
  double time = 0;
  for (double part : {load, issue, latency})
    time += std::pow(part, sharpness);
  double tail = resident * static_cast<double>(2 * sumsBytes(g)) / sharedBytesPerCycle / clock;
  double launch = startMicroseconds + (schedule.dependent ? 0 : gemvSerialMicroseconds);
  double start = gemvStartMicroseconds * (1 + (waves - 1) / resident);
  return launch + start + std::pow(time, 1 / sharpness) + tail;
}

} // namespace

int64_t sharedBytes(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                    const Schedule &schedule, const Problem &problem) {
  int64_t alignment = g.sharedAlignment();
  int64_t bytes = ceilDiv(sumsBytes(g), alignment) * alignment;
  if (std::optional<OutputSlices> slices = outputSlices(gemm, g, problem))
    bytes += slices->slots * slices->bytes;
  if (int64_t operand = operandBytes(g))
    bytes += operand * operandStages(placed) + alignment; // with its barriers
  for (const StageBuffer &buffer : stageBuffers(gemm, placed, g))
    bytes += ceilDiv(buffer.bytes * bufferStages(g, schedule, problem.k), alignment) * alignment;
  return bytes;
}

int estimateRegisters(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                      int pipeline) {
  if (g.gemv()) {
    // Codes and row parameters on their way, sums, the activations of a chunk.
    int64_t codes = g.chunks() * g.rowTiles() * g.planeWords(g.weightBits);
    for (const dsl::Component &component : gemm.weight.components)
      if (component.extent == dsl::Extent::Group)
        codes += std::max<int64_t>(1, g.tileK / g.parameterK(component.group)) *
                 ceilDiv(g.rowsPerThread() * storedBits(component.type), 32);
    int64_t sums = g.rowsPerThread() * g.tileM * (placed.flushK > 0 ? 2 : 1);
    int64_t run = g.tileM * g.chunkK() / (placed.integerAccumulator ? 16 : 4);
    return static_cast<int>(codes * pipeline + sums + run + 32);
  }
  if (g.specialized()) {
    // Sums, operand A of the batches on their way, codes and addresses.
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
      if (2 * extent < g.tileK)
        others = std::max(3 * fewest, others);
    }
    int64_t operand = g.decodesApart() ? 0 : g.rowTiles() * steps * 4;
    return static_cast<int>(sums + operand + others);
  }
  int64_t accumulators = g.rowTiles() * g.batchTiles() * 4;
  int64_t partial = accumulators * (mmaChains(g) - (placed.flushK > 0 ? 0 : 1));
  int64_t activations = g.batchTiles() * g.stepsPerChunk() * 2;
  int64_t scales = placed.flushK > 0 || !placed.decode.params.empty() ? g.rowsPerThread() * 2 : 0;
  return static_cast<int>(accumulators + partial + activations + scales + 52);
}

double predictMicroseconds(const dsl::Gemm &gemm, const PlacedGemm &placed,
                           const Schedule &schedule, const Problem &problem,
                           const DeviceModel &device) {
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
