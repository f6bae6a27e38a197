// How kernels of the wgmma family store their outputs: through shared memory and a tensor map where
// its rules allow that, else thread by thread; on the emulator, which counts bank conflicts and
// finds a part of shared memory that is written while its copies still read it.
#include "tests/compiler/EmulatedGemm.h"

#include "runtime/Kernel.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace rho::test {
namespace {

enum class Way : uint8_t { Boxes, Threads };

Way wayOf(const Outcome &result) {
  const auto &parameters = result.gemm.impl().image().parameters;
  auto output = std::ranges::find(parameters, compiler::KernelParameter::Kind::Output,
                                  &compiler::KernelParameter::kind);
  return output->isTensorMap() ? Way::Boxes : Way::Threads;
}

void expectStored(const Case &test, Way way) {
  Outcome result;
  ASSERT_NO_FATAL_FAILURE(expectWithinBound(test, result));
  EXPECT_EQ(wayOf(result), way) << describe(test);
}

struct Tile {
  int64_t m, n;
  const char *warps;
  int split = 1;
  bool dependent = false;
};

std::string schedule(const Tile &tile, int64_t tileK, int pipeline) {
  return "roles: imfp tile: " + std::to_string(tile.m) + " x " + std::to_string(tile.n) + " x " +
         std::to_string(tileK) + " warps: " + tile.warps +
         " split_k: " + std::to_string(tile.split) + " pipeline: " + std::to_string(pipeline) +
         " launch: " + (tile.dependent ? "dependent" : "serial");
}

constexpr const char *outputTypes[] = {"f16", "bf16", "f32"};

// Threads with 2, 4 and 8 consecutive outputs, one to four warpgroups, a tile in one slice and in
// several.
constexpr Tile tiles[] = {
    {32, 64, "1 x 4"},
    {64, 128, "1 x 8", 3},
    {128, 64, "1 x 4", 1, true},
    {64, 128, "1 x 4"},
    {256, 128, "1 x 8"},
    {128, 256, "1 x 8", 3},
    {64, 256, "1 x 4"},
    {64, 64, "1 x 4 x 2"},
    {32, 256, "1 x 16", 1, true},
    {64, 256, "1 x 16"},
    {32, 128, "1 x 8 x 2", 2, true},
    {128, 64, "1 x 4 x 2"},
};

class Outputs : public testing::TestWithParam<const char *> {};

TEST_P(Outputs, OfTilesAreStoredAsBoxes) {
  for (const Tile &tile : tiles)
    expectStored({"int4_channel",
                  "int8_token",
                  GetParam(),
                  schedule(tile, 128, 4),
                  "sm_90a",
                  {2 * tile.m - 5, 2 * tile.n + 24, 500}},
                 Way::Boxes);
}

// A matrix smaller than a box, a single row, a box that lies outside as a whole.
TEST_P(Outputs, OfSmallMatricesAreClipped) {
  for (GemmShape shape : {GemmShape{1, 8, 64}, GemmShape{3, 72, 64}, GemmShape{33, 136, 64}})
    for (const char *warps : {"1 x 4", "1 x 8"})
      expectStored(
          {"int4_channel", "bf16", GetParam(), schedule({64, 128, warps}, 64, 4), "sm_90a", shape},
          Way::Boxes);
}

// A tensor map has a multiple of 16 bytes a row.
TEST_P(Outputs, OfUnalignedRowsAreStoredByThreads) {
  bool wide = std::string(GetParam()) == "f32";
  for (int64_t n : {129, 130, wide ? 126 : 132})
    expectStored({"int4_channel",
                  "f16",
                  GetParam(),
                  schedule({64, 64, "1 x 4"}, 64, 4),
                  "sm_90a",
                  {70, n, 128}},
                 Way::Threads);
}

// Tiles with few rows are stored at once.
TEST_P(Outputs, OfFewRowsAreStoredByThreads) {
  for (int64_t m : {8, 16})
    expectStored({"int4_channel",
                  "f16",
                  GetParam(),
                  schedule({m, 64, "1 x 4"}, 64, 4),
                  "sm_90a",
                  {m, 128, 128}},
                 Way::Threads);
}

INSTANTIATE_TEST_SUITE_P(All, Outputs, testing::ValuesIn(outputTypes),
                         [](const auto &info) { return std::string(info.param); });

// One buffer takes tile after tile, with one k tile and with several between them.
TEST(OutputsPersistent, TilesOfOneCtaReuseTheBuffer) {
  for (const Tile &tile :
       {Tile{32, 64, "1 x 4"}, Tile{32, 64, "1 x 4 x 2", 1, true}, Tile{256, 64, "1 x 4", 1, true}})
    for (int64_t k : {60, 190}) {
      Case test{"int4_channel", "bf16",
                "f32",          schedule(tile, 64, 4),
                "sm_90a",       {tile.m * (tile.m == 32 ? 14 : 3) - 3, tile.n * 48 - 4, k}};
      Outcome result;
      ASSERT_NO_FATAL_FAILURE(expectWithinBound(test, result));
      EXPECT_EQ(wayOf(result), Way::Boxes);
      const compiler::KernelImage &image = result.gemm.impl().image();
      ASSERT_GT(image.tilesN() * image.tilesM(test.shape.m), image.residentCtas) << describe(test);
    }
}

TEST(OutputsIntegers, AreExactBitForBit) {
  for (const Tile &tile : tiles)
    expectExact({"int4_channel",
                 "int8_token",
                 "f32",
                 schedule(tile, 128, 4),
                 "sm_90a",
                 {tile.m + 3, tile.n + 12, 400}});
}

} // namespace
} // namespace rho::test
