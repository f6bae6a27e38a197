// Equal groups of 4-bit weights and activations in every size, and one scale a row: APEX4 (arXiv
// 2606.08761), sections 3.2.2 and 4.2.
#include "compiler/Plan.h"
#include "dsl/Module.h"
#include "tests/compiler/EmulatedGemm.h"

#include <gtest/gtest.h>

namespace rho::test {
namespace {

struct Granularity {
  int group; // 0: a row
  const char *target;
};

std::string nameOf(const Granularity &granularity) {
  return (granularity.group == 0 ? "channel" : "g" + std::to_string(granularity.group)) + "_" +
         granularity.target;
}

class W4A4 : public testing::TestWithParam<Granularity> {
protected:
  static Case caseOf(const std::string &schedule) {
    auto [group, target] = GetParam();
    std::string equal = "int4_group(" + std::to_string(group) + ")";
    std::string family = std::string(target) == "sm_90a" ? "roles: imfp" : "roles: uniform";
    return {group == 0 ? "int4_channel" : equal,
            group == 0 ? "int4_token_f16" : equal,
            "f32",
            family + " pipeline: 4 " + schedule,
            target,
            {9, 70, 1100}};
  }
};

// Bit for bit, and with scales of any kind within the bound; k is no multiple of the group, and its
// parts are summed across CTAs.
TEST_P(W4A4, IsExact) { expectExact(caseOf("split_k: 2")); }
TEST_P(W4A4, IsWithinTheBound) { expectWithinBound(caseOf("")); }

std::vector<Granularity> all() {
  std::vector<Granularity> result;
  for (const char *target : {"sm_80", "sm_90a"})
    for (int group : {32, 64, 128, 256, 512, 1024, 0})
      result.push_back({group, target});
  return result;
}
INSTANTIATE_TEST_SUITE_P(All, W4A4, testing::ValuesIn(all()),
                         [](const auto &info) { return nameOf(info.param); });

// Groups are scaled at once (immediate dequantization), rows at the end (delayed).
TEST(W4A4Plans, DequantizeWhereThePaperDoes) {
  Result<dsl::Module> module = dsl::loadModule(RHO_SOURCE_DIR "/kernels/gemms/w4a4.rho");
  ASSERT_TRUE(module.ok()) << module.error().str();
  ASSERT_EQ(module->gemms.size(), 8U);
  for (const dsl::Gemm &gemm : module->gemms)
    for (const char *target : {"sm_80", "sm_90a"}) {
      Result<compiler::Plan> plan =
          compiler::plan(gemm, {64, 4096, 4096}, *compiler::modelOfTarget(target), nullptr);
      ASSERT_TRUE(plan.ok()) << gemm.name << '\n' << plan.error().str();
      EXPECT_EQ(plan->schedule.pipeline, 4) << gemm.name;
      compiler::Placement expected = gemm.name == "w4a4_channel" ? compiler::Placement::Epilogue
                                                                 : compiler::Placement::Accumulator;
      for (const compiler::FactorPlacement &factor : plan->placements)
        if (factor.factor.ends_with(".scale"))
          EXPECT_EQ(factor.placement, expected) << gemm.name << " " << factor.factor;
      for (const dsl::Format *format : {&gemm.weight, &gemm.activation})
        EXPECT_EQ(format->components.at(1).type, dsl::ElementType::get("f16"));
    }
}

// Groups of 16 bytes of integers take the instruction's half: bytes with a scale per k[16] too.
TEST(HalfInstructions, AreExactBitForBit) {
  for (const char *shape : {"tile: 8 x 64 x 64 warps: 1 x 4", "tile: 64 x 64 x 128 warps: 2 x 2"})
    for (const char *sums : {"biased", "converted"})
      expectExact({"w",
                   "int8_token",
                   "f32",
                   std::string("roles: uniform pipeline: 2 ") + shape + " sums: " + sums,
                   "sm_80",
                   {70, 70, 200},
                   "format w { element: s4 scale: f16 per k[16] value = element * scale }\n"});
}

} // namespace
} // namespace rho::test
