// Activations whose k-blocks are each stored in one of several formats, executed on the emulator
// against the exact reference.
#include "compiler/Compiler.h"
#include "dsl/Module.h"
#include "runtime/Kernel.h"
#include "tests/compiler/EmulatedGemm.h"

#include <gtest/gtest.h>

namespace rho::test {
namespace {

// A partition of two parts; `selects` says which blocks the second one takes.
std::string mix(const std::string &low, const std::string &high,
                const std::string &selects = "budget 40%", int block = 128) {
  return "format mix { partition per tensor k[" + std::to_string(block) + "] { low: " + low +
         " high: " + high + " " + selects + " } }\n";
}

Case mixed(const std::string &weight, const std::string &formats, const std::string &target,
           GemmShape shape, const std::string &schedule = "", const std::string &output = "f32") {
  return {weight, "mix", output, schedule, target, shape, formats};
}

int64_t storedHigh(const Outcome &result) {
  int64_t count = 0;
  for (int64_t block = 0; block < result.activation.choice.size(); ++block)
    count += result.activation.choice.get(block) == 1 ? 1 : 0;
  return count;
}

// What a mix may consist of: both integers, both floats, and one of each.
struct Mix {
  const char *weight, *low, *high;
};
constexpr Mix mixes[] = {
    {"int4_channel", "int4_token", "int8_token"}, {"int4_g128", "int4_token", "int8_token"},
    {"int4_g64", "int4_g128", "int8_token"},      {"int4_channel", "int4_token", "f16"},
    {"int4_g128", "int4_token", "bf16"},          {"int4_channel", "int8_token", "f16"},
    {"int4_g128", "int8_token", "bf16"},          {"int4_g64", "f16", "bf16"},
    {"uint4_g64", "int8_token", "f16"},           {"int8_channel", "int8_token", "bf16"},
    {"liquidquant", "int8_token", "f16"},         {"nvfp4", "f16", "bf16"},
};
constexpr Mix fp8Mixes[] = {
    {"int4_channel", "int4_token", "fp8_token"},
    {"int4_g128", "fp8_token", "bf16"},
    {"fp4_channel", "fp8_token", "f16"},
    // Registers of both decodes have their codes at places of which one order of bits is none.
    {"int4_narrow_channel", "fp8_token", "f16"},
    {"int4_narrow_g128", "f16", "fp8_token"},
};

class Mixes : public testing::TestWithParam<std::tuple<Mix, const char *>> {};

TEST_P(Mixes, AreWithinTheBoundOnRaggedShapes) {
  auto [test, target] = GetParam();
  for (GemmShape shape : {GemmShape{1, 64, 256}, GemmShape{3, 65, 400}, GemmShape{37, 130, 1000}})
    expectWithinBound(mixed(test.weight, mix(test.low, test.high), target, shape));
}

std::string nameOf(const testing::TestParamInfo<Mixes::ParamType> &info) {
  const Mix &test = std::get<0>(info.param);
  return std::string(test.weight) + "_" + test.low + "_" + test.high + "_" +
         std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(All, Mixes,
                         testing::Combine(testing::ValuesIn(mixes),
                                          testing::Values("sm_80", "sm_90a")),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Fp8, Mixes,
                         testing::Combine(testing::ValuesIn(fp8Mixes),
                                          testing::Values("sm_89", "sm_90a")),
                         nameOf);

TEST(Partition, AnyNumberOfBlocksMayBeHigh) {
  struct Selection {
    const char *selects;
    int64_t high;
  };
  for (Selection selection :
       {Selection{"where absmax(x) >= 1000000.0", 0}, Selection{"budget 10%", 0}, // of 8 blocks
        Selection{"budget 20%", 1}, Selection{"budget 50%", 4},
        Selection{"where absmax(x) >= 0", 8}}) {
    Outcome result;
    expectWithinBound(mixed("int4_channel", mix("int4_token", "int8_token", selection.selects),
                            "sm_80", {9, 64, 1000}),
                      result);
    EXPECT_EQ(storedHigh(result), selection.high) << selection.selects;
  }
}

TEST(Partition, Schedules) {
  for (const char *schedule :
       {"pipeline: 2", "pipeline: 5 launch: dependent", "tile: 8 x 32 x 64 warps: 1 x 2",
        "tile: 64 x 64 x 128 warps: 2 x 2", "split_k: 2 balance: tiles",
        "split_k: 7 tile: 16 x 64 x 64 balance: cost",
        "tile: 16 x 128 x 128 warps: 1 x 8 packing: panels"})
    expectWithinBound(mixed("int4_g128", mix("int4_token", "int8_token"), "sm_80", {21, 144, 1100},
                            schedule, "bf16"));
}

// Equal shares of the work of all outputs, of which a CTA has parts of several or less than one; 40
// CTAs have less than the dearest k tile each, and as many k tiles as any other.
TEST(Partition, SharesOfEqualCostOfAllOutputs) {
  for (const char *ctas : {"3", "16", "40"})
    for (const char *selects : {"budget 40%", "where absmax(x) >= 0"})
      expectWithinBound(mixed("int4_channel", mix("int4_token", "int8_token", selects), "sm_80",
                              {21, 144, 1100},
                              "tile: 16 x 64 x 128 warps: 1 x 2 split_k: stream balance: cost "
                              "ctas: " +
                                  std::string(ctas)));
  for (const char *schedule :
       {"split_k: stream balance: tiles", "split_k: stream balance: cost launch: dependent"})
    expectWithinBound(mixed("int4_g128", mix("int4_token", "bf16"), "sm_80", {3, 130, 1000},
                            std::string("tile: 16 x 64 x 64 warps: 1 x 2 ") + schedule, "bf16"));
}

// 8 CTAs have 4 k tiles each of two outputs of 16, the last 4 of which are in 8 bits and take twice
// the instructions; or as much work as a kernel's prediction says.
TEST(Partition, SharesOfEqualCostHaveWorkAlike) {
  auto most = [](const std::string &balance) {
    Outcome result;
    expectWithinBound(mixed("int4_channel", mix("int4_token", "int8_token", "budget 25%"), "sm_80",
                            {128, 128, 2048},
                            "tile: 128 x 64 x 128 warps: 2 x 2 pipeline: 3 split_k: stream ctas: 8 "
                            "balance: " +
                                balance),
                      result);
    EXPECT_EQ(storedHigh(result), 4);
    return result.gemm.impl().backend->emulationTotals().mostMmas;
  };
  uint64_t ofTile = 128 / 16 * 64 / 8 * 128 / 64; // instructions of a k tile in 4 bits
  EXPECT_EQ(most("tiles"), 8 * ofTile);
  EXPECT_LE(most("cost"), 6 * ofTile); // 5 in the mean
}

// wgmma: one ring of stages through the loops of all parts.
class Specialized : public testing::TestWithParam<Mix> {};

TEST_P(Specialized, AreWithinTheBound) {
  const Mix &test = GetParam();
  std::string formats = mix(test.low, test.high);
  for (const char *schedule :
       {"roles: imfp tile: 8 x 64 x 128 warps: 1 x 4 pipeline: 2",
        "roles: imfp tile: 32 x 128 x 128 warps: 1 x 4 x 2 pipeline: 4 launch: dependent",
        "roles: imfp tile: 32 x 192 x 128 warps: 1 x 12 pipeline: 3",
        "roles: imfp tile: 16 x 64 x 128 warps: 1 x 4 split_k: 3",
        "roles: imfp tile: 16 x 128 x 128 warps: 1 x 8 split_k: stream balance: tiles "
        "packing: panels",
        "roles: imfp tile: 16 x 64 x 128 warps: 1 x 4 split_k: stream balance: cost ctas: 5 "
        "launch: "
        "dependent",
        "roles: imfp tile: 16 x 64 x 128 warps: 1 x 4 cluster: 2 x 1"})
    for (GemmShape shape : {GemmShape{3, 65, 400}, GemmShape{37, 136, 1100}})
      expectWithinBound(mixed(test.weight, formats, "sm_90a", shape, schedule, "bf16"));
}

std::string nameOfMix(const testing::TestParamInfo<Mix> &info) {
  return std::string(info.param.weight) + "_" + info.param.low + "_" + info.param.high;
}
INSTANTIATE_TEST_SUITE_P(All, Specialized,
                         testing::Values(mixes[0], mixes[1], mixes[3], mixes[5], mixes[7],
                                         Mix{"int4_channel", "int4_token", "fp8_token"}),
                         nameOfMix);

TEST(Partition, ThreeParts) {
  expectWithinBound(mixed("int4_channel",
                          "format mix { partition per tensor k[64] { low: int4_token middle: "
                          "int8_token budget 50% high: bf16 budget 10% } }\n",
                          "sm_80", {5, 64, 1000}));
}

Result<compiler::Plan> planOf(const std::string &formats, const std::string &schedule,
                              const char *device,
                              const compiler::Problem &problem = {256, 4096, 4096}) {
  std::string text = declaration(mixed("int4_channel", formats, "sm_80", {}, schedule));
  Result<dsl::Module> module =
      dsl::parseModule(text, "t.rho", [](const std::string &) { return std::nullopt; });
  if (!module)
    return module.error();
  const compiler::DeviceModel model = compiler::modelOf(*compiler::shippedDevice(device));
  return compiler::plan(module->gemms[0], problem, model, nullptr);
}

// A quarter of the k tiles in 8 bits, four shares: one of equally many has all of them.
TEST(Partition, SharesOfEqualCostAreFaster) {
  std::string formats = mix("int4_token", "int8_token", "budget 25%");
  std::string schedule = "tile: 128 x 128 x 128 warps: 2 x 4 pipeline: 3 split_k: 4 balance: ";
  Result<compiler::Plan> tiles = planOf(formats, schedule + "tiles", "a100_80g");
  Result<compiler::Plan> cost = planOf(formats, schedule + "cost", "a100_80g");
  ASSERT_TRUE(tiles.ok() && cost.ok());
  EXPECT_TRUE(tiles->schedule.tileCosts.empty());
  ASSERT_EQ(cost->schedule.tileCosts.size(), 2u);
  EXPECT_LT(cost->schedule.tileCosts[0], cost->schedule.tileCosts[1]);
  EXPECT_LT(cost->predictedMicroseconds, 0.9 * tiles->predictedMicroseconds);
  Result<compiler::Plan> again = compiler::Plan::parse(cost->print());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->schedule, cost->schedule);
}

// 108 CTAs have 37 or 38 k tiles each of outputs of 128, the last 32 of which are in 8 bits.
TEST(Partition, SharesOfEqualCostOfAllOutputsAreFaster) {
  compiler::Problem problem{128, 4096, 16384};
  std::string formats = mix("int4_token", "int8_token", "budget 25%");
  std::string schedule = "tile: 128 x 128 x 128 warps: 2 x 4 pipeline: 3 split_k: stream balance: ";
  Result<compiler::Plan> tiles = planOf(formats, schedule + "tiles", "a100_80g", problem);
  Result<compiler::Plan> cost = planOf(formats, schedule + "cost", "a100_80g", problem);
  ASSERT_TRUE(tiles.ok() && cost.ok());
  EXPECT_TRUE(tiles->schedule.tileCosts.empty());
  EXPECT_EQ(cost->schedule.tileCosts.size(), 2u);
  EXPECT_LT(cost->predictedMicroseconds, 0.9 * tiles->predictedMicroseconds);
}

TEST(Partition, WhyNot) {
  struct Refusal {
    std::string formats, schedule;
    const char *message;
  };
  std::string both = mix("int4_token", "int8_token");
  for (const Refusal &each :
       {Refusal{"format mix { partition per k[64] { low: int4_token high: f16 } }\n", "",
                "the parts of activation 'mix' cannot share a kernel: a k tile is stored alike for "
                "all rows, blocks per k[64] are not; per tensor k[64] they are "
                "[parts_need_kernels_apart]"},
        Refusal{"format mix { partition per tensor k[32] { low: int4_token high: f16 } }\n", "",
                "blocks of 32 are no multiple of the smallest k tile, 64"},
        Refusal{both, "roles: gemv", "roles gemv have one loop along k"},
        Refusal{both, "scales: operand", "they take group scales in accumulators, not in operand"},
        Refusal{"format grouped { element: s8 scale: f32 per k[64] value = element * scale }\n"
                "format mix { partition per tensor k[128] { low: grouped high: f16 } }\n",
                "scales: operand",
                "the parts of activation 'mix' cannot share a kernel: they take group scales in "
                "accumulators, not in operand [parts_need_kernels_apart]"},
        Refusal{both, "tile: 16 x 64 x 256",
                "it must divide the blocks of 128, each of which is stored in one format"},
        Refusal{both, "balance: cost split_k: 1",
                "balance does not fit 'g': k is not split [schedule_balance]"},
        Refusal{"format mix { element: s8 scale: f32 per token value = element * scale }\n",
                "balance: cost", "all k tiles of its activation are stored alike, as s8"}}) {
    Result<compiler::Plan> planned = planOf(each.formats, each.schedule, "a100_80g");
    ASSERT_FALSE(planned.ok()) << each.message;
    EXPECT_NE(planned.error().str().find(each.message), std::string::npos) << planned.error().str();
  }
}

// Integer sums of each part are exact, so is their sum where scales are powers of two.
TEST(Partition, SumsOfIntegersAreExact) {
  Case test = mixed("int4_channel", mix("int4_token", "int8_token"), "sm_80", {7, 48, 640});
  expectExact(test);
}

} // namespace
} // namespace rho::test
