#include "runtime/tool/RandomProblems.h"

#include <algorithm>
#include <bit>
#include <random>

namespace rho::tool {

std::vector<RandomProblem> randomProblems(int64_t count, size_t gemms, const GemmShape &most,
                                          uint64_t seed) {
  constexpr int64_t whole = 64;
  constexpr int64_t wholeOnceIn = 8;
  std::mt19937_64 random(seed); // its sequence is the standard's, that of distributions is not
  auto between = [&](int64_t least, int64_t largest) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(largest - least + 1));
  };
  auto rows = [&] {
    int64_t least = int64_t(1) << between(0, std::bit_width(static_cast<uint64_t>(most.m)) - 1);
    return between(least, std::min(most.m, 2 * least - 1));
  };
  auto extent = [&](int64_t limit) {
    int64_t value = between(1, limit);
    bool rounded = between(1, wholeOnceIn) == 1;
    return rounded && limit >= whole ? std::max(whole, value / whole * whole) : value;
  };
  std::vector<RandomProblem> problems;
  for (int64_t i = 0; i < count; ++i) {
    RandomProblem &problem = problems.emplace_back();
    problem.gemm = static_cast<size_t>(i) % gemms;
    problem.shape.m = rows();
    problem.shape.n = extent(most.n);
    problem.shape.k = extent(most.k);
  }
  return problems;
}

} // namespace rho::tool
