#include "compiler/Candidates.h"

#include "compiler/plan/ScheduleCandidates.h"
#include "dsl/Findings.h"

#include <limits>
#include <map>
#include <sstream>
#include <tuple>
#include <type_traits>

namespace rho::compiler {

namespace {

// Of the same roles, tables and tile. They differ in what the model predicts best: warps, depth,
// split.
constexpr int mostAlike = 3;

// What the user fixed stays.
template <class T> void settle(std::optional<T> &entry, const std::type_identity_t<T> &value) {
  if (!entry)
    entry = value;
}

} // namespace

Result<std::vector<Plan>> planCandidates(const dsl::Gemm &gemm, const Problem &problem,
                                         const DeviceModel &device, size_t most,
                                         const SourceMap *sources) {
  Result<std::vector<Plan>> ranked =
      rankedPlans(gemm, problem, device, std::numeric_limits<size_t>::max(), sources);
  if (!ranked)
    return ranked;
  std::map<
      std::tuple<dsl::ScheduleDecl::Roles, dsl::ScheduleDecl::Tables, int64_t, int64_t, int64_t>,
      int>
      alike;
  std::vector<Plan> chosen;
  for (Plan &plan : *ranked) {
    if (chosen.size() == most)
      break;
    const Schedule &s = plan.schedule;
    if (alike[{s.roles, s.tables, s.tileM, s.tileN, s.tileK}]++ < mostAlike)
      chosen.push_back(std::move(plan));
  }
  return chosen;
}

void fixLayout(dsl::ScheduleDecl &schedule, const Plan &plan) {
  const Schedule &s = plan.schedule;
  settle(schedule.tile, dsl::ScheduleDecl::Tile{s.tileM, s.tileN, s.tileK});
  settle(schedule.warps, dsl::ScheduleDecl::Warps{s.warpsM, s.warpsN, s.warpsK});
  settle(schedule.scales, plan.groupScales);
  settle(schedule.roles, s.roles);
  settle(schedule.packing, s.packing);
  settle(schedule.tables, s.tables);
}

Result<Plan> adoptPlan(const dsl::Gemm &gemm, const Problem &problem, const DeviceModel &device,
                       const Plan &found, const SourceMap *sources) {
  const Schedule &s = found.schedule;
  dsl::Gemm fixed = gemm;
  dsl::ScheduleDecl &decl = fixed.schedule;
  fixLayout(decl, found);
  settle(decl.pipeline, s.pipeline);
  settle(decl.splitK, s.splitK);
  if (s.streamsK() && s.residentCtas > 0)
    settle(decl.ctas, s.residentCtas);
  settle(decl.sums, s.sums);
  using Balance = dsl::ScheduleDecl::Balance;
  if (gemm.activation.partition)
    settle(decl.balance, s.tileCosts.empty() ? Balance::Tiles : Balance::Cost);
  settle(decl.cluster, dsl::ScheduleDecl::Cluster{s.clusterN, s.clusterK});
  settle(decl.dependent, s.dependent);
  Result<Plan> adopted = plan(fixed, problem, device, sources);
  if (!adopted)
    return adopted;
  // Where they differ, the declaration fixes something else or the device is another; costs of
  // parts follow from m.
  Plan same = *adopted;
  if (!s.tileCosts.empty() && !same.schedule.tileCosts.empty())
    same.schedule.tileCosts = s.tileCosts;
  std::istringstream lines(found.printForKernel()), legal(same.printForKernel());
  std::string line, other;
  constexpr const char *end = "no more";
  while (std::getline(lines, line)) {
    if (!std::getline(legal, other))
      other = end;
    if (line != other)
      return makeError(DiagId::plan_differs, {dsl::shown(line), dsl::shown(other)});
  }
  if (std::getline(legal, other))
    return makeError(DiagId::plan_differs, {end, dsl::shown(other)});
  return adopted;
}

} // namespace rho::compiler
