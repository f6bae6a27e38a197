#include "compiler/Plan.h"

#include "compiler/Targets.h"
#include "compiler/plan/CostModel.h"
#include "compiler/plan/IntegerSums.h"
#include "compiler/plan/Legality.h"
#include "compiler/plan/ScheduleCandidates.h"

#include <algorithm>
#include <numeric>

namespace rho::compiler {

namespace {

using Scales = dsl::ScheduleDecl::Scales;
using Roles = dsl::ScheduleDecl::Roles;
using Tables = dsl::ScheduleDecl::Tables;

// A k tile is fully unrolled: with more updates of a thread's four sums than this, compiling takes
// what running no longer gains.
constexpr int64_t unrollLimit = 192;
int64_t updatesPerTile(const PlacedGemm &placed, const Schedule &schedule) {
  Geometry g = makeGeometry(placed, schedule);
  return g.chunks() * g.stepsPerChunk() * g.rowTiles() * g.batchTiles() * placed.products();
}

// "s4", of parts "s4+s8".
std::string mmaTypes(const PlacedGemm &placed) {
  std::string text = placed.parts.empty() ? placed.mmaType : "";
  for (const PlacedGemm &part : placed.parts)
    text += (text.empty() ? "" : "+") + part.mmaType;
  return text;
}

Span objectionSpan(const dsl::Gemm &gemm, const Objection &objection) {
  const dsl::ScheduleDecl &decl = gemm.schedule;
  const DiagId id = objection.id;
  if (objection.at.file != Span::none)
    return objection.at;
  if (id == DiagId::schedule_warps && decl.warps)
    return decl.spans.warps;
  if (id == DiagId::schedule_ctas && decl.ctas)
    return decl.spans.ctas;
  if ((id == DiagId::schedule_split_k || id == DiagId::schedule_split_tiles) && decl.splitK)
    return decl.spans.splitK;
  if (id == DiagId::schedule_roles && decl.roles)
    return decl.spans.roles;
  if (id == DiagId::schedule_sums && decl.sums)
    return decl.spans.sums;
  if (id == DiagId::schedule_balance && decl.balance)
    return decl.spans.balance;
  if (id == DiagId::schedule_cluster && decl.cluster)
    return decl.spans.cluster;
  if (id == DiagId::schedule_split_k && decl.cluster && decl.cluster->k > 1)
    return decl.spans.cluster; // which has a part of k in each CTA
  if (id == DiagId::schedule_shared_memory && decl.pipeline)
    return decl.spans.pipeline;
  if (decl.tile)
    return decl.spans.tile;
  return decl.spans.schedule.file != Span::none ? decl.spans.schedule : gemm.span;
}

// Whether it is about an entry of the schedule.
bool isOfEntry(const dsl::Gemm &gemm, const Objection &objection) {
  if (objection.id == DiagId::schedule_roles && !gemm.schedule.roles)
    return false; // of roles that nobody asked for
  const Span span = objectionSpan(gemm, objection);
  return !(span == gemm.span) && !(span == gemm.schedule.spans.schedule);
}
} // namespace

std::string_view name(Placement placement) {
  switch (placement) {
  case Placement::Operand:
    return "operand";
  case Placement::Accumulator:
    return "accumulator";
  case Placement::Epilogue:
    return "epilogue";
  case Placement::Hardware:
    break;
  }
  return "hardware";
}

namespace {

// Finds, for one problem, every way of placing factors and dividing labour, the schedules of each
// and their predicted times; or why there is none.
class PlanSearch {
public:
  PlanSearch(const dsl::Gemm &gemm, const Problem &problem, const DeviceModel &device,
             const SourceMap *sources)
      : gemm(gemm), problem(problem), device(device), sources(sources),
        allRoles(roleCandidates(gemm, device)) {}

  // Of what is usually faster; of all that there is where the schedule leaves none of that.
  void run() {
    run(Variety::Usual);
    if (found.empty()) {
      ways.clear();
      run(Variety::All);
    }
  }

  // The fastest first.
  std::vector<Plan> ranked(size_t most) const {
    std::vector<size_t> order(found.size());
    std::iota(order.begin(), order.end(), size_t(0));
    auto isFaster = [&](size_t a, size_t b) {
      return std::pair(found[a].microseconds, a) < std::pair(found[b].microseconds, b);
    };
    if (most < order.size()) {
      std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most),
                       order.end(), isFaster);
      order.resize(most);
    }
    std::sort(order.begin(), order.end(), isFaster);
    std::vector<Plan> plans;
    for (size_t i : order) {
      const Way &way = ways[found[i].way];
      plans.push_back({problem, device.target, mmaTypes(way.placed), way.scales,
                       way.placed.placements, found[i].schedule, found[i].microseconds});
    }
    return plans;
  }

  // Of a search that found nothing.
  Error error() const {
    if (!told)
      return *illegal;
    return errorAt(told->id, told->args, objectionSpan(gemm, *told), sources);
  }

private:
  void run(Variety variety) {
    for (Scales scales : scalesCandidates(gemm))
      for (Roles roles : allRoles)
        for (Tables tables : tableCandidates(gemm)) {
          const size_t before = found.size();
          if (!consider(scales, roles, tables, variety) && tables == Tables::Shared)
            break; // nor mixed
          // Usual tiles may not have warps that are fixed; those of a gemv have.
          if (gemm.schedule.warps && roles != Roles::Gemv && found.size() == before)
            consider(scales, roles, tables, Variety::All);
        }
  }

  struct Way {
    Scales scales;
    PlacedGemm placed;
  };
  struct Candidate {
    size_t way; // index of `ways`
    Schedule schedule;
    double microseconds;
  };

  // The factors of the gemm, placed; none where that is not legal, no other kernel than another
  // way's, or tables that nobody asked for are no faster.
  std::optional<PlacedGemm> placedFor(Scales scales, Roles roles, Tables tables) {
    Result<PlacedGemm> placed = place(gemm, scales, roles, tables, device.target, sources);
    std::optional<Error> error =
        placed ? checkAccumulator(gemm, *placed, problem, sources) : placed.error();
    if (error) {
      if (!illegal || saysMore(gemm, error->diagnostics[0], illegal->diagnostics[0]))
        illegal = error;
      return std::nullopt;
    }
    if (tables != Tables::Registers && !gemm.schedule.tables && !placed->tablesPay)
      return std::nullopt;
    if (gemm.schedule.scales || scales != Scales::Operand)
      return *std::move(placed);
    // No group scale to move is the same kernel as Accumulator.
    if (!placed->scalesOperand || (placed->mayOverflow && hasAccumulators()))
      return std::nullopt;
    return *std::move(placed);
  }
  bool hasAccumulators() const {
    return std::any_of(ways.begin(), ways.end(),
                       [](const Way &way) { return way.scales == Scales::Accumulator; });
  }

  // False: there is nothing to consider.
  bool consider(Scales scales, Roles roles, Tables tables, Variety variety) {
    std::optional<PlacedGemm> placed = placedFor(scales, roles, tables);
    if (!placed)
      return false;
    for (Schedule &schedule : scheduleCandidates(gemm, *placed, roles, problem, device, variety)) {
      if (std::optional<Objection> why = objection(gemm, *placed, problem, schedule, device)) {
        remember(*std::move(why), schedule);
      } else if (variety == Variety::All || isWorthIt(*placed, schedule)) {
        const double time = timeOf(*placed, schedule);
        found.push_back({ways.size(), schedule, time});
      }
    }
    ways.push_back({scales, *std::move(placed)});
    return true;
  }

  // What is fixed is to blame before what the planner chose, roles that take many rows before those
  // that do not, and of pipelines the shortest.
  void remember(Objection why, const Schedule &schedule) {
    const bool ofFewRows = schedule.roles == Roles::Gemv && !gemm.schedule.roles;
    if (told && ofFewRows != toldOfFewRows) {
      if (ofFewRows)
        return;
      told.reset();
    }
    bool ofStages = why.id == DiagId::schedule_shared_memory && !gemm.schedule.pipeline;
    if (told && (isOfEntry(gemm, *told) || !isOfEntry(gemm, why)) &&
        !(ofStages && told->id == why.id && schedule.pipeline < toldPipeline))
      return;
    told = std::move(why);
    toldPipeline = schedule.pipeline;
    toldOfFewRows = ofFewRows;
  }

  bool isWorthIt(const PlacedGemm &placed, const Schedule &schedule) const {
    if (!whyNotTrusted(allRoles, placed, schedule, problem, device).empty())
      return false;
    return gemm.schedule.tile || updatesPerTile(placed, schedule) <= unrollLimit;
  }

  // Settles what balances the parts of an activation first.
  double timeOf(const PlacedGemm &placed, Schedule &schedule) const {
    if (!placed.parts.empty() && schedule.splitK != 1 &&
        gemm.schedule.balance != dsl::ScheduleDecl::Balance::Tiles)
      schedule.tileCosts = tileCosts(gemm, placed, schedule, problem, device);
    return predict(gemm, placed, schedule, problem, device).microseconds;
  }

  const dsl::Gemm &gemm;
  const Problem &problem;
  const DeviceModel &device;
  const SourceMap *sources;
  const std::vector<Roles> allRoles;
  std::vector<Way> ways;
  std::vector<Candidate> found;
  std::optional<Error> illegal;  // of the first way that is
  std::optional<Objection> told; // of those to schedules
  int toldPipeline = 0;          // of that schedule
  bool toldOfFewRows = false;
};

} // namespace

Result<std::vector<Plan>> rankedPlans(const dsl::Gemm &gemm, const Problem &problem,
                                      const DeviceModel &device, size_t most,
                                      const SourceMap *sources) {
  if (Status good = checkProblem(problem); !good)
    return good.error();
  PlanSearch search(gemm, problem, device, sources);
  search.run();
  std::vector<Plan> plans = search.ranked(most);
  if (plans.empty())
    return search.error();
  return plans;
}

Result<Plan> plan(const dsl::Gemm &gemm, const Problem &problem, const DeviceModel &device,
                  const SourceMap *sources) {
  Result<std::vector<Plan>> plans = rankedPlans(gemm, problem, device, 1, sources);
  if (!plans)
    return plans.error();
  return std::move(plans->front());
}

std::optional<Error> planError(const dsl::Gemm &gemm, const PlacedGemm &placed, const Plan &plan) {
  if (plan.mmaType != mmaTypes(placed))
    return makeError(DiagId::bad_plan, {"mma " + plan.mmaType});
  Result<DeviceModel> device = modelOfTarget(plan.target);
  if (!device)
    return device.error();
  // Which device it is for the text does not say: the one that has most.
  device->sharedPerCta = mostSharedPerCta(plan.target);
  const Schedule &s = plan.schedule;
  if (!s.tileCosts.empty() && s.tileCosts.size() != placed.parts.size())
    return makeError(DiagId::bad_plan,
                     {"costs: " + std::to_string(s.tileCosts.size()) + " for an activation of " +
                      std::to_string(placed.parts.size()) + " parts"});
  if (s.dependent && !targetOf(plan.target).hasDependentLaunch)
    return makeError(DiagId::bad_plan, {"launch dependent: " + plan.target + " has none"});
  if (std::optional<Error> overflow = checkAccumulator(gemm, placed, plan.problem, nullptr))
    return overflow;
  if (std::optional<Objection> why = objection(gemm, placed, plan.problem, plan.schedule, *device))
    return makeError(why->id, why->args);
  const Geometry g = makeGeometry(placed, s);
  const bool walksTiles = g.specialized() || g.streamK;
  std::string grid(gridProblem(s.splitK, s.clusterN, s.clusterK, s.residentCtas));
  if (s.residentCtas > 0 && !walksTiles)
    grid = "each CTA of these roles has one tile";
  if (!grid.empty())
    return makeError(DiagId::bad_plan,
                     {"resident " + std::to_string(s.residentCtas) + ": " + grid});
  return std::nullopt;
}

Result<Plan> checkedPlan(const dsl::Gemm &gemm, Plan plan) {
  if (Status good = checkProblem(plan.problem); !good)
    return good.error();
  Result<PlacedGemm> placed = place(gemm, plan, nullptr);
  if (!placed)
    return placed.error();
  if (std::optional<Error> error = planError(gemm, *placed, plan))
    return *error;
  plan.placements = std::move(placed->placements);
  return plan;
}

} // namespace rho::compiler
