#include "compiler/Candidates.h"
#include "compiler/Parallel.h"
#include "runtime/EngineImpl.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

namespace rho {
namespace {

// Those that read the weight in one layout follow each other: they can share a packed weight.
std::vector<size_t> measuringOrder(const std::vector<Result<Gemm>> &gemms) {
  std::vector<std::string> layouts;
  for (const Result<Gemm> &gemm : gemms)
    layouts.push_back(gemm ? gemm->impl().image().weight.print() : "");
  std::vector<size_t> order(gemms.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::tie(layouts[a], a) < std::tie(layouts[b], b); });
  return order;
}

// What the compilations warned of, each once.
std::vector<std::string> warningsOf(const std::vector<Result<Gemm>> &gemms) {
  std::vector<std::string> warnings;
  for (const Result<Gemm> &gemm : gemms)
    if (gemm)
      for (const std::string &warning : gemm->report().warnings)
        if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end())
          warnings.push_back(warning);
  return warnings;
}

} // namespace

Result<TuneReport> Engine::tune(const Module &module, std::string_view name, const GemmShape &shape,
                                const MeasureGemm &measure, const TuneOptions &options) const {
  Result<const dsl::Gemm *> found = gemmOf(*this, module, name);
  if (!found)
    return found.error();
  if (!measure)
    return makeError(DiagId::null_pointer, {"measure"});
  if (options.candidates < 1)
    return makeError(DiagId::bad_option_value,
                     {"TuneOptions::candidates", std::to_string(options.candidates), "at least 1"});
  const dsl::Gemm &gemm = **found;
  const auto target = pimpl->onTarget(gemm);
  const compiler::DeviceModel &device = pimpl->backend->model();
  auto most = static_cast<size_t>(options.candidates);
  Stopwatch watch;
  auto plans = onHost([&] {
    return compiler::planCandidates(target->gemm, {shape.m, shape.n, shape.k}, device, most,
                                    module.impl().module.sources.get());
  });
  if (!plans)
    return plans.error();
  const double planned = watch.lap();

  // All ahead of the first measurement, which compiling would disturb.
  std::vector<Result<Gemm>> gemms(plans->size(), Gemm());
  auto total = static_cast<int64_t>(plans->size());
  std::atomic<int64_t> done = 0;
  {
    const dsl::ThreadLimit threads(pimpl->threads);
    parallelFor(total, [&](int64_t i) {
      auto at = static_cast<size_t>(i);
      gemms[at] = pimpl->compileAs(module.pimpl, gemm, target, shape, (*plans)[at], planned);
      int64_t ready = ++done;
      if (options.compiled)
        options.compiled(ready, total);
    });
  }

  TuneReport report;
  report.warnings = warningsOf(gemms);
  for (size_t i = 0; i < gemms.size(); ++i)
    report.candidates.push_back({(*plans)[i].print(), (*plans)[i].predictedMicroseconds,
                                 gemms[i] ? Result<double>(0) : gemms[i].error()});
  std::optional<size_t> best;
  for (size_t i : measuringOrder(gemms)) {
    Result<double> &time = report.candidates[i].microseconds;
    if (gemms[i])
      time = measure(*gemms[i]);
    if (time && !(std::isfinite(*time) && *time > 0))
      time = makeError(DiagId::bad_time, {std::to_string(*time)});
    if (time && (!best || *time < *report.candidates[*best].microseconds))
      best = i;
  }
  if (!best)
    return report.candidates[0].microseconds.error();
  report.best = *best;
  report.kept = pimpl->tuned.store(
      TunedPlans::key(module.impl().digestOf(gemm), shape, device),
      {(*plans)[*best], *report.candidates[*best].microseconds, gemm.name, device.name},
      report.warnings);
  pimpl->requests.clear(); // they hold what was chosen before
  return report;
}

} // namespace rho
