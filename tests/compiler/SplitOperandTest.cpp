// Elements with a remapped code on block-scaled instructions (sm_120a): each operand as a sum of
// two, executed on the emulator against the exact reference, and what has no such sum.
#include "tests/compiler/EmulatedGemm.h"

#include "runtime/Kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace rho::test {
namespace {

// Formats whose rules find the scales and special values of exactNumbers() again.
constexpr const char *exactFormats = R"(
format special_g16 {
  element: e2m1 remap 8 to [5, -5, large, -large] by selector
  scale: ue3m3 per k[16]  selector: u2 in scale  large: f16 per tensor
  value = element * scale
  encode { large = 8 scale = best(absmax(x) / 6, absmax(x) / 8) }
}
format eight_g16 {
  element: e2m1 remap 8 to [5, -5, 8, -8, 10, -10, 12, -12] by selector
  scale: ue2m3 per k[16]  selector: u3 in scale
  value = element * scale
  encode { scale = best(absmax(x) / 6, absmax(x) / 8, absmax(x) / 10, absmax(x) / 12) }
}
format special_powers {
  element: e2m1 remap 8 to [5, -5] by selector
  scale: e8m0 per k[32]  selector: u1 per k[32]
  value = element * scale
  encode { scale = bit_floor(absmax(x)) / 4 }
}
format own_number {
  element: e2m1 remap 8 to [3, -4] by selector
  scale: ue4m3 per k[16]  selector: u1 in scale
  value = element * scale
}
)";

// Numbers of each block that are elements times a power of two, one special value among them.
std::vector<float> exactNumbers(int64_t rows, int64_t k, int64_t block,
                                const std::vector<float> &specials, uint64_t seed) {
  constexpr float elements[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::mt19937_64 random(seed);
  std::vector<float> result(static_cast<size_t>(rows * k));
  float scale = 1, special = 0;
  for (int64_t i = 0; i < rows * k; ++i) {
    bool first = i % k % block == 0;
    if (first) {
      scale = std::ldexp(1.0F, static_cast<int>(random() % 2));
      special = specials[random() % specials.size()];
    }
    float element = elements[random() % 8];
    if (first) // the largest
      element = std::max(6.0F, std::abs(special));
    bool negative = random() % 2 == 0;
    bool isSpecial = (first && std::abs(special) > 6) || (!first && random() % 4 == 0);
    result[static_cast<size_t>(i)] = scale * (isSpecial ? special : negative ? -element : element);
  }
  return result;
}

void expectExactProduct(Case test, int64_t block, const std::vector<float> &ofWeight,
                        const std::vector<float> &ofActivation) {
  test.formats = exactFormats;
  auto [m, n, k] = test.shape;
  std::vector<float> weights = exactNumbers(n, k, block, ofWeight, 1),
                     tokens = exactNumbers(m, k, block, ofActivation, 2);
  expectExactProducts(test, weights, tokens);
}

constexpr GemmShape ragged{21, 72, 200};

TEST(SplitOperands, ProductsAreExactBitForBit) {
  const std::vector<float> none{6}, fives{5, -5}, four{5, -5, 8, -8},
      eight{5, -5, 8, -8, 10, -10, 12, -12};
  for (const char *schedule :
       {"", "tile: 32 x 64 x 128 warps: 1 x 4", "tile: 16 x 128 x 128 warps: 1 x 2 split_k: 2"}) {
    expectExactProduct({"special_g16", "fp4_g16", "f32", schedule, "sm_120a", ragged}, 16, four,
                       none);
    expectExactProduct({"special_powers", "special_powers", "f32", schedule, "sm_120a", ragged}, 32,
                       fives, fives);
  }
  expectExactProduct({"fp4_g16", "eight_g16", "f32", "", "sm_120a", ragged}, 16, none, eight);
  expectExactProduct({"special_g16", "eight_g16", "f32", "", "sm_120a", ragged}, 16, four, eight);
  expectExactProduct({"eight_g16", "fp4_g16", "f32", "", "sm_120a", ragged}, 16, eight, none);
}

// A code that the operand has already is replaced, without a second product.
TEST(SplitOperands, ProductsOfTheOperandsOwnNumbersAreExact) {
  Case test{"own_number", "fp4_g16", "f32", "", "sm_120a", ragged};
  expectExactProduct(test, 16, {3, -4}, {6});
}

TEST(SplitOperands, ShippedFormatsAreWithinTheBound) {
  for (const char *schedule :
       {"", "tile: 8 x 64 x 64 warps: 1 x 4", "tile: 64 x 32 x 64 warps: 1 x 2 pipeline: 2"}) {
    expectWithinBound({"razer_g16", "nvfp4_token", "f32", schedule, "sm_120a", {37, 130, 600}});
    expectWithinBound({"razer_g16", "razer_token", "bf16", schedule, "sm_120a", {9, 65, 321}});
  }
  expectWithinBound({"nvfp4", "razer_token", "f32", "", "sm_120a", {3, 65, 321}});
}

std::string refusalOf(const std::string &weight, const std::string &activation,
                      const std::string &target = "sm_120a") {
  Case test{"w", "x", "f16", "", target, {}};
  test.formats = "format w { " + weight + " value = element * scale }\nformat x { " + activation +
                 " value = element * scale }\n";
  Result<Module> module = Module::parse(declaration(test));
  if (!module)
    return module.error().str();
  Result<compiler::Plan> plan = compiler::plan(module->impl().module.gemms[0], {16, 256, 512},
                                               *compiler::modelOfTarget(target), nullptr);
  return plan ? "legal" : plan.error().diagnostics[0].message;
}

TEST(SplitOperands, WhatHasNoSumIsRefusedWithTheReason) {
  const std::string plain = "element: e2m1 scale: ue4m3 per k[16]",
                    legal = "element: e2m1 remap 8 to [5, -5] by s scale: ue4m3 per k[16] "
                            "s: u1 in scale",
                    hardware = "scales: hardware is not legal for 'g': ";
  EXPECT_EQ(refusalOf(legal, legal), "legal");
  EXPECT_EQ(refusalOf("element: e2m1 remap 8 to [5, 11] by s scale: ue4m3 per k[16] s: u1 in scale",
                      plain),
            hardware + "'element' of 'w' stands for 11, which is no sum of two numbers of e2m1 "
                       "with one sign");
  EXPECT_EQ(
      refusalOf(plain,
                "element: e2m1 remap 0 to [5, -5] by s scale: ue4m3 per k[16] s: u1 in scale"),
      hardware + "'element' of 'x' has code 0 remapped, which also stands past the end of k");
  EXPECT_EQ(refusalOf("element: e2m1 remap 8 to [5, -5] by s scale: ue4m3 per k[16] "
                      "s: u1 per channel",
                      plain),
            hardware + "'s' is per channel, it selects for the blocks of the instruction, k[16]");
  EXPECT_EQ(refusalOf("element: e2m1 remap 8 to [5, -5, 7, -7, 8, -8, 9, -9, 10, -10, 12, -12, "
                      "4.5, -4.5, 2.5, -2.5] by s scale: ue4m3 per k[16] s: u4 per k[16]",
                      plain),
            hardware + "'element' of 'w' has 16 special values, at most 8 are looked up");
  EXPECT_EQ(refusalOf(legal, legal, "sm_90a"),
            "activation 'x' has operands of e2m1, sm_90a has no matrix instruction for them; "
            "sm_120a do");
  EXPECT_EQ(
      refusalOf("element: s4 scale: f16 per k[128]",
                "element: s8 remap 128 to [5, -5] by s scale: ue4m3 per k[16] s: u1 in scale"),
      "'element' of 'x' has a remapped code, for which there are no kernels yet");
}

// A special value of the tensor is known only when its weight is packed.
TEST(SplitOperands, SpecialValuesWithoutASumAreNotPacked) {
  Case test{"special_g16", "fp4_g16", "f32", "", "sm_120a", {4, 64, 136}};
  test.formats = exactFormats;
  Outcome result;
  ASSERT_NO_FATAL_FAILURE(
      run(test, exactNumbers(64, 136, 16, {5}, 1), exactNumbers(4, 136, 16, {6}, 2), result));
  dsl::QuantizedMatrix weight = result.weight;
  weight.components[3].set(0, dsl::ElementType::get("f16").encode(8.5));
  Result<Buffer> packed = result.gemm.packQuantized(weight);
  ASSERT_FALSE(packed.ok());
  EXPECT_EQ(packed.error().str(),
            "error: code 0 of 'large' is 8.5; this kernel needs a sum of two numbers of e2m1 with "
            "one sign [pack_no_sum]\n");
}

} // namespace
} // namespace rho::test
