// Machine code of programs that the driver's linker may not compile.
#pragma once

#include "compiler/KernelImage.h"
#include "runtime/cuda/Nvrtc.h"

#include <optional>
#include <string>
#include <string_view>

namespace rho::cuda {

// CUDA C++ in whose PTX these functions stand as they are, behind one that does nothing: its only
// statement ends it and begins them, and its own end is that of the last. So compiled, by an
// assembler of one version, they are the same code, instruction for instruction, with all that
// directives say of them: the one way through public calls from PTX to a cubin that is not compiled
// for linking. nullopt: the text does not end as functions do that return at their end.
std::optional<std::string> asCudaProgram(std::string_view ptx);

// Of NVRTC, whose programs have as many instructions as 13.0's (six kernels); those of 12.4 and
// 12.6 had up to 1.4 times as many.
inline constexpr int oldestWholeProgramToolkit = 12080;

// The cubin of a whole program, for a driver of this version; nullopt where this NVRTC makes none,
// or is older than that. A driver is sure to load cubins of its own CUDA version and of those
// before it.
std::optional<std::string> assembleWholeProgram(const Nvrtc &nvrtc, int driverVersion,
                                                const compiler::KernelImage &image);

} // namespace rho::cuda
