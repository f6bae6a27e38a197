// How far a kernel's output may be from the exact result: computed, never guessed.
#pragma once

#include "compiler/Plan.h"

namespace rho::compiler {

// Bound on |computed - y| for one output, where y is the exact result and `magnitude` the sum over
// k of |activation * weight|. The derivation stands at the definition. Outputs that overflow the
// output type are infinite in both.
double errorBound(const dsl::Gemm &gemm, const Plan &plan, double magnitude, double y);

} // namespace rho::compiler
