#include "compiler/CodePair.h"

#include <cmath>

namespace rho::compiler {

std::optional<CodePair> codePair(dsl::ElementType type, double value) {
  std::optional<CodePair> best;
  double largest = -1;
  uint32_t codes = 1U << type.bits();
  for (uint32_t main = 0; main < codes; ++main)
    for (uint32_t rest = 0; rest < codes; ++rest) {
      double a = type.decode(main), b = type.decode(rest);
      if (a + b != value || a * b < 0 || std::signbit(a) != std::signbit(value) ||
          (b == 0 && rest != 0) || std::abs(a) <= largest)
        continue;
      largest = std::abs(a);
      best = {main, rest};
    }
  return best;
}

} // namespace rho::compiler
