// Inner products in double.
#pragma once

#include <cstdint>

namespace rho::kernels {

// The sum of a[i] * b[i], in an order of its own: in parts, so that the loop is vectorised.
template <class A, class B> double dot(const A *a, const B *b, int64_t count) {
  constexpr int64_t lanes = 8;
  double sums[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane)
      sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
  double sum = 0;
  for (; i < count; ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  for (double part : sums)
    sum += part;
  return sum;
}

} // namespace rho::kernels
