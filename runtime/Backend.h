// What the engine needs of a device: the GPU and the emulator stand behind this one interface.
#pragma once

#include "compiler/Devices.h"
#include "compiler/KernelImage.h"
#include "dsl/Format.h"
#include "runtime/Rho.h"
#include "runtime/cache/DiskCache.h"

#include <array>
#include <memory>
#include <span>
#include <string>

namespace rho {

class Quantizer;

// Of any kernel: the components of all parts of the activation, and weight, table of tiles, output,
// workspace and m.
inline constexpr size_t maxKernelParameters = dsl::maxParts * dsl::maxComponents + 5;

// One kernel parameter: `bytes` bytes from `value` on, at a multiple of their number but at most
// 64. launch() copies them.
struct LaunchArgument {
  const void *value;
  int bytes; // 4, 8 or sizeof(TensorMap); of CUDA C++ kernels, which know it themselves, any
};

struct LaunchShape {
  compiler::Dim3 grid{};
  compiler::Dim3 cluster{};
  bool dependent = false; // see KernelImage::dependentLaunch
  // Of a dependent one: what it may read while launches before it run.
  DevicePointer ahead = 0;
  int64_t aheadBytes = 0;
};

// A matrix of bytes whose boxes a kernel copies at once: see KernelParameter.
struct TensorMapShape {
  DevicePointer base;        // 16-byte aligned
  int64_t rowBytes, rows;    // at least 1
  int64_t pitch;             // bytes from row to row, a multiple of 16
  int64_t boxBytes, boxRows; // 1 .. 256; boxBytes a multiple of 16, at most 128 if swizzled
  bool swizzle;
};

// In the device's own encoding.
struct alignas(64) TensorMap {
  std::array<uint8_t, 128> bytes;
};

// A kernel ready to launch on one device.
class LoadedKernel {
public:
  virtual ~LoadedKernel() = default;
  int registers = -1;      // per thread; -1 where no driver says
  int64_t localBytes = -1; // spills per thread; -1 where no driver says
};

// All launches of a device that emulates, summed up.
struct EmulationTotals {
  uint64_t threadInstructions = 0; // executed instructions times active threads
  uint64_t bankConflicts = 0;      // see emulator::LaunchStats
  uint64_t mostMmas = 0;           // of any launch's CTA, see emulator::LaunchStats
  double seconds = 0;
};

// Whether a device failed, and not what it was given: what it was given need not be made anew.
inline bool isFaultOfDevice(const Error &error) {
  const DiagId id = error.diagnostics[0].id;
  return id == DiagId::cuda_call_failed || id == DiagId::out_of_memory;
}

// Thread-safe. Addresses that a caller makes up are errors on the emulator and the driver's affair
// on a GPU.
class Backend : public std::enable_shared_from_this<Backend> {
public:
  virtual ~Backend() = default;

  virtual const compiler::DeviceModel &model() const = 0;
  virtual bool emulated() const = 0;
  // What, besides the target, decides how PTX becomes code here: a part of cache keys.
  virtual std::string codeVersion() const = 0;

  virtual Result<DevicePointer> allocate(int64_t bytes) = 0; // 256-byte aligned, zeroed; bytes > 0
  virtual void release(DevicePointer address) = 0;
  // Synchronous; bytes > 0.
  virtual Status write(DevicePointer to, const void *from, int64_t bytes) = 0;
  virtual Status read(DevicePointer from, void *to, int64_t bytes) = 0;
  // In the order of the stream, which is not being captured; `from` may go when it returns.
  virtual Status writeInOrder(DevicePointer to, const void *from, int64_t bytes, Stream stream) = 0;
  virtual Status synchronize(Stream stream) = 0;

  // PTX -> machine code that load() takes beside the image; empty where PTX itself is executed.
  virtual Result<std::string> assemble(const compiler::KernelImage &image) = 0;
  virtual Result<std::shared_ptr<const LoadedKernel>> load(const compiler::KernelImage &image,
                                                           const std::string &code) = 0;
  // Whether that is PTX which load() compiles each time.
  virtual bool compilesAsItLoads(const compiler::KernelImage &) const { return false; }
  // The machine code of such an image, made on this thread alone; nullopt where nothing here makes
  // it. It calls no driver, so that it may run beside whatever a caller does, captures of streams
  // too.
  virtual std::optional<std::string> assembleWhole(const compiler::KernelImage &) {
    return std::nullopt;
  }
  // Allocates nothing on the device and compiles nothing.
  virtual Status launch(const LoadedKernel &kernel, const LaunchShape &shape,
                        std::span<const LaunchArgument> arguments, Stream stream) = 0;
  // Touches no memory of the device.
  virtual Result<TensorMap> makeTensorMap(const TensorMapShape &shape) = 0;
  virtual EmulationTotals emulationTotals() { return {}; }

  // Of a format with its codes, or the numbers of `stored` (dsl::valuesAs() of it), as a layout for
  // some k says. Falls back to the host with a warning.
  virtual Result<std::shared_ptr<const Quantizer>>
  makeQuantizer(std::shared_ptr<const dsl::Format> format, const dsl::Format &stored,
                const compiler::ActivationLayout &layout, cache::DiskCache &disk,
                cache::Warnings &warnings) = 0;
};

// Errors: unknown_target, bad_device_model.
Result<std::shared_ptr<Backend>> makeEmulatedBackend(compiler::DeviceModel model);

} // namespace rho
