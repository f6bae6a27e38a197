// What keeps a weight from being packed.
#pragma once

#include "compiler/Layout.h"

namespace rho::compiler {

// Whether the layout is for such a weight, and its codes are those of its format; empty: so it is.
std::string weightProblem(const WeightLayout &layout, const dsl::QuantizedMatrix &weight);

// What keeps the codes of a weight from being those of its format: their number, their bits,
// numbers that are not finite, parts of other formats; empty: nothing.
std::string codesProblem(const dsl::QuantizedMatrix &weight);

// The first code with a sign where the kernel reads none.
std::optional<Error> negativeScale(const std::vector<LayoutSection> &sections,
                                   const dsl::QuantizedMatrix &weight);

// The first code that no sum of two codes of the section's type stands for.
std::optional<Error> noSum(const std::vector<LayoutSection> &sections,
                           const dsl::QuantizedMatrix &weight);

} // namespace rho::compiler
