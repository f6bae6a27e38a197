// Refined codes against the outputs of the layer, computed from them anew.
#include "kernels/quantize/Refinement.h"
#include "dsl/Evaluate.h"
#include "tests/kernels/Layers.h"

namespace rho::kernels {
namespace {

using namespace rho::test;

struct Refined {
  dsl::QuantizedMatrix start;
  Matrix quantized;
  Refinement result;
};

Refined refined(const Layer &layer, const LayerFormats &formats,
                const RefineOptions &options = {}) {
  dsl::QuantizedMatrix start = must(dsl::quantize(formats.weight, layer.weight.view(), true));
  Matrix quantized = formats.activation ? quantizedValues(formats.activation, layer.calibration)
                                        : layer.calibration;
  Refinement result = must(refine(start, layer.weight, layer.calibration, quantized, options));
  return {std::move(start), std::move(quantized), std::move(result)};
}

double outputError(const Matrix &weight, const Matrix &x, const Matrix &quantized,
                   const dsl::QuantizedMatrix &codes) {
  return relativeSquaredError(layerOutputs(x, weight), layerOutputs(quantized, valuesOf(codes)));
}

class RefinedFormats : public testing::TestWithParam<const char *> {};

TEST_P(RefinedFormats, LowerTheErrorOfTheOutputs) {
  FormatPtr format = shipped(GetParam());
  for (const FormatPtr &activation : {FormatPtr(), shipped("int8_token")}) {
    Layer layer = syntheticLayer(12, 256, 48, 1);
    layer.weight.rows = 10; // no multiple of a block
    layer.weight.values.resize(10 * 256);
    Refined r = refined(layer, {format, activation});
    EXPECT_NEAR(r.result.before, outputError(layer.weight, layer.calibration, r.quantized, r.start),
                1e-6);
    EXPECT_NEAR(r.result.after,
                outputError(layer.weight, layer.calibration, r.quantized, r.result.matrix), 1e-6);
    EXPECT_LT(r.result.after, r.result.before * 0.7);
    Matrix heldOut = activation ? quantizedValues(activation, layer.heldOut) : layer.heldOut;
    EXPECT_LT(outputError(layer.weight, layer.heldOut, heldOut, r.result.matrix),
              outputError(layer.weight, layer.heldOut, heldOut, r.start));
    std::vector<uint32_t> codes(format->components.size());
    for (int64_t row = 0; row < 10; ++row)
      for (int64_t column = 0; column < 256; ++column) {
        for (size_t c = 0; c < codes.size(); ++c)
          codes[c] = r.result.matrix.components[c].get(
              dsl::codeIndex(format->components[c], 256, row, column));
        ASSERT_TRUE(dsl::fulfils(*format, codes.data()));
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, RefinedFormats,
                         testing::Values("int4_channel", "int4_g128", "int4_asym_g128", "nvfp4",
                                         "nf4_g64", "liquidquant", "razer_g16"),
                         [](const auto &info) { return std::string(info.param); });

TEST(Refinement, ScalesThatRowsShareAreRefinedForThemTogether) {
  FormatPtr format = declared("format f { element: s4 scale: f16 per n[4] k[32] fine: e4m3 per "
                              "n[2] k[16] value = element * scale * fine }");
  Layer layer = syntheticLayer(10, 100, 48, 2);
  Refined r = refined(layer, {format, nullptr});
  EXPECT_NEAR(r.result.after,
              outputError(layer.weight, layer.calibration, r.quantized, r.result.matrix), 1e-6);
  EXPECT_LT(r.result.after, r.result.before);
  int scales = 0;
  for (int64_t i = 0; i < r.start.components[1].size(); ++i)
    scales += r.start.components[1].get(i) != r.result.matrix.components[1].get(i);
  EXPECT_GT(scales, 0);
}

// Where it stops no other code of an element gives a smaller error.
TEST(Refinement, EndsWhereNoCodeIsBetter) {
  FormatPtr format = shipped("int4_channel");
  Layer layer = syntheticLayer(2, 24, 40, 3);
  Refined r = refined(layer, {format, nullptr}, {.sweeps = 200, .damping = 0});
  dsl::QuantizedMatrix codes = r.result.matrix;
  double least = outputError(layer.weight, layer.calibration, r.quantized, codes);
  for (int64_t i = 0; i < codes.components[0].size(); ++i) {
    uint32_t kept = codes.components[0].get(i);
    for (uint32_t other = 0; other < 16; ++other) {
      codes.components[0].set(i, other);
      EXPECT_GE(outputError(layer.weight, layer.calibration, r.quantized, codes),
                least * (1 - 1e-6));
    }
    codes.components[0].set(i, kept);
  }
}

// An error of 0 cannot be lowered; a channel that no token excites keeps its rounded weight.
TEST(Refinement, ChangesNothingThatTheOutputsDoNotAskFor) {
  FormatPtr format = shipped("int4_channel");
  Layer layer = syntheticLayer(3, 64, 16, 4);
  for (int64_t token = 0; token < 16; ++token)
    layer.calibration.row(token)[5] = 0;
  layer.weight = quantizedValues(format, layer.weight);
  Refined r = refined(layer, {format, nullptr});
  EXPECT_EQ(r.result.before, 0);
  EXPECT_EQ(r.result.after, 0);
  for (int64_t i = 0; i < r.start.components[0].size(); ++i)
    ASSERT_EQ(r.result.matrix.components[0].get(i), r.start.components[0].get(i));
}

TEST(Refinement, ZerosStayZeros) {
  for (const char *name : {"mxfp4", "liquidquant", "int4_g128", "nvfp4"}) {
    Layer layer = syntheticLayer(2, 256, 9, 5);
    for (int64_t row = 0; row < 2; ++row)
      std::fill_n(layer.weight.row(row) + 128, 128, 0.0F);
    Matrix values = valuesOf(refined(layer, {shipped(name), nullptr}).result.matrix);
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t column = 128; column < 256; ++column)
        ASSERT_EQ(values.row(row)[column], 0) << name;
  }
}

TEST(Refinement, NeverRaisesTheErrorOnItsCalibration) {
  for (uint64_t seed = 1; seed <= 6; ++seed)
    for (double damping : {0.0, 0.3, 100.0}) {
      Layer layer = syntheticLayer(8, 128, 4 + static_cast<int64_t>(seed) * 12, seed, 0.03);
      Refined r =
          refined(layer, {shipped("int3_g128"), shipped("int4_token")}, {.damping = damping});
      EXPECT_LE(outputError(layer.weight, layer.calibration, r.quantized, r.result.matrix),
                outputError(layer.weight, layer.calibration, r.quantized, r.start) * (1 + 1e-9));
    }
}

TEST(Refinement, IsTheSameForAnyNumberOfThreads) {
  Layer layer = syntheticLayer(16, 128, 24, 5);
  dsl::QuantizedMatrix one =
      refined(layer, {shipped("int4_g64"), nullptr}, {.threads = 1}).result.matrix;
  for (unsigned threads : {2u, 7u}) {
    dsl::QuantizedMatrix many =
        refined(layer, {shipped("int4_g64"), nullptr}, {.threads = threads}).result.matrix;
    for (size_t c = 0; c < one.components.size(); ++c)
      for (int64_t i = 0; i < one.components[c].size(); ++i)
        ASSERT_EQ(one.components[c].get(i), many.components[c].get(i));
  }
}

TEST(Refinement, WhatItCannotRefineIsNamed) {
  Layer layer = syntheticLayer(4, 64, 8, 1);
  auto error = [&](const FormatPtr &format, const Matrix &weight, const Matrix &quantized) {
    dsl::QuantizedMatrix codes = must(dsl::quantize(format, layer.weight.view(), true));
    return errorOf(refine(codes, weight, layer.calibration, quantized));
  };
  FormatPtr int4 = shipped("int4_channel");
  EXPECT_EQ(error(int4, integers(4, 64, 1), layer.calibration), "");
  EXPECT_EQ(
      error(declared("format f { element: f16 value = element }"), layer.weight, layer.calibration),
      "error: format 'f' has elements of 16 bits, refinement takes elements of at most 8 "
      "bits in a format without parts [refine_format]\n");
  EXPECT_EQ(error(declared("format f { element: s4 scale: f16 per k[64] value = element * scale "
                           "residual rest: f16 per k[64] }"),
                  layer.weight, layer.calibration),
            "error: format 'f' has parts, refinement takes elements of at most 8 bits in a format "
            "without parts [refine_format]\n");
  EXPECT_EQ(error(int4, integers(5, 64, 1), layer.calibration),
            "error: codes of 4 x 64 for 5 x 64, both have the same rows and columns "
            "[refine_shape]\n");
  EXPECT_EQ(error(int4, layer.weight, integers(9, 64, 1)),
            "error: quantized activations of 9 x 64 for 8 x 64, both have the same rows and "
            "columns [refine_shape]\n");
  EXPECT_NE(error(int4, layer.weight, Matrix{8, 64, std::vector<float>(512, NAN)}), "");
}

} // namespace
} // namespace rho::kernels
