#include "runtime/CacheEntries.h"

#include "compiler/Compiler.h"
#include "dsl/Findings.h"
#include "dsl/Numbers.h"
#include "runtime/QuantizerSource.h"
#include "runtime/ReadNumber.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

namespace rho {
namespace {

constexpr const char *labelFile = "label";
constexpr const char *asDeclared = "as declared";
constexpr int64_t defaultLimit = int64_t(1) << 30;

struct KindName {
  EntryKind kind;
  std::string_view name;
};
constexpr std::array kinds = {
    KindName{EntryKind::Kernel, "kernel"},   KindName{EntryKind::Quantizer, "quantizer"},
    KindName{EntryKind::Plan, "plan"},       KindName{EntryKind::TunedPlan, "tuned plan"},
    KindName{EntryKind::Unknown, "unknown"},
};

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

std::string defaultFolder() {
  if (std::string folder = environment("RHO_CACHE_DIR"); !folder.empty())
    return folder;
  // Its specification says that a path of it that does not begin at the root counts for nothing.
  if (std::string folder = environment("XDG_CACHE_HOME"); folder.starts_with('/'))
    return folder + "/rho";
  if (std::string folder = environment("HOME"); !folder.empty())
    return folder + "/.cache/rho";
  return {};
}

Result<int64_t> cacheLimit(int64_t chosen) {
  if (chosen < 0)
    return makeError(DiagId::bad_cache_limit, {"cacheLimitBytes", std::to_string(chosen)});
  if (chosen > 0)
    return chosen;
  std::string text = environment("RHO_CACHE_LIMIT");
  if (text.empty())
    return defaultLimit;
  if (std::optional<int64_t> bytes = parseByteCount(text))
    return *bytes;
  return makeError(DiagId::bad_cache_limit, {"$RHO_CACHE_LIMIT", text});
}

std::optional<double> readTime(const std::string &text) {
  const std::optional<double> value = readNumber<double>(text);
  return value && *value > 0 && std::isfinite(*value) ? value : std::nullopt;
}

std::string bytesOf(const cache::Entry &entry, const char *file) {
  auto found = entry.find(file);
  return found == entry.end() ? std::string() : found->second;
}

} // namespace

Result<CacheFolders> cacheFolders(const EngineOptions &options) {
  CacheFolders folders;
  if (options.diskCache) {
    Result<int64_t> limit = cacheLimit(options.cacheLimitBytes);
    if (!limit)
      return limit.error();
    folders.kernels.limitBytes = *limit;
    folders.kernels.directory =
        options.cacheDirectory.empty() ? defaultFolder() : options.cacheDirectory;
    if (folders.kernels.directory.empty())
      folders.kernels.whyNone = makeDiagnostic(DiagId::no_cache_folder, {}).message;
  }
  folders.kernels.readOnly = options.cacheReadOnly;
  folders.tuned.readOnly = options.cacheReadOnly;
  folders.tuned.limitBytes = int64_t(64) << 20; // an entry has about 2 KB
  if (!options.tunedDirectory.empty())
    folders.tuned.directory = options.tunedDirectory;
  else if (!folders.kernels.directory.empty())
    folders.tuned.directory = folders.kernels.directory + "/tuned";
  // The folders stay the same ones where the process changes its own.
  for (std::string *folder : {&folders.kernels.directory, &folders.tuned.directory}) {
    std::error_code error;
    std::filesystem::path absolute;
    if (!folder->empty())
      absolute = std::filesystem::absolute(*folder, error);
    if (!error)
      *folder = absolute.string();
    if (folder->find('\0') != folder->npos)
      return makeError(DiagId::bad_cache_folder,
                       {dsl::shown(*folder), "no name of a folder has a NUL"});
  }
  auto canonical = [](const std::string &folder) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::weakly_canonical(folder + "/", error);
    return error ? folder : path.string();
  };
  if (const std::string &kernels = folders.kernels.directory;
      !kernels.empty() && canonical(kernels) == canonical(folders.tuned.directory))
    return makeError(DiagId::bad_cache_folder,
                     {dsl::shown(kernels), "kernels and tuned plans have a folder each"});
  return folders;
}

std::optional<int64_t> parseByteCount(std::string_view text) {
  constexpr std::string_view units = "KMG";
  const size_t unit = text.empty() ? units.npos : units.find(text.back());
  if (unit != units.npos)
    text.remove_suffix(1);
  const int64_t factor = unit != units.npos ? int64_t(1) << 10 * (unit + 1) : 1;
  const std::optional<int64_t> count = readNumber<int64_t>(text);
  if (!count || *count < 1 || *count > std::numeric_limits<int64_t>::max() / factor)
    return std::nullopt;
  return *count * factor;
}

std::string generatorName() {
  return "build " + std::string(compiler::buildId()) + " with LLVM " +
         std::string(compiler::llvmVersion());
}

std::string makerOf(EntryKind kind) {
  if (kind != EntryKind::Quantizer)
    return generatorName();
  return "quantizer program " + cache::hex(cache::sha256(quantizerProgram()));
}

std::string_view name(EntryKind kind) { return kinds[static_cast<size_t>(kind)].name; }

std::string problemText(const std::string &rows, const compiler::Problem &problem) {
  return "m " + rows + ", n " + std::to_string(problem.n) + ", k " + std::to_string(problem.k);
}

void label(cache::Entry &entry, const EntryLabel &label) {
  entry[labelFile] = "kind " + std::string(name(label.kind)) + "\nname " + label.name +
                     "\nproblem " + label.problem + "\ntarget " + label.target + "\ndevice " +
                     label.device + "\nmaker " + label.maker + "\n";
}

EntryLabel labelOf(const cache::Entry &entry) {
  EntryLabel label;
  label.maker.clear();
  std::string kept = bytesOf(entry, labelFile);
  for (std::string_view line : dsl::split(kept, '\n')) {
    size_t space = line.find(' ');
    if (space == std::string_view::npos)
      continue;
    std::string_view word = line.substr(0, space), value = line.substr(space + 1);
    for (auto [known, field] :
         {std::pair{"name", &label.name}, std::pair{"problem", &label.problem},
          std::pair{"target", &label.target}, std::pair{"device", &label.device},
          std::pair{"maker", &label.maker}})
      if (word == known)
        *field = value;
    for (const KindName &kind : kinds)
      if (word == "kind" && value == kind.name)
        label.kind = kind.kind;
  }
  return label;
}

cache::Entry kernelEntry(const compiler::KernelImage &image, const std::string &code) {
  cache::Entry entry = {{"facts", image.printFacts()}, {"ptx", image.ptx}};
  if (!code.empty())
    entry.emplace("cubin", code);
  return entry;
}

std::string readKernel(const cache::Entry &entry, compiler::KernelImage &image, std::string &code) {
  if (!entry.contains("facts") || !entry.contains("ptx"))
    return "it holds no kernel";
  Result<compiler::KernelImage> read =
      compiler::KernelImage::parse(entry.at("facts"), entry.at("ptx"));
  if (!read)
    return read.error().diagnostics[0].message;
  image = std::move(*read);
  code = bytesOf(entry, "cubin");
  return {};
}

cache::Entry planEntry(const compiler::Plan &plan, double microseconds) {
  return {{"plan", plan.print()}, {"microseconds", dsl::printNumber(microseconds)}};
}

std::string readPlan(const cache::Entry &entry, compiler::Plan &plan, double &microseconds) {
  std::optional<double> time = readTime(bytesOf(entry, "microseconds"));
  if (!entry.contains("plan") || !time)
    return "it holds no plan with its time";
  Result<compiler::Plan> read = compiler::Plan::parse(entry.at("plan"));
  if (!read)
    return read.error().diagnostics[0].message;
  plan = std::move(*read);
  microseconds = *time;
  return {};
}

cache::Entry chosenPlanEntry(const ChosenPlan &chosen) {
  cache::Entry entry = planEntry(chosen.plan, chosen.plan.predictedMicroseconds);
  entry["stored"] = chosen.asDeclared ? asDeclared : "otherwise";
  std::string &operands = entry["operands"];
  for (const compiler::OperandRange &range : chosen.operands)
    operands += range.print() + "\n";
  return entry;
}

std::string readChosenPlan(const cache::Entry &entry, ChosenPlan &chosen) {
  double predicted = 0;
  if (std::string reason = readPlan(entry, chosen.plan, predicted); !reason.empty())
    return reason;
  chosen.plan.predictedMicroseconds = predicted; // the plan's text rounds it
  chosen.asDeclared = bytesOf(entry, "stored") == asDeclared;
  if (!entry.contains("operands"))
    return "it does not say what operands its kernel makes";
  std::string_view lines = entry.at("operands");
  while (std::optional<std::string_view> line = compiler::takeLine(lines)) {
    compiler::FieldReader fields(*line);
    const std::string reason = chosen.operands.emplace_back().read(fields);
    fields.end();
    if (!fields.ok() || !reason.empty())
      return fields.ok() ? reason : fields.problem();
  }
  return lines.empty() ? "" : "its operands are cut off";
}

std::string contentDamage(const cache::Entry &entry) {
  compiler::KernelImage image;
  compiler::Plan plan;
  ChosenPlan chosen;
  std::string code;
  double microseconds = 0;
  switch (labelOf(entry).kind) {
  case EntryKind::Kernel:
    return readKernel(entry, image, code);
  case EntryKind::TunedPlan:
    return readPlan(entry, plan, microseconds);
  case EntryKind::Plan:
    return readChosenPlan(entry, chosen);
  case EntryKind::Quantizer:
    return bytesOf(entry, "cubin").empty() ? "it holds no machine code" : "";
  case EntryKind::Unknown:
    break;
  }
  return "it has no label";
}

} // namespace rho
