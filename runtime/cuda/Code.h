// Machine code: PTX through the driver's linker, cubins to functions.
#pragma once

#include "runtime/Backend.h"
#include "runtime/cuda/CudaBackend.h"

#include <span>

namespace rho::cuda {

// Error cuda_call_failed, cuda_call_missing.
Result<TensorMap> encodeTensorMap(const Driver &driver, const TensorMapShape &shape);

// That the driver reads the PTX's version. Errors: ptx_version_too_new.
Status checkPtxVersion(const Context &context, const std::string &ptx);

// PTX -> cubin for the context's GPU. Errors: ptx_version_too_new, kernel_refused with ptxas's log.
Result<std::string> assemblePtx(const Context &context, const std::string &ptx,
                                const std::string &entry);

// What every launch of a kernel takes.
struct CtaFacts {
  int threads;
  int64_t sharedBytes; // dynamic
  compiler::Dim3 cluster = {};
  bool persists = false; // its CTAs take work until none is left
};

// One entry of a loaded module, with its launch facts.
class CudaKernel final : public LoadedKernel {
public:
  // Errors: kernel_refused, cuda_call_failed.
  static Result<std::shared_ptr<const CudaKernel>>
  load(const std::shared_ptr<const Context> &context, const std::string &cubin,
       const std::string &entry, const CtaFacts &facts);
  CudaKernel(std::shared_ptr<const Context> context, CUmodule module, const CtaFacts &facts)
      : context(std::move(context)), module(module), facts(facts) {}
  ~CudaKernel() override;
  CudaKernel(const CudaKernel &) = delete;
  CudaKernel &operator=(const CudaKernel &) = delete;

  // Errors: cuda_call_failed, cuda_call_missing.
  Status launch(const LaunchShape &shape, std::span<const LaunchArgument> arguments,
                Stream stream) const;

private:
  CUlaunchConfig config(const compiler::Dim3 &grid, Stream stream,
                        std::span<CUlaunchAttribute> attributes) const;
  void askForClusters();

  std::shared_ptr<const Context> context;
  CUmodule module;
  CUfunction function = nullptr;
  CtaFacts facts;
  uint32_t mostClusters = 0; // of a launch that persists; 0: as many as it has
};

} // namespace rho::cuda
