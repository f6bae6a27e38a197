#include "runtime/TunedPlans.h"

#include "compiler/Candidates.h"
#include "compiler/Compiler.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

namespace rho {
namespace {

constexpr const char *planFile = "plan";
constexpr const char *timeFile = "microseconds";
constexpr int64_t limitBytes = int64_t(64) << 20; // an entry has about 2 KB

std::optional<double> readTime(const std::string &text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

} // namespace

TunedPlans::TunedPlans(const cache::DiskCacheOptions &options)
    : disk({.directory = options.directory,
            .readOnly = options.readOnly,
            .limitBytes = limitBytes}) {}

std::string TunedPlans::key(const cache::Digest &declaration, const GemmShape &shape,
                            const compiler::DeviceModel &device) {
  cache::Sha256 hash;
  hash.field("tuned");
  hash.field(cache::hex(declaration));
  auto rows = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(shape.m, 1)));
  for (uint64_t part : {rows, static_cast<uint64_t>(shape.n), static_cast<uint64_t>(shape.k),
                        static_cast<uint64_t>(device.smCount)})
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
  std::optional<double> time = readTime((*entry)[timeFile]);
  if (!entry->contains(planFile) || !time)
    return drop("it holds no plan with its time");
  Result<compiler::Plan> plan = compiler::Plan::parse(entry->at(planFile));
  if (plan)
    plan = compiler::adoptPlan(gemm, {shape.m, shape.n, shape.k}, device, *plan, nullptr);
  if (!plan)
    return drop(plan.error().diagnostics[0].message);
  return TunedPlan{std::move(*plan), *time};
}

bool TunedPlans::store(const std::string &key, const TunedPlan &tuned, cache::Warnings &warnings) {
  return disk.store(
      key, {{planFile, tuned.plan.print()}, {timeFile, std::to_string(tuned.microseconds)}},
      warnings);
}

} // namespace rho
