// The activation quantizer as one kernel launch, built by NVRTC.
#pragma once

#include "runtime/Quantizer.h"
#include "runtime/cuda/CudaBackend.h"

namespace rho::cuda {

// From the disk cache, else by NVRTC. Errors: nvrtc_not_available, nvrtc_failed, kernel_refused.
Result<std::shared_ptr<const Quantizer>>
makeCudaQuantizer(const std::shared_ptr<const Context> &context, int capability,
                  const dsl::Format &format, const dsl::Format &stored,
                  const compiler::ActivationLayout &layout, OpenNvrtc openNvrtc,
                  cache::DiskCache &disk, cache::Warnings &warnings);

} // namespace rho::cuda
