// Predictions for gemv kernels.
#include "compiler/plan/CostModel.h"

#include "compiler/plan/InstructionCounts.h"
#include "dsl/Division.h"

#include <algorithm>
#include <cmath>

namespace rho::compiler {

using Class = dsl::InstructionClass;
using Part = Cost::Part;

namespace {

// Constants fitted to 260 dependent launches of int4 g128 and LiquidQuant x s8 at three shapes,
// m = 1, on an H200: what is predicted fastest takes 1.04 times the fastest. Those of starts and
// the sharpness were fitted later to the times of 226 others, serial ones among them.
constexpr double loadedLatencyMicroseconds = 0.405; // of memory at nearly its full bandwidth
constexpr double smBandwidthShare = 3.7;            // of one SM, to its share of the device's
constexpr double gemvStall = 1.1;                   // cycles to those that are issued
constexpr double gemvDependentFactor = 1.7;         // of one warp alone, to its issue
constexpr double gemvSharpness = 2.5;
constexpr double gemvStartMicroseconds = 1.35; // the first loads, activations, sums over warps
constexpr double gemvLaunchMicroseconds = 0.65;
// Of each sum that is scaled, by a weight's scale or by those of the activation's groups as well,
// which are read before the first tile, too: 23 launches of int4 g128 x int4 g128, m = 1 to 4 (0.86
// of their times were predicted without, 0.97 since), and 16 of int4 g128 x s8, m = 1 and 2.
constexpr double gemvFlushInstructions = 6, gemvColumnFlushInstructions = 9;
constexpr double gemvColumnScalesMicroseconds = 0.8;

// Cycles that a warp keeps one of an SM's four schedulers busy with one k tile. Bitwise operations,
// by which bf16 is widened too, and dp4a have half the rate of multiply-adds.
double gemvCycles(const PlacedGemm &placed, const Geometry &g, const dsl::DeviceRates &rates) {
  auto chunks = static_cast<double>(g.chunks());
  double units = chunks * static_cast<double>(g.rowTiles() * g.chunkCodes()) / placed.decode.codes;
  double registers = chunks * static_cast<double>(g.stepsPerChunk() * g.rowTiles()) * 4;
  auto rows = static_cast<double>(g.tileM);
  double run = static_cast<double>(g.chunkK()) / 4;
  double widening = placed.mmaType == "bf16" ? 2 : 1; // of a number
  double multiply = issueCycles(Class::Ffma, rates);
  double cycles = units * placed.decode.instructions() * 0.75 * issueCycles(Class::Lop3, rates);
  if (placed.integerAccumulator)
    cycles += registers * rows * issueCycles(Class::Dp4a, rates);
  else
    cycles += registers * multiply * (2 * widening + 2 * rows) + chunks * rows * run * widening;
  if (placed.flushK > 0) {
    double perSum = placed.scalesColumns() ? gemvColumnFlushInstructions : gemvFlushInstructions;
    cycles += static_cast<double>(divideUp(g.tileK, g.parameterK(placed.flushK))) * perSum *
              static_cast<double>(g.rowsPerThread()) * rows;
  }
  return cycles + chunks * rows * 4 + 20;
}

} // namespace

Cost predictGemv(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                 const Problem &problem, const DeviceModel &device) {
  Geometry g = makeGeometry(placed, schedule);
  double clock = device.clockGHz * 1e3; // cycles per microsecond
  double bitsPerCode = g.denseBits();
  if (placed.storesBlocks())
    bitsPerCode += gemm.weight.residual->part.most() * placed.sparseBits;
  for (const dsl::Component &component : gemm.weight.components)
    if (component.extent == dsl::Extent::Group)
      bitsPerCode +=
          static_cast<double>(component.type.bits()) / static_cast<double>(extentK(component));
  int64_t tilesK = divideUp(problem.k, g.tileK);
  int64_t ctas = outputTiles(problem, g.tileM, g.tileN);
  auto busiest = static_cast<double>(divideUp(ctas, device.smCount)); // CTAs of one SM
  double resident = std::min(busiest, static_cast<double>(schedule.ctasPerSm));
  double perCta = static_cast<double>(g.tileN * tilesK * g.tileK) * bitsPerCode / 8;
  double bandwidth = device.bandwidthGBs * 1e3; // bytes per microsecond
  double perSm = bandwidth / device.smCount * smBandwidthShare;
  double inFlight = resident * static_cast<double>(g.tileN * g.tileK * g.warpsK) * bitsPerCode / 8 *
                    (schedule.pipeline - 0.5);
  double load = std::max({static_cast<double>(ctas) * perCta / bandwidth, busiest * perCta / perSm,
                          busiest * perCta * loadedLatencyMicroseconds / inFlight});
  double warpTiles = static_cast<double>(divideUp(tilesK, g.warpsK));
  double cycles = gemvStall * gemvCycles(placed, g, device.rates) * warpTiles;
  double issue = busiest * static_cast<double>(g.warpsN * g.warpsK) * cycles / 4 / clock;
  double waves = std::ceil(busiest / resident);
  double latency = waves * cycles * gemvDependentFactor / clock;
  double time = overlapped({load, issue, latency}, gemvSharpness);
  double tail =
      resident * static_cast<double>(2 * sumsBytes(g)) / sharedBytesPerCycle(device) / clock;
  double start = gemvStartMicroseconds * (1 + (waves - 1) / resident) +
                 (placed.scalesColumns() ? gemvColumnScalesMicroseconds : 0);
  Cost cost;
  cost.microseconds = gemvLaunchMicroseconds + start + time + tail;
  cost[Part::Load] = load;
  cost[Part::Decode] = issue;
  cost[Part::Latency] = latency;
  cost[Part::Overhead] = gemvLaunchMicroseconds + start + tail;
  return cost;
}

} // namespace rho::compiler
