// Group scales that are multiplied into operand A.
#pragma once

#include "compiler/plan/Placement.h"

namespace rho::compiler {

bool mentions(const dsl::Expr &expr, int component);

// Why partial sums cannot be scaled, or operands, by such groups; empty: they can.
std::string groupProblem(const ScaleUse &use, const PlacedGemm &placed);

// Group scales multiplied into operand A: the decode that does it, or why there is none.
struct ScaledOperand {
  std::optional<DecodeSequence> decode;
  int roundings = 0; // of a product, to the operand type
  std::string why;
};

// `leavesOthers`: the weight has other scales as well, which are applied to sums, and might be
// applied to these instead.
ScaledOperand scaleOperand(const dsl::Format &weight, const dsl::Expr &core,
                           const std::vector<ScaleUse> &groups, bool leavesOthers,
                           const DecodeSequence &decode, const PlacedGemm &placed);

} // namespace rho::compiler
