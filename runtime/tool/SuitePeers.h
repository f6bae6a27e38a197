// cuBLASLt at the shapes of a suite.
#pragma once

#include "runtime/cuda/CublasLt.h"
#include "runtime/tool/Suite.h"
#include "runtime/tool/TimingOperands.h"

namespace rho::tool {

inline constexpr cuda::LtType peerTypes[] = {cuda::LtType::Bf16, cuda::LtType::E4m3,
                                             cuda::LtType::S8};
std::string peerName(cuda::LtType type); // "cublaslt_bf16"

class SuitePeers {
public:
  // Errors: cublaslt_not_available, cublaslt_failed.
  static Result<SuitePeers> create(const Device &device);
  // Tries the library's first choices briefly and measures the fastest. Errors: those of LtMatmul.
  Result<SuiteRow> measure(cuda::LtType type, const GemmShape &shape, TimingOperands &operands);
  const std::string &version() const { return library->versionText; }

private:
  SuitePeers(const Device &device, const cuda::CublasLt *library)
      : device(&device), library(library) {}

  const Device *device;
  const cuda::CublasLt *library;
  std::shared_ptr<cuda::LtHandle> handle;
  Buffer workspace, one;
};

} // namespace rho::tool
