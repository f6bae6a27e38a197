// The problems of `rho verify`.
#pragma once

#include "runtime/Rho.h"

#include <vector>

namespace rho::tool {

struct RandomProblem {
  size_t gemm = 0; // of a list, in turn
  GemmShape shape;
};

// The same for the same arguments on every host. m has every number of bits up to those of `most.m`
// equally often: kernels differ most at small ones. n and k are spread evenly, and each is a
// multiple of 64 once in eight times on purpose, where `most` has room for one.
std::vector<RandomProblem> randomProblems(int64_t count, size_t gemms, const GemmShape &most,
                                          uint64_t seed);

} // namespace rho::tool
