// Numbers among values in order, several at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace rho::dsl {

inline constexpr int64_t numbersAtATime = 8;

// How many of the values, which ascend, are below each of `count` <= numbersAtATime numbers.
[[gnu::always_inline]] inline void countBelow(std::span<const double> values, const double *x,
                                              int64_t count, uint64_t *below) {
  constexpr size_t few = 32; // of which all are compared, without branches
  if (count < numbersAtATime || values.size() > few) {
    for (int64_t i = 0; i < count; ++i)
      below[i] = static_cast<uint64_t>(std::lower_bound(values.begin(), values.end(), x[i]) -
                                       values.begin());
    return;
  }
  uint64_t counts[numbersAtATime] = {}; // which registers hold meanwhile
  for (double value : values)
    for (int64_t i = 0; i < numbersAtATime; ++i)
      counts[i] += value < x[i] ? 1 : 0;
  std::copy_n(counts, numbersAtATime, below);
}

} // namespace rho::dsl
