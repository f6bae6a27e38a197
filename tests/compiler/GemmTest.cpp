// Every kind of kernel, executed on the emulator against the exact reference.
#include "tests/compiler/EmulatedGemm.h"

#include "kernels/Reference.h"
#include "kernels/Synthetic.h"
#include "runtime/Kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace rho::test {
namespace {

struct Pair {
  const char *weight, *activation;
};
constexpr Pair pairs[] = {
    {"int4_g64", "f16"},
    {"int4_g128", "f16"},
    {"int4_g512", "f16"},
    {"int4_channel", "f16"},
    {"nvfp4", "f16"},
    {"uint4_g64", "f16"},
    {"int4_g64", "bf16"},
    {"int4_g128", "bf16"},
    {"int4_channel", "bf16"},
    {"nvfp4", "bf16"},
    {"uint4_g64", "bf16"},
    {"int4_g64", "int8_token"},
    {"int4_g128", "int8_token"},
    {"int4_channel", "int8_token"},
    {"liquidquant", "int8_token"},
    {"int4_g128", "int4_g128"},
    {"int4_g64", "int4_g512"},
    {"int4_channel", "int4_token"},
    {"int8_channel", "int8_token"},
    {"int8_g128", "int8_token"},
};
constexpr Pair fp8Pairs[] = {
    {"int4_g64", "fp8_token"},    {"int4_g128", "fp8_token"},     {"int4_channel", "fp8_token"},
    {"fp4_channel", "fp8_token"}, {"uint4_channel", "fp8_token"}, {"fp8_channel", "fp8_token"},
};

class Formats : public testing::TestWithParam<std::tuple<Pair, const char *>> {};

// Ragged shapes in every dimension: one row, fewer rows than a tile, an odd n, a k that is no
// multiple of a group, of 64 or of 8. Weights in tiles and in panels.
TEST_P(Formats, AreWithinTheBoundOnRaggedShapes) {
  auto [pair, target] = GetParam();
  for (GemmShape shape : {GemmShape{1, 64, 128}, GemmShape{3, 65, 321}, GemmShape{16, 256, 512},
                          GemmShape{37, 130, 1000}, GemmShape{130, 264, 192}, GemmShape{9, 1, 7}})
    for (const char *output : {"f16", "f32"})
      expectWithinBound({pair.weight, pair.activation, output,
                         output == std::string("f32") && shape.m > 4 ? "packing: panels" : "",
                         target, shape});
}

std::string nameOfFormats(const testing::TestParamInfo<Formats::ParamType> &info) {
  const Pair &pair = std::get<0>(info.param);
  return std::string(pair.weight) + "_" + pair.activation + "_" + std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(All, Formats,
                         testing::Combine(testing::ValuesIn(pairs),
                                          testing::Values("sm_80", "sm_86", "sm_89", "sm_90a")),
                         nameOfFormats);
INSTANTIATE_TEST_SUITE_P(Fp8, Formats,
                         testing::Combine(testing::ValuesIn(fp8Pairs),
                                          testing::Values("sm_89", "sm_90a")),
                         nameOfFormats);

class Schedules : public testing::TestWithParam<Pair> {};

TEST_P(Schedules, AreWithinTheBound) {
  Pair pair = GetParam();
  for (const char *schedule :
       {"pipeline: 2", "pipeline: 5", "pipeline: 8 tile: 8 x 32 x 64 warps: 1 x 2",
        "tile: 8 x 16 x 64 warps: 1 x 1", "tile: 16 x 128 x 128 warps: 2 x 2",
        "tile: 64 x 64 x 64 warps: 4 x 2", "tile: 32 x 256 x 64 warps: 1 x 8", "split_k: 2",
        "split_k: 5 tile: 16 x 64 x 64 warps: 1 x 4", "split_k: 9 tile: 8 x 64 x 64",
        "tile: 16 x 96 x 128 warps: 2 x 3", "tile: 16 x 80 x 64 split_k: 2"})
    expectWithinBound({pair.weight, pair.activation, "bf16", schedule, "sm_80", {21, 144, 600}});
}

INSTANTIATE_TEST_SUITE_P(All, Schedules, testing::ValuesIn(pairs), [](const auto &info) {
  return std::string(info.param.weight) + "_" + info.param.activation;
});

// Stages whose pieces are no multiple of the threads: LLVM once copied the ldmatrix behind a branch
// around the last piece into both of its paths.
TEST(Copies, LeaveTheThreadsOfAWarpTogether) {
  for (const char *target : {"sm_80", "sm_86", "sm_89", "sm_90a"})
    for (int pipeline = 2; pipeline <= 6; ++pipeline)
      expectWithinBound({"int4_g128",
                         "int8_token",
                         "f16",
                         "scales: accumulator pipeline: " + std::to_string(pipeline),
                         target,
                         {33, 130, 1000}});
}

// Both places where a group scale may go.
TEST(Placements, OperandAndAccumulatorAreWithinTheBound) {
  for (const char *weight : {"int4_g64", "int4_g128", "nvfp4", "uint4_g64"})
    for (const char *scales : {"scales: operand", "scales: accumulator"})
      expectWithinBound({weight, "f16", "f32", scales, "sm_80", {12, 96, 384}});
  for (const char *scales : {"scales: operand", "scales: accumulator"})
    expectWithinBound({"nvfp4", "bf16", "f32", scales, "sm_80", {12, 96, 384}});
}

// The largest scale times the largest element leaves the range of f16, so that the scales stand at
// the accumulators; where both fit, operands may be scaled.
TEST(Placements, ScaledOperandsStayInTheRangeOfTheirType) {
  struct Wide {
    const char *element, *scale;
    double scaleMax, elementMax;
    bool fits;
  };
  for (Wide wide : {Wide{"s4", "e5m2", 57344, 7, false}, Wide{"e4m3", "ue4m3", 448, 448, false},
                    Wide{"u8", "e4m3", 448, 255, false}, Wide{"e2m1", "ue4m3", 448, 6, true},
                    Wide{"s4", "u8", 255, 7, true}}) {
    std::string most = std::to_string(wide.elementMax);
    std::string zero = *wide.element == 'u' ? " - 128" : "";
    std::string format =
        std::string("format wide { element: ") + wide.element + " fine: " + wide.scale +
        " per k[32] scale: f32 per channel value = (element" + zero +
        ") * fine * scale encode { scale = absmax(x) / " + most + " / " +
        std::to_string(wide.scaleMax) + " fine = absmax(x / scale) / " + most + " } }";
    for (const char *target : {"sm_80", "sm_90a"})
      expectWithinBound({"wide", "f16", "f32", "", target, {3, 72, 256}, format});
    if (wide.fits)
      expectWithinBound({"wide", "f16", "f32", "scales: operand", "sm_80", {3, 72, 256}, format});
  }
}

// Scales as small as weights are, of a type with as many exponents as f16: the power of two that a
// decode leaves out would take products with them below f16's range.
TEST(Placements, ScaledOperandsDoNotVanish) {
  for (const char *element : {"u4", "u2", "e2m1", "e3m2", "s4"})
    for (const char *group : {"k[16]", "n[2] k[16]", "k[128]"}) {
      std::string format = std::string("format fine { element: ") + element + " scale: e5m2 per " +
                           group + " value = element * scale }";
      for (const char *activation : {"f16", "bf16"})
        for (const char *target : {"sm_80", "sm_90a"})
          expectWithinBound({"fine", activation, "f32", "", target, {3, 40, 96}, format});
    }
}

// The power of two that the decode of a u4 leaves out is more than f16 holds, when it is restored.
TEST(Placements, ProductsOfIntegerScalesAreWithinTheBound) {
  for (const char *target : {"sm_80", "sm_90a"})
    expectWithinBound({"whole",
                       "f16",
                       "f32",
                       "scales: operand",
                       target,
                       {3, 40, 96},
                       "format whole { element: u4 fine: u4 per k[32] coarse: u8 per n[3] k[32] "
                       "scale: f32 per tensor value = element * fine * coarse * scale }"});
}

// One register is made of a word where elements are as wide as operands: rows take turns in words.
TEST(Placements, WideElementsHaveTheParametersOfTheirRow) {
  const std::string half = "format wide { element: f16 fine: f16 per k[64] scale: f32 per channel "
                           "value = element * fine * scale encode { scale = absmax(x) "
                           "fine = max(absmax(x) / scale, 0.1) } }";
  for (const char *schedule : {"", "roles: gemv "})
    for (const char *target : {"sm_80", "sm_90a", "sm_120a"})
      expectWithinBound({"wide",
                         "f16",
                         "f32",
                         schedule + std::string("scales: operand"),
                         target,
                         {2, 70, 256},
                         half});
  expectWithinBound(
      {"wide", "f16", "f32", "roles: excp scales: operand", "sm_90a", {20, 70, 256}, half});
  const std::string bytes =
      "format wide { element: u8 step: u4 per k[16] origin: u4 per k[16] scale: f32 per channel "
      "value = s8(element * step + origin ^ 128) * scale require element * step + origin <= 255 "
      "encode { scale = absmax(x) / 7 step = (max(x / scale) - min(x / scale)) / 15 "
      "origin = 8 + min(x / scale) } }";
  for (const char *schedule : {"", "roles: gemv"})
    for (const char *target : {"sm_80", "sm_90a"})
      expectWithinBound({"wide", "int8_token", "f32", schedule, target, {3, 70, 256}, bytes});
}

// Kernels that look codes up in shared memory, of all families that may: a table for all of a CTA,
// filled by those of its threads that do not load.
TEST(PairTables, AreFilledBeforeTheyAreRead) {
  const std::string small =
      "format small { element: codebook [-13e-7, -9e-7, -6e-7, -5e-7, -4e-7, -3e-7, -2e-7, -1e-7, "
      "0, 1e-7, 2e-7, 3e-7, 4e-7, 6e-7, 9e-7, 13e-7] scale: f32 per channel "
      "value = element * scale } ";
  for (const char *activation : {"f16", "bf16"}) {
    expectWithinBound({"small", activation, "f32", "", "sm_90a", {5, 64, 192}, small});
    for (const char *schedule :
         {"roles: imfp tile: 8 x 64 x 128", "roles: imfp tile: 16 x 80 x 128", "roles: imfp",
          "roles: imfp tile: 64 x 128 x 64 warps: 1 x 8", "roles: excp", "roles: imfp split_k: 2",
          "roles: imfp tile: 64 x 64 x 64 warps: 1 x 4 cluster: 2 x 1",
          "roles: imfp tile: 32 x 128 x 64 split_k: 2 cluster: 1 x 2 launch: dependent",
          "roles: imfp tile: 32 x 128 x 64 packing: panels", "roles: uniform tables: shared",
          "roles: imfp tile: 8 x 64 x 128 tables: mixed", "roles: excp tables: mixed",
          "roles: imfp tile: 64 x 128 x 64 warps: 1 x 8 tables: mixed",
          "roles: uniform tables: mixed",
          "roles: uniform tile: 16 x 64 x 64 warps: 1 x 2 split_k: 3 tables: shared"})
      expectWithinBound({"nf4_g64", activation, "f32", schedule, "sm_90a", {19, 136, 600}});
    // Asked for, also where registers would do.
    for (const char *weight : {"int4_g128", "nvfp4", "mxfp4"})
      for (const char *schedule : {"roles: imfp tables: shared", "roles: excp tables: shared"})
        expectWithinBound({weight, "bf16", "bf16", schedule, "sm_90a", {9, 72, 384}});
    // By permutations where there is no such table.
    for (const char *roles :
         {"roles: gemv", "roles: uniform tables: registers", "roles: imfp tables: registers"})
      expectWithinBound({"nf4_g64", activation, "f32", roles, "sm_90a", {2, 136, 600}});
  }
}

// A table for each number that a selector chooses, which the tensor has or the declaration.
TEST(PairTables, AreChosenBySelectors) {
  const std::string one =
      "format one { element: e2m1 remap 8 to [special, -5] by s scale: ue4m3 per k[32] "
      "s: u1 per k[64] special: f16 per tensor value = element * scale "
      "encode { special = best(7, 9) s = best(0, 1) scale = absmax(x) / 6 } } ";
  for (const char *schedule :
       {"roles: imfp tile: 8 x 64 x 128", "roles: imfp tile: 16 x 80 x 128",
        "roles: imfp tile: 32 x 128 x 64 warps: 1 x 8", "roles: excp tile: 16 x 64 x 64",
        "roles: imfp tile: 64 x 64 x 64 warps: 1 x 4 cluster: 2 x 1 pipeline: 2",
        "roles: imfp tile: 16 x 128 x 64 split_k: 2 cluster: 1 x 2 launch: dependent",
        "roles: imfp tile: 32 x 64 x 64 packing: panels", "roles: imfp split_k: stream",
        "roles: uniform tile: 16 x 64 x 128 warps: 1 x 4 launch: dependent"})
    for (const char *activation : {"f16", "bf16"})
      for (const char *weight : {"razer_g16", "razer_g128", "one"})
        for (const char *tables : {" tables: shared", " tables: mixed"}) {
          if (tables == std::string(" tables: mixed") && activation == std::string("f16"))
            continue; // as beside bf16
          expectWithinBound({weight,
                             activation,
                             "f32",
                             schedule + std::string(tables),
                             "sm_90a",
                             {19, 136, 600},
                             one});
        }
  // Squared, a scale has no sign to give.
  for (const char *tables : {"registers", "shared", "mixed"})
    expectWithinBound(
        {"squared",
         "f16",
         "f32",
         std::string("scales: accumulator tables: ") + tables,
         "sm_80",
         {5, 64, 256},
         "format squared { element: e2m1 remap 8 to [5, -5, 8, -8] by s scale: ue4m10 per k[128] "
         "s: u2 in scale value = element * scale * scale "
         "encode { scale = 0.0625 s = best(0, 1, 2, 3) } } "});
  for (const char *target : {"sm_80", "sm_120a"})
    for (const char *schedule : {"tile: 16 x 64 x 64 warps: 1 x 4 pipeline: 3",
                                 "tile: 8 x 128 x 64 split_k: 2 pipeline: 2",
                                 "tile: 32 x 64 x 64 warps: 2 x 2 split_k: stream pipeline: 2"})
      for (const char *weight : {"razer_g16", "razer_g128"})
        for (const char *scales :
             {" scales: operand tables: shared", " scales: operand tables: mixed",
              " scales: accumulator tables: shared", " scales: accumulator tables: mixed"})
          expectWithinBound(
              {weight, "f16", "f32", std::string(schedule) + scales, target, {9, 72, 600}});
}

// Slopes and offsets in which a component stands more than once, with factors.
TEST(Placements, NumbersOfARowMayHaveSquares) {
  const std::string formats =
      "format inner { element: u4 a: u4 per k[32] b: f16 per k[32] value = element * a * a + b "
      "encode { a = 2 b = -absmax(x) } } "
      "format outer { element: u4 a: u4 per k[32] b: f16 per k[32] "
      "value = element * a + a * a * 0.5 * b encode { a = 2 b = min(x) / 2 } } "
      "format less { element: u4 d: f16 per k[32] e: u4 per k[32] "
      "value = element * d - (d * d) / 2 * e encode { d = absmax(x) / 4 e = 1 } } ";
  for (const char *weight : {"inner", "outer", "less"})
    for (const char *activation : {"f16", "bf16"})
      for (const char *target : {"sm_80", "sm_90a"})
        expectWithinBound({weight, activation, "f32", "", target, {17, 72, 320}, formats});
}

// Powers of two that no kernel could apply to sums instead are those of any size: groups that are
// no whole instructions, and a residual's.
TEST(Placements, PowersOfTwoWithoutAnotherPlaceAreOfAnySize) {
  const std::string powers =
                        " value = element * scale encode { scale = bit_floor(absmax(x)) / 4 } } ",
                    formats = "format few { element: e2m1 scale: e8m0 per k[24]" + powers +
                              "format rest { element: e2m1 scale: e8m0 per k[32]" + powers +
                              "format whole { element: s4 scale: f32 per channel "
                              "value = element * scale residual fix: rest per n[16] k[64] "
                              "budget 30% } ";
  const GemmShape shape{5, 64, 192};
  const std::vector<float> tokens = kernels::syntheticActivation(shape.m, shape.k, 3);
  std::vector<float> weights = kernels::syntheticWeight(shape.n, shape.k, 2);
  for (int64_t i = 0; i < shape.k; ++i) {
    weights[static_cast<size_t>(3 * shape.k + i)] *= 0x1p30F;
    weights[static_cast<size_t>(17 * shape.k + i)] *= 0x1p-100F;
  }
  for (const char *weight : {"few", "whole"})
    for (const char *target : {"sm_80", "sm_90a"}) {
      Outcome result;
      ASSERT_NO_FATAL_FAILURE(
          run({weight, "bf16", "f32", "", target, shape, formats}, weights, tokens, result));
      const auto *y = reinterpret_cast<const float *>(result.output.data());
      for (int64_t n = 0; n < shape.n; ++n) {
        const std::vector<double> w = result.weight.rowValues(n),
                                  x = result.activation.rowValues(2);
        double exact = 0, magnitude = 0;
        for (size_t i = 0; i < w.size(); ++i) {
          exact += w[i] * x[i];
          magnitude += std::abs(w[i] * x[i]);
        }
        ASSERT_NEAR(y[2 * shape.n + n], exact, magnitude * 0x1p-9) << weight << target << n;
      }
    }
}

// Elements of 8 bits of exponent are scaled to at most 1, whose sums are floats.
TEST(Placements, SumsOfPowersOfTwoAreFloats) {
  for (const char *scale : {"f32 per channel", "bf16 per k[32]"}) {
    std::string format =
        std::string("format powers { element: e8m0 scale: ") + scale + " value = element * scale }";
    for (const char *target : {"sm_80", "sm_90a"})
      expectWithinBound({"powers", "bf16", "f32", "", target, {3, 40, 96}, format});
  }
}

// So are those of 7, of which products of two may reach 2^128.
TEST(Placements, SumsOfProductsOfWideExponentsAreFloats) {
  for (auto [weight, activation] : {Pair{"e7m0", "e7m0"}, {"ue7m1", "e7m8"}, {"e7m0", "e7m8"}}) {
    const std::string formats = std::string("format w { element: ") + weight +
                                " scale: f32 per channel value = element * scale } "
                                "format x { element: " +
                                activation + " scale: f32 per token value = element * scale }";
    for (const char *target : {"sm_80", "sm_90a"})
      expectWithinBound({"w", "x", "f32", "", target, {3, 40, 96}, formats});
  }
}

TEST(IntegerPaths, AreExactBitForBit) {
  for (Pair pair : {Pair{"int4_g64", "int8_token"}, Pair{"int4_g128", "int8_token"},
                    Pair{"int4_channel", "int8_token"}, Pair{"liquidquant", "int8_token"},
                    Pair{"int4_g128", "int4_g128"}, Pair{"int4_channel", "int4_token"},
                    Pair{"int4_g128", "fp8_token"}, Pair{"int4_channel", "fp8_token"},
                    Pair{"int8_channel", "int8_token"}, Pair{"fp8_channel", "fp8_token"}}) {
    std::string uniform = std::string(pair.activation) == "fp8_token" ? "sm_89" : "sm_80";
    for (const char *schedule : {"", "split_k: 3 tile: 16 x 64 x 128"})
      expectExact({pair.weight, pair.activation, "f32", schedule, uniform, {19, 80, 640}});
    expectExact({pair.weight,
                 pair.activation,
                 "f32",
                 "roles: imfp tile: 32 x 64 x 128 warps: 1 x 4",
                 "sm_90a",
                 {19, 80, 640}});
  }
}

// Sums that start at 1.5 * 2^23, with one chain of instructions and several, scaled by rows alone
// and by rows and columns.
TEST(BiasedSums, AreTheSameFloatsAsConvertedOnes) {
  for (Pair pair : {Pair{"int4_g64", "int8_token"}, Pair{"int4_g128", "int8_token"},
                    Pair{"int4_g128", "int4_g128"}, Pair{"int4_channel", "int4_g128"}})
    for (const char *sums : {"sums: biased", "sums: converted"})
      for (const char *tile : {"", " tile: 8 x 16 x 128 warps: 1 x 1", " split_k: 2"})
        expectExact({pair.weight,
                     pair.activation,
                     "f32",
                     std::string("roles: uniform ") + sums + tile,
                     "sm_80",
                     {19, 80, 640}});
}

// Scales of NVFP4 that are subnormal in e4m3, and of 0, beside which elements are anything: a row
// of such scales alone has outputs of 0.
TEST(TabledScales, OfAllSizesAreExact) {
  for (const char *target : {"sm_80", "sm_90a"})
    for (const GemmShape &shape : {GemmShape{5, 80, 296}, GemmShape{33, 144, 1040}}) {
      const auto [m, n, k] = shape;
      auto codes = [n = n, k = k](const std::shared_ptr<const dsl::Format> &format) {
        std::mt19937 random(7);
        dsl::QuantizedMatrix weight{format, n, k, {}, {}, {}};
        for (const dsl::Component &component : format->components) {
          dsl::BlockGrid grid = codeGrid(component, n, k);
          dsl::CodeArray &array =
              weight.components.emplace_back(component.type.bits(), grid.size());
          for (int64_t i = 0; i < array.size(); ++i)
            if (component.extent == dsl::Extent::Element)
              array.set(i, random() % 16);
            else if (component.extent == dsl::Extent::Tensor)
              array.set(i, component.type.encode(1));
            else if (i >= grid.columns && random() % 3 > 0)
              array.set(i, random() % (random() % 2 == 0 ? 8 : 127));
        }
        return Result<dsl::QuantizedMatrix>(std::move(weight));
      };
      Outcome result;
      ASSERT_NO_FATAL_FAILURE(run({"nvfp4", "bf16", "f32", "", target, shape}, codes,
                                  kernels::syntheticActivation(m, k, 4), result));
      kernels::ReferenceOutput exact = kernels::reference(result.activation, result.weight);
      const auto *y = reinterpret_cast<const float *>(result.output.data());
      for (size_t i = 0; i < exact.y.size(); ++i)
        ASSERT_NEAR(y[i], exact.y[i], exact.magnitude[i] * 1e-4) << i << target;
      for (int64_t row = 0; row < m; ++row)
        EXPECT_EQ(y[row * n], 0);
    }
}

TEST(SplitK, IsDeterministic) {
  Case test{"int4_g128", "f16", "f32", "split_k: 7 tile: 16 x 64 x 64", "sm_80", {16, 128, 1024}};
  auto weights = kernels::syntheticWeight(128, 1024, 3);
  auto tokens = kernels::syntheticActivation(16, 1024, 4);
  Outcome first, second;
  ASSERT_NO_FATAL_FAILURE(run(test, weights, tokens, first));
  ASSERT_NO_FATAL_FAILURE(run(test, weights, tokens, second));
  EXPECT_EQ(first.output, second.output);
}

// Equal shares of k: fewer CTAs than output tiles, most of them with parts of several tiles; then
// more CTAs than tiles, which have parts of one.
TEST(EqualShares, OfKAreExactBitForBit) {
  for (const Pair &pair : {Pair{"int4_g64", "int8_token"}, Pair{"int4_channel", "int4_token"},
                           Pair{"int4_g64", "int4_group(64)"}})
    for (const char *launch : {"serial", "dependent"}) {
      std::string schedule = std::string("roles: uniform split_k: stream tile: 8 x 16 x 64 "
                                         "warps: 1 x 1 pipeline: 3 launch: ") +
                             launch;
      expectExact({pair.weight, pair.activation, "f32", schedule, "sm_80", {187, 635, 170}});
      expectExact({pair.weight, pair.activation, "f32", schedule, "sm_80", {9, 70, 1000}});
    }
}

// As many CTAs as the schedule says, of either family.
TEST(EqualShares, OfAFixedNumberOfCtasAreExact) {
  for (const char *ctas : {"1", "5", "7"}) {
    std::string schedule = std::string("split_k: stream ctas: ") + ctas;
    expectExact({"int4_g64",
                 "int8_token",
                 "f32",
                 schedule + " roles: uniform tile: 8 x 16 x 64 warps: 1 x 1 pipeline: 3",
                 "sm_80",
                 {9, 70, 500}});
    expectExact({"int4_g64",
                 "int8_token",
                 "f32",
                 schedule + " roles: imfp tile: 8 x 64 x 128 warps: 1 x 4 pipeline: 2",
                 "sm_90a",
                 {9, 150, 500}});
  }
}

TEST(EqualShares, AreDividedAmongResidentCtas) {
  Case test{
      "int4_g128",
      "f16",
      "f16",
      "roles: uniform split_k: stream ctas: 65535 tile: 16 x 64 x 64 warps: 1 x 4 pipeline: 4",
      "sm_80",
      {70, 1000, 192}};
  Outcome result;
  ASSERT_NO_FATAL_FAILURE(expectWithinBound(test, result));
  const compiler::KernelImage &image = result.gemm.impl().image();
  EXPECT_EQ(image.residentCtas % 108, 0);
  int64_t shares = image.tilesN() * image.tilesM(test.shape.m) * image.tilesK();
  EXPECT_EQ(image.grid(test.shape.m),
            (compiler::Dim3{static_cast<uint32_t>(std::min(shares, image.residentCtas))}));
}

// A group of one byte a row: its rows are padded to what copies move.
TEST(Activations, WithNarrowGroupScalesAreWithinTheBound) {
  for (GemmShape shape : {GemmShape{1, 64, 128}, GemmShape{3, 65, 321}, GemmShape{40, 130, 1000}}) {
    expectWithinBound({"int4_g128", "int8_g128_e4m3", "f16", "", "sm_80", shape});
    expectWithinBound({"int4_channel", "int8_g128_e4m3", "f16", "", "sm_90a", shape});
    expectWithinBound({"int4_channel", "int8_g128_e4m3", "f32", "roles: imfp", "sm_90a", shape});
  }
}

TEST(Activations, NotFiniteMakesItsTokenNotANumberAndNoOther) {
  Case test{"int4_g128", "int8_token", "f32", "", "sm_80", {4, 64, 128}};
  auto weights = kernels::syntheticWeight(64, 128, 3);
  auto tokens = kernels::syntheticActivation(4, 128, 4);
  tokens[128 + 5] = NAN;
  tokens[2 * 128 + 9] = INFINITY;
  Outcome result;
  ASSERT_NO_FATAL_FAILURE(run(test, weights, tokens, result));
  const auto *y = reinterpret_cast<const float *>(result.output.data());
  for (int64_t column = 0; column < 64; ++column) {
    EXPECT_TRUE(std::isfinite(y[column]));
    EXPECT_TRUE(std::isnan(y[64 + column]));
    EXPECT_TRUE(std::isnan(y[128 + column]));
    EXPECT_TRUE(std::isfinite(y[192 + column]));
  }
}

} // namespace
} // namespace rho::test
