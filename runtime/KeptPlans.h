// Plans that the planner chose, on disk beside the kernels: the next process finds its kernels
// without a search. An entry for each request, generator and device.
#pragma once

#include "compiler/OperandRange.h"
#include "compiler/Plan.h"
#include "runtime/Rho.h"
#include "runtime/cache/DiskCache.h"
#include "runtime/cache/Sha256.h"

#include <optional>

namespace rho {

struct ChosenPlan {
  compiler::Plan plan;
  // The target computes the gemm as it is declared (compiler::TargetGemm), which need not be found
  // out again.
  bool asDeclared = false;
  // Of a weight that several kernels read, what they make of it; empty: the kernel's own.
  std::vector<compiler::OperandRange> operands = {};
};

// Thread-safe; any number of processes may share the folder.
class KeptPlans {
public:
  explicit KeptPlans(cache::DiskCache &disk) : disk(disk) {}

  // `declaration`: of the gemm, with what it shares. `tuned`: the text of the tuned plan that it
  // follows, or none.
  static std::string key(const cache::Digest &declaration, const GemmShape &shape,
                         const compiler::DeviceModel &device, const std::string &tuned);

  // One that is damaged, or of another problem or target, is deleted, with a warning. That a kernel
  // can be made of it is for the compiler to say.
  std::optional<ChosenPlan> load(const std::string &key, const compiler::Problem &problem,
                                 const std::string &target, cache::Warnings &warnings);
  // `gemm` and `device`: names, for lists of what is kept.
  void store(const std::string &key, const ChosenPlan &chosen, const std::string &gemm,
             const std::string &device, cache::Warnings &warnings);
  void discard(const std::string &key, const std::string &reason, cache::Warnings &warnings) {
    disk.discard(key, reason, warnings);
  }

private:
  cache::DiskCache &disk;
};

} // namespace rho
