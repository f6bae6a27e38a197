// Inner products beside the order of their sums that Products.h says.
#include "kernels/quantize/Products.h"
#include "tests/dsl/Numbers.h"

#include <gtest/gtest.h>

#include <vector>

namespace rho::kernels {
namespace {

// Of both signs and many magnitudes, so that another order gives other bits.
template <class T> std::vector<T> randomNumbers(int64_t count, uint64_t seed) {
  std::mt19937_64 random = test::generator(seed);
  std::vector<T> numbers(static_cast<size_t>(count));
  for (T &number : numbers) {
    const auto sign = random() % 2 == 0 ? 1.0 : -1.0;
    const auto scale = static_cast<double>(uint64_t(1) << random() % 20);
    number = static_cast<T>(sign * scale * (1.0 + static_cast<double>(random() % 1000003) / 1e6));
  }
  return numbers;
}

template <class A> double inOrder(const A *a, const double *b, int64_t count) {
  double sums[8] = {}, sum = 0;
  const int64_t whole = count / 8 * 8;
  for (int64_t i = 0; i < whole; ++i)
    sums[i % 8] += static_cast<double>(a[i]) * b[i];
  for (int64_t i = whole; i < count; ++i)
    sum += static_cast<double>(a[i]) * b[i];
  for (double part : sums)
    sum += part;
  return sum;
}

template <class X> void expectProducts(int64_t tokens, int64_t rows, int64_t k) {
  const std::vector<X> x = randomNumbers<X>(tokens * k, 1);
  const std::vector<double> w = randomNumbers<double>(rows * k, 2);
  std::vector<double> y(static_cast<size_t>(rows * tokens), -1);
  products(x.data(), tokens, w.data(), rows, k, y.data());
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t token = 0; token < tokens; ++token) {
      const double expected = inOrder(x.data() + token * k, w.data() + row * k, k);
      ASSERT_EQ(y[static_cast<size_t>(row * tokens + token)], expected)
          << row << " of " << rows << ", " << token << " of " << tokens << ", " << k;
      ASSERT_EQ(dot(x.data() + token * k, w.data() + row * k, k), expected);
    }
}

TEST(Products, SumInTheirOrder) {
  for (int64_t tokens : {1, 2, 3, 47, 48, 49, 100})
    for (int64_t rows : {1, 2, 5, 33})
      for (int64_t k : {1, 7, 8, 100, 512, 513, 1100}) {
        expectProducts<float>(tokens, rows, k);
        expectProducts<double>(tokens, rows, k);
      }
}

TEST(Products, OfNothingAreZero) {
  const double one = 1;
  EXPECT_EQ(dot(&one, &one, 0), 0);
  double y = -1;
  products(&one, 1, &one, 0, 1, &y);
  EXPECT_EQ(y, -1);
}

TEST(Products, ScaledNumbersAreAddedOneColumnAfterTheOther) {
  for (int64_t columns : {0, 1, 5})
    for (int64_t count : {1, 31, 32, 33, 100}) {
      const std::vector<double> factors = randomNumbers<double>(columns, 3);
      const std::vector<float> x = randomNumbers<float>(columns * count, 4);
      std::vector<double> sums = randomNumbers<double>(count, 5), expected = sums;
      addScaled(factors.data(), columns, x.data(), count, sums.data());
      for (int64_t j = 0; j < columns; ++j)
        for (int64_t i = 0; i < count; ++i)
          expected[static_cast<size_t>(i)] +=
              factors[static_cast<size_t>(j)] *
              static_cast<double>(x[static_cast<size_t>(j * count + i)]);
      EXPECT_EQ(sums, expected);
    }
}

} // namespace
} // namespace rho::kernels
