// Group scales that are multiplied into operand A.
#pragma once

#include "compiler/plan/Placement.h"

namespace rho::compiler {

// Why partial sums cannot be scaled, or operands, by such groups; empty: they can.
std::string groupProblem(const ScaleUse &use, const PlacedGemm &placed);

// Group scales multiplied into operand A: the decode that does it, or why there is none.
struct ScaledOperand {
  std::optional<DecodeSequence> decode;
  int roundings = 0; // of a product, to the operand type
  std::string why;
};

// `hasOthers`: a gemm can have its scales applied elsewhere, so that packing for this one may
// refuse scales which it could hold at a price.
ScaledOperand scaleOperand(const dsl::Format &weight, const dsl::Expr &core,
                           const std::vector<ScaleUse> &groups, const DecodeSequence &decode,
                           const PlacedGemm &placed, bool hasOthers);

} // namespace rho::compiler
