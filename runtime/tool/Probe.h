// Measures on a GPU what a device declaration says.
#pragma once

#include "runtime/Rho.h"

#include <optional>
#include <string>
#include <vector>

namespace rho::tool {

struct ProbedFigure {
  std::string what, unit;
  std::optional<double> declared; // none: the declaration does not say
  double measured;
};

// Clock, instructions and multiply-adds for each cycle of an SM, bandwidth, L2. Errors:
// probe_needs_gpu, those of the driver.
Result<std::vector<ProbedFigure>> probe(const Device &device);

// Bytes of a set that is read again and again, and the rate of that, both ascending in bytes: the
// largest set that L2 still serves. By the rate halfway between the fastest and the last one.
double largestCached(const std::vector<std::pair<double, double>> &rates);

} // namespace rho::tool
