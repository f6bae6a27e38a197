#include "dsl/OperandRows.h"
#include "dsl/Sema.h"
#include "dsl/Words.h"

#include <span>

namespace rho::dsl {

namespace {

struct Limits {
  std::string_view what;
  int64_t min, max, multiple;
};
constexpr Limits pipelineLimits = {"pipeline", 2, ScheduleDecl::mostStages, 1};
constexpr Limits tileLimits[3] = {
    {"tile m", 1, 256, 1}, {"tile n", 16, 512, 16}, {"tile k", 16, 1024, 16}};
constexpr Limits warpLimits[3] = {
    {"warps m", 1, 16, 1}, {"warps n", 1, 16, 1}, {"warps k", 1, 16, 1}};
constexpr Limits allWarpsLimits = {"number of warps", 1, 16, 1};
constexpr Limits splitKLimits = {"split_k", 1, 64, 1};
constexpr Limits ctasLimits = {"ctas", 1, 65535, 1};
constexpr Limits clusterLimits[2] = {{"cluster n", 1, 8, 1}, {"cluster k", 1, 8, 1}};

class GemmChecker {
public:
  GemmChecker(const ast::Gemm &syntax, const FormatLookup &lookup, Findings &findings)
      : syntax(syntax), lookup(lookup), findings(findings) {}

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
            {shown(entry.key.text), here(),
             listed(entry.key.text, {"weight", "activation", "output", "schedule"})},
            entry.key.span);
    }
  }

  void operand(const ast::GemmEntry &entry, Format &format, Span &span, bool weight) {
    span = entry.value.span;
    std::shared_ptr<const Format> found = lookup(entry.value);
    if (!found) { // reported where it is declared or named
      good = false;
      return;
    }
    format = *found;
    for (const std::vector<std::string> &arguments : extentsNotInOperand(format, weight))
      error(DiagId::extent_not_in_operand, arguments, span);
  }

  void output(const ast::GemmEntry &entry) {
    gemm.outputSpan = entry.value.span;
    const std::string &name = entry.value.name.text;
    std::optional<ElementType> type = ElementType::fromName(name); // by any of its spellings
    if (type && isPlainType(type->name()) && !entry.value.parentheses)
      gemm.output = *type;
    else
      error(DiagId::unknown_name,
            {"output type", shown(ast::print(entry.value)), hint(name, plainTypes())},
            entry.value.span);
  }

  // --- schedule

  void schedules() {
    for (size_t i = 1; i < syntax.schedules.size(); ++i)
      error(DiagId::duplicate_entry, {"schedule", here()}, syntax.schedules[i].span);
    if (syntax.schedules.empty())
      return;
    gemm.schedule.spans.schedule = syntax.schedules[0].span;
    for (const ast::ScheduleEntry &entry : syntax.schedules[0].entries)
      scheduleEntry(entry);
  }

  // The entries that a schedule may have, and what reads them.
  struct ScheduleKey {
    std::string_view name;
    Span ScheduleDecl::Spans::*span;
    void (GemmChecker::*read)(const ast::ScheduleEntry &);
  };
  static std::span<const ScheduleKey> scheduleKeys() {
    using Spans = ScheduleDecl::Spans;
    static constexpr ScheduleKey keys[] = {
        {"pipeline", &Spans::pipeline, &GemmChecker::pipeline},
        {"tile", &Spans::tile, &GemmChecker::tile},
        {"warps", &Spans::warps, &GemmChecker::warps},
        {"split_k", &Spans::splitK, &GemmChecker::splitK},
        {"ctas", &Spans::ctas, &GemmChecker::ctas},
        {"scales", &Spans::scales, &GemmChecker::choose<&ScheduleDecl::scales>},
        {"sums", &Spans::sums, &GemmChecker::choose<&ScheduleDecl::sums>},
        {"roles", &Spans::roles, &GemmChecker::choose<&ScheduleDecl::roles>},
        {"balance", &Spans::balance, &GemmChecker::choose<&ScheduleDecl::balance>},
        {"packing", &Spans::packing, &GemmChecker::choose<&ScheduleDecl::packing>},
        {"tables", &Spans::tables, &GemmChecker::choose<&ScheduleDecl::tables>},
        {"cluster", &Spans::cluster, &GemmChecker::cluster},
        {"launch", &Spans::launch, &GemmChecker::launch},
    };
    return keys;
  }

  void scheduleEntry(const ast::ScheduleEntry &entry) {
    const std::string where = "the schedule of " + here();
    std::vector<std::string> names;
    for (const ScheduleKey &key : scheduleKeys()) {
      names.emplace_back(key.name);
      if (key.name != entry.key.text)
        continue;
      if (first(gemm.schedule.spans.*key.span, entry.key, where))
        (this->*key.read)(entry);
      return;
    }
    error(DiagId::unknown_entry, {shown(entry.key.text), where, listed(entry.key.text, names)},
          entry.key.span);
  }

  void pipeline(const ast::ScheduleEntry &entry) {
    if (numbers(entry, {&pipelineLimits, 1}, "a number of stages"))
      gemm.schedule.pipeline = entry.numbers[0].value;
  }

  void tile(const ast::ScheduleEntry &entry) {
    if (numbers(entry, tileLimits, "M x N x K"))
      gemm.schedule.tile = {entry.numbers[0].value, entry.numbers[1].value, entry.numbers[2].value};
  }

  void warps(const ast::ScheduleEntry &entry) {
    const bool groups = entry.numbers.size() == 3;
    if (!numbers(entry, {warpLimits, size_t(groups ? 3 : 2)}, "M x N or M x N x K"))
      return;
    int64_t m = entry.numbers[0].value, n = entry.numbers[1].value;
    int64_t k = groups ? entry.numbers[2].value : 1;
    if (within(m * n * k, allWarpsLimits, entry.key.span))
      gemm.schedule.warps = {m, n, k};
  }

  void splitK(const ast::ScheduleEntry &entry) {
    constexpr const char *form = "a number of parts of k or stream";
    if (entry.word && entry.word->text == "stream")
      gemm.schedule.splitK = ScheduleDecl::streamK;
    else if (entry.word)
      wordForm(entry, form);
    else if (numbers(entry, {&splitKLimits, 1}, form))
      gemm.schedule.splitK = entry.numbers[0].value;
  }

  void ctas(const ast::ScheduleEntry &entry) {
    if (numbers(entry, {&ctasLimits, 1}, "a number of CTAs"))
      gemm.schedule.ctas = entry.numbers[0].value;
  }

  void cluster(const ast::ScheduleEntry &entry) {
    if (numbers(entry, clusterLimits, "N x K"))
      gemm.schedule.cluster = {entry.numbers[0].value, entry.numbers[1].value};
  }

  // One of the words of a choice.
  template <auto choice> void choose(const ast::ScheduleEntry &entry) {
    auto &chosen = gemm.schedule.*choice;
    using Choice = typename std::remove_reference_t<decltype(chosen)>::value_type;
    if (entry.word)
      chosen = named<Choice>(entry.word->text);
    if (chosen)
      return;
    const std::vector<std::string> words = scheduleWords(entry.key.text);
    std::string form;
    for (size_t i = 0; i < words.size(); ++i)
      form += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
    wordForm(entry, form);
  }

  void launch(const ast::ScheduleEntry &entry) {
    if (entry.word && (entry.word->text == "serial" || entry.word->text == "dependent"))
      gemm.schedule.dependent = entry.word->text == "dependent";
    else
      wordForm(entry, "serial or dependent");
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

  // An entry that takes a word, or numbers, has something else.
  void wordForm(const ast::ScheduleEntry &entry, const std::string &form) {
    const std::vector<std::string> words = scheduleWords(entry.key.text);
    error(DiagId::schedule_form,
          {entry.key.text, form + (entry.word ? suggestion(entry.word->text, words) : "")},
          entry.key.span);
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

  const ast::Gemm &syntax;
  const FormatLookup &lookup;
  Findings &findings;
  Gemm gemm;
  bool good = true;
};

} // namespace

std::optional<Gemm> checkGemm(const ast::Gemm &gemm, const FormatLookup &lookup,
                              Findings &findings) {
  return GemmChecker(gemm, lookup, findings).run();
}

} // namespace rho::dsl
