// What one launch works on, and its output beside the exact reference.
#pragma once

#include "runtime/tool/Timing.h"
#include "runtime/tool/Verify.h"

#include <vector>

namespace rho::tool {

// Everything that one launch works on, and the codes that the reference works on.
struct Operands {
  ReadyGemm ready;
  Buffer packed; // weight
  dsl::QuantizedMatrix weight, activation;
  int64_t differing = 0; // activation codes that are not those of the host's rule
  double quantizeMilliseconds = 0, packMilliseconds = 0; // of the weight, on the host
};
// Of host numbers w [n][k] and x [m][k], contiguous.
Result<Operands> makeOperands(const Device &device, const Gemm &gemm, const dsl::MatrixView &w,
                              const dsl::MatrixView &x);

// Of a weight whose codes are there.
Result<Operands> makeOperands(const Device &device, const Gemm &gemm,
                              const dsl::QuantizedMatrix &weight, const dsl::MatrixView &x);

// The output on the host.
struct HostOutput {
  std::vector<uint8_t> bytes;
  dsl::MatrixView view; // of them
};
Result<HostOutput> readOutput(const ReadyGemm &ready);

// `by`: who has summed; by default the operands' device.
Result<Comparison> compare(const Operands &operands, const HostOutput &output, VerifyMode mode,
                           std::optional<compiler::Summing> by = {});

} // namespace rho::tool
