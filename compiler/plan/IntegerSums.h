// How large the sums in integer accumulators can become, and what follows from it.
#pragma once

#include "compiler/plan/Placement.h"

#include <string>

namespace rho::compiler {

// Error accumulator_overflow where a sum between two flushes could leave an s32 accumulator, of any
// part or of a residual.
std::optional<Error> checkAccumulator(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                      const Problem &problem, const SourceMap *sources);

// Why partial sums cannot start at the bits of 1.5 * 2^23 (dsl::ScheduleDecl::Sums); empty where
// they can: there are sums of groups, no partial sum of any group of valid codes reaches 2^22, and
// the instructions take the first summand from a register of its own.
std::string whyNotBiased(const dsl::Gemm &gemm, const PlacedGemm &placed, const Problem &problem,
                         dsl::ScheduleDecl::Roles roles);

} // namespace rho::compiler
