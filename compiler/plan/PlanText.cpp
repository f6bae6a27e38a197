// Plans as canonical text.
#include "compiler/Plan.h"
#include "dsl/Findings.h"
#include "dsl/Numbers.h"

#include <algorithm>
#include <charconv>
#include <iomanip>
#include <set>

namespace rho::compiler {

namespace {

using Packing = dsl::ScheduleDecl::Packing;
using Tables = dsl::ScheduleDecl::Tables;

constexpr std::string_view placementKey = "place";

// Whether a text is `pattern` with a number in place of each '#', which go to `numbers`.
bool readNumbers(std::string_view text, std::string_view pattern,
                 std::initializer_list<int64_t *> numbers) {
  const char *at = text.data(), *end = at + text.size();
  const auto *number = numbers.begin();
  for (char expected : pattern) {
    if (at == end || (expected != '#' && *at != expected) || (expected == '#' && *at == '-'))
      return false;
    if (expected != '#') {
      ++at;
      continue;
    }
    auto [next, error] = std::from_chars(at, end, **number++);
    if (error != std::errc())
      return false;
    at = next;
  }
  return at == end;
}

// Sizes that no plan has to be read with, before what can be generated is asked.
bool areSizes(std::initializer_list<int64_t> values) {
  return std::all_of(values.begin(), values.end(),
                     [](int64_t value) { return value >= 1 && value <= largestExtent; });
}

bool readCosts(const std::string &rest, Plan &plan) {
  std::vector<int64_t> &costs = plan.schedule.tileCosts;
  dsl::TextReader numbers(rest);
  for (int64_t cost = 0; numbers >> cost;)
    costs.push_back(cost);
  return numbers.eof() && !costs.empty() && std::all_of(costs.begin(), costs.end(), [](int64_t c) {
           return c >= 1 && c <= Schedule::largestCost;
         });
}

bool readPredicted(const std::string &rest, Plan &plan) {
  dsl::TextReader number(rest);
  std::string unit;
  return (number >> plan.predictedMicroseconds >> unit) && unit == "us";
}

bool readSplit(const std::string &rest, Plan &plan) {
  int64_t &splitK = plan.schedule.splitK;
  if (rest == "stream") {
    splitK = dsl::ScheduleDecl::streamK;
    return true;
  }
  return readNumbers(rest, "#", {&splitK}) && splitK >= 1;
}

bool readPipeline(const std::string &rest, Plan &plan) {
  int64_t depth = 0;
  const bool good =
      readNumbers(rest, "#", {&depth}) && depth >= 2 && depth <= dsl::ScheduleDecl::mostStages;
  plan.schedule.pipeline = static_cast<int>(depth);
  return good;
}

bool readResident(const std::string &rest, Plan &plan) {
  Schedule &s = plan.schedule;
  return readNumbers(rest, "# at #", {&s.residentCtas, &s.ctasPerSm}) && s.ctasPerSm >= 1 &&
         s.ctasPerSm <= Schedule::mostCtasPerSm && s.residentCtas >= 0 &&
         s.residentCtas <= Schedule::mostResidentCtas;
}

template <class Choice> bool readWord(const std::string &rest, Choice &choice) {
  const std::optional<Choice> known = dsl::named<Choice>(rest);
  choice = known.value_or(choice);
  return known.has_value();
}

// "weight.scale in operand: why"
bool readPlacement(const std::string &rest, Plan &plan) {
  constexpr std::string_view in = " in ", why = ": ";
  const size_t place = rest.find(in), reason = rest.find(why, place);
  if (place == std::string::npos || reason == std::string::npos)
    return false;
  const std::string where = rest.substr(place + in.size(), reason - place - in.size());
  for (Placement one :
       {Placement::Operand, Placement::Accumulator, Placement::Epilogue, Placement::Hardware})
    if (where == name(one)) {
      plan.placements.push_back({rest.substr(0, place), one, rest.substr(reason + why.size())});
      return true;
    }
  return false;
}

// The lines of a plan in any order, each at most once but for those of placements.
struct Field {
  std::string_view key;
  bool (*read)(const std::string &rest, Plan &plan);
};
constexpr Field fields[] = {
    {"m",
     [](const std::string &rest, Plan &plan) {
       return readNumbers(rest, "#", {&plan.problem.m}) && areSizes({plan.problem.m});
     }},
    {"shape",
     [](const std::string &rest, Plan &plan) {
       Problem &p = plan.problem;
       return readNumbers(rest, "n=# k=#", {&p.n, &p.k}) && areSizes({p.n, p.k});
     }},
    {"target",
     [](const std::string &rest, Plan &plan) {
       plan.target = rest;
       return !rest.empty();
     }},
    {"mma",
     [](const std::string &rest, Plan &plan) {
       plan.mmaType = rest;
       return true;
     }},
    {"scales",
     [](const std::string &rest, Plan &plan) { return readWord(rest, plan.groupScales); }},
    {"tile",
     [](const std::string &rest, Plan &plan) {
       Schedule &s = plan.schedule;
       return readNumbers(rest, "# x # x #", {&s.tileM, &s.tileN, &s.tileK}) &&
              areSizes({s.tileM, s.tileN, s.tileK});
     }},
    {"warps",
     [](const std::string &rest, Plan &plan) {
       Schedule &s = plan.schedule;
       return readNumbers(rest, "# x # x #", {&s.warpsM, &s.warpsN, &s.warpsK}) &&
              areSizes({s.warpsM, s.warpsN, s.warpsK});
     }},
    {"pipeline", readPipeline},
    {"split_k", readSplit},
    {"sums",
     [](const std::string &rest, Plan &plan) { return readWord(rest, plan.schedule.sums); }},
    {"roles",
     [](const std::string &rest, Plan &plan) { return readWord(rest, plan.schedule.roles); }},
    {"cluster",
     [](const std::string &rest, Plan &plan) {
       Schedule &s = plan.schedule;
       return readNumbers(rest, "# x #", {&s.clusterN, &s.clusterK}) &&
              areSizes({s.clusterN, s.clusterK});
     }},
    {"launch",
     [](const std::string &rest, Plan &plan) {
       plan.schedule.dependent = rest == "dependent";
       return plan.schedule.dependent || rest == "serial";
     }},
    {"resident", readResident},
    {"packing",
     [](const std::string &rest, Plan &plan) { return readWord(rest, plan.schedule.packing); }},
    {"tables",
     [](const std::string &rest, Plan &plan) { return readWord(rest, plan.schedule.tables); }},
    {placementKey, readPlacement},
    {"predicted", readPredicted},
    {"costs", readCosts},
};

} // namespace

std::string Plan::printForKernel() const {
  dsl::TextWriter out;
  bool streams = schedule.streamsK();
  out << "shape n=" << problem.n << " k=" << problem.k << '\n'
      << "target " << target << '\n'
      << "mma " << mmaType << '\n'
      << "scales " << dsl::name(groupScales) << '\n'
      << "tile " << schedule.tileM << " x " << schedule.tileN << " x " << schedule.tileK << '\n'
      << "warps " << schedule.warpsM << " x " << schedule.warpsN << " x " << schedule.warpsK << '\n'
      << "pipeline " << schedule.pipeline << '\n'
      << "split_k " << (streams ? "stream" : std::to_string(schedule.splitK)) << '\n'
      << "sums " << dsl::name(schedule.sums) << '\n'
      << "roles " << dsl::name(schedule.roles) << '\n'
      << "cluster " << schedule.clusterN << " x " << schedule.clusterK << '\n'
      << "launch " << (schedule.dependent ? "dependent" : "serial") << '\n'
      << "resident " << schedule.residentCtas << " at " << schedule.ctasPerSm << '\n';
  if (schedule.packing == Packing::Panels)
    out << "packing panels\n";
  if (schedule.tables != Tables::Registers)
    out << "tables " << dsl::name(schedule.tables) << '\n';
  if (!schedule.tileCosts.empty()) {
    out << "costs";
    for (int64_t cost : schedule.tileCosts)
      out << ' ' << cost;
    out << '\n';
  }
  return out.str();
}

std::string Plan::print() const {
  dsl::TextWriter out;
  out << "m " << problem.m << '\n' << printForKernel();
  for (const FactorPlacement &placement : placements)
    out << placementKey << ' ' << placement.factor << " in " << name(placement.placement) << ": "
        << placement.reason << '\n';
  out << std::fixed << std::setprecision(2) << "predicted " << predictedMicroseconds << " us\n";
  return out.str();
}

Result<Plan> Plan::parse(std::string_view text) {
  Plan plan;
  plan.problem.m = 1;
  dsl::TextReader lines{std::string(text)};
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty())
      continue;
    const size_t space = line.find(' ');
    const std::string key = line.substr(0, space);
    const auto field = std::find_if(std::begin(fields), std::end(fields),
                                    [&](const Field &each) { return each.key == key; });
    const bool isNew = seen.insert(key).second || key == placementKey;
    if (field == std::end(fields) || !isNew ||
        !field->read(space == std::string::npos ? "" : line.substr(space + 1), plan))
      return makeError(DiagId::bad_plan, {dsl::shown(line)});
  }
  for (const char *needed : {"shape", "target", "mma", "tile", "warps", "pipeline"})
    if (!seen.contains(needed))
      return makeError(DiagId::bad_plan, {std::string("its end: ") + needed + " is missing"});
  if (const Schedule &s = plan.schedule; s.clusterK != 1 && s.clusterK != s.splitK)
    return makeError(DiagId::bad_plan, {"cluster " + std::to_string(s.clusterN) + " x " +
                                        std::to_string(s.clusterK)});
  return plan;
}

} // namespace rho::compiler
