#include "runtime/Origin.h"

#include "runtime/Handles.h"
#include "tests/runtime/Declarations.h"

#include <gtest/gtest.h>

namespace rho {
namespace {

class OriginTest : public testing::Test {
protected:
  std::string textOf(std::string_view origin) const {
    Span span = spanOfOrigin(gemm, origin);
    return sources.text(span.file).substr(span.begin, span.end - span.begin);
  }
  const Module module = parsed("format w {\n"
                               "  element: s4\n"
                               "  scale: f16 per k[64]\n"
                               "  value = element * scale\n"
                               "}\n"
                               "gemm g {\n"
                               "  weight: w\n"
                               "  activation: f16\n"
                               "  output: f32\n"
                               "  schedule { pipeline: 4 tile: 16 x 64 x 64 }\n"
                               "}\n");
  const dsl::Gemm &gemm = module.impl().module.gemms[0];
  const SourceMap &sources = *module.impl().module.sources;
};

TEST_F(OriginTest, NamesPlacesInTheDeclaration) {
  EXPECT_EQ(textOf("weight.scale"), "scale");
  EXPECT_EQ(textOf("weight.element"), "element");
  EXPECT_EQ(textOf("weight.value"), "element * scale");
  EXPECT_EQ(textOf("weight"), "w");
  EXPECT_EQ(textOf("activation"), "f16");
  EXPECT_EQ(textOf("output"), "f32");
}

TEST_F(OriginTest, WhatTheTextDoesNotSayIsThePartAbove) {
  EXPECT_EQ(textOf("weight.unheard"), "w");
  EXPECT_EQ(textOf("activation.element"), "f16"); // built in: no text of its own
  EXPECT_EQ(textOf("unheard"), textOf("gemm"));
  EXPECT_EQ(textOf(""), textOf("gemm"));
}

TEST_F(OriginTest, ErrorsGetACaret) {
  Error error = makeError(DiagId::emulator_trap, {"at 3, from weight.scale"});
  EXPECT_EQ(withSpans(error, {"weight", "weight.scale"}, gemm, sources).str(),
            "test.rho:3:3: error: trap: at 3, from weight.scale [emulator_trap]\n"
            "  scale: f16 per k[64]\n"
            "  ^~~~~\n");
  Error inside = makeError(DiagId::emulator_trap, {"xweight.scale weight_2"});
  EXPECT_EQ(withSpans(inside, {"weight", "weight.scale"}, gemm, sources).str(), inside.str());
}

} // namespace
} // namespace rho
