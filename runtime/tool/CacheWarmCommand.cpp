// rho cache warm: kernels compiled ahead of their first use.
#include "compiler/Parallel.h"
#include "runtime/CacheEntries.h"
#include "runtime/tool/Bench.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Tool.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <set>

namespace rho::tool {

namespace {

// Every combination of --m with --n-k, or with --n and --k.
Result<std::vector<GemmShape>> shapesOf(const Options &options) {
  std::vector<std::pair<int64_t, int64_t>> weights = options.pairs("--n-k");
  if (options.has("--n-k"))
    for (const char *other : {"--n", "--k"})
      if (options.has(other))
        return makeError(DiagId::option_conflict, {"--n-k", other, "it says n and k"});
  for (int64_t n : options.counts("--n"))
    for (int64_t k : options.counts("--k"))
      weights.emplace_back(n, k);
  if (weights.empty())
    return makeError(DiagId::option_missing,
                     {"--n-k", "it, or --n and --k, says what shapes to compile for"});
  std::vector<GemmShape> shapes;
  for (const auto &[n, k] : weights)
    for (int64_t m : options.counts("--m", {1}))
      shapes.push_back({m, n, k});
  return shapes;
}

// What became of all compilations, each a shape of a gemm.
class WarmReport {
public:
  void add(const BenchGemm &gemm, const GemmShape &shape, const Result<Gemm> &compiled) {
    if (!compiled) {
      ++failures;
      printLine("failed", gemm.title() + ", " +
                              problemText(std::to_string(shape.m), {shape.m, shape.n, shape.k}));
      std::fputs(compiled.error().str().c_str(), stderr);
      return;
    }
    const CompileReport &report = compiled->report();
    keys.insert(report.key);
    ++sources[static_cast<size_t>(report.source)];
    for (const std::string &warning : report.warnings)
      if (warnings.insert(warning).second)
        printLine("warning", warning);
  }
  // Kernels that the folder does not have, for lack of rights or of room.
  size_t missing(const cache::DiskCache &disk) const {
    size_t count = 0;
    for (const std::string &key : keys)
      count += disk.inspect(key).entry ? 0 : 1;
    return count;
  }
  std::string text() const {
    auto of = [&](CompileReport::Source source) {
      return std::to_string(sources[static_cast<size_t>(source)]);
    };
    return std::to_string(keys.size()) + ": " + of(CompileReport::Source::Compiled) +
           " compiled, " + of(CompileReport::Source::Disk) + " were there, " +
           of(CompileReport::Source::Memory) + " further shapes share them" +
           (failures > 0 ? ", " + std::to_string(failures) + " failed" : "");
  }
  size_t kernels() const { return keys.size(); }
  bool complete() const { return failures == 0; }
  bool hasWarnings() const { return !warnings.empty(); }

private:
  std::set<std::string> keys, warnings;
  std::array<size_t, 3> sources{};
  size_t failures = 0;
};

} // namespace

Result<int> cacheWarmCommand(const Options &options) {
  Result<std::vector<GemmShape>> shapes = shapesOf(options);
  if (!shapes)
    return shapes.error();
  Result<CacheFolders> folders = openCacheFolders(options);
  if (!folders)
    return folders.error();
  Result<std::vector<BenchGemm>> gemms = chooseGemms(options);
  if (!gemms)
    return gemms.error();
  Result<Device> device = openDevice(options.text("--device", "auto"));
  if (!device)
    return device.error();
  Result<EngineOptions> chosen = engineOptions(options);
  if (!chosen)
    return chosen.error();
  Result<Engine> engine = Engine::create(*device, *chosen);
  if (!engine)
    return engine.error();
  printLine("device", deviceText(*device));
  printLine("folder", folders->kernels.directory);

  auto total = static_cast<int64_t>(gemms->size() * shapes->size());
  auto gemmOf = [&](int64_t i) -> const BenchGemm & {
    return (*gemms)[static_cast<size_t>(i) / shapes->size()];
  };
  auto shapeOf = [&](int64_t i) { return (*shapes)[static_cast<size_t>(i) % shapes->size()]; };
  std::vector<Result<Gemm>> compiled(static_cast<size_t>(total), Gemm());
  {
    Progress progress("compiling");
    std::atomic<int64_t> done = 0;
    parallelFor(total, [&](int64_t i) {
      compiled[static_cast<size_t>(i)] =
          engine->compile(gemmOf(i).module, gemmOf(i).name, shapeOf(i));
      progress.update("compiling " + progressBar(++done, total));
    });
  }
  WarmReport report;
  for (int64_t i = 0; i < total; ++i)
    report.add(gemmOf(i), shapeOf(i), compiled[static_cast<size_t>(i)]);
  printLine("kernels", report.text());
  if (size_t missing = report.missing(cache::DiskCache(folders->kernels)); missing > 0)
    return makeError(
        DiagId::cache_not_warm,
        {std::to_string(missing), std::to_string(report.kernels()), folders->kernels.directory,
         report.hasWarnings() ? "the warnings say why"
                              : "its limit of " + std::to_string(folders->kernels.limitBytes) +
                                    " bytes is too low"});
  return report.complete() ? success : failure;
}

} // namespace rho::tool
