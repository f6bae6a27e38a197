// Kernels that measure what a device declaration says of an SM: PTX that does little but one thing.
#pragma once

#include "dsl/Device.h"

#include <optional>
#include <string>

namespace rho::tool {

// The first lines of a file: the version of PTX that the target's instructions need, the target.
std::string ptxHeader(const std::string &target);

// Entry `probe(out, turns, seed)`, pointer and two 32-bit integers; `turns` turns of a loop without
// memory accesses but to shared memory. out: 8 bytes for each CTA, the SM's cycles from the first
// to the last turn, then 4 bytes for each thread.
struct ProbeKernel {
  static constexpr const char *entry = "probe";
  std::string ptx;
  int threads = 0; // of a CTA, for which an SM has room once
  int64_t sharedBytes = 0;
  double perTurn = 0; // of one thread: instructions of the class, or multiply-adds
};

ProbeKernel instructionProbe(dsl::InstructionClass which, const std::string &target);
// Through mma.sync, sums in f32 or s32. None where the target has no such instruction.
std::optional<ProbeKernel> mmaProbe(const std::string &type, const std::string &target);
// Through wgmma, both operands in shared memory. None but for sm_90a.
std::optional<ProbeKernel> wgmmaProbe(const std::string &type, const std::string &target);

// Entry `probe(out, turns, steps, from)`: each turn the grid reads its bytes from `from` on, a
// thread in `steps` steps of four 16-byte loads that bypass L1.
struct ProbeReadKernel {
  std::string ptx;
  static constexpr int threads = 256, bytesPerStep = 64; // of a CTA, of a thread
};
ProbeReadKernel readProbe(const std::string &target);

} // namespace rho::tool
