// Layers encoded with every combination of the offline algorithms.
#include "kernels/quantize/EncodeLayer.h"
#include "tests/kernels/Layers.h"

namespace rho::kernels {
namespace {

using namespace rho::test;

double errorWith(const Layer &layer, const LayerFormats &formats, const LayerSteps &steps,
                 const Matrix &inputs) {
  EncodedLayer encoded = must(encodeLayer(layer.weight, &layer.calibration, formats, steps));
  return must(encodedLayerError(encoded, layer.weight, inputs, formats.activation));
}

// Each alone and all together leave the outputs but for f32 rounding: shown with codes that hold
// the weight exactly.
TEST(EncodeLayer, TransformsLeaveTheOutputs) {
  FormatPtr f32 = declared("format f { element: f32 value = element }");
  Layer layer = syntheticLayer(6, 96, 16, 1);
  for (int which = 0; which < 8; ++which) {
    LayerSteps steps{.smooth = (which & 1) != 0};
    if (which & 2)
      steps.permute = 32;
    if (which & 4)
      steps.rotate = 3;
    EncodedLayer encoded =
        must(encodeLayer(layer.weight, &layer.calibration, {f32, shipped("int4_token")}, steps));
    EXPECT_EQ(encoded.transform.smoothing.has_value(), steps.smooth);
    EXPECT_EQ(encoded.transform.order.has_value(), steps.permute.has_value());
    EXPECT_EQ(encoded.transform.rotation.has_value(), steps.rotate.has_value());
    EXPECT_LT(must(encodedLayerError(encoded, layer.weight, layer.heldOut, nullptr)), 1e-12);
  }
}

TEST(EncodeLayer, BlocksWithoutOutliersAreCounted) {
  Layer layer = syntheticLayer(4, 512, 16, 2);
  EncodedLayer encoded = must(encodeLayer(layer.weight, &layer.calibration,
                                          {shipped("int4_g128"), nullptr}, {.permute = 128}));
  std::vector<int64_t> outliers = outlierChannels(512, 2, {.outlierFraction = 0.01});
  std::vector<bool> has(4, false);
  for (int64_t channel : outliers)
    has[static_cast<size_t>(channel / 128)] = true;
  ASSERT_TRUE(encoded.blocks);
  EXPECT_EQ(encoded.blocks->all, 4);
  EXPECT_EQ(encoded.blocks->before, std::count(has.begin(), has.end(), false));
  EXPECT_EQ(encoded.blocks->after, 3);
  EXPECT_NE(errorOf(encodeLayer(layer.weight, &layer.calibration, {shipped("int4_g128"), nullptr},
                                {.permute = 0}))
                .find("[bad_block]"),
            std::string::npos);
}

TEST(EncodeLayer, EachAlgorithmLowersTheErrorOfFourBits) {
  for (uint64_t seed : {1, 2, 3}) {
    Layer layer = syntheticLayer(32, 512, 64, seed);
    LayerFormats w4a4{shipped("int4_g128"), shipped("int4_g128")};
    double plain = errorWith(layer, w4a4, {}, layer.heldOut);
    double smooth = errorWith(layer, w4a4, {.smooth = true}, layer.heldOut);
    double rotated = errorWith(layer, w4a4, {.rotate = seed}, layer.heldOut);
    EXPECT_LT(smooth, plain);
    EXPECT_LT(rotated, plain);
    EXPECT_LT(errorWith(layer, w4a4, {.refine = true}, layer.heldOut), plain);
    EXPECT_LT(errorWith(layer, w4a4, {.refine = true, .rotate = seed}, layer.heldOut), rotated);
    // Judged after the rotation, on the calibration, smoothing is never worse than without.
    EXPECT_LE(errorWith(layer, w4a4, {.smooth = true, .rotate = seed}, layer.calibration),
              errorWith(layer, w4a4, {.rotate = seed}, layer.calibration) * 1.0001);
  }
}

TEST(EncodeLayer, RotationNeedsNoActivations) {
  Layer layer = syntheticLayer(4, 64, 8, 1);
  LayerFormats formats{shipped("int4_channel"), nullptr};
  LayerSteps steps{.rotate = 5};
  EncodedLayer encoded = must(encodeLayer(layer.weight, nullptr, formats, steps));
  EXPECT_EQ(encoded.transform.rotation->seed(), 5U);
  steps.smooth = true;
  EXPECT_EQ(errorOf(encodeLayer(layer.weight, nullptr, formats, steps)),
            "error: smoothing without activations, it is found on those of the layer "
            "[calibration_needed]\n");
  steps.smooth = false;
  layer.weight.row(2)[5] = std::nanf(""); // which a rotation spreads over its row
  EXPECT_EQ(errorOf(encodeLayer(layer.weight, nullptr, formats, steps)),
            "error: NaN at row 2, column 5, a weight is finite [non_finite_input]\n");
  layer.weight = integers(4, 668, 1);
  EXPECT_NE(errorOf(encodeLayer(layer.weight, nullptr, formats, steps)).find("[no_hadamard_order]"),
            std::string::npos);
}

} // namespace
} // namespace rho::kernels
