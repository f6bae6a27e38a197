// Why an image that came from a file is not the kernel that is wanted; empty: it is. Launches,
// packing and quantizers rely on it.
#pragma once

#include "compiler/KernelImage.h"
#include "compiler/Plan.h"
#include "dsl/Format.h"

#include <string>
#include <vector>

namespace rho {

std::string misfit(const compiler::KernelImage &image, const dsl::Gemm &gemm,
                   const compiler::Plan &plan);
// The same of what kernels make of a weight.
std::string misfit(const std::vector<compiler::OperandRange> &operands, const dsl::Gemm &gemm);
// Of a kernel that is no gemm's.
std::string misfitOfPlain(const compiler::KernelImage &image);

} // namespace rho
