#include "kernels/Reference.h"
#include "tests/kernels/TestFormats.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace rho;
using namespace rho::kernels;
using namespace rho::test;

namespace {

std::shared_ptr<Format> integers() {
  return productFormat("integers", {component("element", "s8", Extent::Element)});
}

std::shared_ptr<Format> scaled() {
  return productFormat("scaled", {component("element", "s4", Extent::Element),
                                  component("scale", "f16", Extent::Group, 16),
                                  component("tensor", "f32", Extent::Tensor)});
}

// From the declaration of y = x * w^T, one value() at a time.
void expectNaive(const QuantizedMatrix &x, const QuantizedMatrix &w) {
  ReferenceOutput output = reference(x, w);
  ASSERT_EQ(output.m, x.rows);
  ASSERT_EQ(output.n, w.rows);
  for (int64_t m = 0; m < x.rows; ++m)
    for (int64_t n = 0; n < w.rows; ++n) {
      double y = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < x.k; ++k) {
        y += x.value(m, k) * w.value(n, k);
        magnitude += std::fabs(x.value(m, k) * w.value(n, k));
      }
      EXPECT_NEAR(output.y[m * w.rows + n], y, magnitude * 1e-14);
      EXPECT_NEAR(output.magnitude[m * w.rows + n], magnitude, magnitude * 1e-14);
    }
}

TEST(ReferenceTest, equalsTheNaiveSum) {
  expectNaive(randomMatrix(scaled(), 3, 40, 1), randomMatrix(scaled(), 37, 40, 2));
  expectNaive(randomMatrix(scaled(), 1, 1, 3), randomMatrix(scaled(), 1, 1, 4));
  expectNaive(randomMatrix(scaled(), 600, 7, 5), randomMatrix(scaled(), 2, 7, 6));
}

TEST(ReferenceTest, integerSumsAreExact) {
  QuantizedMatrix x = randomMatrix(integers(), 5, 1000, 7);
  QuantizedMatrix w = randomMatrix(integers(), 9, 1000, 8);
  ReferenceOutput output = reference(x, w);
  for (int64_t m = 0; m < 5; ++m)
    for (int64_t n = 0; n < 9; ++n) {
      int64_t sum = 0;
      for (int64_t k = 0; k < 1000; ++k)
        sum += static_cast<int64_t>(static_cast<int8_t>(x.components[0].get(m * 1000 + k))) *
               static_cast<int8_t>(w.components[0].get(n * 1000 + k));
      EXPECT_EQ(output.y[m * 9 + n], static_cast<double>(sum));
    }
}

TEST(ReferenceTest, samplesEqualTheWhole) {
  QuantizedMatrix x = randomMatrix(scaled(), 20, 100, 9);
  QuantizedMatrix w = randomMatrix(scaled(), 30, 100, 10);
  ReferenceOutput whole = reference(x, w);
  std::vector<Sample> samples = {{0, 0}, {19, 29}, {7, 3}, {7, 4}, {0, 0}};
  SampleOutput chosen = referenceAt(x, w, samples);
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(chosen.y[i], whole.y[samples[i].m * 30 + samples[i].n]);
    EXPECT_EQ(chosen.magnitude[i], whole.magnitude[samples[i].m * 30 + samples[i].n]);
  }
  EXPECT_TRUE(referenceAt(x, w, {}).y.empty());
}

TEST(ReferenceTest, notANumberReachesEveryOutputThatItTouches) {
  auto plain = productFormat("plain", {component("element", "f16", Extent::Element)});
  QuantizedMatrix x = randomMatrix(plain, 2, 12, 11);
  QuantizedMatrix w = randomMatrix(plain, 3, 12, 12);
  x.components[0].set(12 + 5, 0x7e00);
  ReferenceOutput output = reference(x, w);
  for (int64_t n = 0; n < 3; ++n) {
    EXPECT_TRUE(std::isfinite(output.y[n]));
    EXPECT_TRUE(std::isnan(output.y[3 + n]));
    EXPECT_TRUE(std::isnan(output.magnitude[3 + n]));
  }
}

} // namespace
