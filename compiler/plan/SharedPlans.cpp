#include "compiler/Candidates.h"
#include "compiler/Parallel.h"
#include "compiler/plan/Geometry.h"
#include "compiler/plan/Placement.h"
#include "compiler/plan/ScheduleCandidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

namespace rho::compiler {

namespace {

// How the weight is packed for the plans of one gemm on one target.
class LayoutOfPlans {
public:
  LayoutOfPlans(const dsl::Gemm &gemm, const DeviceModel &device) : gemm(gemm), device(device) {}

  Result<std::string> of(const Plan &plan) {
    const Schedule &s = plan.schedule;
    const std::tuple way{plan.groupScales, s.roles, s.tables};
    auto at = placed.find(way);
    if (at == placed.end()) {
      Result<PlacedGemm> made =
          place(gemm, plan.groupScales, s.roles, s.tables, device.target, nullptr);
      if (!made)
        return made.error();
      at = placed.emplace(way, *std::move(made)).first;
    }
    return makeWeightLayout(gemm, at->second, makeGeometry(at->second, s), plan.problem).print();
  }

private:
  const dsl::Gemm &gemm;
  const DeviceModel &device;
  using Way =
      std::tuple<dsl::ScheduleDecl::Scales, dsl::ScheduleDecl::Roles, dsl::ScheduleDecl::Tables>;
  std::map<Way, PlacedGemm> placed;
};

// The fastest plans, by prediction, of the problems so far that read a weight in one layout.
struct Shared {
  std::vector<Plan> plans;
  double logarithm = 0; // of the product of their times
};

// For each layout that a plan of the problem has, the fastest one.
using PlansByLayout = std::map<std::string, Plan>;
Result<PlansByLayout> fastestByLayout(const dsl::Gemm &gemm, const Problem &problem,
                                      const DeviceModel &device, const SourceMap *sources) {
  Result<std::vector<Plan>> ranked =
      rankedPlans(gemm, problem, device, std::numeric_limits<size_t>::max(), sources);
  if (!ranked)
    return ranked.error();
  LayoutOfPlans layouts(gemm, device);
  PlansByLayout fastest;
  for (Plan &plan : *ranked) {
    Result<std::string> layout = layouts.of(plan);
    if (!layout)
      return layout.error();
    fastest.try_emplace(*std::move(layout), std::move(plan));
  }
  return fastest;
}

// The layout of all problems with the least product of times; without plans where none serves all.
Result<Shared> bestLayout(const dsl::Gemm &gemm, const std::vector<Problem> &problems,
                          const DeviceModel &device, const SourceMap *sources) {
  std::vector<Result<PlansByLayout>> all(problems.size(), PlansByLayout());
  parallelFor(static_cast<int64_t>(problems.size()), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    all[at] = fastestByLayout(gemm, problems[at], device, sources);
  });
  std::map<std::string, Shared> byLayout;
  for (size_t at = 0; at < all.size(); ++at) {
    if (!all[at])
      return all[at].error();
    for (auto &[layout, plan] : *all[at]) {
      Shared &shared = byLayout[layout];
      if (shared.plans.size() != at) // not for all problems before
        continue;
      shared.logarithm += std::log(plan.predictedMicroseconds);
      shared.plans.push_back(std::move(plan));
    }
  }
  Shared best;
  for (auto &[layout, shared] : byLayout)
    if (shared.plans.size() == problems.size() &&
        (best.plans.empty() || shared.logarithm < best.logarithm))
      best = std::move(shared);
  return best;
}

Error noneShared(const dsl::Gemm &gemm, const std::vector<Problem> &problems) {
  std::string sizes;
  for (const Problem &problem : problems)
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(problem.m);
  return makeError(DiagId::no_shared_layout, {gemm.name, sizes});
}

} // namespace

Result<std::vector<Plan>> sharedPlans(const dsl::Gemm &gemm, const std::vector<Problem> &problems,
                                      const DeviceModel &device, const SourceMap *sources) {
  // Times of weights in panels over those packed tile by tile, with the same tiles: 1.00 to 1.05 on
  // an H200.
  constexpr double priceOfPanels = 1.01;
  Result<Shared> byTiles = bestLayout(gemm, problems, device, sources);
  if (!byTiles)
    return byTiles.error();
  Shared byPanels;
  if (problems.size() > 1 && !gemm.schedule.packing) {
    dsl::Gemm inPanels = gemm;
    inPanels.schedule.packing = dsl::ScheduleDecl::Packing::Panels;
    if (Result<Shared> found =
            bestLayout(inPanels, problems, device, sources)) // else no plan has panels
      byPanels = *std::move(found);
  }
  byPanels.logarithm += static_cast<double>(problems.size()) * std::log(priceOfPanels);
  bool panels = byTiles->plans.empty() ||
                (!byPanels.plans.empty() && byPanels.logarithm < byTiles->logarithm);
  Shared &best = panels ? byPanels : *byTiles;
  if (!best.plans.empty() || problems.empty())
    return std::move(best.plans);
  return noneShared(gemm, problems);
}

Result<Plan> planSharing(const dsl::Gemm &gemm, const Plan &other,
                         const std::vector<OperandRange> &operands, int64_t m,
                         const DeviceModel &device, const SourceMap *sources) {
  LayoutOfPlans layouts(gemm, device);
  Result<std::string> wanted = layouts.of(other);
  if (!wanted)
    return wanted.error();
  dsl::Gemm packedAlike = gemm;
  packedAlike.schedule.packing = other.schedule.packing;
  const Problem problem{m, other.problem.n, other.problem.k};
  Result<std::vector<Plan>> ranked =
      rankedPlans(packedAlike, problem, device, std::numeric_limits<size_t>::max(), sources);
  if (!ranked)
    return ranked.error();
  auto readsTheWeight = [&](const Plan &plan) {
    if (Result<std::string> layout = layouts.of(plan); !layout || *layout != *wanted)
      return false;
    Result<std::vector<OperandRange>> own = operandRanges(gemm, plan);
    return own && std::all_of(own->begin(), own->end(), [&](const OperandRange &range) {
             return std::find(operands.begin(), operands.end(), range) != operands.end();
           });
  };
  for (Plan &plan : *ranked)
    if (readsTheWeight(plan))
      return std::move(plan);
  // Kernels of its tile, or with more batch rows in it, take any number of rows, as a rule. They
  // are no candidates for many where their layout is one for few.
  std::optional<Plan> fastest;
  Plan wider = other;
  const int64_t most = gemm.schedule.tile ? other.schedule.tileM : Geometry::mostBatch;
  for (; wider.schedule.tileM <= most; wider.schedule.tileM *= 2) {
    dsl::Gemm ofTile = packedAlike;
    fixLayout(ofTile.schedule, wider);
    Result<Plan> found = plan(ofTile, problem, device, sources);
    if (found && readsTheWeight(*found) &&
        (!fastest || found->predictedMicroseconds < fastest->predictedMicroseconds))
      fastest = *std::move(found);
  }
  return fastest ? *std::move(fastest) : Result<Plan>(noneShared(gemm, {other.problem, problem}));
}

} // namespace rho::compiler
