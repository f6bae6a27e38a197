#include "dsl/Sema.h"

#include <algorithm>
#include <span>

namespace rho::dsl {

namespace {

const std::vector<std::string> &plainTypes() {
  static const std::vector<std::string> names = {"f16", "bf16", "f32"};
  return names;
}

bool isPlainType(const std::string &name) {
  return std::find(plainTypes().begin(), plainTypes().end(), name) != plainTypes().end();
}

struct Limits {
  std::string_view what;
  int64_t min, max, multiple;
};
constexpr Limits pipelineLimits = {"pipeline", 2, 8, 1};
constexpr Limits tileLimits[3] = {
    {"tile m", 1, 256, 1}, {"tile n", 16, 512, 16}, {"tile k", 16, 1024, 16}};
constexpr Limits warpLimits[3] = {
    {"warps m", 1, 16, 1}, {"warps n", 1, 16, 1}, {"warps k", 1, 16, 1}};
constexpr Limits allWarpsLimits = {"number of warps", 1, 16, 1};
constexpr Limits splitKLimits = {"split_k", 1, 64, 1};
constexpr Limits clusterLimits[2] = {{"cluster n", 1, 8, 1}, {"cluster k", 1, 8, 1}};

class GemmChecker {
public:
  GemmChecker(const ast::Gemm &syntax, const FormatTable &formats, Findings &findings)
      : syntax(syntax), formats(formats), findings(findings) {}

  std::optional<Gemm> run() {
    gemm.name = syntax.name.text;
    gemm.span = syntax.name.span;
    good = !syntax.broken;
    if (isReserved(gemm.name, false))
      error(DiagId::reserved_name, {gemm.name, "gemm"}, gemm.span);
    for (const ast::GemmEntry &entry : syntax.entries)
      this->entry(entry);
    if (!syntax.broken)
      for (auto [key, seen] : {std::pair{"weight", gemm.weightSpan},
                               {"activation", gemm.activationSpan},
                               {"output", gemm.outputSpan}})
        if (seen.file == Span::none)
          error(DiagId::missing_entry, {gemm.name, key}, gemm.span);
    schedules();
    if (!good)
      return std::nullopt;
    return std::move(gemm);
  }

private:
  void error(DiagId id, const std::vector<std::string> &args, Span span) {
    findings.add(id, args, span);
    good = false;
  }
  std::string here() const { return "gemm '" + gemm.name + "'"; }

  bool first(Span &seen, const ast::Name &key, const std::string &where) {
    if (seen.file != Span::none) {
      error(DiagId::duplicate_entry, {key.text, where}, key.span);
      return false;
    }
    seen = key.span;
    return true;
  }

  void entry(const ast::GemmEntry &entry) {
    if (entry.key.text == "weight") {
      if (first(gemm.weightSpan, entry.key, here()))
        operand(entry, gemm.weight, gemm.weightSpan, true);
    } else if (entry.key.text == "activation") {
      if (first(gemm.activationSpan, entry.key, here()))
        operand(entry, gemm.activation, gemm.activationSpan, false);
    } else if (entry.key.text == "output") {
      if (first(gemm.outputSpan, entry.key, here()))
        output(entry);
    } else {
      error(DiagId::unknown_entry,
            {shown(entry.key.text), here(), "weight, activation, output, schedule"},
            entry.key.span);
    }
  }

  void operand(const ast::GemmEntry &entry, Format &format, Span &span, bool weight) {
    span = entry.value.span;
    const std::string &name = entry.value.text;
    if (isPlainType(name)) {
      format = plainFormat(ElementType::get(name));
      return;
    }
    auto found = formats.find(name);
    if (found == formats.end()) {
      std::vector<std::string> known = plainTypes();
      for (const auto &[candidate, unused] : formats)
        known.push_back(candidate);
      return error(DiagId::unknown_name, {"format", shown(name), hint(name, known)}, span);
    }
    if (!found->second) { // reported where it is declared
      good = false;
      return;
    }
    format = *found->second;
    for (const Component &component : format.components)
      if ((component.extent == Extent::Row || component.rows > 1) && component.perToken == weight)
        error(
            DiagId::extent_not_in_operand,
            {format.name, component.name, printExtent(component), weight ? "weight" : "activation",
             weight ? "the rows of a weight are channels" : "the rows of an activation are tokens"},
            span);
  }

  void output(const ast::GemmEntry &entry) {
    gemm.outputSpan = entry.value.span;
    if (isPlainType(entry.value.text))
      gemm.output = ElementType::get(entry.value.text);
    else
      error(DiagId::unknown_name,
            {"output type", shown(entry.value.text), hint(entry.value.text, plainTypes())},
            entry.value.span);
  }

  // --- schedule

  void schedules() {
    for (size_t i = 1; i < syntax.schedules.size(); ++i)
      error(DiagId::duplicate_entry, {"schedule", here()}, syntax.schedules[i].span);
    if (syntax.schedules.empty())
      return;
    gemm.schedule.span = syntax.schedules[0].span;
    for (const ast::ScheduleEntry &entry : syntax.schedules[0].entries)
      scheduleEntry(entry);
  }

  void scheduleEntry(const ast::ScheduleEntry &entry) {
    ScheduleDecl &schedule = gemm.schedule;
    const std::string &key = entry.key.text;
    const std::string where = "the schedule of " + here();
    if (key == "pipeline") {
      if (first(schedule.pipelineSpan, entry.key, where) &&
          numbers(entry, {&pipelineLimits, 1}, "a number of stages"))
        schedule.pipeline = entry.numbers[0].value;
    } else if (key == "tile") {
      if (first(schedule.tileSpan, entry.key, where) && numbers(entry, tileLimits, "M x N x K"))
        schedule.tile = {entry.numbers[0].value, entry.numbers[1].value, entry.numbers[2].value};
    } else if (key == "warps") {
      size_t count = entry.numbers.size() == 3 ? 3 : 2;
      if (first(schedule.warpsSpan, entry.key, where) &&
          numbers(entry, {warpLimits, count}, "M x N or M x N x K"))
        warps(entry);
    } else if (key == "split_k") {
      if (!first(schedule.splitKSpan, entry.key, where))
        return;
      if (entry.word && entry.word->text == "stream")
        schedule.splitK = ScheduleDecl::streamK;
      else if (numbers(entry, {&splitKLimits, 1}, "a number of parts of k or stream"))
        schedule.splitK = entry.numbers[0].value;
    } else if (key == "scales") {
      if (first(schedule.scalesSpan, entry.key, where))
        scales(entry);
    } else if (key == "sums") {
      if (first(schedule.sumsSpan, entry.key, where))
        sums(entry);
    } else if (key == "roles") {
      if (first(schedule.rolesSpan, entry.key, where))
        roles(entry);
    } else if (key == "cluster") {
      if (first(schedule.clusterSpan, entry.key, where) && numbers(entry, clusterLimits, "N x K"))
        schedule.cluster = {entry.numbers[0].value, entry.numbers[1].value};
    } else if (key == "launch") {
      if (first(schedule.launchSpan, entry.key, where))
        launch(entry);
    } else {
      error(DiagId::unknown_entry,
            {shown(key), where,
             "pipeline, tile, warps, split_k, scales, sums, roles, cluster, launch"},
            entry.key.span);
    }
  }

  // Whether the entry has as many numbers as there are limits, all within them.
  bool numbers(const ast::ScheduleEntry &entry, std::span<const Limits> limits,
               const std::string &form) {
    if (entry.numbers.size() != limits.size()) {
      error(DiagId::schedule_form, {entry.key.text, form}, entry.key.span);
      return false;
    }
    bool all = true;
    for (size_t i = 0; i < limits.size(); ++i)
      all = within(entry.numbers[i].value, limits[i], entry.numbers[i].span) && all;
    return all;
  }

  bool within(int64_t value, const Limits &limits, Span span) {
    std::string what(limits.what);
    if (value < limits.min || value > limits.max)
      error(DiagId::schedule_out_of_range,
            {what, std::to_string(value),
             std::to_string(limits.min) + " and " + std::to_string(limits.max)},
            span);
    else if (value % limits.multiple != 0)
      error(DiagId::schedule_not_multiple,
            {what, std::to_string(value), std::to_string(limits.multiple)}, span);
    else
      return true;
    return false;
  }

  void warps(const ast::ScheduleEntry &entry) {
    int64_t m = entry.numbers[0].value, n = entry.numbers[1].value;
    int64_t k = entry.numbers.size() == 3 ? entry.numbers[2].value : 1;
    if (within(m * n * k, allWarpsLimits, entry.key.span))
      gemm.schedule.warps = {m, n, k};
  }

  void scales(const ast::ScheduleEntry &entry) {
    if (entry.word && entry.word->text == "operand")
      gemm.schedule.scales = ScheduleDecl::Scales::Operand;
    else if (entry.word && entry.word->text == "accumulator")
      gemm.schedule.scales = ScheduleDecl::Scales::Accumulator;
    else
      error(DiagId::schedule_form, {"scales", "operand or accumulator"}, entry.key.span);
  }

  void sums(const ast::ScheduleEntry &entry) {
    if (entry.word && entry.word->text == "converted")
      gemm.schedule.sums = ScheduleDecl::Sums::Converted;
    else if (entry.word && entry.word->text == "biased")
      gemm.schedule.sums = ScheduleDecl::Sums::Biased;
    else
      error(DiagId::schedule_form, {"sums", "converted or biased"}, entry.key.span);
  }

  void roles(const ast::ScheduleEntry &entry) {
    if (entry.word)
      gemm.schedule.roles = rolesNamed(entry.word->text);
    if (!gemm.schedule.roles)
      error(DiagId::schedule_form, {"roles", "uniform, imfp, excp or gemv"}, entry.key.span);
  }

  void launch(const ast::ScheduleEntry &entry) {
    if (entry.word && (entry.word->text == "serial" || entry.word->text == "dependent"))
      gemm.schedule.dependent = entry.word->text == "dependent";
    else
      error(DiagId::schedule_form, {"launch", "serial or dependent"}, entry.key.span);
  }

  const ast::Gemm &syntax;
  const FormatTable &formats;
  Findings &findings;
  Gemm gemm;
  bool good = true;
};

} // namespace

std::optional<Gemm> checkGemm(const ast::Gemm &gemm, const FormatTable &formats,
                              Findings &findings) {
  return GemmChecker(gemm, formats, findings).run();
}

} // namespace rho::dsl
