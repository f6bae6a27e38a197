// What a kernel takes of an SM.
#pragma once

#include "compiler/plan/Geometry.h"

namespace rho::compiler {

// Estimated registers of one thread, from accumulators, fragments and scales.
int estimateRegisters(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &geometry,
                      int pipeline);

// A buffer in the dynamic shared memory of a CTA; each begins at Geometry::sharedAlignment().
struct SharedBuffer {
  enum class Role : uint8_t {
    Stage,           // `of` says of what
    Pieces,          // the ring of a residual
    PiecePlaces,     // its place for each stage
    Sums,            // of warps and CTAs along k
    Slices,          // of outputs
    Tokens,          // scales of tokens that a warpgroup shares
    Operand,         // A, of a warpgroup that decodes
    OperandBarriers, // full and empty, of each of its stages
    Pairs,           // DecodeProgram::lanes
  };
  Role role;
  int64_t bytes, stages;
  StageBuffer of = {};
  // Used once the stages of the CTA's only tile are not any more, and lies over them.
  bool overStages = false;
};
// In the order in which they lie there: one after the other, those over the stages from the first
// of these on.
std::vector<SharedBuffer> sharedBuffers(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                        const Geometry &geometry, const Schedule &schedule,
                                        const Problem &problem);
// Dynamic shared memory of one CTA in bytes.
int64_t sharedBytes(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &geometry,
                    const Schedule &schedule, const Problem &problem);

} // namespace rho::compiler
