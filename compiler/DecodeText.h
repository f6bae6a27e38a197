// Decodes as text for people.
#pragma once

#include "compiler/Plan.h"

namespace rho::compiler {

// How the codes of the weight become operands, instruction by instruction, and what the search for
// this decode found besides. Empty for a plan that is not legal.
std::string explainDecode(const dsl::Gemm &gemm, const Plan &plan);

} // namespace rho::compiler
