// Layers and formats for the tests of offline algorithms.
#pragma once

#include "kernels/Synthetic.h"
#include "kernels/quantize/Layer.h"
#include "tests/dsl/Formats.h"

#include <bit>
#include <cmath>

namespace rho::test {

template <class T> T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().str());
  return std::move(*result);
}

template <class T> std::string errorOf(const Result<T> &result) {
  return result.ok() ? "" : result.error().str();
}

// A layer of n x k with outlier channels, and inputs of the same distribution to calibrate with and
// to judge by.
struct Layer {
  kernels::Matrix weight, calibration, heldOut;
};

inline Layer syntheticLayer(int64_t n, int64_t k, int64_t tokens, uint64_t seed,
                            double outlierFraction = 0.01) {
  std::vector<float> x =
      kernels::syntheticActivation(2 * tokens, k, seed, {.outlierFraction = outlierFraction});
  auto half = x.begin() + tokens * k;
  return {{n, k, kernels::syntheticWeight(n, k, seed)},
          {tokens, k, {x.begin(), half}},
          {tokens, k, {half, x.end()}}};
}

// Small integers: sums of products are exact in any order.
inline kernels::Matrix integers(int64_t rows, int64_t k, uint64_t seed) {
  std::mt19937_64 random = generator(seed);
  kernels::Matrix matrix{rows, k, std::vector<float>(static_cast<size_t>(rows * k))};
  for (float &value : matrix.values)
    value = static_cast<float>(static_cast<int>(random() % 201) - 100);
  return matrix;
}

// The relative squared error of the outputs of a quantized layer.
inline double quantizedLayerError(const kernels::Matrix &weight, const kernels::Matrix &activation,
                                  const kernels::LayerFormats &formats,
                                  const dsl::QuantizeOptions &options = {}) {
  return kernels::relativeSquaredError(
      kernels::layerOutputs(activation, weight),
      must(kernels::quantizedOutputs(weight, activation, formats, options)));
}

inline kernels::Matrix quantizedValues(const FormatPtr &format, const kernels::Matrix &matrix) {
  return kernels::valuesOf(must(dsl::quantize(format, matrix.view(), false)));
}

} // namespace rho::test
