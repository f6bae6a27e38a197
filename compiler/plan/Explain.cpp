#include "compiler/Explain.h"

#include "compiler/Targets.h"
#include "compiler/plan/CostModel.h"
#include "compiler/plan/ScheduleCandidates.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <tuple>

namespace rho::compiler {

namespace {

using Scales = dsl::ScheduleDecl::Scales;
using Roles = dsl::ScheduleDecl::Roles;
using Tables = dsl::ScheduleDecl::Tables;
using Part = Cost::Part;

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

std::string boundBy(const Alternative &alternative) {
  Part part = alternative.cost.largest();
  Cost cost = alternative.cost;
  return std::string(name(part)) + ", " + fixed(cost[part], cost[part] < 100 ? 1 : 0) + " us of it";
}

// `exact`: the scales with which numbers in place of codes round nothing, where that decided.
std::string reasonOf(const Alternative &loser, const Alternative &winner,
                     std::optional<Scales> exact) {
  if (!loser.plan)
    return "not legal: " + loser.plan.error().diagnostics[0].message;
  double ratio = loser.plan->predictedMicroseconds / winner.plan->predictedMicroseconds;
  if (ratio < 1 && loser.scales != exact.value_or(loser.scales))
    return "not considered: products with scales would be rounded";
  if (ratio < 1 && loser.mayOverflow && !winner.mayOverflow)
    return "not trusted: scales of more than 8 bits without the weight's others may leave the "
           "range "
           "of f16";
  if (ratio < 1 && !loser.distrust.empty())
    return "not trusted: " + loser.distrust;
  const std::string stored =
      loser.stored == winner.stored ? "" : "; activation stored as " + loser.stored;
  if (ratio < 1 && !stored.empty()) // which is settled before
    return "not considered" + stored + ", but there is a kernel for " + winner.stored;
  return fixed(ratio, 2) + " times the winner's; bound by " + boundBy(loser) + stored;
}

// With what the declaration leaves open fixed.
dsl::Gemm fixedAs(dsl::Gemm gemm, Scales scales, Roles roles, Tables tables) {
  gemm.schedule.scales = scales;
  gemm.schedule.roles = roles;
  gemm.schedule.tables = tables;
  return gemm;
}

Result<Alternative> alternativeOf(const TargetGemm &target, const std::vector<Roles> &considered,
                                  std::optional<Plan> winner, const Problem &problem,
                                  const DeviceModel &device, const SourceMap *sources) {
  const dsl::ScheduleDecl &fixed = target.gemm.schedule;
  Alternative result{*fixed.scales,
                     *fixed.roles,
                     *fixed.tables,
                     storedAs(target),
                     winner ? *winner : plan(target.gemm, problem, device, sources),
                     {},
                     winner.has_value(),
                     false,
                     {},
                     {}};
  if (!result.plan)
    return result;
  Result<PlacedGemm> placed = place(target.gemm, *result.plan, sources);
  if (!placed)
    return placed.error();
  result.cost = predict(target.gemm, *placed, result.plan->schedule, problem, device);
  result.mayOverflow = placed->mayOverflow;
  result.distrust = whyNotTrusted(considered, *placed, result.plan->schedule, problem, device);
  return result;
}

} // namespace

Cost::Part Cost::largest() const {
  auto found = std::max_element(parts.begin(), parts.end());
  return static_cast<Part>(found - parts.begin());
}

std::string_view name(Cost::Part part) {
  static constexpr std::string_view names[Cost::partCount] = {
      "loads from memory",       "decoding and issue", "matrix products",
      "scaling of accumulators", "shared memory",      "latency",
      "launch and epilogue"};
  return names[static_cast<size_t>(part)];
}

Result<std::vector<Alternative>> explain(const dsl::Gemm &gemm, const Problem &problem,
                                         const DeviceModel &device, const SourceMap *sources) {
  const TargetGemm target = onTarget(gemm, device.target);
  Result<Plan> chosen = plan(target.gemm, problem, device, sources);
  if (!chosen)
    return chosen.error();
  std::vector<Alternative> all;
  const std::vector<Roles> considered = roleCandidates(gemm, device);
  std::vector<Scales> placements =
      choices(gemm.schedule.scales, {Scales::Accumulator, Scales::Operand});
  if (!gemm.schedule.scales && targetOf(device.target).hasBlockScales)
    placements.push_back(Scales::Hardware);
  auto add = [&](const TargetGemm &fixed, bool isWinner) -> Status {
    Result<Alternative> found =
        alternativeOf(fixed, considered, isWinner ? std::optional(*chosen) : std::nullopt, problem,
                      device, sources);
    if (!found)
      return found.error();
    // Without group scales of the weight both placements are one.
    bool again = std::any_of(all.begin(), all.end(), [&](const Alternative &one) {
      return one.roles == found->roles && one.tables == found->tables && one.plan && found->plan &&
             one.plan->schedule == found->plan->schedule && one.cost.parts == found->cost.parts;
    });
    if (!again)
      all.push_back(std::move(*found));
    return Done{};
  };
  auto mayBeIn = [&](const TargetGemm &fixed) {
    const dsl::ScheduleDecl &s = fixed.gemm.schedule;
    if (gemm.schedule.tables || s.tables == Tables::Registers)
      return true;
    Result<PlacedGemm> placed =
        place(fixed.gemm, *s.scales, *s.roles, *s.tables, device.target, sources);
    return placed && placed->tablesPay;
  };
  auto consider = [&](Scales scales, Roles roles, Tables tables) -> Status {
    const bool isWinner = chosen->groupScales == scales && chosen->schedule.roles == roles &&
                          chosen->schedule.tables == tables;
    TargetGemm fixed = target; // of the winner whatever it would be, were all of that asked for
    if (isWinner)
      fixed.gemm = fixedAs(target.gemm, scales, roles, tables);
    else
      fixed = onTarget(fixedAs(gemm, scales, roles, tables), device.target);
    return mayBeIn(fixed) ? add(fixed, isWinner) : Done{};
  };
  for (Roles roles :
       choices(gemm.schedule.roles, {Roles::Uniform, Roles::ImFP, Roles::ExCP, Roles::Gemv}))
    for (Scales scales : placements)
      for (Tables tables : tableCandidates(gemm))
        if (Status added = consider(scales, roles, tables); !added)
          return added.error();
  std::sort(all.begin(), all.end(), [](const Alternative &a, const Alternative &b) {
    auto key = [](const Alternative &one) {
      return std::tuple(!one.winner, !one.plan.ok(), one.plan ? one.cost.microseconds : 0,
                        one.roles, one.scales, one.tables);
    };
    return key(a) < key(b);
  });
  const Alternative winner = all.front();
  all.front().reason = "the winner; bound by " + boundBy(winner);
  const std::optional<Scales> exact =
      gemm.schedule.scales ? std::nullopt : target.gemm.schedule.scales;
  for (auto loser = all.begin() + 1; loser != all.end(); ++loser)
    loser->reason = reasonOf(*loser, winner, exact);
  return all;
}

std::optional<double> residualMicroseconds(const dsl::Gemm &gemm, const Plan &plan,
                                           const DeviceModel &device) {
  Result<PlacedGemm> placed = place(gemm, plan, nullptr);
  if (!placed || !placed->storesBlocks())
    return std::nullopt;
  dsl::Gemm dense = gemm;
  dense.weight.residual.reset();
  Result<PlacedGemm> without = place(dense, plan, nullptr);
  // The same schedule of two gemms, whose waves may end differently.
  return std::max(0.0,
                  predict(gemm, *placed, plan.schedule, plan.problem, device).microseconds -
                      predict(dense, *without, plan.schedule, plan.problem, device).microseconds);
}

} // namespace rho::compiler
