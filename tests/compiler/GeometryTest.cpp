// The packed order of codes against the fragment layouts of the PTX ISA, and its bank conflicts.
#include "compiler/plan/Geometry.h"

#include "dsl/Module.h"

#include <gtest/gtest.h>

#include <set>

namespace rho::compiler {
namespace {

struct Coordinates {
  int64_t n = 0, k = 0;
};

Coordinates coordinatesOf(const LayoutSection &section, int64_t position) {
  Coordinates result;
  for (size_t bit = 0; bit < section.order.size(); ++bit)
    if (position >> bit & 1)
      (section.order[bit].axis == AxisBit::Axis::N ? result.n : result.k) |=
          int64_t(1) << section.order[bit].bit;
  return result;
}

dsl::Gemm gemmWith(const std::string &activation) {
  std::string text =
      "format w { element: s4 scale: f16 per k[128] value = element * scale }\n"
      "format s8_token { element: s8 scale: f32 per token value = element * scale }\n"
      "gemm g { weight: w activation: " +
      activation + " output: f16 }";
  Result<dsl::Module> module =
      dsl::parseModule(text, "test.rho", [](const std::string &) { return std::nullopt; });
  EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
  return module->gemms.at(0);
}

// Row and column of element i of operand A in one thread: PTX ISA, section 9.7.14.5, figures for
// m16n8k16 (.f16, .bf16), m16n8k32 (.s8) and m16n8k64 (.s4).
Coordinates fragmentElement(int elementsPerRegister, int lane, int i) {
  int half = 2 * elementsPerRegister; // elements per k half
  int row = lane / 4 + ((i / elementsPerRegister) % 2) * 8;
  int column = lane % 4 * elementsPerRegister + i % elementsPerRegister +
               (i / half) * 4 * elementsPerRegister;
  return {row, column};
}

struct Case {
  std::string activation;
  Schedule schedule;
};

class CodeOrder : public testing::TestWithParam<Case> {};

TEST_P(CodeOrder, IsTheFragmentOrderOfThePtxIsa) {
  auto [activation, schedule] = GetParam();
  dsl::Gemm gemm = gemmWith(activation);
  Result<PlacedGemm> placed = place(gemm, dsl::ScheduleDecl::Scales::Accumulator, nullptr);
  ASSERT_TRUE(placed.ok());
  Geometry g = makeGeometry(*placed, schedule);
  WeightLayout layout = makeWeightLayout(gemm, *placed, g, {8, 2 * g.tileN, 2 * g.tileK});
  const LayoutSection &codes = layout.sections[0];
  int perRegister = elementsPerRegister(placed->mmaType);
  int registersPerWord = 8 / perRegister;
  std::set<std::pair<int64_t, int64_t>> seen;
  for (int64_t warp = 0; warp < g.warpsN; ++warp)
    for (int64_t chunk = 0; chunk < g.chunks(); ++chunk)
      for (int64_t t = 0; t < g.rowTiles(); ++t)
        for (int lane = 0; lane < 32; ++lane)
          for (int step = 0; step < g.stepsPerChunk(); ++step)
            for (int i = 0; i < 4 * perRegister; ++i) {
              int reg = i / perRegister, sub = i % perRegister;
              int word = step * (4 / registersPerWord) + reg / registersPerWord;
              int nibble = placed->decode.position[reg % registersPerWord][sub];
              // A thread's chunk is 16 bytes at (chunk of the warp) * 512 + lane * 16.
              int64_t chunkIndex = (warp * g.chunks() + chunk) * g.rowTiles() + t;
              int64_t position =
                  chunkIndex * 1024 + int64_t{lane} * 32 + int64_t{word} * 8 + nibble;
              Coordinates at = coordinatesOf(codes, position);
              Coordinates fragment = fragmentElement(perRegister, lane, i);
              EXPECT_EQ(at.n, warp * g.warpN() + fragment.n % 8 * g.rowsPerThread() + 2 * t +
                                  fragment.n / 8);
              EXPECT_EQ(at.k, chunk * Geometry::chunkK + int64_t{step} * g.mmaK + fragment.k);
              EXPECT_TRUE(seen.insert({at.n, at.k}).second);
            }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), g.tileN * g.tileK);
}

INSTANTIATE_TEST_SUITE_P(Families, CodeOrder,
                         testing::Values(Case{"f16", {16, 128, 128, 1, 4, 1, 4, 1}},
                                         Case{"bf16", {8, 64, 64, 1, 4, 1, 4, 1}},
                                         Case{"s8_token", {32, 256, 128, 2, 4, 1, 4, 1}},
                                         Case{"w", {16, 64, 256, 1, 2, 1, 4, 1}},
                                         Case{"f16", {8, 16, 64, 1, 1, 1, 2, 1}}),
                         [](const auto &info) {
                           return info.param.activation + "_" +
                                  std::to_string(info.param.schedule.tileN) + "x" +
                                  std::to_string(info.param.schedule.tileK);
                         });

TEST(Geometry, EveryWorkspaceByteBelongsToOneThread) {
  dsl::Gemm gemm = gemmWith("f16");
  Result<PlacedGemm> placed = place(gemm, dsl::ScheduleDecl::Scales::Accumulator, nullptr);
  ASSERT_TRUE(placed.ok());
  for (Schedule schedule : {Schedule{32, 128, 64, 2, 4, 1, 4, 3},
                            Schedule{64, 128, 64, 1, 4, 2, 4, 3, dsl::ScheduleDecl::Roles::ImFP}}) {
    Geometry g = makeGeometry(*placed, schedule);
    // Threads times accumulators is the tile: what split-K stores is what workspaceBytes counts.
    EXPECT_EQ(g.groupThreads() * g.rowTiles() * g.batchTiles() * 4, g.tileM * g.tileN);
  }
}

} // namespace
} // namespace rho::compiler
