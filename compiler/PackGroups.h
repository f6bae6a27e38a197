// Elements that are stored as others than they are, by what the scale or the selector of their
// group is.
#pragma once

#include "compiler/Layout.h"

namespace rho::compiler {

// The codes with elements of 0 where a scale is 0, of sections that have no code for that, and
// negated where sections say so. None where it changes nothing.
std::optional<dsl::QuantizedMatrix> asStored(const std::vector<LayoutSection> &sections,
                                             const dsl::QuantizedMatrix &weight);

} // namespace rho::compiler
