// Which blocks of a residual to store: MosaicQuant, observation 2 and section 4.1. The order of the
// rules is not built in: each gives scores of its own to the same encoder.
#include "kernels/quantize/Smoothing.h"
#include "tests/kernels/Layers.h"

namespace rho::kernels {
namespace {

using namespace rho::test;

constexpr int64_t n = 256, k = 1024, tokens = 64, blockRows = 16, blockK = 64;
constexpr int64_t across = k / blockK, blocks = across * n / blockRows;

constexpr const char *int4 =
    "format int4 { element: s4 scale: f16 per channel value = element * scale }\n";

FormatPtr mosaic(int budget) {
  return declared("format mosaic { element: s4 scale: f16 per channel value = element * scale\n"
                  "residual fix: int4 per n[16] k[64] budget " +
                  std::to_string(budget) + "% }\n" + int4);
}

// The sum over each block of term(row, column).
template <class Term> std::vector<double> scoresOf(const Term &term) {
  std::vector<double> scores(static_cast<size_t>(blocks));
  for (int64_t row = 0; row < n; ++row)
    for (int64_t column = 0; column < k; ++column)
      scores[static_cast<size_t>(row / blockRows * across + column / blockK)] += term(row, column);
  return scores;
}

TEST(ResidualSelection, BySensitivityBeatsMagnitudeBeatsChance) {
  FormatPtr format = mosaic(10);
  // Of all layers together: in a single one the difference of two rules can be less than what the
  // Hessian beside its diagonal, noise of a few tokens, adds. On the calibration, then held out.
  double none[2] = {}, byHessian[2] = {}, byMagnitude[2] = {}, byNorm[2] = {}, byChance[2] = {};
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Layer layer = syntheticLayer(n, k, tokens, seed);
    // As the paper does, activations first give their outliers to the weight (appendix C.1).
    SmoothingScales smoothing =
        must(searchSmoothing(layer.weight, layer.calibration, {format, shipped("int4_g128")},
                             {.steps = 10, .hessian = true}))
            .best;
    Matrix weight = must(smoothWeight(layer.weight, smoothing));
    Matrix x = must(smoothActivation(layer.calibration, smoothing));
    Matrix heldOut = must(smoothActivation(layer.heldOut, smoothing));
    std::vector<double> hessian = hessianDiagonal(x);

    Matrix base = quantizedValues(declared(int4), weight);
    auto left = [&](int64_t row, int64_t column) {
      return double(weight.row(row)[column]) - base.row(row)[column];
    };
    std::vector<double> magnitude =
        scoresOf([&](int64_t row, int64_t column) { return std::pow(weight.row(row)[column], 2); });
    std::vector<double> norm =
        scoresOf([&](int64_t row, int64_t column) { return std::pow(left(row, column), 2); });
    std::mt19937_64 random = generator(seed);
    std::vector<double> chance;
    for (int64_t block = 0; block < blocks; ++block)
      chance.push_back(1 + static_cast<double>(random() % 1000000));

    auto error = [&](const Matrix &inputs, const dsl::QuantizeOptions &options) {
      return quantizedLayerError(weight, inputs, {format, nullptr}, options);
    };
    for (int i = 0; const Matrix &inputs : {x, heldOut}) {
      none[i] += quantizedLayerError(weight, inputs, {declared(int4), nullptr});
      byHessian[i] += error(inputs, {.columnWeights = hessian});
      byMagnitude[i] += error(inputs, {.residualScores = magnitude});
      byNorm[i] += error(inputs, {.residualScores = norm});
      byChance[i++] += error(inputs, {.residualScores = chance});
    }
  }
  for (int i : {0, 1}) {
    EXPECT_LT(byHessian[i], byMagnitude[i]);
    EXPECT_LT(byHessian[i], byNorm[i]);
    EXPECT_LT(byMagnitude[i], byChance[i]);
    EXPECT_LT(byChance[i], none[i]);
  }
}

// Theorem 4.1: with a diagonal Hessian no other choice of as many blocks is better. Tokens that
// excite one channel each make it diagonal; the candidate residual is the stored one where one row
// has all of a block's scales, so that storing others does not change it.
TEST(ResidualSelection, IsOptimalForADiagonalHessian) {
  FormatPtr format = declared("format f { element: s4 scale: f16 per channel value = element * "
                              "scale residual fix: fine per k[8] budget 40% }\n"
                              "format fine { element: s4 scale: f16 per k[8] value = element * "
                              "scale }");
  Matrix weight{1, 80, syntheticWeight(1, 80, 3)};
  Matrix x{80, 80, std::vector<float>(6400, 0)};
  std::mt19937_64 random = generator(3);
  for (int64_t i = 0; i < 80; ++i)
    x.row(i)[i] = static_cast<float>(1 + random() % 9);
  LayerFormats formats{format, nullptr};
  double best = quantizedLayerError(weight, x, formats, {.columnWeights = hessianDiagonal(x)});
  int better = 0, subsets = 0;
  for (unsigned chosen = 0; chosen < 1U << 10; ++chosen) {
    if (std::popcount(chosen) != 4)
      continue;
    std::vector<double> scores(10);
    for (size_t block = 0; block < 10; ++block)
      scores[block] = chosen >> block & 1;
    ++subsets;
    better +=
        quantizedLayerError(weight, x, formats, {.residualScores = scores}) < best * (1 - 1e-9);
  }
  EXPECT_EQ(subsets, 210);
  EXPECT_EQ(better, 0);
}

} // namespace
} // namespace rho::kernels
