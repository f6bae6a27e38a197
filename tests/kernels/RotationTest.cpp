// Hadamard matrices against their definition, rotations against what they must leave as it is.
#include "kernels/quantize/Rotation.h"
#include "tests/kernels/Layers.h"

#include <bitset>
#include <numeric>

namespace rho::kernels {
namespace {

using namespace rho::test;

// H H^T = n I, from the entries alone: two rows differ in half of their columns.
void expectHadamard(const Hadamard &h) {
  const int64_t n = h.order();
  constexpr size_t most = 512;
  ASSERT_LE(n, most);
  std::vector<std::bitset<most>> rows(static_cast<size_t>(n));
  for (int64_t row = 0; row < n; ++row)
    for (int64_t column = 0; column < n; ++column) {
      ASSERT_EQ(std::abs(h.entry(row, column)), 1);
      rows[static_cast<size_t>(row)][static_cast<size_t>(column)] = h.entry(row, column) < 0;
    }
  for (size_t a = 0; a < rows.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      ASSERT_EQ(2 * (rows[a] ^ rows[b]).count(), rows.size())
          << "rows " << a << " and " << b << " of order " << n;
}

struct Order {
  int64_t n, core;
};

class HadamardOrders : public testing::TestWithParam<Order> {};

TEST_P(HadamardOrders, RowsAreOrthogonalAndTheTransformIsTheMatrix) {
  Hadamard h = must(Hadamard::ofOrder(GetParam().n));
  ASSERT_EQ(h.order(), GetParam().n);
  EXPECT_EQ(h.coreOrder(), GetParam().core);
  expectHadamard(h);
  std::vector<float> x = integers(1, h.order(), 3).values;
  std::vector<double> fast(x.begin(), x.end());
  h.apply(fast);
  for (int64_t row = 0; row < h.order(); ++row) {
    double expected = 0;
    for (int64_t column = 0; column < h.order(); ++column)
      expected += h.entry(row, column) * x[static_cast<size_t>(column)];
    ASSERT_EQ(fast[static_cast<size_t>(row)], expected);
  }
}

// 12 and 20 by Paley's first construction, 36 by the second, 28 by the first over GF(27), 52 by the
// second over GF(25), 344 by the first over GF(343); 92 and 428 by four circulants, and 368 by
// Paley again.
INSTANTIATE_TEST_SUITE_P(Sizes, HadamardOrders,
                         testing::Values(Order{1, 1}, Order{2, 1}, Order{64, 1}, Order{12, 12},
                                         Order{48, 12}, Order{20, 20}, Order{28, 28},
                                         Order{224, 28}, Order{36, 36}, Order{52, 52},
                                         Order{148, 148}, Order{344, 344}, Order{92, 92},
                                         Order{184, 92}, Order{368, 368}, Order{428, 428}),
                         [](const auto &info) { return "k" + std::to_string(info.param.n); });

// Widths of Llama 2 and 3, Qwen 1.5 and 2.5 and ChatGLM 3.
TEST(Hadamard, KnowsTheWidthsOfLanguageModels) {
  for (Order order : {Order{4096, 1},
                      {5120, 20},
                      {8192, 1},
                      {11008, 344},
                      {13824, 108},
                      {14336, 28},
                      {3584, 28},
                      {18944, 148},
                      {28672, 28},
                      {13696, 428},
                      {27392, 428}})
    EXPECT_EQ(must(Hadamard::ofOrder(order.n)).coreOrder(), order.core) << order.n;
}

TEST(Hadamard, EveryMultipleOfFourUpTo512IsAnOrder) {
  for (int64_t n = 4; n <= 512; n += 4)
    expectHadamard(must(Hadamard::ofOrder(n)));
  for (int64_t n : {1536,  2048,  2560,  2816,  3072,  5376,  5504,  5632,  6144,  6912,
                    7168,  8960,  9216,  9728,  10240, 12288, 13440, 15360, 16384, 17408,
                    20480, 21504, 22016, 24576, 25600, 27648, 29568, 36864, 49152, 53248})
    EXPECT_TRUE(Hadamard::ofOrder(n)) << n;
}

// 668 is the least multiple of 4 of which no matrix is known to anyone.
TEST(Hadamard, OtherOrdersAreRefused) {
  for (int64_t n : {int64_t(0), int64_t(-4), int64_t(3), int64_t(6), int64_t(10), int64_t(668),
                    INT64_MIN, INT64_MAX})
    EXPECT_EQ(errorOf(Hadamard::ofOrder(n)),
              "error: order " + std::to_string(n) +
                  ", Hadamard matrices have order 1, 2, a multiple of 4 up to 512, one up to 1024 "
                  "that Paley's constructions give, or 2^p times one of these "
                  "[no_hadamard_order]\n");
}

std::vector<double> randomNumbers(size_t count, uint64_t seed) {
  std::mt19937_64 random = generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> x(count);
  for (double &value : x)
    value = normal(random);
  return x;
}

double product(std::span<const double> x, std::span<const double> w) {
  return std::inner_product(x.begin(), x.end(), w.begin(), 0.0);
}

TEST(Rotation, LeavesInnerProducts) {
  for (int64_t size : {64, 96, 140, 344})
    for (std::optional<uint64_t> seed : {std::optional<uint64_t>(), std::optional<uint64_t>(7)}) {
      Rotation rotation = must(Rotation::ofSize(size, seed));
      auto k = static_cast<size_t>(2 * size); // two blocks
      std::vector<double> x = randomNumbers(k, 1), w = randomNumbers(k, 2), rx = x, rw = w;
      rotation.apply(rx);
      rotation.apply(rw);
      EXPECT_NEAR(product(rx, rw), product(x, w), 1e-12 * static_cast<double>(k));
      EXPECT_GT(std::fabs(rx[0] - x[0]), 1e-6);
    }
}

TEST(Rotation, IsDrawnFromItsSeed) {
  auto rotated = [](std::optional<uint64_t> seed) {
    std::vector<double> x = randomNumbers(96, 1);
    must(Rotation::ofSize(96, seed)).apply(x);
    return x;
  };
  EXPECT_EQ(rotated(5), rotated(5));
  EXPECT_NE(rotated(5), rotated(6));
  EXPECT_NE(rotated(0), rotated(std::nullopt));
  // Without seed the exact matrix: a row of ones becomes its sums of rows.
  std::vector<double> ones(64, 1.0);
  must(Rotation::ofSize(64, std::nullopt)).apply(ones);
  EXPECT_EQ(ones[0], 8);
  for (size_t i = 1; i < 64; ++i)
    EXPECT_EQ(ones[i], 0);
}

// Two layers, the outputs of the first rotated and the inputs of the second (APEX4, equation 4).
TEST(Rotation, PairsOfLayersCancel) {
  Matrix x = integers(5, 30, 1), first = integers(48, 30, 2), second = integers(7, 48, 3);
  auto through = [&](const Matrix &a, const Matrix &b) {
    std::vector<double> inner = layerOutputs(x, a);
    Matrix between{x.rows, a.rows, {inner.begin(), inner.end()}};
    return layerOutputs(between, b);
  };
  std::vector<double> expected = through(first, second);
  for (int64_t size : {48, 12, 24}) { // of the whole width, and of heads
    Rotation rotation = must(Rotation::ofSize(size, 3));
    std::vector<double> outputs(first.values.begin(), first.values.end());
    ASSERT_TRUE(rotateOutputsInPlace(outputs, first.k, rotation));
    Matrix rotated{first.rows, first.k, {outputs.begin(), outputs.end()}};
    std::vector<double> found = through(rotated, must(rotateInputs(second, rotation)));
    EXPECT_LT(relativeSquaredError(expected, found), 1e-12); // f32 between
  }
}

TEST(Rotation, ResultsDoNotDependOnThreads) {
  Matrix x = integers(31, 96, 4);
  Rotation rotation = must(Rotation::ofSize(96, 3));
  EXPECT_EQ(must(rotateInputs(x, rotation, 1)).values, must(rotateInputs(x, rotation, 5)).values);
  for (auto *rotate : {rotateInputsInPlace, rotateOutputsInPlace}) {
    std::vector<double> one(x.values.begin(), x.values.end()), five = one;
    const int64_t k = rotate == rotateOutputsInPlace ? 31 : 96; // 96 outputs, or inputs
    ASSERT_TRUE(rotate(one, k, rotation, 1));
    ASSERT_TRUE(rotate(five, k, rotation, 5));
    EXPECT_EQ(one, five);
  }
}

TEST(Rotation, SumsBeyondF32AreErrors) {
  Matrix large{2, 4, {1, 1, 1, 1, 3e38F, 3e38F, 3e38F, 3e38F}};
  Rotation rotation = must(Rotation::ofSize(4, std::nullopt));
  const std::string expected = "error: rotated, row 1, column 0 would be infinity, f32 has numbers "
                               "up to 3.4e38 [rotation_beyond_f32]\n";
  EXPECT_EQ(errorOf(rotateInputs(large, rotation)), expected);
  EXPECT_EQ(errorOf(rotateActivation(large, rotation)), expected);
}

TEST(Rotation, WidthsAreMultiplesOfItsSize) {
  Rotation rotation = must(Rotation::ofSize(12, 1));
  EXPECT_EQ(errorOf(rotateInputs(integers(3, 30, 1), rotation)),
            "error: rotation of 12 for 30 channels, their number is a multiple of it "
            "[transform_width]\n");
  std::vector<double> numbers(72);
  EXPECT_EQ(errorOf(rotateInputsInPlace(numbers, 24, must(Rotation::ofSize(16, 1)))),
            "error: rotation of 16 for 24 channels, their number is a multiple of it "
            "[transform_width]\n");
  EXPECT_EQ(errorOf(rotateOutputsInPlace(numbers, 24, rotation)),
            "error: rotation of 12 for 3 channels, their number is a multiple of it "
            "[transform_width]\n");
}

// APEX4, section 3.1: W4A4 with groups of 128 and without groups.
TEST(Rotation, LowersTheErrorOfFourBitLayersWithOutliers) {
  for (uint64_t seed : {1, 2, 3})
    for (const LayerFormats &formats :
         {LayerFormats{shipped("int4_channel"), shipped("int4_token")},
          LayerFormats{shipped("int4_g128"), shipped("int4_g128")}}) {
      Layer layer = syntheticLayer(64, 1024, 32, seed);
      Rotation rotation = must(Rotation::ofSize(1024, seed));
      double before = quantizedLayerError(layer.weight, layer.calibration, formats);
      double after = quantizedLayerError(must(rotateInputs(layer.weight, rotation)),
                                         must(rotateInputs(layer.calibration, rotation)), formats);
      EXPECT_LT(after, before / 2);
    }
}

// APEX4, equation 7, word for word.
TEST(Layer, GroupsOfFourBitsFollowTheirEquation) {
  FormatPtr format =
      declared("format f { element: s4 scale: f32 per k[32] value = element * scale }");
  Layer layer = syntheticLayer(9, 96, 1, 1);
  dsl::QuantizedMatrix codes = must(dsl::quantize(format, layer.weight.view(), true));
  for (int64_t row = 0; row < 9; ++row)
    for (int64_t group = 0; group < 3; ++group) {
      float largest = 0;
      for (int64_t i = group * 32; i < group * 32 + 32; ++i)
        largest = std::max(largest, std::fabs(layer.weight.row(row)[i]));
      auto scale = static_cast<float>(double(largest) / 7);
      for (int64_t i = group * 32; i < group * 32 + 32; ++i) {
        double q = std::nearbyint(layer.weight.row(row)[i] / double(scale));
        ASSERT_EQ(codes.value(row, i), std::clamp(q, -8.0, 7.0) * scale);
      }
    }
}

TEST(Layer, OutputsAndErrorsAreTheirDefinition) {
  Matrix x = integers(3, 21, 1), w = integers(4, 21, 2);
  std::vector<double> y = layerOutputs(x, w);
  for (int64_t m = 0; m < 3; ++m)
    for (int64_t n = 0; n < 4; ++n) {
      double sum = 0;
      for (int64_t i = 0; i < 21; ++i)
        sum += double(x.row(m)[i]) * w.row(n)[i];
      EXPECT_EQ(y[static_cast<size_t>(m * 4 + n)], sum);
    }
  EXPECT_EQ(relativeSquaredError(y, y), 0);
  EXPECT_EQ(relativeSquaredError({0, 0}, {0, 0}), 0);
  EXPECT_DOUBLE_EQ(relativeSquaredError({3, 4}, {3, 6}), 4.0 / 25);
  std::vector<double> diagonal = hessianDiagonal({2, 2, {1, 2, 3, -4}});
  EXPECT_EQ(diagonal, (std::vector<double>{5, 10}));
}

TEST(Layer, WhatCannotBeCalibratedIsNamed) {
  Matrix w = integers(2, 8, 1), x = integers(3, 8, 2);
  EXPECT_EQ(errorOf(checkLayer(w, x)), "");
  EXPECT_EQ(errorOf(checkLayer(w, integers(3, 9, 2))),
            "error: activations of 9 columns for a weight of 8, both have k [activation_width]\n");
  EXPECT_EQ(errorOf(checkLayer(w, {0, 8, {}})),
            "error: matrix of 0 x 8, it has rows and columns [empty_matrix]\n");
  x.row(2)[5] = INFINITY;
  EXPECT_EQ(errorOf(checkLayer(w, x)),
            "error: infinity at row 2, column 5 of the activations, those for calibration are "
            "finite [activation_not_finite]\n");
  w.row(1)[3] = NAN;
  EXPECT_EQ(errorOf(checkLayer(w, x)),
            "error: NaN at row 1, column 3, a weight is finite [non_finite_input]\n");
}

} // namespace
} // namespace rho::kernels
