// Machine code: PTX through the driver's linker, cubins to functions.
#pragma once

#include "runtime/Backend.h"
#include "runtime/cuda/CudaBackend.h"

namespace rho::cuda {

// PTX -> cubin for the context's GPU. Errors: ptx_version_too_new, kernel_refused with ptxas's log.
Result<std::string> assemblePtx(const Context &context, const std::string &ptx,
                                const std::string &entry);

// One entry of a loaded module, with its launch facts.
class CudaKernel final : public LoadedKernel {
public:
  // Errors: kernel_refused, cuda_call_failed.
  static Result<std::shared_ptr<const CudaKernel>>
  load(const std::shared_ptr<const Context> &context, const std::string &cubin,
       const std::string &entry, int threads, int64_t sharedBytes);
  CudaKernel(std::shared_ptr<const Context> context, CUmodule module, int threads,
             int64_t sharedBytes)
      : context(std::move(context)), module(module), threads(threads), sharedBytes(sharedBytes) {}
  ~CudaKernel() override;
  CudaKernel(const CudaKernel &) = delete;
  CudaKernel &operator=(const CudaKernel &) = delete;

  Status launch(Grid grid, std::span<const LaunchArgument> arguments, Stream stream) const;

private:
  std::shared_ptr<const Context> context;
  CUmodule module;
  CUfunction function = nullptr;
  int threads;
  int64_t sharedBytes;
};

} // namespace rho::cuda
