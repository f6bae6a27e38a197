// Machine code of programs that the driver's linker may not compile.
#pragma once

#include "compiler/KernelImage.h"
#include "runtime/cuda/Nvrtc.h"

#include <optional>
#include <string>

namespace rho::cuda {

// CUDA C++ with one kernel: its parameters, block size, limit of registers and dynamic shared
// memory are those of the PTX's only kernel, and its body is that kernel's as inline PTX. So
// compiled, by an assembler of one version, it is the PTX's code, instruction for instruction: the
// one way through public calls from PTX to a cubin that is not compiled for linking. Such a kernel
// has its clusters, and launches count them, not CTAs. nullopt: the PTX has what this cannot say.
std::optional<std::string> asCudaProgram(const std::string &ptx,
                                         const compiler::Dim3 &cluster = {});

// The cubin of a whole program, for a driver of this version; nullopt where this NVRTC makes none.
// Block sizes, not just their limits, are CUDA C++ from CUDA 13.0 on, and a driver is sure to load
// cubins of its own CUDA version and of those before it.
std::optional<std::string> assembleWholeProgram(const Nvrtc &nvrtc, int driverVersion,
                                                const compiler::KernelImage &image);

} // namespace rho::cuda
