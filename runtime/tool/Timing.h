// How long a kernel takes.
#pragma once

#include "runtime/Rho.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace rho::tool {

// A gemm with everything that a launch needs but the weight.
struct ReadyGemm {
  Gemm gemm;
  Buffer output, workspace;
  Activations activations;

  Status launch(const Buffer &weight, Stream stream) const {
    return gemm.launch(weight, activations, output.address(), workspace, stream);
  }
};
// Quantizes x [m][k], contiguous in device memory, and waits for it.
Result<ReadyGemm> makeReady(const Device &device, const Gemm &gemm, DevicePointer x,
                            ScalarType type);

// `bytes` bytes of device memory that hold `pattern` again and again.
Result<Buffer> filledBuffer(const Device &device, int64_t bytes, std::span<const uint8_t> pattern);

// Copies of so many bytes that launches take in turn, so many that none is still in the L2 cache
// when its turn comes: what was read since fills the cache four times, as far as 4096 copies do.
// One on an emulated device.
int copiesNeeded(const Device &device, int64_t bytes);
// Such copies of a weight.
using WeightCopies = std::vector<Buffer>;
Result<WeightCopies> copyWeight(const Device &device, int64_t bytes,
                                std::span<const uint8_t> pattern);

// How often and how long to measure.
struct Measuring {
  int launches = 20;        // of a graph, at least
  int leastReplays = 10;    // after those that warm up
  int mostReplays = 30;     // once the time below has passed at `leastReplays`
  double milliseconds = 60; // of all replays, as far as the two bounds allow
  double warmUp = 10;       // milliseconds of replays in front
};

struct GpuTime {
  double microseconds = 0;    // median over replays of one launch's share
  double least = 0, most = 0; // the fastest and the slowest replay
  int launches = 0;           // in the graph that was replayed
  int replays = 0;
};
// On a GPU: a CUDA graph of launches, replayed. Launch i takes copy i % copies.
Result<GpuTime> timeOnGpu(const Device &device, int copies,
                          const std::function<Status(int copy, Stream stream)> &launch,
                          const Measuring &measuring = {});
Result<GpuTime> timeOnGpu(const Device &device, const ReadyGemm &ready,
                          const WeightCopies &weights);

// One of several ways to launch the same work.
struct FastestTime {
  int choice = 0, choices = 0;
  GpuTime time;
  std::string place() const {
    return std::to_string(choice + 1) + " of " + std::to_string(choices);
  }
};
// Tries every choice briefly and measures the fastest. One that fails does not keep the others from
// being tried.
Result<FastestTime>
timeFastest(const Device &device, int choices, int copies,
            const std::function<Status(int choice, int copy, Stream stream)> &launch);

struct EmulatedTime {
  uint64_t threadInstructions = 0;
  double seconds = 0;
  double mips() const {
    return seconds > 0 ? static_cast<double>(threadInstructions) / seconds / 1e6 : 0;
  }
};
// One launch on an emulated device.
Result<EmulatedTime> launchEmulated(const Device &device, const ReadyGemm &ready,
                                    const Buffer &weight);

double median(std::vector<double> values);

// 2 m n k operations and the packed weight's bytes over a time.
double teraOperations(const GemmShape &shape, double microseconds);
double gigabytesPerSecond(int64_t bytes, double microseconds);

} // namespace rho::tool
