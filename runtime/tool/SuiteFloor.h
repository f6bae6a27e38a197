// The floor of a suite: how long it takes to only read a weight.
#pragma once

#include "runtime/tool/Suite.h"
#include "runtime/tool/Timing.h"

#include <array>

namespace rho {
class LoadedKernel;
} // namespace rho

namespace rho::tool {

// A kernel that reads memory as fast as it can and writes one word a warp: the exclusive or of the
// words that the warp read. As a dependent launch, of sm_90 and later, it reads before the kernel
// ahead of it has ended and writes after.
class ReadKernel {
public:
  static constexpr int threads = 256; // of a CTA

  // Errors: kernel_refused and those of devices.
  static Result<ReadKernel> create(const Device &device, bool dependent);
  // `bytes` from `data` on, both multiples of 16; `words` has 4 bytes for each warp.
  Status launch(DevicePointer data, int64_t bytes, int64_t ctas, DevicePointer words,
                Stream stream) const;

private:
  std::shared_ptr<Backend> backend;
  std::shared_ptr<const LoadedKernel> kernel;
  bool dependent = false;
};

class SuiteFloor {
public:
  static Result<SuiteFloor> create(const Device &device);
  // The ways to launch that the device has, by `dependent`.
  static std::vector<bool> launches(const Device &device);
  // Tries 2, 3 and 4 CTAs an SM briefly and measures the fastest. Errors: those of
  // ReadKernel::create.
  Result<SuiteRow> measure(bool dependent, const WeightShape &shape, const WeightCopies &weight);

private:
  SuiteFloor(const Device &device, Buffer words)
      : device(&device), words(std::move(words)),
        kernels{ReadKernel::create(device, false), ReadKernel::create(device, true)} {}

  const Device *device;
  Buffer words;
  std::array<Result<ReadKernel>, 2> kernels; // by `dependent`
};

} // namespace rho::tool
