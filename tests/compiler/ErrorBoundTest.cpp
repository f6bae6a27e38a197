// Bounds on errors: what rounds makes them larger.
#include "compiler/ErrorBound.h"

#include "dsl/Evaluate.h"
#include "dsl/Module.h"

#include <gtest/gtest.h>

namespace rho::compiler {
namespace {

TEST(ErrorBound, GrowsWithWhatRounds) {
  const dsl::Module module =
      dsl::parseModule(
          "format int4 { element: s4 scale: f16 per k[128] value = element * scale }"
          "format channel4 { element: s4 scale: f16 per channel value = element * scale }"
          "format int8 { element: s8 scale: f32 per token value = element * scale }"
          "gemm exact { weight: channel4 activation: int8 output: f32 }"
          "gemm rounded { weight: int4 activation: f16 output: f32 }"
          "gemm half { weight: int4 activation: f16 output: f16 }"
          "format fp8 { element: e4m3 scale: f32 per token value = element * scale }"
          "gemm grouped { weight: int4 activation: fp8 output: f32 }"
          "gemm whole { weight: channel4 activation: fp8 output: f32 }",
          "t.rho", [](const std::string &) { return std::nullopt; })
          .value();
  auto bound = [&](size_t i, double magnitude, Summing by = Summing::Gpu) {
    Result<Plan> planned = plan(module.gemms[i], {16, 256, 1024}, *modelOfTarget("sm_89"), nullptr);
    return ErrorBound(module.gemms[i], *planned, by)(magnitude, 1.0);
  };
  double u = 1.0 / (1 << 24);
  // An exact integer sum: conversion, two scales and the output, each at most one rounding of f32.
  EXPECT_LE(bound(0, 1.0), 8 * u);
  EXPECT_GE(bound(0, 1.0), 2 * u);
  EXPECT_GT(bound(1, 1.0), bound(0, 1.0));
  EXPECT_GT(bound(1, 2.0), bound(1, 1.0));
  EXPECT_GT(bound(2, 1.0), 1.0 / (1 << 11)); // rounding to f16
  // One e4m3 instruction truncates 32 products to 14 bits; a group's sum starts anew.
  EXPECT_GE(bound(3, 1.0), 32.0 / (1 << 13));
  EXPECT_GE(bound(4, 1.0), 1024.0 / (1 << 13));
  EXPECT_LE(bound(3, 1.0), bound(4, 1.0) / 4);
  // The emulator adds them as it adds all floats.
  EXPECT_LE(bound(4, 1.0, Summing::Emulator), 4096 * u);
  EXPECT_EQ(bound(1, 1.0, Summing::Emulator), bound(1, 1.0));
}

// Of what a sum is made counts, however it is multiplied.
TEST(ErrorBound, AShiftIsAMultiplication) {
  auto magnitudeOf = [](const std::string &factor, uint32_t code) {
    const dsl::Module module =
        dsl::parseModule("format f { element: s7 sc: f32 per tensor value = ((element + 18) " +
                             factor + ") * (sc - 1) encode { sc = absmax(x) } }",
                         "t.rho", [](const std::string &) { return std::nullopt; })
            .value();
    const uint32_t codes[] = {code, dsl::ElementType::get("f32").encode(1)};
    return dsl::magnitude(module.formats[0], codes);
  };
  for (uint32_t code = 0; code < 128; ++code) {
    EXPECT_EQ(magnitudeOf("<< 3", code), magnitudeOf("* 8", code));
    EXPECT_GE(magnitudeOf("<< 3", code), 8 * 18.0);
  }
}

} // namespace
} // namespace rho::compiler
