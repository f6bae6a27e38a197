// Plans that measuring chose, on disk: an entry for each declaration, n, k, range of m that gets
// the same tiles (compiler::mostRowsAlike) and class of devices. Made by another generator they are
// not found.
#pragma once

#include "compiler/Plan.h"
#include "runtime/Rho.h"
#include "runtime/cache/DiskCache.h"
#include "runtime/cache/Sha256.h"

#include <optional>

namespace rho {

struct TunedPlan {
  compiler::Plan plan;
  double microseconds = 0; // as measured
  // For lists of what is kept: the gemm's name and the device's.
  std::string gemm = {}, device = {};
};

// Thread-safe; any number of processes may share a folder.
class TunedPlans {
public:
  explicit TunedPlans(const cache::DiskCacheOptions &options) : disk(options) {}

  static std::string key(const cache::Digest &declaration, const GemmShape &shape,
                         const compiler::DeviceModel &device);

  // The plan as it was kept. One that is damaged is deleted, with one warning.
  std::optional<TunedPlan> find(const std::string &key, cache::Warnings &warnings);
  // The plan found by that key for this shape, as the planner has it. One that is not legal for the
  // declaration or not for the device is deleted, with one warning.
  std::optional<compiler::Plan> adopt(const TunedPlan &found, const std::string &key,
                                      const dsl::Gemm &gemm, const GemmShape &shape,
                                      const compiler::DeviceModel &device,
                                      cache::Warnings &warnings);
  const std::string &directory() const { return disk.options().directory; }
  // In place of an earlier one; whether it is kept.
  bool store(const std::string &key, const TunedPlan &tuned, cache::Warnings &warnings);
  void discard(const std::string &key, const std::string &reason, cache::Warnings &warnings) {
    disk.discard(key, reason, warnings);
  }

private:
  cache::DiskCache disk;
};

} // namespace rho
