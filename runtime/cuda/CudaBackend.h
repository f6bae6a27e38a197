// A GPU behind the driver API.
#pragma once

#include "runtime/Backend.h"
#include "runtime/cuda/Driver.h"
#include "runtime/cuda/Nvrtc.h"

namespace rho::cuda {

// The process's backend of that GPU: equal ordinals share it. Errors: cuda_not_available,
// cuda_device_too_old, cuda_call_failed.
Result<std::shared_ptr<Backend>> backendOf(int ordinal);

using OpenNvrtc = Result<const Nvrtc *> (*)();
// A new backend on this driver, which outlives it, and this NVRTC.
Result<std::shared_ptr<Backend>> openDevice(const Driver &driver, int ordinal,
                                            OpenNvrtc openNvrtc = Nvrtc::open);

// A GPU's primary context, kept while anybody uses it.
class Context {
public:
  Context(const Driver &driver, CUdevice device, CUcontext handle)
      : driver(driver), device(device), handle(handle) {}
  ~Context();
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;

  const Driver &driver;
  const CUdevice device;
  const CUcontext handle;
};

// What backendOf() gives, for those who time launches; null for another kind of backend.
std::shared_ptr<const Context> contextOf(const Backend &backend);

} // namespace rho::cuda
