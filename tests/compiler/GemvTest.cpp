// Kernels without matrix instructions, executed on the emulator against the exact reference.
#include "tests/compiler/EmulatedGemm.h"
#include "tests/compiler/Operands.h"

#include "kernels/Synthetic.h"
#include "runtime/Kernel.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

namespace rho::test {
namespace {

constexpr Operands gemvOperands[] = {
    {"int4_channel", "f16", ""},
    {"int4_g32", "f16", "operand"},
    {"int4_g32", "f16", "accumulator"},
    {"int4_g64", "f16", "operand"},
    {"int4_g64", "f16", "accumulator"},
    {"int4_g128", "f16", "operand"},
    {"int4_g128", "f16", "accumulator"},
    {"int4_g512", "f16", "accumulator"},
    {"nvfp4", "f16", "operand"},
    {"nvfp4", "f16", "accumulator"},
    {"uint4_g64", "f16", "operand"},
    {"int4_channel", "bf16", ""},
    {"int4_g64", "bf16", "accumulator"},
    {"int4_g128_bf16", "bf16", "operand"},
    {"int4_g128", "bf16", "accumulator"},
    {"nvfp4", "bf16", "operand"},
    {"nvfp4", "bf16", "accumulator"},
    {"int4_channel", "int8_token", ""},
    {"int4_g32", "int8_token", "accumulator"},
    {"int4_g64", "int8_token", "accumulator"},
    {"int4_g128", "int8_token", "accumulator"},
    {"int4_g512", "int8_token", "accumulator"},
    {"liquidquant", "int8_token", ""},
    {"int4_channel", "int8_g32", ""},
    {"int4_g64", "int8_g128", "accumulator"},
    {"int8_g128", "int8_g32", "accumulator"},
    {"int4_channel", "int4_token", ""},
    {"int4_g128", "int4_g128", "accumulator"},
    {"int8_channel", "int8_token", ""},
};

std::string schedule(const Operands &operands, const std::string &entries) {
  std::string text = "roles: gemv " + entries;
  if (!std::string(operands.scales).empty())
    text += std::string(" scales: ") + operands.scales;
  return text;
}

// One warp, several along rows, along k, along both; one to four row tiles of a warp; more k tiles
// on their way than there are.
constexpr const char *schedules[] = {
    "",
    "tile: 1 x 16 x 64 warps: 1 x 1 pipeline: 2",
    "tile: 2 x 32 x 128 warps: 1 x 2 x 3 pipeline: 3 launch: dependent",
    "tile: 4 x 64 x 128 warps: 1 x 1 x 4 pipeline: 2",
    "tile: 2 x 48 x 64 warps: 1 x 3 x 2 pipeline: 2",
    "tile: 4 x 64 x 64 warps: 1 x 4 x 2 pipeline: 8 launch: dependent",
    "tile: 1 x 16 x 256 warps: 1 x 1 x 16 pipeline: 2",
    "warps: 1 x 5",
    "warps: 1 x 8 x 2",
};

class Gemv : public testing::TestWithParam<Operands> {};

// Ragged in n and k: no multiples of tiles, groups or 8.
TEST_P(Gemv, IsWithinTheBound) {
  constexpr std::pair<int, int> sizes[] = {{131, 1003}, {1, 7}, {64, 2048}};
  for (size_t i = 0; i < std::size(schedules); ++i)
    for (size_t m = 1; m <= 4; ++m) {
      auto [n, k] = sizes[i % 2 == 0 ? 0 : (i + m) % 3];
      expectWithinBound({GetParam().weight,
                         GetParam().activation,
                         m % 2 == 0 ? "f32" : "bf16",
                         schedule(GetParam(), schedules[i]),
                         (i / 2 + m) % 2 == 0 ? "sm_80" : "sm_90a",
                         {static_cast<int64_t>(m), n, k}});
    }
}

// Where LLVM takes multiply-adds of mixed precision.
TEST_P(Gemv, IsWithinTheBoundOnBlackwell) {
  for (int64_t m : {1, 3})
    expectWithinBound({GetParam().weight,
                       GetParam().activation,
                       "f32",
                       schedule(GetParam(), ""),
                       "sm_120a",
                       {m, 70, 523}});
}

INSTANTIATE_TEST_SUITE_P(All, Gemv, testing::ValuesIn(gemvOperands), nameOfOperands);

TEST(GemvIntegers, AreExactBitForBit) {
  for (const Operands &operands : gemvOperands)
    if (std::string activation = operands.activation;
        activation == "int8_token" || activation == "int4_token")
      for (const char *entries : schedules)
        for (int64_t m : {1, 3})
          expectExact({operands.weight,
                       operands.activation,
                       "f32",
                       schedule(operands, entries),
                       "sm_90a",
                       {m, 80, 1216}});
}

TEST(Gemv, IsDeterministic) {
  Case test{"int4_g128", "f16",         "f32", "roles: gemv tile: 4 x 16 x 64 warps: 1 x 1 x 8",
            "sm_80",     {4, 128, 1024}};
  auto weights = kernels::syntheticWeight(128, 1024, 3);
  auto tokens = kernels::syntheticActivation(4, 1024, 4);
  Outcome first, second;
  ASSERT_NO_FATAL_FAILURE(run(test, weights, tokens, first));
  ASSERT_NO_FATAL_FAILURE(run(test, weights, tokens, second));
  EXPECT_EQ(first.output, second.output);
}

// Schedules drawn until one is legal; the same in every run.
TEST(GemvRandom, SchedulesAreWithinTheBound) {
  std::mt19937 random{23}; // NOLINT(bugprone-random-generator-seed): the same in every run
  auto below = [&](size_t limit) { return static_cast<int>(random() % limit); };
  auto text = [](int number) { return std::to_string(number); };
  for (int drawn = 0; drawn < 60;) {
    const Operands &operands = gemvOperands[below(std::size(gemvOperands))];
    std::string entries = "tile: " + text(1 << below(3)) + " x " + text(16 << below(4)) + " x " +
                          text(64 << below(4)) + " warps: 1 x " + text(1 << below(3)) + " x " +
                          text(1 + below(16)) + " pipeline: " + text(2 + below(4)) +
                          " launch: " + (below(2) == 0 ? "serial" : "dependent");
    Case test{operands.weight, operands.activation,
              "f32",           schedule(operands, entries),
              "sm_90a",        {1 + below(4), 1 + below(300), 1 + below(3000)}};
    Result<dsl::Module> module = dsl::parseModule(declaration(test), "drawn.rho", nullptr);
    if (!module || !compiler::plan(module->gemms.at(0), {test.shape.m, test.shape.n, test.shape.k},
                                   *compiler::modelOfTarget("sm_90a"), nullptr))
      continue;
    expectWithinBound(test);
    ++drawn;
  }
}

// Every shipped gemm by its own text, but for those whose activations CUDA cores do not multiply
// and those whose residual is multiplied by matrix instructions.
TEST(GemvShipped, EveryGemmHasAPlan) {
  namespace fs = std::filesystem;
  int plans = 0;
  for (const auto &entry : fs::directory_iterator(RHO_SOURCE_DIR "/kernels/gemms")) {
    std::ifstream file(entry.path());
    std::string text{std::istreambuf_iterator<char>(file), {}};
    Result<dsl::Module> module =
        dsl::parseModule(text, entry.path().string(), [&](const std::string &path) {
          std::ifstream imported(entry.path().parent_path() / path);
          return std::optional<std::string>({std::istreambuf_iterator<char>(imported), {}});
        });
    ASSERT_TRUE(module.ok()) << module.error().str();
    dsl::Gemm gemm = module->gemms.at(0);
    gemm.schedule.roles = dsl::ScheduleDecl::Roles::Gemv;
    if (gemm.weight.residual || gemm.activation.hasParts())
      continue;
    for (const char *target : {"sm_80", "sm_90a"}) {
      Result<compiler::Plan> planned =
          compiler::plan(gemm, {4, 4096, 4096}, *compiler::modelOfTarget(target), nullptr);
      std::string_view operand = gemm.activation.element().type.name();
      bool hasNoDot = operand == "e4m3" || operand == "e2m1";
      EXPECT_NE(planned.ok(), hasNoDot) << entry.path();
      plans += planned.ok() ? 1 : 0;
    }
  }
  EXPECT_GE(plans, 28);
}

} // namespace
} // namespace rho::test
