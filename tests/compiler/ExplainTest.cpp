// What `rho explain` says beside what a schedule gets that asks for it.
#include "compiler/Explain.h"

#include "tests/compiler/Plans.h"

#include <algorithm>

namespace rho::compiler {
namespace {

using Roles = dsl::ScheduleDecl::Roles;
using Scales = dsl::ScheduleDecl::Scales;

class Explain : public testing::Test {
protected:
  // Of a gemm of these formats of the library.
  std::vector<Alternative> explained(const std::string &weight, const std::string &activation,
                                     const std::string &schedule, const Problem &problem,
                                     const char *product) {
    std::string text = "import \"rho:" + weight + "\"\n";
    if (activation != weight && activation != "f16")
      text += "import \"rho:" + activation + "\"\n";
    gemm = parse(text + "gemm g { weight: " + weight + " activation: " + activation +
                 " output: f16 schedule { " + schedule + " } }")
               .gemms.at(0);
    device = modelOf(*shippedDevice(product));
    return explain(gemm, problem, device, nullptr).value();
  }

  static const Alternative &find(const std::vector<Alternative> &all, Scales scales, Roles roles) {
    return *std::find_if(all.begin(), all.end(), [&](const Alternative &each) {
      return each.scales == scales && each.roles == roles;
    });
  }

  dsl::Gemm gemm;
  DeviceModel device;
};

TEST_F(Explain, WhatAScheduleThatFixesItGets) {
  struct Case {
    const char *weight, *activation, *device;
    Problem problem;
  };
  for (const Case &each : {Case{"mxfp4", "int8_token", "h200", {64, 4096, 4096}},
                           Case{"mxfp4", "mxfp4", "rtx_pro_6000", {1, 4096, 4096}},
                           Case{"int4_channel", "comet_token", "h200", {16, 512, 1024}},
                           Case{"nf4_g64", "f16", "h200", {16, 4096, 4096}}}) {
    size_t legal = 0;
    for (const Alternative &one :
         explained(each.weight, each.activation, "", each.problem, each.device)) {
      dsl::Gemm fixed = gemm;
      fixed.schedule.scales = one.scales;
      fixed.schedule.roles = one.roles;
      fixed.schedule.tables = one.tables;
      const TargetGemm target = onTarget(fixed, device.target);
      Result<Plan> planned = plan(target.gemm, each.problem, device, nullptr);
      ASSERT_EQ(planned.ok(), one.plan.ok()) << each.weight << ": " << one.reason;
      if (!planned)
        continue;
      ++legal;
      EXPECT_EQ(planned->predictedMicroseconds, one.plan->predictedMicroseconds) << one.reason;
      EXPECT_EQ(storedAs(target), one.stored) << one.reason;
    }
    EXPECT_GT(legal, 2U);
  }
}

TEST_F(Explain, HowActivationsAreStored) {
  const auto all = explained("mxfp4", "int8_token", "", {64, 4096, 4096}, "h200");
  EXPECT_EQ(all.front().stored, "bf16");
  const Alternative &sums = find(all, Scales::Accumulator, Roles::ImFP);
  EXPECT_EQ(sums.stored, "codes");
  EXPECT_EQ(sums.reason.substr(sums.reason.rfind(';')), "; activation stored as codes");
  // Which is settled before: where codes have a kernel numbers are not tried beside scaled sums.
  const auto parts = explained("int4_channel", "comet_token", "", {16, 512, 1024}, "h200");
  EXPECT_EQ(parts.front().stored, "codes");
  EXPECT_EQ(find(parts, Scales::Operand, Roles::ImFP).reason,
            "not considered; activation stored as bf16, but there is a kernel for codes");
}

// wgmma has 32 of k for bytes and 16 for f16: what scales every 16 need not be left to mma.sync.
TEST_F(Explain, FineScalesBesideIntegersAreOfSumsOfNumbers) {
  for (const char *group : {"16", "48", "80"}) {
    gemm =
        parse(
            "import \"rho:int8_token\"\nformat w { element: s4 scale: f16 per k[" +
            std::string(group) +
            "] value = element * scale }\ngemm g { weight: w activation: int8_token output: f16 }")
            .gemms.at(0);
    const auto all =
        explain(gemm, {1024, 8192, 8192}, modelOf(*shippedDevice("h200")), nullptr).value();
    EXPECT_EQ(all.front().stored, "f16") << group;
    EXPECT_EQ(all.front().scales, Scales::Accumulator) << group;
    EXPECT_EQ(all.front().roles, Roles::ImFP) << group;
    EXPECT_EQ(find(all, Scales::Operand, Roles::ImFP).reason,
              "not considered: products with scales would be rounded")
        << group;
  }
}

// The winner is the fastest of those that are trusted.
TEST_F(Explain, NoLoserOfAFixedNumberOfWarpsIsFaster) {
  for (const char *warps : {"1 x 3", "1 x 6", "1 x 3 x 2"})
    for (const char *weight : {"int4_g128", "int4_g64", "nvfp4"}) {
      const auto all =
          explained(weight, "f16", std::string("warps: ") + warps, {8, 256, 256}, "h200");
      for (const Alternative &each : all)
        if (each.plan && each.distrust.empty() && !each.mayOverflow) {
          EXPECT_GE(each.plan->predictedMicroseconds, all.front().plan->predictedMicroseconds)
              << weight << " " << warps << ": " << each.reason;
        }
    }
}

// Roles for few rows that nobody asked for are not what a tile's message is about.
TEST(PlanDiagnostics, TilesOfOtherRolesAreNotToldOf) {
  const std::string gemm =
      "gemm g { weight: channel4 activation: int8 output: f16 schedule { tile: 48 x 16 x 128 } }";
  Result<Plan> planned = planOf(gemm, {2, 256, 512}, "sm_90a");
  ASSERT_FALSE(planned.ok());
  EXPECT_EQ(planned.error().diagnostics[0].message,
            "tile m = 48 does not fit: it must be a power of two of at least 8, or where "
            "warpgroups multiply a multiple of 16, or with roles gemv 1, 2 or 4");
}

// One wave of tiles needs no loop, and what comes behind its stages no place of its own.
TEST(Residency, TilesOfOneWaveHaveACtaEach) {
  auto planned = [&](const std::string &pipeline, int64_t m) {
    return planOf("gemm g { weight: channel4 activation: f16 output: f16 schedule { roles: imfp "
                  "tile: 128 x 128 x 128 warps: 1 x 8 split_k: 1 pipeline: " +
                      pipeline + " } }",
                  {m, 8192, 8192}, "sm_90a");
  };
  EXPECT_EQ(planned("4", 256)->schedule.residentCtas, 0);
  EXPECT_EQ(planned("4", 384)->schedule.residentCtas, 132);
  EXPECT_EQ(planned("5", 256)->schedule.residentCtas, 0);
  EXPECT_EQ(planned("5", 384).error().diagnostics[0].id, DiagId::schedule_shared_memory);
}

} // namespace
} // namespace rho::compiler
