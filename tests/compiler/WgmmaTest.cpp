// Kernels of the wgmma family, executed on the emulator against the exact reference.
#include "tests/compiler/EmulatedGemm.h"
#include "tests/compiler/Operands.h"

#include "compiler/plan/Geometry.h"
#include "dsl/Module.h"
#include "kernels/Synthetic.h"
#include "runtime/Kernel.h"

#include <gtest/gtest.h>

#include <random>

namespace rho::test {
namespace {

// Partial sums are kept beside the sums, in as many registers again.
bool grouped(const Operands &operands) {
  return std::string(operands.scales) == "accumulator" ||
         std::string(operands.activation) == "int8_g128";
}
// A row along k of 128 bytes as the kernel reads them: s4 is widened to s8.
int64_t rowK(const Operands &operands) {
  return std::string(operands.activation).ends_with("16") ? 64 : 128;
}

constexpr Operands wgmmaOperands[] = {
    {"int4_channel", "f16", ""},
    {"int4_g64", "f16", "operand"},
    {"int4_g64", "f16", "accumulator"},
    {"int4_g128", "f16", "operand"},
    {"int4_g128", "f16", "accumulator"},
    {"int4_g512", "f16", "accumulator"},
    {"nvfp4", "f16", "operand"},
    {"nvfp4", "f16", "accumulator"},
    {"uint4_g64", "f16", "operand"},
    {"uint4_g64", "f16", "accumulator"},
    {"int4_channel", "bf16", ""},
    {"int4_g64", "bf16", "accumulator"},
    {"int4_g128_bf16", "bf16", "operand"},
    {"int4_g128_bf16", "bf16", "accumulator"},
    {"nvfp4", "bf16", "operand"},
    {"nvfp4", "bf16", "accumulator"},
    {"int4_channel", "int8_token", ""},
    {"int4_g64", "int8_token", "accumulator"},
    {"int4_g128", "int8_token", "accumulator"},
    {"int4_g512", "int8_token", "accumulator"},
    {"liquidquant", "int8_token", ""},
    {"int4_channel", "int8_g128", ""},
    {"int4_g64", "int8_g128", "accumulator"},
    {"int4_channel", "int4_token", ""},
    {"int8_channel", "int8_token", ""},
    {"int8_g128", "int8_token", "accumulator"},
    {"int4_channel", "fp8_token", ""},
    {"fp4_channel", "fp8_token", ""},
    {"fp8_channel", "fp8_token", ""},
    {"fp8_g128", "fp8_token", "accumulator"},
};

// A schedule by its own terms; `rows` counts 128-byte rows of activations along k.
struct Shape {
  int m, n, rows;
  const char *warps;
  int split, pipeline;
  bool dependent;
  int clusterN = 1, clusterK = 1;
  const char *roles = "imfp";
};

std::string schedule(const Operands &operands, const Shape &s) {
  std::string text = std::string("roles: ") + s.roles + " tile: " + std::to_string(s.m) + " x " +
                     std::to_string(s.n) + " x " + std::to_string(s.rows * rowK(operands)) +
                     " warps: " + s.warps +
                     " split_k: " + (s.split == 0 ? "stream" : std::to_string(s.split)) +
                     " pipeline: " + std::to_string(s.pipeline) +
                     " launch: " + (s.dependent ? "dependent" : "serial") +
                     " cluster: " + std::to_string(s.clusterN) + " x " + std::to_string(s.clusterK);
  if (!std::string(operands.scales).empty())
    text += std::string(" scales: ") + operands.scales;
  return text;
}

constexpr Shape shapes[] = {
    {8, 64, 1, "1 x 4", 1, 2, false},     {16, 64, 2, "1 x 4 x 2", 3, 4, true},
    {8, 128, 1, "1 x 8", 3, 8, false},    {16, 128, 1, "1 x 4", 1, 3, true},
    {64, 64, 1, "1 x 4 x 2", 1, 6, true}, {16, 64, 1, "1 x 4 x 4", 1, 8, true},
    {8, 256, 2, "1 x 8", 1, 2, true},     {64, 128, 1, "1 x 8", 3, 4, true},
    {128, 64, 1, "1 x 4", 1, 6, false},   {128, 128, 1, "1 x 8", 3, 3, false},
    {64, 256, 1, "1 x 8", 1, 4, false},   {32, 64, 1, "1 x 4 x 2", 3, 4, false},
    {16, 256, 1, "1 x 16", 1, 3, false},  {16, 64, 2, "1 x 4 x 4", 3, 8, false},
    {16, 64, 1, "1 x 4 x 3", 1, 6, true}, {64, 192, 1, "1 x 12", 1, 3, true},
    {16, 192, 1, "1 x 12", 3, 4, false},  {48, 64, 2, "1 x 4 x 2", 1, 4, true},
    {80, 128, 1, "1 x 8", 3, 3, false},
};
// Weight rows that are no whole instructions: each warp multiplies alone, in groups along k. Where
// warps are no whole warpgroups others complete the last.
constexpr Shape narrowShapes[] = {
    {8, 32, 1, "1 x 2 x 4", 1, 8, true},   {16, 32, 2, "1 x 2 x 2", 1, 4, false},
    {8, 32, 2, "1 x 2 x 8", 1, 16, false}, {16, 32, 1, "1 x 2 x 6", 3, 12, true},
    {8, 48, 1, "1 x 3 x 4", 1, 8, false},  {16, 96, 1, "1 x 6 x 2", 1, 4, true},
    {8, 96, 2, "1 x 3 x 4", 1, 8, true},   {8, 112, 1, "1 x 7 x 2", 1, 8, true},
    {16, 80, 1, "1 x 5", 3, 3, false},     {16, 224, 1, "1 x 7", 1, 4, true},
    {8, 80, 2, "1 x 5 x 3", 0, 9, true},
};
// Sums of groups of k are added up at the end of each tile, so that no stage is held longer.
constexpr Shape groupedShapes[] = {
    {16, 64, 1, "1 x 4 x 2", 1, 2, true},
    {16, 128, 2, "1 x 4 x 3", 1, 3, false},
};
// Their sums fit the registers only once.
constexpr Shape largeShapes[] = {
    {256, 64, 1, "1 x 4", 1, 2, true},    {256, 128, 1, "1 x 8", 3, 3, true},
    {64, 256, 1, "1 x 4", 1, 4, false},   {256, 64, 1, "1 x 4 x 2", 1, 4, false},
    {64, 64, 1, "1 x 4 x 4", 3, 8, true}, {128, 192, 1, "1 x 12", 1, 3, false},
    {80, 64, 2, "1 x 4", 1, 3, false},    {176, 128, 1, "1 x 8", 1, 2, true},
};

constexpr Shape clusterShapes[] = {
    {16, 64, 1, "1 x 4 x 2", 1, 4, false, 2, 1}, {32, 128, 1, "1 x 8", 1, 2, true, 4, 1},
    {64, 64, 1, "1 x 4", 1, 3, true, 8, 1},      {16, 64, 1, "1 x 4 x 2", 2, 4, true, 1, 2},
    {8, 128, 1, "1 x 8", 4, 3, false, 1, 4},     {8, 64, 1, "1 x 4 x 4", 8, 8, true, 1, 8},
    {16, 64, 2, "1 x 4", 2, 3, true, 2, 2},      {32, 64, 1, "1 x 4 x 2", 2, 4, false, 4, 2},
    {64, 64, 2, "1 x 4", 5, 2, false, 1, 5},     {16, 128, 1, "1 x 4", 3, 4, true, 2, 1},
    {48, 64, 1, "1 x 4", 1, 3, true, 3, 1},
};
constexpr Shape narrowClusterShapes[] = {
    {16, 80, 1, "1 x 5 x 2", 2, 4, true, 1, 2},
    {16, 112, 1, "1 x 7", 1, 3, false, 2, 1},
};

// Few rows, too.
bool multipliesByWgmmaAlone(const Operands &operands) {
  return std::string(operands.activation) == "fp8_token";
}

// The last cluster along n has one tile and the last row of tiles a few rows.
Case clusterCase(const Operands &operands, const Shape &shape, const char *output) {
  return {operands.weight,
          operands.activation,
          output,
          schedule(operands, shape),
          "sm_90a",
          {shape.m + 5, shape.n * (shape.clusterN + 1) - 31,
           (shape.split + 3) * rowK(operands) * shape.rows - 7 * (rowK(operands) / 16)}};
}

// A warpgroup decodes for one or two others, of one, two or four row tiles each.
constexpr Shape apartShapes[] = {
    {8, 64, 1, "1 x 4", 1, 2, false, 1, 1, "excp"},
    {16, 128, 2, "1 x 4", 3, 3, true, 1, 1, "excp"},
    {8, 128, 1, "1 x 8", 3, 5, false, 1, 1, "excp"},
    {32, 256, 1, "1 x 8", 1, 2, true, 1, 1, "excp"},
    {16, 256, 1, "1 x 4", 1, 3, false, 1, 1, "excp"},
    {64, 128, 1, "1 x 8", 2, 3, true, 1, 1, "excp"},
    {48, 128, 1, "1 x 8", 1, 3, false, 1, 1, "excp"},
};
constexpr Shape largeApartShapes[] = {
    {256, 64, 1, "1 x 4", 1, 3, true, 1, 1, "excp"},
    {128, 256, 1, "1 x 8", 3, 2, false, 1, 1, "excp"},
    {64, 256, 1, "1 x 8", 1, 2, true, 1, 1, "excp"},
    {128, 128, 1, "1 x 8", 2, 3, true, 1, 1, "excp"},
};

class Wgmma : public testing::TestWithParam<Operands> {};

// Ragged in every dimension, with four k tiles: the last of three splits and some groups of warps
// have nothing to add.
TEST_P(Wgmma, IsWithinTheBound) {
  const Operands &operands = GetParam();
  std::vector<Shape> all(std::begin(shapes), std::end(shapes));
  auto append = [&](const auto &more) { all.insert(all.end(), std::begin(more), std::end(more)); };
  append(apartShapes);
  if (!multipliesByWgmmaAlone(operands))
    append(narrowShapes);
  if (grouped(operands)) {
    append(groupedShapes);
  } else {
    append(largeShapes);
    append(largeApartShapes);
  }
  for (size_t i = 0; i < all.size(); ++i)
    expectWithinBound({operands.weight,
                       operands.activation,
                       i % 2 == 0 ? "f16" : "f32",
                       schedule(operands, all[i]) + (i % 3 == 1 ? " packing: panels" : ""),
                       "sm_90a",
                       {all[i].m + 5, all[i].n + 33,
                        4 * rowK(operands) * all[i].rows - 7 * (rowK(operands) / 16)}});
}

TEST_P(Wgmma, IsWithinTheBoundOnSmallAndOddShapes) {
  const Operands &operands = GetParam();
  const Shape one{16, 64, 1, "1 x 4 x 2", 1, 4, false};
  const Shape two{64, 128, 1, "1 x 8", 1, 2, true};
  const Shape four{32, 64, 1, "1 x 4 x 2", 1, 4, true, 4, 1};
  const Shape apart{16, 128, 1, "1 x 8", 1, 3, true, 1, 1, "excp"};
  const Shape stream{16, 64, 1, "1 x 4 x 2", 0, 4, true};
  const std::string schedules[] = {schedule(operands, one),
                                   schedule(operands, two) + " packing: panels",
                                   schedule(operands, four),
                                   schedule(operands, apart) + " packing: panels",
                                   schedule(operands, stream),
                                   "roles: imfp",
                                   "roles: excp",
                                   "packing: panels"};
  constexpr GemmShape sizes[] = {
      {1, 64, 128}, {3, 65, 321}, {37, 130, 1000}, {130, 264, 192}, {9, 1, 7}};
  for (size_t i = 0; i < std::size(sizes); ++i)
    for (size_t j = i % 2; j < std::size(schedules); j += 2) // each has every other size
      expectWithinBound(
          {operands.weight, operands.activation, "bf16", schedules[j], "sm_90a", sizes[i]});
}

TEST_P(Wgmma, OfClustersIsWithinTheBound) {
  for (const Shape &shape : clusterShapes)
    expectWithinBound(clusterCase(GetParam(), shape, "f16"));
  if (!multipliesByWgmmaAlone(GetParam()))
    for (const Shape &shape : narrowClusterShapes)
      expectWithinBound(clusterCase(GetParam(), shape, "f16"));
}

INSTANTIATE_TEST_SUITE_P(All, Wgmma, testing::ValuesIn(wgmmaOperands), nameOfOperands);

TEST(WgmmaIntegers, AreExactBitForBit) {
  for (const Operands &operands : wgmmaOperands) {
    if (std::string(operands.activation) != "int8_token")
      continue;
    for (const Shape &shape : {shapes[0], shapes[1], shapes[4], shapes[7], shapes[9], shapes[15],
                               narrowShapes[0], narrowShapes[3], narrowShapes[4], narrowShapes[5],
                               apartShapes[0], apartShapes[1], apartShapes[3], apartShapes[5]})
      expectExact({operands.weight,
                   operands.activation,
                   "f32",
                   schedule(operands, shape),
                   "sm_90a",
                   {shape.m + 3, shape.n + 16, 3 * rowK(operands) * shape.rows + 64}});
    for (const Shape &shape : clusterShapes)
      expectExact(clusterCase(operands, shape, "f32"));
  }
}

// More tiles than resident CTAs: the ring of stages goes on from tile to tile, whatever its depth
// and the number of k tiles, and the last band of tiles along m is narrower than the others.
TEST(WgmmaPersistent, TilesOfOneCtaFollowEachOther) {
  const Operands s8{"int4_g128", "int8_token", "accumulator"};
  const Operands half{"int4_channel", "bf16", ""};
  struct Run {
    Operands operands;
    Shape shape;
    int64_t kTiles;
  };
  for (const Run &each : {Run{s8, {8, 64, 1, "1 x 4", 1, 4, false}, 3},
                          Run{half, {8, 64, 1, "1 x 4 x 2", 1, 4, true}, 5},
                          Run{half, {8, 64, 1, "1 x 4", 1, 8, true}, 5},
                          Run{half, {8, 64, 1, "1 x 4", 1, 2, true}, 2},
                          Run{half, {8, 64, 1, "1 x 4 x 4", 1, 8, true}, 1},
                          Run{s8, {8, 64, 1, "1 x 4 x 4", 1, 4, true}, 3},
                          Run{s8, {8, 32, 1, "1 x 2 x 4", 1, 4, true}, 3},
                          Run{s8, {8, 96, 1, "1 x 3 x 4", 1, 4, true}, 3},
                          Run{s8, {8, 80, 1, "1 x 5 x 3", 1, 6, true}, 2},
                          Run{half, {16, 192, 1, "1 x 12", 1, 3, true}, 5},
                          Run{s8, {8, 64, 1, "1 x 4", 1, 3, true, 1, 1, "excp"}, 3},
                          Run{half, {8, 64, 1, "1 x 4", 1, 2, true, 1, 1, "excp"}, 1},
                          Run{half, {8, 64, 1, "1 x 4", 1, 5, false, 1, 1, "excp"}, 4}}) {
    // The tiles with the last rows of the weight are followed by others of the same CTA.
    GemmShape size{8 * 24 + 3, 64 * 40 - 7, rowK(each.operands) * each.kTiles - 11};
    Case test{each.operands.weight,
              each.operands.activation,
              "f16",
              schedule(each.operands, each.shape) + (each.shape.n > 64 ? " packing: panels" : ""),
              "sm_90a",
              size};
    Outcome result;
    ASSERT_NO_FATAL_FAILURE(expectWithinBound(test, result));
    const compiler::KernelImage &image = result.gemm.impl().image();
    ASSERT_GT(image.tilesN() * image.tilesM(size.m), image.residentCtas) << describe(test);
    ASSERT_EQ(image.grid(size.m), (compiler::Dim3{static_cast<uint32_t>(image.residentCtas)}));
  }
}

// The same of clusters: their last one along n has tiles that do not exist.
TEST(WgmmaPersistent, TilesOfOneClusterFollowEachOther) {
  const Operands s8{"int4_g128", "int8_token", "accumulator"};
  const Operands half{"int4_channel", "bf16", ""};
  struct Run {
    Operands operands;
    Shape shape;
    int64_t tilesM, kTiles;
  };
  for (const Run &each : {Run{s8, {16, 64, 1, "1 x 4", 1, 4, true, 2, 1}, 26, 3},
                          Run{half, {32, 64, 1, "1 x 4 x 2", 1, 4, true, 4, 1}, 13, 5},
                          Run{half, {64, 64, 1, "1 x 4", 1, 3, false, 8, 1}, 12, 2}}) {
    GemmShape size{each.shape.m * each.tilesM - 3, 64 * 45 - 7,
                   rowK(each.operands) * each.kTiles - 11};
    Case test{each.operands.weight,
              each.operands.activation,
              "f16",
              schedule(each.operands, each.shape),
              "sm_90a",
              size};
    Outcome result;
    ASSERT_NO_FATAL_FAILURE(expectWithinBound(test, result));
    const compiler::KernelImage &image = result.gemm.impl().image();
    ASSERT_GT(image.tilesN() * image.tilesM(size.m), image.residentCtas) << describe(test);
    ASSERT_EQ(image.grid(size.m), (compiler::Dim3{static_cast<uint32_t>(image.residentCtas)}));
    ASSERT_EQ(image.cluster(), (compiler::Dim3{static_cast<uint32_t>(each.shape.clusterN)}));
  }
}

TEST(WgmmaSplitK, IsDeterministic) {
  const Operands operands{"int4_channel", "f16", ""};
  auto weights = kernels::syntheticWeight(128, 1024, 3);
  auto tokens = kernels::syntheticActivation(16, 1024, 4);
  std::vector<Outcome> results(2);
  for (const Shape &shape : {Shape{16, 64, 1, "1 x 4 x 2", 5, 4, false},
                             Shape{16, 64, 1, "1 x 4 x 2", 5, 4, false, 1, 5}}) {
    Case test{"int4_channel", "f16", "f32", schedule(operands, shape), "sm_90a", {16, 128, 1024}};
    for (Outcome &result : results)
      ASSERT_NO_FATAL_FAILURE(run(test, weights, tokens, result));
    EXPECT_EQ(results[0].output, results[1].output);
    EXPECT_EQ(results[0].gemm.workspaceBytes() > 0, shape.clusterK == 1);
  }
}

// Schedules drawn until one is legal; the same in every run.
class Draws {
public:
  Case next() {
    const Operands &operands = wgmmaOperands[below(std::size(wgmmaOperands))];
    GemmShape size{1 + below(300), 1 + below(300), 1 + below(700)};
    for (;;) {
      const char *warps[] = {"1 x 4",     "1 x 8",     "1 x 16",    "1 x 4 x 2",
                             "1 x 4 x 3", "1 x 4 x 4", "1 x 8 x 2", "1 x 12"};
      const int batches[] = {8, 16, 32, 48, 64, 80, 112, 128, 144, 176, 240, 256};
      const int rows[] = {64, 128, 192, 256};
      Shape shape{batches[below(std::size(batches))],
                  rows[below(4)],
                  1 + below(2),
                  warps[below(std::size(warps))],
                  1 + below(4),
                  2 + below(7),
                  below(2) == 1};
      shape.clusterN = 1 << below(3);
      shape.clusterK = below(2) == 0 ? shape.split : 1;
      if (below(3) == 0)
        shape.roles = "excp";
      else if (below(3) == 0)
        shape.split = 0;
      const char *outputs[] = {"f16", "bf16", "f32"};
      Case test{
          operands.weight,   operands.activation,
          outputs[below(3)], schedule(operands, shape) + (below(2) == 0 ? " packing: panels" : ""),
          "sm_90a",          size};
      Result<dsl::Module> module = dsl::parseModule(declaration(test), "drawn.rho", nullptr);
      EXPECT_TRUE(module.ok()) << module.error().str();
      if (compiler::plan(module->gemms.at(0), {size.m, size.n, size.k},
                         *compiler::modelOfTarget("sm_90a"), nullptr))
        return test;
    }
  }

private:
  std::mt19937 random{17}; // NOLINT(bugprone-random-generator-seed): the same in every run
  int below(size_t limit) { return static_cast<int>(random() % limit); }
};

TEST(WgmmaRandom, SchedulesAreWithinTheBound) {
  Draws draws;
  for (int i = 0; i < 60; ++i)
    expectWithinBound(draws.next());
}

} // namespace
} // namespace rho::test
