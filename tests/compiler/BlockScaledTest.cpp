// Kernels whose matrix instructions apply the block scales of both operands (sm_120a), executed on
// the emulator against the exact reference, and which gemms have no such instruction.
#include "tests/compiler/EmulatedGemm.h"

#include "compiler/Layout.h"
#include "runtime/Kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace rho::test {
namespace {

std::string planOf(const Case &test) {
  Result<Module> module = Module::parse(declaration(test));
  if (!module)
    return module.error().str();
  auto [m, n, k] = test.shape;
  const dsl::Gemm &gemm = module->impl().module.gemms[0];
  Result<compiler::Plan> plan =
      compiler::plan(gemm, {m, n, k}, *compiler::modelOfTarget(test.target), nullptr);
  return plan ? plan->print() : plan.error().diagnostics[0].message;
}

// A warp has 1, 2 or 4 row tiles and 1, 2, 4 or 8 batch tiles, whose scales share words.
TEST(BlockScaled, SchedulesAreWithinTheBound) {
  for (const char *schedule :
       {"", "tile: 8 x 64 x 64 warps: 1 x 4", "tile: 16 x 64 x 128 warps: 1 x 2",
        "tile: 32 x 128 x 64 warps: 1 x 2 split_k: 3", "tile: 64 x 64 x 128 warps: 2 x 4",
        "tile: 64 x 32 x 64 warps: 1 x 2 pipeline: 2"})
    expectWithinBound({"nvfp4", "nvfp4_token", "f32", schedule, "sm_120a", {37, 130, 600}});
}

// Scales of 32 along k: a word has those of two instructions of e2m1, of four of e4m3.
TEST(BlockScaled, PowersOfTwoAreWithinTheBound) {
  for (const char *schedule : {"", "tile: 32 x 64 x 256 warps: 1 x 2", "tile: 16 x 128 x 128"}) {
    expectWithinBound({"mxfp4", "mxfp4", "f32", schedule, "sm_120a", {19, 130, 600}});
    expectWithinBound({"mxfp4", "mxfp8_e4m3", "f32", schedule, "sm_120a", {19, 130, 600}});
    expectWithinBound({"mxfp8_e4m3", "mxfp8_e4m3", "f32", schedule, "sm_120a", {19, 130, 600}});
  }
}

// Decoded to e4m3, a remapped code is the number that it stands for; e2m1 operands are codes, and
// it is the sum of two.
TEST(BlockScaled, RemappedCodesAreWithinTheBound) {
  const std::string remapped = "format remapped {\n"
                               "  element:  e2m1 remap 8 to [5, -8] by selector\n"
                               "  scale:    e8m0 per k[32]\n"
                               "  selector: u1   per k[32]\n"
                               "  value = element * scale\n"
                               "}\n";
  for (const char *activation : {"mxfp8_e4m3", "fp8_token", "mxfp4"})
    for (const char *schedule : {"scales: hardware", "scales: hardware split_k: 3"})
      expectWithinBound(
          {"remapped", activation, "f32", schedule, "sm_120a", {5, 70, 328}, remapped});
}

// The last word of scales of a row is not full, nor the last block.
TEST(BlockScaled, RaggedShapesAreWithinTheBound) {
  for (GemmShape shape :
       {GemmShape{1, 64, 128}, GemmShape{3, 65, 321}, GemmShape{9, 1, 7}, GemmShape{130, 264, 200}})
    expectWithinBound({"nvfp4", "nvfp4_token", "bf16", "", "sm_120a", shape});
}

// Numbers of each block along k that are elements times a power of two of their own: every scale is
// exact, and every sum.
std::vector<float> exactNumbers(int64_t rows, int64_t k, int64_t block, uint64_t seed) {
  constexpr float elements[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::mt19937_64 random(seed);
  std::vector<float> result(static_cast<size_t>(rows * k));
  float scale = 1;
  for (int64_t i = 0; i < rows * k; ++i) {
    if (i % k % block == 0) {
      scale = std::ldexp(1.0F, static_cast<int>(random() % 3));
      result[static_cast<size_t>(i)] = 6 * scale; // the largest of its block
      continue;
    }
    float element = elements[random() % 8] * scale;
    result[static_cast<size_t>(i)] = random() % 2 == 0 ? element : -element;
  }
  return result;
}

void expectExactProduct(const Case &test) {
  auto [m, n, k] = test.shape;
  int64_t block = test.weight == "fp4_powers" ? 32 : 16;
  std::vector<float> weights = exactNumbers(n, k, block, 1), tokens = exactNumbers(m, k, block, 2);
  expectExactProducts(test, weights, tokens);
}

// The scale of every block of both operands is that of its own row and its own k.
TEST(BlockScaled, ProductsAreExactBitForBit) {
  for (const char *schedule :
       {"", "tile: 32 x 64 x 128 warps: 1 x 4", "tile: 16 x 128 x 128 split_k: 2"})
    for (const char *format : {"fp4_g16", "fp4_powers"})
      expectExactProduct({format, format, "f32", schedule, "sm_120a", {21, 72, 200}});
}

// An operand without group scales has scales of one in the instruction.
TEST(BlockScaled, OneOperandMayHaveNoGroupScale) {
  expectWithinBound({"fp4_channel", "nvfp4_token", "f32", "", "sm_120a", {5, 72, 200}});
  expectWithinBound({"nvfp4", "fp4_token", "f32", "", "sm_120a", {5, 72, 200}});
}

TEST(BlockScaled, NotFiniteMakesItsTokenNotANumberAndNoOther) {
  Case test{"nvfp4", "nvfp4_token", "f32", "", "sm_120a", {4, 64, 136}};
  std::vector<float> weights = exactNumbers(64, 136, 16, 1), tokens = exactNumbers(4, 136, 16, 2);
  tokens[136 + 5] = NAN;
  Outcome result;
  ASSERT_NO_FATAL_FAILURE(run(test, weights, tokens, result));
  const auto *y = reinterpret_cast<const float *>(result.output.data());
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t column = 0; column < 64; ++column)
      EXPECT_EQ(std::isnan(y[row * 64 + column]), row == 1);
}

TEST(BlockScaled, PlanSaysWhereScalesAre) {
  std::string plan = planOf({"nvfp4", "nvfp4_token", "f16", "", "sm_120a", {16, 256, 512}});
  for (const char *line :
       {"mma e2m1\n", "scales hardware\n",
        "place weight.block in hardware: the instruction takes ue4m3 per k[16]\n",
        "place activation.block in hardware: ", "place weight.tensor in epilogue",
        "place activation.token in epilogue"})
    EXPECT_NE(plan.find(line), std::string::npos) << plan;
  Result<compiler::Plan> parsed = compiler::Plan::parse(plan);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->groupScales, dsl::ScheduleDecl::Scales::Hardware);
}

TEST(BlockScaled, WhatHasNoInstructionIsRefusedWithTheReason) {
  struct Refusal {
    const char *weight, *activation, *schedule, *target, *message;
  };
  for (
      const Refusal &refusal : {
          Refusal{"nvfp4", "nvfp4_token", "", "sm_89",
                  "activation 'nvfp4_token' has operands of e2m1, sm_89 has no matrix instruction "
                  "for them; sm_120a do"},
          {"int4_g128", "fp8_token", "", "sm_86",
           "activation 'fp8_token' has operands of e4m3, sm_86 has no matrix instruction for them; "
           "sm_89, sm_90, sm_90a, sm_120a do"},
          {"int4_g128", "nvfp4_token", "", "sm_120a",
           "no decode from 'element' of 'int4_g128' to e2m1 operands, which activation "
           "'nvfp4_token' needs: its numbers are not all ones of e2m1, times any power of two"},
          {"awq_g128", "nvfp4_token", "", "sm_120a",
           "no decode from 'element - zero' of 'awq_g128' to e2m1 operands, which activation "
           "'nvfp4_token' needs: it can be -15, which e2m1 does not hold"},
          {"int2_g128", "nvfp4_token", "", "sm_120a",
           "no decode from 'element' of 'int2_g128' to e2m1 operands, which activation "
           "'nvfp4_token' needs: operands of 4 bits are codes as they are stored"},
          {"fp8_channel", "int4_token", "", "sm_80",
           "no decode from 'element' of 'fp8_channel' to s8 operands, which activation "
           "'int4_token' needs: its numbers are not all ones of s8, times any power of two"},
          {"razer_g16", "fp8_token", "", "sm_89",
           "no decode from 'element' of 'razer_g16' to e4m3 operands, which activation 'fp8_token' "
           "needs: 'special' is a number that only the kernel sees, of which it makes no e4m3"},
          {"fp4_channel", "fp4_token", "", "sm_120a",
           "scales: hardware is not legal for 'g': neither operand has group scales; instructions "
           "with operands of e2m1 take e4m3 or ueXm3 per k[16] or e8m0 per k[32]"},
          {"fp4_g32", "nvfp4_token", "", "sm_120a",
           "scales: hardware is not legal for 'g': 'block' is e4m3 per k[32] and 'block' is e4m3 "
           "per k[16]; instructions with operands of e2m1 take e4m3 or ueXm3 per k[16] or e8m0 per "
           "k[32] of both"},
          {"nvfp4", "fp4_signed", "", "sm_120a",
           "scales: hardware is not legal for 'g': the rule of 'block' may give a negative scale, "
           "ue4m3 has no sign"},
          {"fp4_two", "nvfp4_token", "", "sm_120a",
           "scales: hardware is not legal for 'g': 'fp4_two' has several group scales, an "
           "instruction takes one"},
          {"nvfp4", "nvfp4_token", "scales: accumulator", "sm_120a",
           "scales: accumulator is not legal for 'g': e2m1 operands are those of instructions with "
           "block scales, which need scales: hardware"},
          {"nvfp4", "nvfp4_token", "roles: gemv", "sm_120a",
           "scales: hardware is not legal for 'g': instructions with block scales need roles "
           "uniform"},
          {"nvfp4", "f16", "scales: hardware", "sm_120a",
           "scales: hardware is not legal for 'g': no instruction with operands of f16 has block "
           "scales"},
          {"nvfp4", "f16", "scales: hardware", "sm_80",
           "scales: hardware is not legal for 'g': instructions with block scales need sm_120a, "
           "the target is sm_80"},
      })
    EXPECT_EQ(planOf({refusal.weight,
                      refusal.activation,
                      "f16",
                      refusal.schedule,
                      refusal.target,
                      {16, 256, 512}}),
              refusal.message);
}

// Codes that the user brings may break what no rule of the format gives.
class ScalesWithoutSign : public testing::TestWithParam<Case> {};

TEST_P(ScalesWithoutSign, AreNotPackedWhereNegative) {
  const Case &test = GetParam();
  Outcome result;
  ASSERT_NO_FATAL_FAILURE(
      run(test, exactNumbers(64, 136, 16, 1), exactNumbers(4, 136, 16, 2), result));
  dsl::QuantizedMatrix weight = result.weight;
  weight.components[1].set(7, 0xb8);
  Result<Buffer> packed = result.gemm.packQuantized(weight);
  ASSERT_FALSE(packed.ok());
  EXPECT_EQ(
      packed.error().str(),
      "error: code 7 of 'block' is -1, a negative scale; its rule gives none, and this kernel "
      "reads scales without a sign [pack_negative_scale]\n");
}

INSTANTIATE_TEST_SUITE_P(
    All, ScalesWithoutSign,
    testing::Values(Case{"nvfp4", "nvfp4_token", "f32", "", "sm_120a", {4, 64, 136}},
                    Case{"nvfp4", "bf16", "f32", "scales: operand", "sm_90a", {4, 64, 136}},
                    Case{"nvfp4_4over6", "f16", "f32", "scales: operand", "sm_80", {4, 64, 136}}));

// LLVM makes packed f32 arithmetic for sm_120a, and no other target's text has it.
TEST(Sm120, OtherInstructionsAreWithinTheBound) {
  for (const char *activation : {"f16", "bf16", "int8_token", "int4_g128", "fp8_token"})
    for (const char *schedule : {"", "split_k: 3"})
      expectWithinBound({"int4_g128", activation, "f32", schedule, "sm_120a", {37, 130, 600}});
}

// ptxas makes the s4 instruction of sm_120 of many others; s8 does the same work in two.
TEST(Sm120, IntegersOfFourBitsAreMultipliedAsThoseOfEight) {
  std::string plan = planOf({"int4_channel", "int4_token", "f16", "", "sm_120a", {16, 256, 512}});
  EXPECT_NE(plan.find("mma s8\n"), std::string::npos) << plan;
}

} // namespace
} // namespace rho::test
