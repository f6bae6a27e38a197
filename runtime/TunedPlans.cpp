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

std::optional<TunedPlan> TunedPlans::find(const std::string &key, cache::Warnings &warnings) {
  std::optional<cache::Entry> entry = disk.load(key, warnings);
  if (!entry)
    return std::nullopt;
  TunedPlan found;
  std::string damage = readPlan(*entry, found.plan, found.microseconds);
  if (damage.empty())
    return found;
  disk.discard(key, damage, warnings);
  return std::nullopt;
}

std::optional<compiler::Plan> TunedPlans::adopt(const TunedPlan &found, const std::string &key,
                                                const dsl::Gemm &gemm, const GemmShape &shape,
                                                const compiler::DeviceModel &device,
                                                cache::Warnings &warnings) {
  Result<compiler::Plan> plan =
      compiler::adoptPlan(gemm, {shape.m, shape.n, shape.k}, device, found.plan, nullptr);
  // It may serve those m that it was measured with.
  const bool serves = plan && checkGrid(shape.m, plan->schedule.tileM);
  if (!serves && found.plan.problem.m != shape.m)
    return std::nullopt;
  if (plan)
    return *std::move(plan);
  disk.discard(key, plan.error().diagnostics[0].message, warnings);
  return std::nullopt;
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
