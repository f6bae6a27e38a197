#include "compiler/Plan.h"

#include "compiler/plan/CostModel.h"
#include "dsl/Evaluate.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

namespace rho::compiler {

namespace {

using Scales = dsl::ScheduleDecl::Scales;

// N and K are bounded so that every byte offset within one operand fits 32 bits after the tile's
// own 64-bit base; M so that the grid's y dimension does.
constexpr int64_t largestExtent = int64_t(1) << 24;
constexpr int64_t largestBatch = int64_t(1) << 19;
constexpr int registerLimit = 255;

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool isPowerOfTwo(int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

// Why a schedule cannot be generated; empty when it can.
struct Objection {
  DiagId id;
  std::vector<std::string> args;
};

std::string str(int64_t value) { return std::to_string(value); }

std::optional<Objection> objection(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                   const Schedule &s, const DeviceModel &device) {
  if (!isPowerOfTwo(s.tileN) || s.tileN < 16)
    return Objection{DiagId::schedule_tile,
                     {"n", str(s.tileN), "it must be a power of two of at least 16"}};
  if (!isPowerOfTwo(s.tileK) || s.tileK < Geometry::chunkK)
    return Objection{
        DiagId::schedule_tile,
        {"k", str(s.tileK), "it must be a power of two of at least " + str(Geometry::chunkK)}};
  if (!isPowerOfTwo(s.tileM) || s.tileM < 8)
    return Objection{DiagId::schedule_tile,
                     {"m", str(s.tileM), "it must be a power of two of at least 8"}};
  for (const dsl::Format *format : {&gemm.weight, &gemm.activation})
    for (const dsl::Component &component : format->components)
      if (component.extent == dsl::Extent::Group && component.group % s.tileK != 0 &&
          s.tileK % component.group != 0)
        return Objection{DiagId::schedule_tile,
                         {"k", str(s.tileK),
                          "it must divide the group of " + str(component.group) + " of '" +
                              component.name + "' or be a multiple of it"}};
  auto warps = [&](const std::string &why) {
    return Objection{DiagId::schedule_warps,
                     {str(s.warpsM), str(s.warpsN), str(s.tileM), str(s.tileN), why}};
  };
  if (!isPowerOfTwo(s.warpsM) || !isPowerOfTwo(s.warpsN))
    return warps("both must be powers of two");
  if (s.tileN / s.warpsN < 16)
    return warps("each warp needs at least 16 weight rows");
  if (s.tileM / s.warpsM < 8)
    return warps("each warp needs at least 8 batch rows");
  if (s.warpsM * s.warpsN > 16)
    return warps("a CTA has at most 16 warps");
  Geometry g = makeGeometry(placed, s);
  int64_t shared = sharedBytes(gemm, placed, g, s.pipeline);
  if (shared > device.sharedPerCta)
    return Objection{DiagId::schedule_shared_memory,
                     {str(s.tileM), str(s.tileN), str(s.tileK), str(s.pipeline), str(shared),
                      device.target, str(device.sharedPerCta)}};
  int registers = estimateRegisters(gemm, placed, g);
  int limit = std::min<int>(registerLimit, static_cast<int>(65536 / g.threads()));
  if (registers > limit)
    return Objection{
        DiagId::schedule_registers,
        {str(s.tileM), str(s.tileN), str(s.warpsM), str(s.warpsN), str(registers), str(limit)}};
  return std::nullopt;
}

// Integer accumulators must hold the largest sum between two flushes.
std::optional<Error> checkAccumulator(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                      const Problem &problem, const SourceMap *sources) {
  if (!placed.integerAccumulator)
    return std::nullopt;
  Result<Factors> factors = factorValue(gemm.weight, true, gemm.weightSpan, sources);
  if (!factors)
    return factors.error();
  dsl::Range weight = dsl::rangeOf(*factors->core, gemm.weight);
  dsl::ElementType x = gemm.activation.element().type;
  double largest = std::max(std::abs(weight.min), std::abs(weight.max)) *
                   std::ldexp(1.0, placed.log2Factor) *
                   std::max(std::abs(x.minFinite()), x.maxFinite());
  double terms =
      static_cast<double>(placed.flushK > 0 ? std::min(placed.flushK, problem.k) : problem.k);
  if (largest * terms <= 2147483647.0)
    return std::nullopt;
  std::ostringstream sum;
  sum << std::fixed << std::setprecision(0) << largest * terms;
  return errorAt(DiagId::accumulator_overflow, {sum.str(), str(problem.k), "2147483647"}, gemm.span,
                 sources);
}

// A k tile is fully unrolled: more matrix instructions than this and compiling, not running, is
// what takes long.
constexpr int64_t unrollLimit = 128;
int64_t instructionsPerTile(const PlacedGemm &placed, const Schedule &schedule) {
  Geometry g = makeGeometry(placed, schedule);
  return g.chunks() * g.stepsPerChunk() * g.rowTiles() * g.batchTiles();
}

// Every value that a schedule entry may take: the user's own, or the planner's candidates.
struct Candidates {
  std::vector<Scales> scales;
  std::vector<dsl::ScheduleDecl::Tile> tiles;
  std::vector<int> pipelines;
  std::vector<int64_t> splits;
};

Candidates candidates(const dsl::Gemm &gemm, const Problem &problem) {
  const dsl::ScheduleDecl &decl = gemm.schedule;
  Candidates result;
  if (decl.scales)
    result.scales = {*decl.scales};
  else
    result.scales = {Scales::Accumulator, Scales::Operand};
  if (decl.tile) {
    result.tiles = {*decl.tile};
  } else {
    for (int64_t m : {8, 16, 32, 64, 128}) {
      if (m > 8 && m >= 2 * problem.m)
        continue;
      for (int64_t n : {64, 128, 256})
        for (int64_t k : {64, 128, 256})
          result.tiles.push_back({m, n, k});
    }
  }
  if (decl.pipeline)
    result.pipelines = {static_cast<int>(*decl.pipeline)};
  else
    result.pipelines = {3, 4, 6};
  if (decl.splitK)
    result.splits = {*decl.splitK};
  else
    result.splits = {1, 2, 3, 4, 6, 8, 12, 16};
  return result;
}

std::vector<dsl::ScheduleDecl::Warps> warpCandidates(const dsl::Gemm &gemm,
                                                     const dsl::ScheduleDecl::Tile &tile) {
  if (gemm.schedule.warps)
    return {*gemm.schedule.warps};
  std::vector<dsl::ScheduleDecl::Warps> result;
  for (int64_t m : {1, 2, 4})
    for (int64_t n : {2, 4, 8})
      if (m * n >= 4 && m * n <= 8 && tile.n / n >= 16 && tile.m / m >= 8)
        result.push_back({m, n});
  return result;
}

Span objectionSpan(const dsl::Gemm &gemm, DiagId id) {
  const dsl::ScheduleDecl &decl = gemm.schedule;
  if (id == DiagId::schedule_warps && decl.warps)
    return decl.warpsSpan;
  if (id == DiagId::schedule_split_k && decl.splitK)
    return decl.splitKSpan;
  if (id == DiagId::schedule_shared_memory && decl.pipeline)
    return decl.pipelineSpan;
  if (decl.tile)
    return decl.tileSpan;
  return decl.span.file != Span::none ? decl.span : gemm.span;
}

} // namespace

std::string_view name(Placement placement) {
  switch (placement) {
  case Placement::Operand:
    return "operand";
  case Placement::Accumulator:
    return "accumulator";
  case Placement::Epilogue:
    break;
  }
  return "epilogue";
}

Result<Plan> plan(const dsl::Gemm &gemm, const Problem &problem, const DeviceModel &device,
                  const SourceMap *sources) {
  struct Bound {
    const char *name;
    int64_t value, limit;
  };
  for (const Bound &bound :
       {Bound{"m", problem.m, largestBatch}, Bound{"n", problem.n, largestExtent},
        Bound{"k", problem.k, largestExtent}})
    if (bound.value < 1 || bound.value > bound.limit)
      return makeError(DiagId::bad_problem, {bound.name, str(bound.value), str(bound.limit)});

  Candidates options = candidates(gemm, problem);
  std::optional<Plan> best;
  std::optional<Error> illegal;
  std::optional<Objection> firstObjection;
  for (Scales scales : options.scales) {
    Result<PlacedGemm> placed = place(gemm, scales, sources);
    if (!placed) {
      if (!illegal)
        illegal = placed.error();
      continue;
    }
    if (std::optional<Error> overflow = checkAccumulator(gemm, *placed, problem, sources))
      return *overflow;
    bool usesGroupScales = placed->operandScale >= 0;
    if (!gemm.schedule.scales && scales == Scales::Operand && !usesGroupScales)
      continue; // no group scale to move: the same kernel as Accumulator
    for (const dsl::ScheduleDecl::Tile &tile : options.tiles)
      for (const dsl::ScheduleDecl::Warps &warps : warpCandidates(gemm, tile))
        for (int pipeline : options.pipelines) {
          Schedule schedule{tile.m, tile.n, tile.k, warps.m, warps.n, pipeline, 1};
          if (std::optional<Objection> why = objection(gemm, *placed, schedule, device)) {
            if (!firstObjection)
              firstObjection = why;
            continue;
          }
          if (!gemm.schedule.tile && instructionsPerTile(*placed, schedule) > unrollLimit)
            continue;
          for (int64_t split : options.splits) {
            int64_t tilesK = ceilDiv(problem.k, tile.k);
            if (split > tilesK) {
              if (!firstObjection)
                firstObjection = Objection{DiagId::schedule_split_k, {str(split), str(tilesK)}};
              continue;
            }
            schedule.splitK = split;
            double time = predictMicroseconds(gemm, *placed, schedule, problem, device);
            if (best && best->predictedMicroseconds <= time)
              continue;
            best = Plan{problem,  device.target, placed->mmaType, scales, placed->placements,
                        schedule, time};
          }
        }
  }
  if (best)
    return *best;
  if (firstObjection)
    return errorAt(firstObjection->id, firstObjection->args,
                   objectionSpan(gemm, firstObjection->id), sources);
  if (illegal)
    return *illegal;
  return errorAt(
      DiagId::schedule_warps,
      {"1", "1", str(options.tiles[0].m), str(options.tiles[0].n), "no division into warps fits"},
      gemm.span, sources);
}

} // namespace rho::compiler
