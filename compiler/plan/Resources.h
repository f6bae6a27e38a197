// What a kernel takes of an SM.
#pragma once

#include "compiler/plan/Geometry.h"

namespace rho::compiler {

// Estimated registers of one thread, from accumulators, fragments and scales.
int estimateRegisters(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &geometry,
                      int pipeline);

// Dynamic shared memory of one CTA in bytes.
int64_t sharedBytes(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &geometry,
                    const Schedule &schedule, const Problem &problem);

} // namespace rho::compiler
