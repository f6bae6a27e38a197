#include "runtime/KeptPlans.h"

#include "compiler/Compiler.h"
#include "runtime/CacheEntries.h"

namespace rho {

std::string KeptPlans::key(const cache::Digest &declaration, const GemmShape &shape,
                           const compiler::DeviceModel &device, const std::string &tuned) {
  cache::Sha256 hash;
  hash.field("plan");
  hash.field(tuned);
  hash.field(cache::hex(declaration));
  for (int64_t part : {shape.m, shape.n, shape.k})
    hash.field(std::to_string(part));
  hash.field(compiler::print(device));
  hash.field(compiler::buildId());
  return cache::hex(hash.finish());
}

std::optional<ChosenPlan> KeptPlans::load(const std::string &key, const compiler::Problem &problem,
                                          const std::string &target, cache::Warnings &warnings) {
  std::optional<cache::Entry> entry = disk.load(key, warnings);
  if (!entry)
    return std::nullopt;
  ChosenPlan chosen;
  std::string damage = readChosenPlan(*entry, chosen);
  if (damage.empty() && !(chosen.plan.problem == problem && chosen.plan.target == target))
    damage = "its plan is for another problem or target";
  if (damage.empty())
    return chosen;
  discard(key, damage, warnings);
  return std::nullopt;
}

void KeptPlans::store(const std::string &key, const ChosenPlan &chosen, const std::string &gemm,
                      const std::string &device, cache::Warnings &warnings) {
  const compiler::Problem &problem = chosen.plan.problem;
  cache::Entry entry = chosenPlanEntry(chosen);
  label(entry, {.kind = EntryKind::Plan,
                .name = gemm,
                .problem = problemText(std::to_string(problem.m), problem),
                .target = chosen.plan.target,
                .device = device});
  disk.store(key, entry, warnings);
}

} // namespace rho
