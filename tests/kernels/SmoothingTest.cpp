// Smoothing and the order of channels: what they leave as it is, and what they gain.
#include "kernels/quantize/Smoothing.h"
#include "kernels/quantize/ChannelOrder.h"
#include "tests/kernels/Layers.h"

namespace rho::kernels {
namespace {

using namespace rho::test;

TEST(Smoothing, FactorsAreThoseOfTheirEquation) {
  Matrix w{2, 3, {1, -4, 0, 0.25f, 2, 0}}, x{2, 3, {9, 0, 5, -16, 0, 1}};
  SmoothingScales scales = must(smoothingScales(w, x, 0.5));
  EXPECT_EQ(scales.factors, (std::vector<float>{4, 1, 1})); // 16^.5 / 1^.5; a maximum is 0
  EXPECT_EQ(must(smoothingScales(w, x, 1)).factors[0], 16);
  EXPECT_EQ(must(smoothingScales(w, x, 0)).factors[0], 1);
  EXPECT_EQ(must(smoothWeight(w, scales)).values, (std::vector<float>{4, -4, 0, 1, 2, 0}));
  EXPECT_EQ(must(smoothActivation(x, scales)).values, (std::vector<float>{2.25f, 0, 5, -4, 0, 1}));
  EXPECT_EQ(errorOf(smoothWeight(integers(2, 4, 1), scales)),
            "error: smoothing of 3 for 4 channels, their number is the same [transform_width]\n");
}

TEST(Smoothing, LeavesTheOutputs) {
  Layer layer = syntheticLayer(16, 128, 16, 1);
  for (double alpha : {0.0, 0.3, 1.0}) {
    SmoothingScales scales = must(smoothingScales(layer.weight, layer.calibration, alpha));
    EXPECT_LT(relativeSquaredError(layerOutputs(layer.calibration, layer.weight),
                                   layerOutputs(must(smoothActivation(layer.calibration, scales)),
                                                must(smoothWeight(layer.weight, scales)))),
              1e-13);
  }
}

// LiquidGEMM: W4A8 with a grid search of the smoothing scale.
TEST(Smoothing, TheSearchFindsTheLeastErrorOfItsGrid) {
  for (uint64_t seed : {1, 2}) {
    Layer layer = syntheticLayer(32, 256, 16, seed);
    LayerFormats formats{shipped("liquidquant"), shipped("int8_token")};
    SmoothingSearch search =
        must(searchSmoothing(layer.weight, layer.calibration, formats, {.steps = 10}));
    ASSERT_EQ(search.points.size(), 12U);
    EXPECT_FALSE(search.points[0].alpha);
    EXPECT_EQ(search.points[0].error,
              quantizedLayerError(layer.weight, layer.calibration, formats));
    double least = HUGE_VAL;
    for (const SmoothingSearch::Point &point : search.points)
      least = std::min(least, point.error);
    ASSERT_TRUE(search.best.alpha);
    EXPECT_LT(least, search.points[0].error);
    EXPECT_EQ(least, relativeSquaredError(
                         layerOutputs(layer.calibration, layer.weight),
                         must(quantizedOutputs(
                             must(smoothWeight(layer.weight, search.best)),
                             must(smoothActivation(layer.calibration, search.best)), formats))));
    // What was found is no accident of the calibration.
    EXPECT_LT(quantizedLayerError(must(smoothWeight(layer.weight, search.best)),
                                  must(smoothActivation(layer.heldOut, search.best)), formats),
              quantizedLayerError(layer.weight, layer.heldOut, formats));
  }
}

TEST(Smoothing, NoneIsTakenWhereNothingIsGained) {
  FormatPtr f32 = declared("format f { element: f32 value = element }");
  Layer layer = syntheticLayer(4, 64, 4, 1);
  SmoothingSearch search = must(searchSmoothing(layer.weight, layer.calibration, {f32, nullptr}));
  EXPECT_FALSE(search.best.alpha);
  EXPECT_EQ(search.best.factors, std::vector<float>(64, 1));
}

// Factors that no f32 holds the products of: none is always possible.
TEST(Smoothing, FactorsThatLeaveTheRangeAreLeftOut) {
  FormatPtr f32 = declared("format f { element: f32 value = element }");
  for (float scale : {1e20F, 2e36F, 1e-37F}) {
    Layer layer = syntheticLayer(4, 64, 4, 1);
    for (float &w : layer.weight.values)
      w *= scale;
    SmoothingSearch search = must(searchSmoothing(layer.weight, layer.calibration,
                                                  {f32, shipped("int4_token")}, {.steps = 4}));
    for (const SmoothingSearch::Point &point : search.points)
      EXPECT_TRUE(std::isfinite(point.error)) << scale;
    const Matrix w = must(smoothWeight(layer.weight, search.best));
    const Matrix x = must(smoothActivation(layer.calibration, search.best));
    for (float value : w.values)
      EXPECT_TRUE(std::isfinite(value)) << scale;
    for (float value : x.values)
      EXPECT_TRUE(value == 0 || std::isnormal(value)) << scale;
  }
}

TEST(ChannelOrder, OutliersAreFoundAndComeFirst) {
  const int64_t k = 1024;
  for (uint64_t seed : {1, 2, 3}) {
    Layer layer = syntheticLayer(1, k, 64, seed);
    std::vector<int64_t> truth = outlierChannels(k, seed, {.outlierFraction = 0.01});
    EXPECT_EQ(must(detectOutliers(layer.calibration)), truth);
    ChannelOrder order = must(clusterOutliers(layer.calibration));
    std::vector<int64_t> first(order.channels.begin(),
                               order.channels.begin() + static_cast<std::ptrdiff_t>(truth.size()));
    std::sort(first.begin(), first.end());
    EXPECT_EQ(first, truth);
    EXPECT_TRUE(std::is_sorted(order.channels.begin() + static_cast<std::ptrdiff_t>(truth.size()),
                               order.channels.end()));
    // COMET, section 3.2: less than 20% of the blocks then need 8 bits.
    int64_t before = must(blocksWithoutOutliers(ChannelOrder::identity(k), truth, 128));
    int64_t after = must(blocksWithoutOutliers(order, truth, 128));
    EXPECT_EQ(after, 7);
    EXPECT_LT(before, after);
  }
}

TEST(ChannelOrder, BlocksWithoutOutliersAreCounted) {
  ChannelOrder order = ChannelOrder::identity(10);
  EXPECT_EQ(must(blocksWithoutOutliers(order, {}, 4)), 3);
  EXPECT_EQ(must(blocksWithoutOutliers(order, {0, 3, 9}, 4)), 1);
  std::swap(order.channels[3], order.channels[5]); // channel 3 moves to the second block
  EXPECT_EQ(must(blocksWithoutOutliers(order, {0, 3, 9}, 4)), 0);
  EXPECT_EQ(errorOf(blocksWithoutOutliers(order, {}, 0)),
            "error: block of 0 channels, the least is 1 [bad_block]\n");
}

TEST(ChannelOrder, LeavesTheOutputsExactly) {
  Matrix x = integers(6, 100, 1), w = integers(9, 100, 2);
  for (int64_t row = 0; row < 6; ++row)
    x.row(row)[77] *= 1000;
  ChannelOrder order = must(clusterOutliers(x));
  EXPECT_EQ(order.channels[0], 77);
  Matrix px = must(permuteChannels(x, order)), pw = must(permuteChannels(w, order));
  EXPECT_NE(px.values, x.values);
  EXPECT_EQ(layerOutputs(px, pw), layerOutputs(x, w));
  EXPECT_EQ(must(permuteChannels(px, order.inverse())).values, x.values);
  EXPECT_EQ(errorOf(permuteChannels(integers(2, 99, 1), order)),
            "error: order of 100 for 99 channels, their number is the same [transform_width]\n");
}

// The activations of COMET: 4 bits, and 8 for a fifth of the blocks of 128.
TEST(ChannelOrder, LowersTheErrorOfMixedPrecision) {
  FormatPtr comet = declared("format comet { partition per tensor k[128] { low: int4 high: int8 "
                             "budget 20% } }\n"
                             "format int4 { element: s4 scale: f16 per token value = element * "
                             "scale }\n"
                             "format int8 { element: s8 scale: f16 per token value = element * "
                             "scale }");
  for (uint64_t seed : {1, 2, 3}) {
    Layer layer = syntheticLayer(16, 1024, 32, seed);
    ChannelOrder order = must(clusterOutliers(layer.calibration));
    LayerFormats formats{shipped("int4_g128"), comet};
    double before = quantizedLayerError(layer.weight, layer.heldOut, formats);
    double after = quantizedLayerError(must(permuteChannels(layer.weight, order)),
                                       must(permuteChannels(layer.heldOut, order)), formats);
    EXPECT_LT(after, before / 2);
  }
}

} // namespace
} // namespace rho::kernels
