// The insides of an engine.
#pragma once

#include "compiler/Plan.h"
#include "runtime/Assembler.h"
#include "runtime/CacheEntries.h"
#include "runtime/KeptPlans.h"
#include "runtime/Kernel.h"
#include "runtime/Stopwatch.h"
#include "runtime/TunedPlans.h"
#include "runtime/cache/MemoryCache.h"

#include <cstring>
#include <functional>

namespace rho {

// Handles of shapes that were asked for; kernels and quantizers behind them are far fewer.
inline constexpr size_t maxRequests = 8192;
inline constexpr size_t maxKernels = 1024;
inline constexpr size_t maxQuantizers = 64;
inline constexpr size_t maxSharedPlans = 256;

// What is compiled as a declaration says, or beside others that read the same weight.
struct Request {
  cache::Digest declaration; // with what it shares
  GemmShape shape;
  friend bool operator==(const Request &a, const Request &b) {
    return a.declaration == b.declaration && a.shape.m == b.shape.m && a.shape.n == b.shape.n &&
           a.shape.k == b.shape.k;
  }
};

struct RequestHash {
  size_t operator()(const Request &request) const {
    uint64_t hash = 0;
    std::memcpy(&hash, request.declaration.data(), sizeof hash);
    for (int64_t part : {request.shape.m, request.shape.n, request.shape.k})
      hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
  }
};

// The gemm of that name, or the only one for an empty name. Errors: no_gemm, ambiguous_gemm,
// unknown_gemm.
Result<const dsl::Gemm *> findGemm(const dsl::Module &module, std::string_view name);
// The same for calls of the API, whose handles may be empty.
Result<const dsl::Gemm *> gemmOf(const Engine &engine, const Module &module, std::string_view name);

// A kernel that is on disk or can be made.
struct WantedKernel {
  std::string key;
  EntryLabel label;
  // Why what was found on disk is not this kernel; empty: it is.
  std::function<std::string(const compiler::KernelImage &)> misfit;
  std::function<Result<compiler::KernelImage>(CompileReport &)> compile;
};

struct Engine::Impl {
  Impl(Device device, const CacheFolders &folders, const EngineOptions &options)
      : device(std::move(device)), backend(this->device.impl().backend), disk(folders.kernels),
        plans(disk), tuned(folders.tuned), useTuned(options.useTuned), threads(options.threads),
        assembler(backend, disk, threads) {}

  Device device;
  std::shared_ptr<Backend> backend;
  cache::DiskCache disk;
  KeptPlans plans;
  TunedPlans tuned;
  const bool useTuned;
  const unsigned threads; // see EngineOptions
  Assembler assembler;
  cache::MemoryCache<Request, Prepared, RequestHash> requests{maxRequests};
  cache::MemoryCache<std::string, Kernel> kernels{maxKernels};
  cache::MemoryCache<std::string, Quantizer> quantizers{maxQuantizers};
  // By declaration, n, k and all m.
  struct SharedPlans {
    std::vector<compiler::Plan> plans;
    std::vector<compiler::OperandRange> operands; // of all of them
  };
  cache::MemoryCache<std::string, SharedPlans> sharedPlans{maxSharedPlans};

  // What prepareChosen() makes a kernel for.
  struct Wanted {
    const Request &request;
    const dsl::Gemm &declared;
    const SourceMap *sources;
    std::shared_ptr<const compiler::TargetGemm> target = {}; // null: as the device has it
    std::string tuned = {};   // the text of the tuned plan that is followed
    CompileReport start = {}; // of what came before
    Stopwatch watch = {};     // since the request
  };
  // By the tuned plan where there is one, else by the planner's.
  Result<std::shared_ptr<Prepared>> prepare(const Request &request, const dsl::Gemm &declared,
                                            const SourceMap *sources);
  // By the plan that is kept of this, else by choose()'s, which is kept then.
  Result<std::shared_ptr<Prepared>>
  prepareChosen(Wanted wanted,
                const std::function<Result<ChosenPlan>(const compiler::TargetGemm &)> &choose);
  // By this plan of what the target computes of it; `report` says how it came about.
  Result<std::shared_ptr<Prepared>> prepareAs(const dsl::Gemm &declared,
                                              std::shared_ptr<const compiler::TargetGemm> target,
                                              const GemmShape &shape, const compiler::Plan &plan,
                                              const SourceMap *sources, CompileReport report);
  // The same as a gemm, which is not kept. `planned`: the milliseconds that the plan took.
  Result<Gemm> compileAs(std::shared_ptr<const Module::Impl> module, const dsl::Gemm &declared,
                         std::shared_ptr<const compiler::TargetGemm> target, const GemmShape &shape,
                         const compiler::Plan &plan, double planned);
  // The gemm of a request, which is kept; prepare() makes what is not.
  Result<Gemm> compile(std::shared_ptr<const Module::Impl> module, const dsl::Gemm &declared,
                       const Request &request,
                       const std::function<Result<std::shared_ptr<Prepared>>()> &prepare);
  std::shared_ptr<const compiler::TargetGemm> onTarget(const dsl::Gemm &declared) const {
    return std::make_shared<const compiler::TargetGemm>(
        compiler::onTarget(declared, backend->model().target));
  }
  Gemm makeGemm(std::shared_ptr<const Module::Impl> module, const dsl::Gemm &declared,
                const GemmShape &shape, std::shared_ptr<const Prepared> prepared,
                CompileReport report, double milliseconds) const;

  // The key of a kernel that `what` determines together with the generator, the target and what
  // the device's code depends on.
  std::string kernelKey(const std::vector<std::string> &what, const std::string &target) const;
  // From memory, from disk, or made and kept in both.
  Result<std::shared_ptr<const Kernel>> kernel(const WantedKernel &wanted, CompileReport &report);

private:
  // By the plan that is kept, where one is and serves; else null.
  Result<std::shared_ptr<Prepared>> prepareKept(Wanted &wanted, const std::string &key);
  // By this plan, for the target that was found.
  Result<std::shared_ptr<Prepared>> prepareBy(Wanted &wanted, const ChosenPlan &chosen);
  Result<std::shared_ptr<const Kernel>> makeKernel(const WantedKernel &wanted,
                                                   CompileReport &report);
  // From disk; null where it is not there, or is of no use.
  Result<std::shared_ptr<const Kernel>> loadEntry(const WantedKernel &wanted,
                                                  CompileReport &report);
};

} // namespace rho
