// Numbers to encode, for tests.
#pragma once

#include "tests/dsl/Files.h"

#include <cstdint>
#include <random>
#include <vector>

namespace rho::test {

using Numbers = std::vector<float>;

// Bell-shaped around `shift`, one in fifty 20 times as far away.
inline Numbers numbers(int64_t count, uint32_t seed, float shift = 0) {
  std::mt19937_64 random = generator(seed);
  std::normal_distribution<float> normal;
  Numbers x(static_cast<size_t>(count));
  for (float &value : x)
    value = normal(random) * (random() % 50 == 0 ? 20.0f : 1.0f) + shift;
  return x;
}

} // namespace rho::test
