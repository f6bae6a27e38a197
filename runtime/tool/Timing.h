// How long a kernel takes.
#pragma once

#include "runtime/Rho.h"

#include <vector>

namespace rho::tool {

// A gemm with everything that a launch needs.
struct ReadyGemm {
  Gemm gemm;
  Buffer weight, output, workspace;
  Activations activations;

  Status launch(const Buffer &weight, Stream stream) const {
    return gemm.launch(weight, activations, output.address(), workspace, stream);
  }
};

struct GpuTime {
  double microseconds = 0; // median over replays of one launch's share
  int launches = 0;        // in the graph that was replayed
  int replays = 0;
  int copies = 0; // of the weight, used in turn so that none is in the L2 cache
};
// On a GPU: a CUDA graph of at least 20 launches, replayed at least 10 times.
Result<GpuTime> timeOnGpu(const Device &device, const ReadyGemm &prepared);

struct EmulatedTime {
  uint64_t threadInstructions = 0;
  double seconds = 0;
  double mips() const {
    return seconds > 0 ? static_cast<double>(threadInstructions) / seconds / 1e6 : 0;
  }
};
// One launch on an emulated device.
Result<EmulatedTime> launchEmulated(const Device &device, const ReadyGemm &prepared);

double median(std::vector<double> values);

// 2 m n k operations and the packed weight's bytes over a time.
double teraOperations(const GemmShape &shape, double microseconds);
double gigabytesPerSecond(int64_t bytes, double microseconds);

} // namespace rho::tool
