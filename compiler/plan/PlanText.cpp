// Plans as canonical text.
#include "compiler/Plan.h"
#include "dsl/Numbers.h"

#include <algorithm>
#include <charconv>
#include <iomanip>

namespace rho::compiler {

namespace {

using Scales = dsl::ScheduleDecl::Scales;
using Packing = dsl::ScheduleDecl::Packing;
using Sums = dsl::ScheduleDecl::Sums;

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

} // namespace

std::string Plan::printForKernel() const {
  dsl::TextWriter out;
  bool streams = schedule.splitK == dsl::ScheduleDecl::streamK;
  out << "shape n=" << problem.n << " k=" << problem.k << '\n'
      << "target " << target << '\n'
      << "mma " << mmaType << '\n'
      << "scales " << dsl::name(groupScales) << '\n'
      << "tile " << schedule.tileM << " x " << schedule.tileN << " x " << schedule.tileK << '\n'
      << "warps " << schedule.warpsM << " x " << schedule.warpsN << " x " << schedule.warpsK << '\n'
      << "pipeline " << schedule.pipeline << '\n'
      << "split_k " << (streams ? "stream" : std::to_string(schedule.splitK)) << '\n'
      << "sums " << (schedule.sums == Sums::Biased ? "biased" : "converted") << '\n'
      << "roles " << dsl::name(schedule.roles) << '\n'
      << "cluster " << schedule.clusterN << " x " << schedule.clusterK << '\n'
      << "launch " << (schedule.dependent ? "dependent" : "serial") << '\n'
      << "resident " << schedule.residentCtas << " at " << schedule.ctasPerSm << '\n';
  if (schedule.packing == Packing::Panels)
    out << "packing panels\n";
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
    out << "place " << placement.factor << " in " << name(placement.placement) << ": "
        << placement.reason << '\n';
  out << std::fixed << std::setprecision(2) << "predicted " << predictedMicroseconds << " us\n";
  return out.str();
}

Result<Plan> Plan::parse(std::string_view text) {
  Plan plan;
  plan.problem.m = 1;
  dsl::TextReader lines{std::string(text)};
  bool shape = false, tile = false, warps = false, pipeline = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty())
      continue;
    size_t space = line.find(' ');
    std::string key = line.substr(0, space);
    std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    Schedule &s = plan.schedule;
    int64_t depth = 0;
    bool good = true;
    if (key == "m") {
      good = readNumbers(rest, "#", {&plan.problem.m}) && areSizes({plan.problem.m});
    } else if (key == "shape") {
      good = shape = readNumbers(rest, "n=# k=#", {&plan.problem.n, &plan.problem.k}) &&
                     areSizes({plan.problem.n, plan.problem.k});
    } else if (key == "target") {
      plan.target = rest;
    } else if (key == "mma") {
      plan.mmaType = rest;
    } else if (key == "scales") {
      std::optional<Scales> scales = dsl::scalesNamed(rest);
      good = scales.has_value();
      plan.groupScales = scales.value_or(plan.groupScales);
    } else if (key == "tile") {
      good = tile = readNumbers(rest, "# x # x #", {&s.tileM, &s.tileN, &s.tileK}) &&
                    areSizes({s.tileM, s.tileN, s.tileK});
    } else if (key == "warps") {
      good = warps = readNumbers(rest, "# x # x #", {&s.warpsM, &s.warpsN, &s.warpsK}) &&
                     areSizes({s.warpsM, s.warpsN, s.warpsK});
    } else if (key == "pipeline") {
      good = pipeline =
          readNumbers(rest, "#", {&depth}) && depth >= 2 && depth <= dsl::ScheduleDecl::mostStages;
      s.pipeline = static_cast<int>(depth);
    } else if (key == "split_k") {
      if (rest == "stream")
        s.splitK = dsl::ScheduleDecl::streamK;
      else
        good = readNumbers(rest, "#", {&s.splitK}) && s.splitK >= 1;
    } else if (key == "sums") {
      good = rest == "converted" || rest == "biased";
      s.sums = rest == "biased" ? Sums::Biased : Sums::Converted;
    } else if (key == "roles") {
      std::optional<dsl::ScheduleDecl::Roles> roles = dsl::rolesNamed(rest);
      good = roles.has_value();
      s.roles = roles.value_or(s.roles);
    } else if (key == "cluster") {
      good = readNumbers(rest, "# x #", {&s.clusterN, &s.clusterK}) && s.clusterN >= 1 &&
             (s.clusterK == 1 || s.clusterK == s.splitK);
    } else if (key == "launch") {
      good = rest == "serial" || rest == "dependent";
      s.dependent = rest == "dependent";
    } else if (key == "resident") {
      good = readNumbers(rest, "# at #", {&s.residentCtas, &s.ctasPerSm}) && s.ctasPerSm >= 1 &&
             s.ctasPerSm <= Schedule::mostCtasPerSm && s.residentCtas >= 0 &&
             s.residentCtas <= Schedule::mostResidentCtas;
    } else if (key == "packing") {
      good = rest == "tiles" || rest == "panels";
      s.packing = rest == "panels" ? Packing::Panels : Packing::Tiles;
    } else if (key == "predicted") {
      dsl::TextReader number(rest);
      std::string unit;
      good = (number >> plan.predictedMicroseconds >> unit) && unit == "us";
    } else if (key == "costs") {
      dsl::TextReader numbers(rest);
      for (int64_t cost = 0; numbers >> cost;)
        s.tileCosts.push_back(cost);
      good = numbers.eof() && !s.tileCosts.empty() &&
             std::all_of(s.tileCosts.begin(), s.tileCosts.end(),
                         [](int64_t cost) { return cost >= 1 && cost <= Schedule::largestCost; });
    } else {
      good = key == "place"; // follows from the others
    }
    if (!good)
      return makeError(DiagId::bad_plan, {line});
  }
  if (!shape || !tile || !warps || !pipeline || plan.target.empty())
    return makeError(DiagId::bad_plan,
                     {"its end: shape, target, tile, warps or pipeline is missing"});
  return plan;
}

} // namespace rho::compiler
