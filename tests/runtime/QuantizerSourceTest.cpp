// The generated part of the activation quantizer, as text. RHO_BLESS=1 rewrites the goldens.
#include "runtime/QuantizerSource.h"

#include "tests/runtime/QuantizerCase.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gtest/gtest.h>

namespace rho {
namespace {

const dsl::Gemm &gemmOf(const Module &module) { return module.impl().module.gemms[0]; }

void expectGolden(const std::string &text, const std::string &name) {
  std::string path = std::string(RHO_SOURCE_DIR) + "/tests/runtime/goldens/" + name;
  if (std::getenv("RHO_BLESS"))
    writeText(path, text);
  EXPECT_EQ(text, readText(path)) << name << "; RHO_BLESS=1 rewrites it";
}

std::string headerOf(const dsl::Format &format, const StoredCodes &stored = {}) {
  return quantizerHeader(format, format, layoutOf(format, 64, {stored}));
}

std::string headerOf(const std::string &format) {
  Module module =
      parsed((format + "gemm g {\n  weight: f16\n  activation: a\n  output: f32\n}\n").c_str());
  return headerOf(gemmOf(module).activation);
}

TEST(QuantizerSource, PlainCopy) {
  expectGolden(headerOf(gemmOf(parsed(w4a16)).activation), "f16.cuh");
}

TEST(QuantizerSource, OneScaleARow) {
  expectGolden(headerOf(gemmOf(parsed(w4a8)).activation), "s8_token.cuh");
}

TEST(QuantizerSource, OneScaleAGroup) {
  expectGolden(headerOf(gemmOf(parsed(w4a4)).activation), "s4_group.cuh");
}

TEST(QuantizerSource, FloatsOfEightBits) {
  expectGolden(headerOf("format a {\n"
                        "  element: e4m3\n"
                        "  scale: f32 per token\n"
                        "  value = element * scale\n"
                        "}\n"),
               "e4m3_token.cuh");
}

TEST(QuantizerSource, PowersOfTwoInWords) {
  Module module = parsed("format a {\n"
                         "  element: e2m1\n"
                         "  scale: e8m0 per k[32]\n"
                         "  value = element * scale\n"
                         "  encode {\n"
                         "    scale = bit_floor(absmax(x)) / 4\n"
                         "  }\n"
                         "}\n"
                         "gemm g {\n  weight: a\n  activation: a\n  output: f32\n}\n");
  const dsl::Format &format = gemmOf(module).activation;
  expectGolden(headerOf(format, {4, 4}), "e8m0_words.cuh");
}

TEST(QuantizerSource, WidenedCodesDifferInTheirStorageOnly) {
  Module module = parsed(w4a4);
  const dsl::Format &format = gemmOf(module).activation;
  std::string narrow = headerOf(format, {4}), wide = headerOf(format, {8});
  std::string line = "constexpr int elementBits = 4;\n";
  ASSERT_NE(narrow.find(line), std::string::npos);
  EXPECT_EQ(narrow.replace(narrow.find(line) + line.size() - 3, 1, "8"), wide);
}

// Every kind of node that a rule may have: several reductions, casts, constants, other scales.
TEST(QuantizerSource, RulesAreTranslatedInTheirOrder) {
  expectGolden(headerOf("format a {\n"
                        "  element: e2m1\n"
                        "  block: e4m3 per k[24]\n"
                        "  row: f32 per k[48]\n"
                        "  value = element * block * row\n"
                        "  encode {\n"
                        "    row = (max(x) - min(x) * 2) / 0.1 + -f16(absmax(x))\n"
                        "    block = absmax(x / row + 1) / 6\n"
                        "  }\n"
                        "}\n"),
               "two_levels.cuh");
}

TEST(QuantizerSource, EqualDeclarationsGiveEqualText) {
  std::string moved = std::string("// moved\n\n\n") + w4a8;
  EXPECT_EQ(headerOf(gemmOf(parsed(w4a8)).activation),
            headerOf(gemmOf(parsed(moved.c_str())).activation));
}

TEST(QuantizerSource, TheProgramTakesTheGeneratedHeader) {
  EXPECT_NE(quantizerProgram().find("#include \"rho_format.cuh\""), std::string_view::npos);
  EXPECT_EQ(std::string(quantizerHeaderName), "rho_format.cuh");
}

TEST(QuantizerSource, PartsWithRulesAndRemappedCodes) {
  const std::vector<QuantizerCase> cases = quantizerCases();
  auto expect = [](const QuantizerCase &test, const std::string &name) {
    auto format = activationOf(test.formats);
    const auto stored = storedAs(test, format);
    expectGolden(quantizerHeader(*format, *stored, layoutOf(*stored, 64, test.stored)), name);
  };
  expect(cases[6], "remapped.cuh");
  expect(cases[8], "parts_of_rows.cuh");
  expect(cases[10], "parts.cuh");
  expect(cases[12], "tensor.cuh");
  expect(cases[17], "numbers.cuh");
  expect(cases[20], "zero_of_tensor.cuh");
  expect(cases[24], "codebooks.cuh");
}

// What the host knows and the generated source does not.
TEST(QuantizerSource, WhatOnlyTheHostQuantizes) {
  auto problem = [](const std::string &text) {
    const auto format = activationOf(text);
    return quantizerSourceProblem(*format, *format).value_or("none");
  };
  for (const QuantizerCase &test : quantizerCases())
    EXPECT_EQ(problem(test.formats), "none");
  EXPECT_EQ(problem("format a { partition per k[64] { low: f16 high: bf16 } }"),
            "its blocks are per k[64], not per tensor k[G] with G a multiple of 8");
  EXPECT_EQ(problem("format a { partition per tensor k[76] { low: f16 high: bf16 } }"),
            "its blocks are per tensor k[76], not per tensor k[G] with G a multiple of 8");
  EXPECT_EQ(problem("format a { element: u4 step: u8 per token value = s8(element * step ^ 0x80) "
                    "encode { step = 1 } }"),
            "its value has bitwise operators or casts to integers");
  EXPECT_EQ(
      problem("format a { element: e4m3 scale: f32 per m[8] k[128] value = element * scale }"),
      "'scale' is per m[8] k[128]");
  EXPECT_EQ(problem("format a { element: u4 step: u2 per token value = element * step require "
                    "element * step <= 40 encode { step = 1 } }"),
            "it has a requirement that is no bound of its element");
  EXPECT_EQ(problem("format a { element: s4 value = element require element * element <= 9 }"),
            "none"); // -3 to 3
  EXPECT_EQ(problem("format a { element: s4 value = element require element * element >= 4 }"),
            "it has a requirement that is no bound of its element");
  const std::string reason =
      "'t' is per tensor, its rule has candidates or reduces other components";
  EXPECT_EQ(problem("format a { element: s8 t: f16 per tensor value = element * t encode { t = "
                    "best(absmax(x) / 127, absmax(x) / 100) } }"),
            reason);
  EXPECT_EQ(
      problem("format a { element: s8 all: f32 per tensor t: f16 per tensor value = element * "
              "all * t encode { all = 2 t = absmax(x * all) / 127 } }"),
      reason);
  EXPECT_EQ(problem("format p { element: s8 all: f32 per tensor value = element * all } format a { "
                    "partition per tensor k[64] { low: p high: bf16 } }"),
            "of part 'low' 'all' is per tensor");
  EXPECT_EQ(
      problem("format a { element: s4 remap 0 to [t, -t] by sel t: f16 per tensor block: ue4m3 "
              "per k[16] sel: u1 in block value = element * block encode { t = 9 } }"),
      "a code of 'element' stands for a component's value");
}

} // namespace
} // namespace rho
