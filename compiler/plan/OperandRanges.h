// Which operands a placed gemm makes of a weight that may be beyond them.
#pragma once

#include "compiler/Candidates.h"
#include "compiler/plan/Placement.h"

namespace rho::compiler {

std::vector<OperandRange> operandRanges(const dsl::Gemm &gemm, const PlacedGemm &placed);

} // namespace rho::compiler
