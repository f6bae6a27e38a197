#include "runtime/TunedPlans.h"

#include "compiler/Candidates.h"
#include "compiler/Compiler.h"
#include "runtime/CacheEntries.h"
#include "runtime/Handles.h"

namespace rho {

std::string TunedPlans::key(const cache::Digest &declaration, const GemmShape &shape,
                            const compiler::DeviceModel &device) {
  cache::Sha256 hash;
  hash.field("tuned");
  hash.field(cache::hex(declaration));
  for (int64_t part :
       {compiler::mostRowsAlike(shape.m), shape.n, shape.k, static_cast<int64_t>(device.smCount)})
    hash.field(std::to_string(part));
  hash.field(device.name);
  hash.field(device.target);
  hash.field(compiler::buildId());
  return cache::hex(hash.finish());
}

std::optional<TunedPlan> TunedPlans::load(const std::string &key, const dsl::Gemm &gemm,
                                          const GemmShape &shape,
                                          const compiler::DeviceModel &device,
                                          cache::Warnings &warnings) {
  std::optional<cache::Entry> entry = disk.load(key, warnings);
  if (!entry)
    return std::nullopt;
  auto drop = [&](const std::string &reason) {
    disk.discard(key, reason, warnings);
    return std::nullopt;
  };
  compiler::Plan kept;
  double microseconds = 0;
  if (std::string reason = readPlan(*entry, kept, microseconds); !reason.empty())
    return drop(reason);
  Result<compiler::Plan> plan =
      compiler::adoptPlan(gemm, {shape.m, shape.n, shape.k}, device, kept, nullptr);
  // It may serve those m that it was measured with.
  const bool serves = plan && checkGrid(shape.m, plan->schedule.tileM);
  if (!serves && kept.problem.m != shape.m)
    return std::nullopt;
  if (!plan)
    return drop(plan.error().diagnostics[0].message);
  return TunedPlan{std::move(*plan), microseconds};
}

bool TunedPlans::store(const std::string &key, const TunedPlan &tuned, cache::Warnings &warnings) {
  cache::Entry entry = planEntry(tuned.plan, tuned.microseconds);
  const compiler::Problem &problem = tuned.plan.problem;
  label(entry, {.kind = EntryKind::TunedPlan,
                .name = tuned.gemm,
                .problem = problemText(
                    "up to " + std::to_string(compiler::mostRowsAlike(problem.m)), problem),
                .target = tuned.plan.target,
                .device = tuned.device});
  const cache::DiskCacheOptions &folder = disk.options();
  if (folder.directory.empty() || folder.readOnly)
    warnings.push_back(
        makeDiagnostic(DiagId::plan_not_kept,
                       {folder.directory.empty() ? "the engine has no folder for it"
                                                 : folder.directory + " is read-only"})
            .message);
  return disk.store(key, entry, warnings);
}

} // namespace rho
