// Weights whose numbers operands do not hold, or hold though their codes are no numbers.
#include "runtime/Handles.h"
#include "tests/runtime/Walk.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rho {
namespace {

// Infinite operands are an error of packing, with the first of them, and no NaN in an output.
TEST(WeightRange, WeightsBeyondTheOperandsAreNotPacked) {
  for (const char *group : {"k[16]", "k[128]"}) {
    const std::string text =
        "format w { element: s4 scale: f16 per " + std::string(group) +
        " value = element * scale } gemm g { weight: w activation: f16 output: "
        "f32 schedule { scales: operand } }";
    Walk s(text.c_str(), {1, 64, 128});
    std::vector<float> w = s.w;
    w[5 * 128 + 33] = 60000;
    Buffer packed = must(s.gemm.packWeights(w.data(), ScalarType::F32, 128));
    w[5 * 128 + 33] = -70000;
    EXPECT_EQ(
        errorText(s.gemm.packWeights(w.data(), ScalarType::F32, 128)),
        "error: row 5, column 33 of the weight is -70000 where it is an operand of f16, which "
        "holds up to 65504: bf16 has the range [pack_beyond_operand]\n");
    const std::string sums =
        text.substr(0, text.find("schedule")) + "schedule { scales: accumulator } }";
    if (group == std::string("k[128]")) {
      Walk outside(sums.c_str(), {1, 64, 128});
      (void)must(outside.gemm.packWeights(w.data(), ScalarType::F32, 128));
    }
  }
}

// A decode may take numbers of a row that are larger than the weights.
TEST(WeightRange, NumbersBesideTheCodesAreHeldByTheOperands) {
  Walk s("format w { element: u8 sa: f16 per k[32] least: f16 per k[32] "
         "value = (element - 128) * sa + least encode { sa = absmax(x) least = min(x) } } "
         "gemm g { weight: w activation: f16 output: f32 }",
         {1, 64, 128});
  std::vector<float> w = s.w;
  w[5 * 128 + 33] = 400;
  (void)must(s.gemm.packWeights(w.data(), ScalarType::F32, 128));
  std::fill(w.begin() + 5 * 128 + 32, w.begin() + 5 * 128 + 64, 600.0F);
  EXPECT_EQ(errorText(s.gemm.packWeights(w.data(), ScalarType::F32, 128)),
            "error: of row 5, column 32 of the weight the kernel takes -76200 in f16, which holds "
            "up to 65504: bf16 has the range [pack_beyond_number]\n");
}

// A special value may be one that f32 has and bf16 has not, whatever its scales make of it.
TEST(WeightRange, SpecialValuesAreHeldByTheOperands) {
  for (const char *tables : {"registers", "shared", "mixed"}) {
    Walk s(("format w { element: e2m1 remap 8 to [1e39, -1e39, 8, -8] by selector "
            "scale: ue4m10 per k[32] selector: u2 in scale value = element * scale "
            "encode { scale = best(absmax(x) / 1e39, absmax(x) / 6) } } gemm g { weight: w "
            "activation: bf16 output: f32 schedule { scales: accumulator tables: " +
            std::string(tables) + " } }")
               .c_str(),
           {1, 64, 128});
    ASSERT_NO_FATAL_FAILURE(
        s.expectReference(s.gemm, must(s.gemm.packWeights(s.w.data(), ScalarType::F32, 128))));
    s.w[5 * 128 + 33] = 9.765625e35F;
    EXPECT_EQ(
        errorText(s.gemm.packWeights(s.w.data(), ScalarType::F32, 128)),
        "error: row 5, column 33 of the weight is 9.76562e+35 (1e+39 before later factors) "
        "where it is an operand of bf16, which holds up to 3.38953e+38 [pack_beyond_operand]\n");
  }
}

// Scales that are powers of two take the factor that a decode to bf16 leaves out, which leaves them
// 127 of 255 exponents, and 2^-24 for outputs to give back. Blocks of zeros may have any smaller.
TEST(WeightRange, PowersOfTwoThatMultiplyOperandsHaveTheUsualSizes) {
  const auto text = [](const std::string &schedule) {
    return "format w { element: e2m1 scale: e8m0 per k[32] value = element * scale "
           "encode { scale = bit_floor(absmax(x)) / 4 } } "
           "gemm g { weight: w activation: bf16 output: f32 schedule { scales: " +
           schedule + " } }";
  };
  for (const char *target : {"sm_80", "sm_90a"})
    for (const char *roles : {"", " roles: gemv"}) {
      Walk s(text("operand" + std::string(roles)).c_str(), {1, 64, 128}, target);
      Walk sums(text("accumulator").c_str(), {1, 64, 128}, target);
      const auto row = [&](int64_t n) { return s.w.begin() + n * 128; };
      std::fill(row(3), row(4), 0.0F);
      for (int64_t i = 0; i < 128; ++i) {
        row(5)[i] = std::ldexp(i % 3 == 0 ? 6.0F : -0.5F, 25);
        row(7)[i] = std::ldexp(i % 3 == 0 ? -6.0F : 0.5F, -101);
      }
      const auto packed = [&](const Walk &by) {
        return errorText(by.gemm.packWeights(s.w.data(), ScalarType::F32, 128));
      };
      ASSERT_NO_FATAL_FAILURE(
          s.expectReference(s.gemm, must(s.gemm.packWeights(s.w.data(), ScalarType::F32, 128))));
      std::fill(row(5) + 64, row(6), std::ldexp(6.0F, 26));
      EXPECT_EQ(packed(s),
                "error: of row 5, column 64 of the weight the kernel takes 3.402823669209385e+38 "
                "in bf16, which holds up to 3.3895313892515355e+38: 'scales: accumulator' has the "
                "range [pack_beyond_number]\n");
      EXPECT_EQ(packed(sums), "");
      std::fill(row(5), row(6), 1.0F);
      std::fill(row(7) + 96, row(8), std::ldexp(6.0F, -102));
      EXPECT_EQ(packed(s), "");
      row(7)[99] = std::ldexp(0.5F, -102);
      EXPECT_EQ(packed(s),
                "error: row 7, column 99 of the weight is 9.86076e-32 where it is an operand of "
                "bf16, which has all digits from 1.97215e-31 on: 'scales: accumulator' has the "
                "range [pack_below_operand]\n");
      EXPECT_EQ(packed(sums), "");
    }
}

// Products of scales of groups that sums cannot be scaled by, whatever the activation.
TEST(WeightRange, ProductsOfScalesAreHeldByTheOperands) {
  for (const char *activation : {"bf16", "int8_token"}) {
    const std::string text =
        std::string(
            "import \"rho:int8_token\" format w { element: s4 fine: u4 per k[8] coarse: f32 per "
            "k[64] value = element * fine * coarse encode { coarse = bit_floor(absmax(x)) "
            "/ 64 fine = absmax(x) / coarse / 7 } } gemm g { weight: w activation: ") +
        activation + " output: f32 }";
    Walk s(text.c_str(), {3, 64, 128});
    ASSERT_NO_FATAL_FAILURE(
        s.expectReference(s.gemm, must(s.gemm.packWeights(s.w.data(), ScalarType::F32, 128))));
    std::fill(s.w.begin() + 5 * 128 + 64, s.w.begin() + 5 * 128 + 72, 3e38F);
    (void)must(
        s.gemm.packWeights(s.w.data(), ScalarType::F32, 128)); // scales are a seventh of that
  }
  Walk s("format w { element: s4 fine: u4 per k[8] coarse: f32 per k[64] value = element * fine * "
         "coarse encode { coarse = absmax(x) / 8 fine = 15 } } gemm g { weight: w activation: bf16 "
         "output: "
         "f32 }",
         {1, 64, 128});
  s.w[5 * 128 + 70] = 3e38F;
  EXPECT_EQ(errorText(s.gemm.packWeights(s.w.data(), ScalarType::F32, 128)),
            "error: of row 5, column 64 of the weight the kernel takes 5.625000010308292e+38 in "
            "bf16, which holds up to 3.3895313892515355e+38 [pack_beyond_number]\n");
}

// The number is the weight's, beside the one that operands hold of it.
TEST(WeightRange, FactorsOutsideOfOperandsAreNamed) {
  Walk s("format w { element: e2m1 scale: e8m0 per k[32] top: f32 per tensor value = element * "
         "scale * top encode { top = 0.25 scale = bit_floor(absmax(x / top)) / 4 } } "
         "gemm g { weight: w activation: bf16 output: f32 schedule { scales: operand } }",
         {1, 64, 128});
  std::fill(s.w.begin() + 5 * 128, s.w.begin() + 6 * 128, 0x1p-110F);
  EXPECT_EQ(
      errorText(s.gemm.packWeights(s.w.data(), ScalarType::F32, 128)),
      "error: row 5, column 0 of the weight is 7.70372e-34 (3.08149e-33 before later factors) "
      "where it is an operand of bf16, which has all digits from 1.97215e-31 on: 'scales: "
      "accumulator' has the range [pack_below_operand]\n");
}

// Behind the last column of a weight lies no code that none of its numbers has.
TEST(WeightRange, WhatFillsTilesIsFinite) {
  for (const char *format :
       {"element: codebook [448, -6, -0.25, 4] sa: f16 per k[32] value = element * sa "
        "encode { sa = 200 }",
        "element: u4 sa: f16 per k[32] value = (element - 8) * sa encode { sa = 9000 }"})
    for (const char *target : {"sm_80", "sm_90a"})
      for (int64_t k : {65, 100}) {
        const std::string text = "format w { " + std::string(format) +
                                 " } gemm g { weight: w activation: f16 "
                                 "output: f32 schedule { scales: operand } }";
        Walk s(text.c_str(), {2, 33, k}, target);
        ASSERT_NO_FATAL_FAILURE(s.expectReference(s.gemm, s.weight)) << text << k;
      }
}

// A code of infinity or NaN may stand for a number.
TEST(WeightRange, RemappedCodesMayBeNoNumbers) {
  for (const char *element : {"e5m2 remap 127", "e5m2 remap 124", "e5m2 remap 255"}) {
    const std::string text = "format w { element: " + std::string(element) +
                             " to [-5, 2.5] by sel sa: f16 per k[32] sel: u1 per k[32] value = "
                             "element * sa encode { sa = absmax(x) / 5 } } gemm g { weight: w "
                             "activation: f16 output: f32 }";
    Walk s(text.c_str(), {2, 33, 128}, "sm_89");
    ASSERT_NO_FATAL_FAILURE(s.expectReference(s.gemm, s.weight)) << element;
  }
}

// Also of what is added to a weight, and of what a code may stand for; what is rounded to the
// largest number is none.
TEST(WeightRange, NumbersOfAllPartsAreHeldByTheOperands) {
  const std::string gemm = " gemm g { weight: w activation: f16 output: f32 schedule { scales: "
                           "operand } }",
                    beyond = "where it is an operand of f16, which holds up to ";
  auto packed = [&](const std::string &weight, float number) {
    Walk s((weight + (weight.find("remap") == std::string::npos
                          ? gemm
                          : " gemm g { weight: w activation: f16 output: f32 }"))
               .c_str(),
           {1, 64, 128});
    std::vector<float> w(s.w.size(), 0.25F);
    w[5 * 128 + 33] = number;
    return errorText(s.gemm.packWeights(w.data(), ScalarType::F32, 128));
  };
  const std::string own =
                        "format fine { element: s8 scale: f16 per k[64] value = element * scale } "
                        "format w { element: s4 scale: f16 per channel value = element * scale "
                        "residual fix: fine per n[64] k[64] budget 50% encode { scale = 0.5 } }",
                    shared = "format w { element: s4 scale: f16 per k[64] value = element * scale "
                             "residual fix: s4 / 16 per n[64] k[64] budget 50% }",
                    special =
                        "format w { element: e2m1 remap 8 to [5, 100000] by sel block: f16 per "
                        "k[128] sel: u1 per k[128] value = element * block encode { block = 1 "
                        "} }",
                    exact = "format w { element: s8 scale: f16 per k[64] value = element * scale "
                            "encode { scale = 528 } }";
  EXPECT_NE(packed(own, 100000).find("row 5, column 33"), std::string::npos);
  EXPECT_NE(packed(own, 100000).find(beyond + "65504"), std::string::npos);
  EXPECT_EQ(packed(own, 50000), "");
  EXPECT_NE(packed(shared, 69000).find(beyond), std::string::npos);
  EXPECT_EQ(packed(shared, 50000), "");
  EXPECT_NE(packed(special, 90000).find("is 100000 " + beyond), std::string::npos);
  EXPECT_EQ(packed(special, 4), "");
  EXPECT_EQ(packed(exact, 65472), ""); // 124 * 528
}

} // namespace
} // namespace rho
