// The insides of an engine.
#pragma once

#include "runtime/CacheEntries.h"
#include "runtime/Kernel.h"
#include "runtime/TunedPlans.h"
#include "runtime/cache/MemoryCache.h"

#include <cstring>

namespace rho {

// Handles of shapes that were asked for; kernels and quantizers behind them are far fewer.
inline constexpr size_t maxRequests = 8192;
inline constexpr size_t maxKernels = 1024;
inline constexpr size_t maxQuantizers = 64;

struct Request {
  cache::Digest declaration;
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
// `gemm` is one of the module's own.
Request requestFor(const Module::Impl &module, const dsl::Gemm &gemm, const GemmShape &shape);

struct Engine::Impl {
  Impl(Device device, const CacheFolders &folders, bool useTuned)
      : device(std::move(device)), backend(this->device.impl().backend), disk(folders.kernels),
        tuned(folders.tuned), useTuned(useTuned) {}

  Device device;
  std::shared_ptr<Backend> backend;
  cache::DiskCache disk;
  TunedPlans tuned;
  const bool useTuned;
  cache::MemoryCache<Request, Prepared, RequestHash> requests{maxRequests};
  cache::MemoryCache<std::string, Kernel> kernels{maxKernels};
  cache::MemoryCache<std::string, Quantizer> quantizers{maxQuantizers};

  // By the tuned plan where there is one, else by the planner's.
  Result<std::shared_ptr<const Prepared>> prepare(const Request &request, const dsl::Gemm &gemm,
                                                  const SourceMap *sources);
  // By this plan; `report` says how it came about.
  Result<std::shared_ptr<Prepared>> prepareAs(const dsl::Gemm &gemm, const GemmShape &shape,
                                              const compiler::Plan &plan, const SourceMap *sources,
                                              CompileReport report);
  // Without a report.
  std::shared_ptr<Gemm::Impl> makeGemm(std::shared_ptr<const Module::Impl> module,
                                       const dsl::Gemm &gemm, const GemmShape &shape,
                                       std::shared_ptr<const Prepared> prepared) const;

private:
  Result<std::shared_ptr<const Kernel>> makeKernel(const dsl::Gemm &gemm,
                                                   const compiler::Plan &plan,
                                                   const SourceMap *sources, CompileReport &report);
  std::shared_ptr<const Kernel> loadEntry(const dsl::Gemm &gemm, CompileReport &report);
  std::string kernelKey(const dsl::Gemm &gemm, const compiler::Plan &plan) const;
};

} // namespace rho
