// Whether a weight's codes keep what its format promises.
#pragma once

#include "dsl/Quantize.h"

#include <optional>

namespace rho::compiler {

struct Place {
  int64_t n, k;
};

// The first number, row by row, whose codes break a requirement of the weight's format. The
// weight's components must have their natural sizes.
std::optional<Place> firstBreach(const dsl::QuantizedMatrix &weight);

} // namespace rho::compiler
