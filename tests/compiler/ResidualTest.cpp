// Weights with a residual: kernels on the emulator against the exact reference, and what they cost.
#include "tests/compiler/EmulatedGemm.h"

#include "compiler/Explain.h"
#include "compiler/Layout.h"
#include "dsl/Division.h"
#include "dsl/Module.h"
#include "kernels/Reference.h"
#include "runtime/Kernel.h"

#include <gtest/gtest.h>

#include <random>

namespace rho::test {
namespace {

constexpr const char *integers = "element: s4 scale: f16 per channel value = element * scale";
constexpr const char *groups = "element: s4 scale: f16 per k[128] value = element * scale";
constexpr const char *nvfp4 =
    "element: e2m1 block: e4m3 per k[16] all: f32 per tensor value = element * block * all";

// As razer_g16 and razer_g128 have them.
constexpr const char *razer16 =
    "element: e2m1 remap 8 to [5, -5, special, -special] by selector block: ue3m3 per k[16] "
    "selector: u2 in block special: u4 per tensor tensor: f32 per tensor "
    "value = element * block * tensor encode { special = best(8, 7, 9) "
    "block = best(absmax(x / tensor) / 6, absmax(x / tensor) / special) }";
constexpr const char *razer128 =
    "element: e2m1 remap 8 to [5, -5, 8, -8] by selector scale: ue4m10 per k[128] "
    "selector: u2 in scale value = element * scale * 0.00390625 encode { "
    "scale = best(absmax(x) * 256 / 6, absmax(x) * 256 / 8) selector = best(0, 1, 2, 3) }";

constexpr const char *positive =
    "element: e2m1 remap 8 to [5, 8] by s scale: f16 per k[128] s: u1 per k[128] "
    "value = element * scale";

// More formats of residuals.
constexpr const char *rests = R"(
format rest8 { element: s8 scale: f16 per channel value = element * scale }
format rest3 { element: s3 scale: f16 per k[64] value = element * scale }
format rest4_g32 { element: s4 scale: f16 per k[32] value = element * scale }
format rest4_rows { element: s4 scale: f16 per n[16] k[64] value = element * scale }
format rest_asym { element: u4 scale: f16 per k[64] zero: u8 per k[64] value = (element - zero) * scale }
format rest_over { element: s4 scale: f16 per channel value = element / scale encode { scale = 7 / absmax(x) } }
format rest_positive { element: e2m1 remap 8 to [5, 8] by s scale: f16 per k[128] s: u1 per k[128] value = element * scale }
format x8_g128 { element: s8 scale: f16 per k[128] value = element * scale }
)";

std::string format(const std::string &base, const std::string &residual) {
  return rests + ("format w { " + base + " residual fix: " + residual + " }\n");
}

// --- Every base with every residual whose operands one instruction takes.

struct ResidualOperands {
  const char *name, *base, *residual, *activation;
};
constexpr ResidualOperands residualOperands[] = {
    {"W4A8", integers, "int4_channel per n[16] k[64] budget 10%", "int8_token"},
    {"W4A8_groups", integers, "int4_g64 per n[16] k[64] budget 30%", "int8_token"},
    {"W4A8_rows", integers, "rest4_rows per n[16] k[64] budget 30%", "int8_token"},
    {"W4A8_wide", integers, "rest8 per n[16] k[32] budget 30%", "int8_token"},
    {"W4A8_planes", integers, "rest3 per n[16] k[64] budget 30%", "int8_token"},
    {"W4A8_tall", groups, "int4_channel per n[64] k[64] budget 30%", "int8_token"},
    {"W4A8_tall_groups", integers, "int4_g64 per n[64] k[64] budget 30%", "int8_token"},
    {"W4A4_tall_groups", integers, "int4_g128 per n[64] k[128] budget 30%", "int4_g128"},
    {"W4A16_tall", groups, "rest4_g32 per n[128] k[64] budget 30%", "f16"},
    {"W4A8_long", groups, "int4_g64 per n[16] k[192] budget 30%", "x8_g128"},
    {"W8A8", "element: s8 scale: f16 per channel value = element * scale",
     "int4_channel per n[16] k[64] budget 30%", "int8_token"},
    {"W4A4", integers, "int4_channel per n[16] k[64] budget 30%", "int4_token"},
    {"W4A4_groups", integers, "int4_g128 per n[32] k[128] budget 30%", "int4_g128"},
    {"W4A16", groups, "rest4_g32 per n[32] k[64] budget 30%", "f16"},
    {"W4A16_asymmetric", integers, "rest_asym per n[16] k[64] budget 30%", "f16"},
    {"W4A8_shared", integers, "s4 / 16 per n[16] k[64] budget 30%", "int8_token"},
    {"W4A8_shared_tall", integers, "s4 / 16 per n[64] k[64] budget 10%", "int8_token"},
    {"W4A8_shared_groups", groups, "s4 / 16 per n[64] k[64] budget 30%", "int8_token"},
    {"W4A8_shared_narrow", integers, "s2 / 4 per n[16] k[64] budget 30%", "x8_g128"},
    {"W2A8_shared", "element: s2 scale: f16 per channel value = scale * element",
     "s4 / 16 per n[16] k[128] budget 30%", "int8_token"},
    {"W4A4_shared", integers, "s4 / 16 per n[32] k[64] budget 30%", "int4_token"},
    {"W4A4_shared_groups", integers, "s4 / 16 per n[64] k[128] budget 30%", "int4_g128"},
    // s4 activations are widened for both where the codes of one are wider.
    {"W5A4_apart", "element: s5 scale: f16 per channel value = element * scale",
     "s2 / 4 per n[16] k[64] budget 30%", "int4_token"},
    {"W6A4_narrow", "element: s6 scale: f16 per channel value = element * scale",
     "rest3 per n[16] k[64] budget 30%", "int4_token"},
    {"W2A4_float", "element: s2 scale: f16 per channel value = element * scale",
     "fp4_channel per n[16] k[64] budget 30%", "int4_token"},
    {"W4A16_shared", groups, "s4 / 16 per n[64] k[64] budget 30%", "f16"},
    {"W4A16_shared_channel", integers, "s4 / 16 per n[16] k[64] budget 30%", "bf16"},
    {"W4A16_shared_narrow", groups, "s2 / 4 per n[32] k[64] budget 30%", "f16"},
    {"W3A8_shared", "element: s3 scale: f16 per channel value = element * scale",
     "s4 / 16 per n[16] k[64] budget 30%", "int8_token"}, // one plane does not hold 3 bits
    {"NVFP4_f16", nvfp4, "int4_channel per n[16] k[64] budget 30%", "f16"},
    {"NVFP4_bf16", nvfp4, "int4_channel per n[16] k[64] budget 30%", "bf16"},
    {"NVFP4_rest", integers, "nvfp4 per n[16] k[64] budget 30%", "f16"},
    {"RaZeR_rest", groups, "razer_g16 per n[16] k[64] budget 30%", "f16"},
    {"RaZeR_rest_s8", integers, "razer_g128 per n[32] k[128] budget 30%", "int8_token"},
    {"RaZeR_g16_base", razer16, "int4_channel per n[16] k[64] budget 10%", "f16"},
    {"RaZeR_g16_base_s8", razer16, "int4_g64 per n[16] k[64] budget 10%", "int8_token"},
    {"RaZeR_g128_base", razer128, "int4_channel per n[16] k[64] budget 10%", "f16"},
    {"RaZeR_g128_base_s8", razer128, "int4_channel per n[32] k[64] budget 10%", "int8_token"},
    // Operands of s8 are the opposite numbers of one, and not of the other.
    {"Positive_base", positive, "int4_channel per n[16] k[64] budget 30%", "int8_token"},
    {"Positive_rest", groups, "rest_positive per n[16] k[128] budget 30%", "int8_token"},
    {"Positive_base_fp8", positive, "int4_channel per n[16] k[64] budget 30%", "fp8_token"},
    {"Quotient_rest", groups, "rest_over per n[16] k[64] budget 30%", "bf16"},
};

class Residuals : public testing::TestWithParam<ResidualOperands> {};

TEST_P(Residuals, AreWithinTheBound) {
  const ResidualOperands &operands = GetParam();
  std::string formats = format(operands.base, operands.residual);
  for (const char *target : {"sm_80", "sm_90a"})
    expectWithinBound({"w",
                       operands.activation,
                       "f32",
                       std::string(target) == "sm_90a" ? "roles: imfp" : "",
                       target,
                       {19, 88, 456},
                       formats});
}
INSTANTIATE_TEST_SUITE_P(All, Residuals, testing::ValuesIn(residualOperands),
                         [](const auto &info) { return std::string(info.param.name); });

// The weight's products by instructions with all of a k step, the residual's by ones with half.
TEST(Residuals, OfTwoInstructionsOfOneTypeAreWithinTheBound) {
  for (const char *target : {"sm_89", "sm_90a"})
    expectWithinBound({"w",
                       "fp8_token",
                       "f32",
                       "",
                       target,
                       {19, 88, 456},
                       format(groups, "nvfp4 per n[16] k[64] budget 30%")});
}

// Those that share the weight's scales, in 8-bit operands of planes.
TEST(Residuals, OfGemvAreWithinTheBound) {
  int executed = 0;
  for (const ResidualOperands &operands : residualOperands) {
    std::string name = operands.name;
    if (name.find("shared") == std::string::npos || name.starts_with("W3"))
      continue;
    for (std::string schedule : {"roles: gemv", "roles: gemv launch: dependent pipeline: 3"})
      expectWithinBound({"w",
                         operands.activation,
                         "f32",
                         schedule,
                         "sm_90a",
                         {3, 88, 456},
                         format(operands.base, operands.residual)});
    ++executed;
  }
  EXPECT_EQ(executed, 10);
}

// Codes of 2 bits where warpgroups take a branch around a k tile that stores nothing.
TEST(Residuals, OfTwoBitsMayBeWholeWarpgroups) {
  for (const char *activation : {"x8_g128", "f16"})
    expectWithinBound({"w",
                       activation,
                       "f32",
                       "roles: imfp tile: 16 x 128 x 128 warps: 1 x 8",
                       "sm_90a",
                       {19, 256, 456},
                       format("element: s2 scale: f16 per channel value = element * scale",
                              "s2 / 4 per n[128] k[128] budget 30%")});
}

TEST(Residuals, TakeFp8AndRowsOfThirtyTwo) {
  std::string formats = format("element: e4m3 scale: f32 per channel value = element * scale",
                               "int4_channel per n[32] k[64] budget 30%");
  for (const char *schedule : {"roles: uniform tile: 16 x 64 x 64 warps: 1 x 2",
                               "roles: imfp tile: 32 x 128 x 128 warps: 1 x 4"})
    expectWithinBound({"w", "fp8_token", "f32", schedule, "sm_90a", {19, 136, 456}, formats});
}

// --- Which blocks are stored, and how the kernel is divided: integer sums are exact.

using Stored = bool (*)(int64_t blockRow, int64_t blockColumn);
struct Pattern {
  const char *name;
  Stored stored;
};
constexpr Pattern patterns[] = {
    {"none", [](int64_t, int64_t) { return false; }},
    {"all", [](int64_t, int64_t) { return true; }},
    {"one row of blocks", [](int64_t row, int64_t) { return row == 2; }},
    {"one column of blocks", [](int64_t, int64_t column) { return column == 7; }},
    {"the last block", [](int64_t row, int64_t column) { return row == 4 && column == 9; }},
    {"some", [](int64_t row, int64_t column) { return (5 * row + 3 * column) % 7 < 2; }},
};

// Random codes; scales of 1 and, of a residual with its own, 1/16: outputs are exact in f32.
dsl::QuantizedMatrix randomCodes(const std::shared_ptr<const dsl::Format> &format, int64_t rows,
                                 int64_t k, const Pattern &pattern) {
  std::mt19937 random(3);
  auto codesOf = [&](std::shared_ptr<const dsl::Format> part, uint32_t scale) {
    dsl::QuantizedMatrix codes;
    codes.rows = rows;
    codes.k = k;
    for (const dsl::Component &component : part->components) {
      dsl::CodeArray array(component.type.bits(), codeGrid(component, rows, k).size());
      for (int64_t i = 0; i < array.size(); ++i)
        array.set(i, component.extent == dsl::Extent::Element ? random() % 16 : scale);
      codes.components.push_back(std::move(array));
    }
    codes.format = std::move(part);
    return codes;
  };
  dsl::Format without = *format;
  without.residual.reset();
  dsl::QuantizedMatrix weight;
  weight.format = format;
  weight.rows = rows;
  weight.k = k;
  weight.parts.push_back(codesOf(std::make_shared<const dsl::Format>(without), 0x3c00));
  bool shares = format->residual->part.divisor != 0;
  weight.parts.push_back(codesOf(format->residual->part.format, shares ? 0x3c00 : 0x2c00));
  dsl::CodeArray &codes = weight.parts[0].components[0], &rest = weight.parts[1].components[0];
  for (int64_t i = 0; shares && i < codes.size(); ++i)
    if (codes.get(i) == 8) // -8 and less than nothing are no number of 8 bits
      rest.set(i, rest.get(i) & 7);
  const dsl::Blocks &blocks = format->residual->blocks;
  int64_t down = divideUp(rows, blocks.rows), across = divideUp(k, blocks.k);
  weight.choice = dsl::CodeArray(8, down * across);
  for (int64_t i = 0; i < down * across; ++i)
    weight.choice.set(i, pattern.stored(i / across, i % across) ? 1 : 0);
  return weight;
}

void expectExactSums(const Case &test, const Pattern &pattern) {
  auto [m, n, k] = test.shape;
  int largest = test.activation.starts_with("int8") ? 127 : 7;
  std::mt19937 random(4);
  std::vector<float> tokens;
  for (int64_t i = 0; i < m * k; ++i) // one of the largest makes a token's scale 1
    tokens.push_back(static_cast<float>(
        i % k == 0 ? largest
                   : static_cast<int>(random() % static_cast<unsigned>(2 * largest)) - largest));
  Outcome result;
  ASSERT_NO_FATAL_FAILURE(run(
      test, [&](const auto &format) { return Result(randomCodes(format, n, k, pattern)); }, tokens,
      result));
  kernels::ReferenceOutput exact = kernels::reference(result.activation, result.weight);
  const auto *y = reinterpret_cast<const float *>(result.output.data());
  for (int64_t i = 0; i < m * n; ++i)
    ASSERT_EQ(y[i], static_cast<float>(exact.y[static_cast<size_t>(i)]))
        << describe(test) << ", " << pattern.name << ": y[" << i / n << "," << i % n << "]";
  EXPECT_EQ(result.gemm.impl().backend->emulationTotals().bankConflicts, 0u) << describe(test);
}

struct Division {
  const char *activation, *target, *schedule;
};
constexpr Division divisions[] = {
    {"int8_token", "sm_80", ""},
    {"int8_token", "sm_80", "tile: 16 x 32 x 128 warps: 1 x 2 split_k: 3"},
    {"int8_token", "sm_80", "tile: 32 x 64 x 256 warps: 2 x 4"},
    {"int4_token", "sm_80", "tile: 16 x 64 x 128 warps: 1 x 4"},
    {"int8_token", "sm_90a", "roles: imfp tile: 16 x 64 x 256 warps: 1 x 4 x 2 split_k: stream"},
    {"int8_token", "sm_90a",
     "roles: imfp tile: 64 x 128 x 128 warps: 1 x 8 launch: dependent packing: panels"},
    {"int8_token", "sm_90a", "roles: imfp tile: 16 x 192 x 128 warps: 1 x 12 pipeline: 3"},
    {"int8_token", "sm_90a",
     "roles: imfp tile: 8 x 48 x 256 warps: 1 x 3 x 4 pipeline: 8 packing: panels"},
    {"int8_token", "sm_80", "tile: 16 x 96 x 128 warps: 1 x 6 split_k: 2"},
    {"int4_token", "sm_90a",
     "roles: imfp tile: 16 x 64 x 128 warps: 1 x 4 x 2 split_k: 2 cluster: 2 x 2"},
    {"int8_token", "sm_90a", "roles: imfp tile: 8 x 64 x 128 warps: 1 x 4 split_k: 3"},
};

TEST(Residuals, SumsAreExactWhicheverBlocksAreStored) {
  for (std::string residual : {"int4_channel per n[16] k[64]", "int4_channel per n[64] k[64]",
                               "s4 / 16 per n[16] k[64]", "s4 / 16 per n[64] k[64]"}) {
    std::string formats = format(integers, residual);
    bool tall = residual.find("n[64]") != std::string::npos;
    for (const Division &division : divisions)
      for (const Pattern &pattern : patterns)
        if (!tall || std::string(division.target) == "sm_90a")
          expectExactSums({"w",
                           division.activation,
                           "f32",
                           division.schedule,
                           division.target,
                           {19, tall ? 268 : 76, 632},
                           formats},
                          pattern);
  }
}

// Warps of a gemv read ahead which pieces their next k tiles have: with all, and with fewer k tiles
// than they read ahead.
TEST(Residuals, SumsOfGemvAreExactWhicheverBlocksAreStored) {
  for (const char *residual : {"s4 / 16 per n[16] k[64]", "s4 / 16 per n[64] k[64]"})
    for (const char *schedule :
         {"tile: 1 x 16 x 256 warps: 1 x 1 x 8 pipeline: 2",
          "tile: 2 x 64 x 64 warps: 1 x 4 x 2 pipeline: 4 launch: dependent",
          "tile: 4 x 64 x 128 warps: 1 x 4 x 2", "tile: 1 x 64 x 64 warps: 1 x 4 x 1"})
      for (const Pattern &pattern : patterns)
        expectExactSums({"w",
                         "int8_token",
                         "f32",
                         std::string("roles: gemv ") + schedule,
                         "sm_90a",
                         {3, 268, 632},
                         format(integers, residual)},
                        pattern);
}

// Blocks of one n tile take the whole budget: its k tiles store more pieces than their ring holds
// at a time, which has as few places as are legal where groups of warps take turns.
TEST(Residuals, SumsAreExactWherePiecesWaitForPlaces) {
  constexpr Pattern tall{"one n tile", [](int64_t row, int64_t) { return row == 1; }};
  constexpr Pattern flat{"one n tile", [](int64_t row, int64_t) { return row / 4 == 1; }};
  for (const auto &[blocks, pattern] : {std::pair("int4_channel per n[64] k[64]", tall),
                                        {"int4_channel per n[16] k[64]", flat},
                                        {"s4 / 16 per n[64] k[64]", tall}}) {
    std::string residual = std::string(blocks) + " budget 20%";
    for (const char *schedule :
         {"tile: 8 x 64 x 128 warps: 1 x 4 pipeline: 8", "warps: 1 x 4 pipeline: 2 split_k: 3",
          "warps: 1 x 4 x 2 split_k: stream pipeline: 4 launch: dependent",
          "warps: 1 x 4 x 3 split_k: stream pipeline: 9",
          "warps: 1 x 4 x 4 split_k: 2 pipeline: 8 cluster: 1 x 2 launch: dependent",
          "warps: 1 x 4 x 2 pipeline: 6 cluster: 2 x 1"}) {
      std::string tile = std::string(schedule).starts_with("tile") ? "" : "tile: 16 x 64 x 128 ";
      expectExactSums({"w",
                       "int8_token",
                       "f32",
                       "roles: imfp " + tile + schedule,
                       "sm_90a",
                       {19, 320, 2000},
                       format(integers, residual)},
                      pattern);
    }
  }
}

// A k tile without pieces is done with before those of tiles ahead of it are copied.
TEST(Residuals, SumsAreExactWhereLaterTilesAreReleasedFirst) {
  constexpr Pattern first{"the first seven k tiles of an n tile",
                          [](int64_t row, int64_t column) { return row == 1 && column < 14; }};
  for (const char *launch : {"serial", "dependent"})
    expectExactSums({"w",
                     "int8_token",
                     "f32",
                     std::string("roles: imfp tile: 16 x 64 x 128 warps: 1 x 4 x 4 pipeline: 8 "
                                 "split_k: 1 launch: ") +
                         launch,
                     "sm_90a",
                     {19, 320, 1000},
                     format(integers, "int4_channel per n[64] k[64] budget 20%")},
                    first);
}

// --- Packing.

struct Packed {
  compiler::WeightLayout layout;
  std::shared_ptr<const dsl::Format> format;
};
Packed packedLayout(const std::string &residual, GemmShape shape, const char *target = "sm_80",
                    const char *activation = "int8_token", const char *schedule = "") {
  Case test{"w", activation, "f16", schedule, target, shape, format(integers, residual)};
  EngineOptions options;
  options.diskCache = false;
  Result<Engine> engine = Engine::create(*Device::emulated(target), options);
  Result<Module> module = Module::parse(declaration(test));
  EXPECT_TRUE(module.ok() && engine.ok());
  Result<Gemm> gemm = engine->compile(*module, "g", shape);
  EXPECT_TRUE(gemm.ok()) << gemm.error().str();
  return {gemm->impl().image().weight,
          std::make_shared<const dsl::Format>(gemm->impl().gemm->weight)};
}

// The operands of stored blocks are 16 q + r, of 8 bits.
TEST(ResidualLayout, RefusesNumbersBelowTheOperandsAndScalesThatDiffer) {
  Packed packed = packedLayout("s4 / 16 per n[16] k[64]", {8, 64, 128});
  EXPECT_TRUE(packed.layout.isRefined());
  std::vector<uint8_t> bytes(static_cast<size_t>(packed.layout.bytes));
  auto message = [&](const dsl::QuantizedMatrix &weight) {
    Status status = pack(packed.layout, weight, bytes.data());
    return status.ok() ? "packed" : status.error().str();
  };
  dsl::QuantizedMatrix weight = randomCodes(packed.format, 64, 128, patterns[1]);
  ASSERT_EQ(message(weight), "packed");
  weight.parts[0].components[0].set(2 * 128 + 70, 8);
  weight.parts[1].components[0].set(2 * 128 + 70, 15);
  EXPECT_EQ(message(weight),
            "error: at n=2, k=70 the residual 'fix' is -1 and the element -8, its least: a kernel "
            "takes both as one number, which must not be less [pack_beyond_element]\n");
  weight.parts[1].components[0].set(2 * 128 + 70, 0);
  ASSERT_EQ(message(weight), "packed");
  weight.parts[1].components[1].set(5, 0x2c00);
  EXPECT_NE(message(weight).find("the residual has another 'scale' than the weight, they share it"),
            std::string::npos)
      << message(weight);
}

TEST(ResidualLayout, TextParsesBackAndIsChecked) {
  compiler::WeightLayout layout = packedLayout("int4_g64 per n[16] k[64]", {8, 150, 700}).layout;
  Result<compiler::WeightLayout> back = compiler::WeightLayout::parse(layout.print());
  ASSERT_TRUE(back.ok()) << back.error().str();
  EXPECT_EQ(*back, layout);
  auto refused = [&](auto change) {
    compiler::WeightLayout wrong = layout;
    change(*wrong.residual);
    return !compiler::WeightLayout::parse(wrong.print()).ok();
  };
  EXPECT_TRUE(refused([](auto &r) { r.pieceOffset = r.wordsOffset; }));
  EXPECT_TRUE(refused([](auto &r) { r.firstsOffset = r.wordsOffset; }));
  EXPECT_TRUE(refused([](auto &r) { r.firstsOffset += 64; }));
  EXPECT_TRUE(refused([](auto &r) { r.pieceBytes -= 16; }));
  EXPECT_TRUE(refused([](auto &r) { r.pieces += 1 << 20; }));
  EXPECT_TRUE(refused([](auto &r) { r.tilesN -= 1; }));
  EXPECT_TRUE(refused([](auto &r) { r.tileK *= 64; }));
  EXPECT_TRUE(refused([](auto &r) { r.blockN = 24; }));
  EXPECT_TRUE(refused([](auto &r) { r.parts[1].offset = 0; }));
}

// Low bits in the pieces, high bits in the sections: each once.
TEST(ResidualLayout, OfSharedScalesIsChecked) {
  compiler::WeightLayout layout = packedLayout("s4 / 16 per n[16] k[64]", {8, 150, 700}).layout;
  Result<compiler::WeightLayout> back = compiler::WeightLayout::parse(layout.print());
  ASSERT_TRUE(back.ok()) << back.error().str();
  EXPECT_EQ(*back, layout);
  auto refused = [&](auto change) {
    compiler::WeightLayout wrong = layout;
    change(wrong);
    return !compiler::WeightLayout::parse(wrong.print()).ok();
  };
  EXPECT_TRUE(refused([](auto &wrong) { wrong.sections[0].shift = 5; }));
  EXPECT_TRUE(refused([](auto &wrong) { wrong.residual->parts[0].shift = 4; }));
  EXPECT_TRUE(refused([](auto &wrong) { wrong.residual->parts.clear(); }));
  EXPECT_TRUE(refused([](auto &wrong) { wrong.residual.reset(); }));
}

// Scales whose rule gives no negative one are read without a sign.
TEST(ResidualLayout, RefusesNegativeScalesThatAreReadWithoutASign) {
  Packed packed =
      packedLayout("nvfp4 per n[16] k[64]", {8, 64, 128}, "sm_80", "f16", "scales: operand");
  std::vector<uint8_t> bytes(static_cast<size_t>(packed.layout.bytes));
  dsl::QuantizedMatrix weight = randomCodes(packed.format, 64, 128, patterns[5]);
  dsl::CodeArray &blocks = weight.parts[1].components[1];
  for (int64_t i = 0; i < blocks.size(); ++i)
    blocks.set(i, 0x38);
  ASSERT_TRUE(pack(packed.layout, weight, bytes.data()).ok());
  blocks.set(7, 0xb8);
  Status status = pack(packed.layout, weight, bytes.data());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(
      status.error().str(),
      "error: code 7 of 'block' is -1, a negative scale; its rule gives none, and this kernel "
      "reads scales without a sign [pack_negative_scale]\n");
}

TEST(ResidualLayout, RefusesMoreBlocksThanTheBudget) {
  Packed packed = packedLayout("int4_channel per n[16] k[64] budget 10%", {8, 160, 640});
  std::vector<uint8_t> bytes(static_cast<size_t>(packed.layout.bytes));
  auto message = [&](const dsl::QuantizedMatrix &weight) {
    Status status = pack(packed.layout, weight, bytes.data());
    return status.ok() ? "packed" : status.error().str();
  };
  EXPECT_EQ(message(randomCodes(packed.format, 160, 640, patterns[2])), "packed"); // 10 of 100
  std::string refusal = message(randomCodes(packed.format, 160, 640, patterns[5]));
  EXPECT_NE(refusal.find("the budget leaves room for 10; a gemm whose weight declares a larger "
                         "budget has more [layout_mismatch]"),
            std::string::npos)
      << refusal;
  dsl::QuantizedMatrix lacking = randomCodes(packed.format, 160, 640, patterns[2]);
  lacking.parts.pop_back();
  EXPECT_NE(message(lacking).find("the weight has 1 parts and 100 choices, 2 and 100 are needed"),
            std::string::npos);
  for (auto spoil : {+[](dsl::QuantizedMatrix &part) { part.format = nullptr; },
                     +[](dsl::QuantizedMatrix &part) { part.k = 64; }}) {
    dsl::QuantizedMatrix spoilt = randomCodes(packed.format, 160, 640, patterns[2]);
    spoil(spoilt.parts[1]);
    EXPECT_NE(message(spoilt).find("the codes of its parts are not of 160 x 640 numbers"),
              std::string::npos);
  }
}

// Codes of scales of other types would be read as those of the gemm's.
TEST(ResidualLayout, RefusesPartsOfOtherFormats) {
  Packed packed = packedLayout("int4_channel per n[16] k[64] budget 10%", {8, 160, 640});
  std::vector<uint8_t> bytes(static_cast<size_t>(packed.layout.bytes));
  for (size_t part : {0, 1}) {
    dsl::QuantizedMatrix weight = randomCodes(packed.format, 160, 640, patterns[2]);
    dsl::Format other = *weight.parts[part].format;
    other.components[1].type = dsl::ElementType::get("f32");
    weight.parts[part].format = std::make_shared<const dsl::Format>(other);
    Status status = pack(packed.layout, weight, bytes.data());
    ASSERT_FALSE(status.ok()) << part;
    EXPECT_NE(status.error().str().find("the codes of its parts are of other formats "
                                        "[layout_mismatch]"),
              std::string::npos)
        << status.error().str();
  }
}

// A tenth of the blocks takes a tenth of the bytes, a word for each tile and one for each band of
// it.
TEST(ResidualLayout, TakesATenthMore) {
  constexpr int64_t codes = 4096 * 4096 / 2, scales = 4096 * 2;
  for (const char *residual : {"int4_channel per n[16] k[64]", "s4 / 16 per n[16] k[64]"}) {
    compiler::WeightLayout layout =
        packedLayout(std::string(residual) + " budget 10%", {64, 4096, 4096}, "sm_90a").layout;
    bool shares = residual[0] == 's';
    const compiler::ResidualLayout &r = *layout.residual;
    int64_t words = 4 * r.tilesN * r.tilesK * (1 + r.rowsOfPieces());
    EXPECT_LE(layout.bytes - codes - scales, codes / 10 + (shares ? 0 : scales) + words + 768);
    EXPECT_LE(static_cast<double>(layout.bytes), (shares ? 1.103 : 1.104) * (codes + scales));
  }
}

// --- What the planner makes of it.

struct Charged {
  const char *residual;
  bool hasGemv;
};
TEST(Residuals, AreCharged) {
  for (auto [residual, hasGemv] : {Charged{"int4_channel per n[16] k[64] budget 10%", false},
                                   {"s4 / 16 per n[64] k[64] budget 10%", true}})
    for (int64_t m : {1, 16, 256}) {
      std::string formats = format(integers, residual);
      auto planned = [&](const char *weight) {
        Case test{weight, "int8_token", "f16", "", "sm_90a", {m, 8192, 8192}, formats};
        Result<dsl::Module> module = dsl::parseModule(
            declaration(test), "t.rho", [](const std::string &) { return std::nullopt; });
        Result<compiler::DeviceModel> device = compiler::modelOfTarget("sm_90a");
        dsl::Gemm gemm = module->gemms.at(0);
        gemm.schedule = {};
        compiler::Plan plan = *compiler::plan(gemm, {m, 8192, 8192}, *device, nullptr);
        return std::pair(plan, residualMicroseconds(gemm, plan, *device));
      };
      auto [dense, nothing] = planned("int4_channel");
      auto [plan, more] = planned("w");
      EXPECT_FALSE(nothing.has_value());
      EXPECT_EQ(plan.schedule.roles == dsl::ScheduleDecl::Roles::Gemv, hasGemv && m == 1) << m;
      EXPECT_GT(plan.predictedMicroseconds, dense.predictedMicroseconds) << m;
      ASSERT_TRUE(more.has_value());
      EXPECT_GT(*more, 0) << m;
      EXPECT_LT(*more, 0.25 * plan.predictedMicroseconds) << m;
    }
}

} // namespace
} // namespace rho::test
