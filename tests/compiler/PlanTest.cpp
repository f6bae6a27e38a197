// Placement, the planner's choices and their messages.
#include "compiler/Plan.h"
#include "compiler/OnTarget.h"
#include "compiler/Targets.h"
#include "compiler/plan/CostModel.h"
#include "compiler/plan/Legality.h"
#include "tests/compiler/Plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <sstream>

namespace rho::compiler {
namespace {

TEST(Targets, OfComputeCapabilities) {
  EXPECT_EQ(targetOfCapability(75), "");
  EXPECT_EQ(targetOfCapability(80), "sm_80");
  EXPECT_EQ(targetOfCapability(86), "sm_86");
  EXPECT_EQ(targetOfCapability(87), "sm_86");
  EXPECT_EQ(targetOfCapability(89), "sm_89");
  EXPECT_EQ(targetOfCapability(90), "sm_90a");
  EXPECT_EQ(targetOfCapability(100), "sm_90"); // no code of sm_90a but on 9.0
  EXPECT_EQ(targetOfCapability(120), "sm_120a");
  EXPECT_EQ(targetOfCapability(121), "sm_90");
}

TEST(Placement, FollowsExtentAndExactness) {
  Result<Plan> w4a8 = planOf("gemm g { weight: int4 activation: int8 output: f16 }");
  ASSERT_TRUE(w4a8.ok());
  EXPECT_EQ(w4a8->mmaType, "s8");
  EXPECT_EQ(placementOf(*w4a8, "weight.element"), Placement::Operand);
  EXPECT_EQ(placementOf(*w4a8, "weight.scale"), Placement::Accumulator);
  EXPECT_EQ(placementOf(*w4a8, "activation.scale"), Placement::Epilogue);
  Result<Plan> channel = planOf("gemm g { weight: channel4 activation: int8 output: f16 }");
  ASSERT_TRUE(channel.ok());
  EXPECT_EQ(placementOf(*channel, "weight.scale"), Placement::Epilogue);
  Result<Plan> w4a4 = planOf("gemm g { weight: int4 activation: int4 output: f16 }");
  ASSERT_TRUE(w4a4.ok());
  EXPECT_EQ(w4a4->mmaType, "s4");
  EXPECT_EQ(placementOf(*w4a4, "activation.scale"), Placement::Accumulator);
}

TEST(Placement, CanBeForced) {
  for (const char *scales : {"operand", "accumulator"}) {
    Result<Plan> forced = planOf(std::string("gemm g { weight: int4 activation: f16 output: f16 "
                                             "schedule { scales: ") +
                                 scales + " } }");
    ASSERT_TRUE(forced.ok());
    EXPECT_EQ(name(placementOf(*forced, "weight.scale")), scales);
  }
}

TEST(Plan, TakesWhatTheScheduleFixes) {
  Result<Plan> fixed = planOf("gemm g { weight: int4 activation: f16 output: f16 schedule { "
                              "pipeline: 5 tile: 32 x 64 x 128 warps: 2 x 2 split_k: 3 } }");
  ASSERT_TRUE(fixed.ok()) << fixed.error().str();
  EXPECT_EQ(fixed->schedule, (Schedule{32, 64, 128, 2, 2, 1, 5, 3}));
}

TEST(Plan, SmallBatchesGetSmallTiles) {
  Result<Plan> one = planOf("gemm g { weight: int4 activation: f16 output: f16 }", {1, 8192, 8192});
  Result<Plan> many =
      planOf("gemm g { weight: int4 activation: f16 output: f16 }", {4096, 8192, 8192});
  ASSERT_TRUE(one.ok() && many.ok());
  EXPECT_EQ(one->schedule.tileM, 8);
  EXPECT_GE(many->schedule.tileM, 64);
  EXPECT_LT(one->predictedMicroseconds, many->predictedMicroseconds);
}

TEST(Plan, PrintsAndParsesBack) {
  Result<Plan> planned = planOf("gemm g { weight: int4 activation: f16 output: f16 }");
  ASSERT_TRUE(planned.ok());
  Result<Plan> parsed = Plan::parse(planned->print());
  ASSERT_TRUE(parsed.ok()) << parsed.error().str();
  EXPECT_EQ(parsed->printForKernel(), planned->printForKernel());
  EXPECT_EQ(parsed->problem, planned->problem);
}

TEST(Plan, RefusesTextThatIsNoPlan) {
  auto message = [](const char *text) {
    Result<Plan> parsed = Plan::parse(text);
    return parsed.ok() ? "accepted" : parsed.error().str();
  };
  EXPECT_EQ(message("tile 8 x 8"), "error: malformed plan at 'tile 8 x 8' [bad_plan]\n");
  EXPECT_EQ(message("target sm_80"),
            "error: malformed plan at 'its end: shape is missing' [bad_plan]\n");
  for (const char *cluster : {"cluster 1 x 0", "cluster 4294967296 x 1"})
    EXPECT_EQ(message(cluster),
              "error: malformed plan at '" + std::string(cluster) + "' [bad_plan]\n");
  EXPECT_EQ(message("pipeline 2\nm 1\npipeline 3\n"),
            "error: malformed plan at 'pipeline 3' [bad_plan]\n");
}

// Lines stand in any order: which of them need each other is asked at the end.
TEST(Plan, ParsesLinesInAnyOrder) {
  Result<Plan> planned = planOf("gemm g { weight: int4 activation: f16 output: f16 schedule { "
                                "split_k: 2 cluster: 1 x 2 } }",
                                {16, 256, 4096}, "sm_90a");
  ASSERT_TRUE(planned.ok()) << planned.error().str();
  std::vector<std::string> lines;
  std::istringstream text(planned->print());
  for (std::string line; std::getline(text, line);)
    lines.insert(lines.begin(), line + "\n");
  Result<Plan> parsed = Plan::parse(std::accumulate(lines.begin(), lines.end(), std::string()));
  ASSERT_TRUE(parsed.ok()) << parsed.error().str();
  EXPECT_EQ(parsed->printForKernel(), planned->printForKernel());
}

// A plan from a text is held to the planner's rules.
TEST(Plan, FromATextIsHeldToTheRules) {
  auto changed = [](std::string text, const std::string &line, const std::string &to) {
    const size_t at = text.find(line);
    EXPECT_NE(at, std::string::npos) << text;
    return text.replace(at, text.find('\n', at) - at, to);
  };
  auto errorOf = [](const std::string &declared, const std::string &text) -> std::string {
    Result<Plan> plan = Plan::parse(text);
    if (!plan)
      return plan.error().str();
    dsl::Module module =
        *dsl::parseModule(declared, "t.rho", [](const std::string &) { return std::nullopt; });
    Result<PlacedGemm> placed = place(module.gemms[0], *plan, nullptr);
    std::optional<Error> error = planError(module.gemms[0], *placed, *plan);
    return error ? error->str() : "accepted";
  };
  const std::string declared = "format w { element: s8 value = element } "
                               "format x { element: s8 value = element } "
                               "gemm g { weight: w activation: x output: f32 }";
  auto planned = [&](const char *target, int64_t k) {
    dsl::Module module =
        *dsl::parseModule(declared, "t.rho", [](const std::string &) { return std::nullopt; });
    return plan(module.gemms[0], {16, 256, k}, *modelOfTarget(target), nullptr)->print();
  };
  const std::string ampere = planned("sm_80", 1024), hopper = planned("sm_90a", 1024);
  EXPECT_EQ(errorOf(declared, ampere), "accepted");
  EXPECT_EQ(errorOf(declared, hopper), "accepted");
  EXPECT_EQ(errorOf(declared, ampere + "costs 1 2\n"),
            "error: malformed plan at 'costs: 2 for an activation of 0 parts' [bad_plan]\n");
  EXPECT_EQ(errorOf(declared, changed(ampere, "launch ", "launch dependent")),
            "error: malformed plan at 'launch dependent: sm_80 has none' [bad_plan]\n");
  EXPECT_EQ(errorOf(declared, changed(hopper, "resident ", "resident 4 at 144115188075855872")),
            "error: malformed plan at 'resident 4 at 144115188075855872' [bad_plan]\n");
  EXPECT_EQ(errorOf(declared, changed(ampere, "resident ", "resident 7 at 1")),
            "error: malformed plan at 'resident 7: each CTA of these roles has one tile' "
            "[bad_plan]\n");
  const std::string parts = changed(ampere, "split_k ", "split_k 4");
  EXPECT_EQ(errorOf(declared, changed(parts, "resident ", "resident 132 at 1")),
            "error: malformed plan at 'resident 132: each CTA of these roles has one tile' "
            "[bad_plan]\n");
  const std::string shares = changed(ampere, "split_k ", "split_k stream");
  EXPECT_EQ(errorOf(declared, changed(shares, "resident ", "resident 0 at 1")),
            "error: malformed plan at 'resident 0: equal shares of k need a persistent kernel "
            "without clusters' [bad_plan]\n");
  EXPECT_EQ(errorOf(declared, changed(shares, "resident ", "resident 108 at 1")), "accepted");
  EXPECT_NE(errorOf(declared, changed(ampere, "shape ", "shape n=256 k=262144"))
                .find("[accumulator_overflow]"),
            std::string::npos);
}

// Tiles of warps with roles have at least 128 of k for operands of 8 bits, blocks of 64 do not:
// such parts are numbers of f16 there, whose tiles are shorter.
TEST(Plan, PartsInShortBlocksHaveAKernelOnEveryTarget) {
  dsl::Module module = *dsl::parseModule(
      "format low { element: s4 scale: f32 per token value = element * scale } "
      "format high { element: s8 scale: f32 per token value = element * scale } "
      "format mixed { partition per tensor k[64] { low: low high: high budget 20% } } "
      "format w { element: s8 scale: f16 per channel value = element * scale } "
      "gemm z { weight: w activation: mixed output: f16 }",
      "t.rho", [](const std::string &) { return std::nullopt; });
  for (const char *target : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_120a"}) {
    const TargetGemm own = onTarget(module.gemms[0], target);
    Result<Plan> planned = plan(own.gemm, {16, 256, 1024}, *modelOfTarget(target), nullptr);
    EXPECT_TRUE(planned) << target << (planned ? "" : planned.error().str());
  }
}

// What the user fixed is to blame before what the planner chose.
TEST(Plan, ObjectionsAreToWhatIsFixed) {
  auto message = [](const std::string &declared, const char *target, const Problem &problem) {
    Result<dsl::Module> module =
        dsl::parseModule(declared, "t.rho", [](const std::string &) { return std::nullopt; });
    Result<Plan> planned =
        plan(module->gemms[0], problem, *modelOfTarget(target), module->sources.get());
    return planned ? "planned" : planned.error().diagnostics[0].message;
  };
  EXPECT_EQ(message("format w { element: s4 c: f16 per channel value = element * c } "
                    "format x { element: f16 c: f16 per k[16] value = element * c } "
                    "gemm z { weight: w activation: x output: f32 schedule { sums: biased } }",
                    "sm_86", {3, 65, 64}),
            "sums: biased does not fit 'z': sums of f16 operands are floats already");
}

// NVIDIA A100, A40, L40S datasheets; H200 at the 1.98 GHz of its model, not the datasheet's 1.83.
TEST(Devices, peakRatesAreTheDatasheets) {
  auto peak = [](const char *target, const char *type) {
    return peakTeraOperations(*modelOfTarget(target), type).value();
  };
  EXPECT_NEAR(peak("sm_80", "f16"), 312, 1);
  EXPECT_NEAR(peak("sm_80", "s4"), 1248, 2);
  EXPECT_NEAR(peak("sm_86", "bf16"), 149.7, 0.2);
  EXPECT_NEAR(peak("sm_89", "e4m3"), 733, 1);
  EXPECT_NEAR(peak("sm_90a", "bf16"), 989 * 1.98 / 1.83, 1);
  EXPECT_NEAR(peak("sm_90a", "s8"), 1979 * 1.98 / 1.83, 2);
  EXPECT_EQ(peak("sm_90a", "s4"), peak("sm_90a", "s8"));
  DeviceModel unknown = *modelOfTarget("sm_80");
  unknown.rates = {};
  EXPECT_EQ(peakTeraOperations(unknown, "f16"), std::nullopt);
}

TEST(Plan, NamesTheValidTargets) {
  EXPECT_EQ(modelOfTarget("sm_70").error().str(),
            "error: unknown target 'sm_70'; valid targets are sm_80, sm_86, sm_89, sm_90, sm_90a, "
            "sm_120a [unknown_target]\n");
}

// Whole messages, caret included.
TEST(PlanDiagnostics, Problem) {
  EXPECT_EQ(messageOf("gemm g { weight: int4 activation: f16 output: f16 }", {0, 64, 64}),
            "error: m is 0; it must be between 1 and 524288 [bad_problem]\n");
  EXPECT_EQ(messageOf("gemm g { weight: int4 activation: f16 output: f16 }", {1, 64, 1LL << 40}),
            "error: k is 1099511627776; it must be between 1 and 16777216 [bad_problem]\n");
}

// Where no kernel takes the weight beside any activation, it is to blame, by the activation's name.
TEST(PlanDiagnostics, WeightsAreBlamedForWhatIsTheirs) {
  auto of = [](const std::string &text) {
    const dsl::Module module = *dsl::parseModule(text, "t.rho", nullptr);
    const Result<Plan> result = plan(onTarget(module.gemms[0], "sm_80").gemm, {16, 4096, 4096},
                                     *modelOfTarget("sm_80"), module.sources.get());
    const std::string message = result.ok() ? "planned" : result.error().str();
    return message.substr(0, message.find('\n'));
  };
  const std::string weight = "format w { element: s4 sa: f16 per k[10] value = element * sa }\n";
  EXPECT_EQ(
      of(weight + "format a { element: s8 remap 1 to [2, 3] by sel s: ue2m1 per token "
                  "sel: u1 in s value = element * s }\n"
                  "gemm g { weight: w activation: a output: f32 }"),
      "t.rho:3:18: error: scale 'sa' of 'w' can be applied neither to operands nor to "
      "accumulators: group 10 is no multiple of half of the instruction's k, 8; group 10 is no "
      "multiple of the instruction's k, 16 [no_legal_placement]");
  // Nor as numbers, which such a codebook would be beside s8.
  EXPECT_EQ(
      of("format w { element: codebook [0, 0.3, 0.7, 1] sa: f16 per k[10] value = element * "
         "sa }\nformat a { element: s8 scale: f32 per token value = element * scale }\n"
         "gemm g { weight: w activation: a output: f32 }"),
      "t.rho:3:18: error: scale 'sa' of 'w' can be applied neither to operands nor to "
      "accumulators: group 10 is no multiple of half of the instruction's k, 8; group 10 is no "
      "multiple of the instruction's k, 16 [no_legal_placement]");
  EXPECT_EQ(
      of("format w { element: s5 zz: u8 per tensor sb: u6 per tensor sa: f16 per k[40] "
         "value = u8(element * sb + zz) * sa encode { sb = 1 zz = 128 + min(x) sa = absmax(x "
         "/ sb) / 6 } }\nformat a { element: s8 scale: f32 per token value = element * scale "
         "}\nformat both { partition per tensor k[128] { low: a high: f16 } }\n"
         "gemm g { weight: w activation: both output: f32 }"),
      "t.rho:4:18: error: no decode from 'u8(element * sb + zz)' of 'w' to s8 operands, which "
      "activation 'a' needs: it can be 255, which s8 does not hold [no_decode]");
}

// What can be encoded and evaluated, but not yet multiplied.
TEST(PlanDiagnostics, FormatsWithoutKernels) {
  auto of = [](const std::string &text) {
    std::string message = messageOf(text);
    return message.substr(0, message.find('\n'));
  };
  EXPECT_EQ(of("format x { element: s8 scale: f16 per m[2] k[128] value = element * scale }\n"
               "gemm g { weight: int4 activation: x output: f16 }"),
            "t.rho:5:35: error: 'scale' of 'x' is per m[2] k[128], for which there are no kernels "
            "yet [no_kernels]");
  EXPECT_EQ(of("format x { element: s8 scale: f32 per token fine: u4 per k[64] bit: u2 in fine "
               "value = (element * fine + bit) * scale encode { scale = 1 fine = 1 bit = 1 } }\n"
               "gemm g { weight: int4 activation: x output: f16 }"),
            "t.rho:5:35: error: 'bit' of 'x' is in spare bits of 'fine', for which there are no "
            "kernels yet [no_kernels]");
  EXPECT_EQ(of("format w { element: codebook [-1, -0.3, 0.25, 1] value = element }\n"
               "gemm g { weight: w activation: int8 output: f16 }"),
            "t.rho:5:18: error: no decode from 'element' of 'w' to s8 operands, which activation "
            "'int8' needs: its numbers are not all ones of s8, times any power of two [no_decode]");
  EXPECT_EQ(of("format w { element: s4 scale: codebook [1, 2] per k[64] value = element * scale }\n"
               "gemm g { weight: w activation: f16 output: f16 }"),
            "t.rho:5:18: error: the value of 'w' is no product of one factor with the element and "
            "scales: 'scale' is a codebook, of which only elements and factors have kernels "
            "[unsupported_value]");
}

TEST(PlanDiagnostics, Values) {
  EXPECT_EQ(messageOf("format odd { element: s4 bias: s8 per channel value = (element ^ bias) "
                      "encode { bias = 1 } }\n"
                      "gemm g { weight: odd activation: f16 output: f16 }"),
            "t.rho:5:18: error: no decode from 'element ^ bias' of 'odd' to f16 operands, which "
            "activation 'f16' needs: none is known for such expressions of what numbers share, "
            "element - zero and element * step + origin have one [no_decode]\n"
            "gemm g { weight: odd activation: f16 output: f16 }\n"
            "                 ^~~\n");
  EXPECT_EQ(
      messageOf("format offset { element: u4 scale: f16 per k[64] low: f16 per k[64] "
                "value = element * scale + low encode { scale = 1 low = 0 } }\n"
                "gemm g { weight: offset activation: int8 output: f16 }"),
      "t.rho:5:18: error: the value of 'offset' is no product of one factor with the element and "
      "scales: 'element * scale + low' adds real numbers, operands of s8 hold what the element "
      "alone "
      "stands for; with activations of f16 or bf16 it is possible [unsupported_value]\n"
      "gemm g { weight: offset activation: int8 output: f16 }\n"
      "                 ^~~~~~\n");
  EXPECT_NE(messageOf("format square { element: s4 zero: s4 per channel "
                      "value = (element - zero) * element encode { zero = 1 } }\n"
                      "gemm g { weight: square activation: f16 output: f16 }")
                .find("no decode from '(element - zero) * element' of 'square' to f16 operands"),
            std::string::npos);
  // Both ends of the range are numbers of f16, and not all between.
  EXPECT_EQ(messageOf("format wide { element: u4 step: u8 per k[64] org: u8 per k[64] "
                      "value = element * step + org encode { step = 253 org = 3 } }\n"
                      "gemm g { weight: wide activation: f16 output: f16 }")
                .find("it is an integer up to 4080, f16 holds all of 11 bits [no_decode]\n"),
            114U);
  // Sums are f32 when the literals are multiplied in.
  for (const char *literal : {"1e39", "1e-45", "1e308 * 1e308"})
    EXPECT_NE(messageOf(std::string("format far { element: s4 scale: f32 per channel value = "
                                    "element * scale * ") +
                        literal +
                        " encode { scale = 1 } }\n"
                        "gemm g { weight: far activation: f16 output: f16 }")
                  .find("its literal factors, the activation's and the decode's are "),
              std::string::npos)
        << literal;
  EXPECT_EQ(
      messageOf("gemm g { weight: int4 activation: f32 output: f16 }"),
      "t.rho:4:35: error: activation 'f32' has element f32 in the form element; a matrix "
      "instruction takes f16, bf16, e4m3, s8, s4 or e2m1 times scales [no_mma_for_activation]\n"
      "gemm g { weight: int4 activation: f32 output: f16 }\n"
      "                                  ^~~\n");
}

TEST(PlanDiagnostics, Parts) {
  EXPECT_EQ(messageOf("format mixed { partition per tensor k[128] { low: int4 high: f16 } }\n"
                      "gemm g { weight: mixed activation: f16 output: f16 }"),
            "t.rho:5:18: error: 'mixed' has a partition, kernels are made of formats without parts "
            "[parts_not_compiled]\n"
            "gemm g { weight: mixed activation: f16 output: f16 }\n"
            "                 ^~~~~\n");
  EXPECT_EQ(
      messageOf("format fixed { element: f16 value = element residual rest: int4 per k[128] }\n"
                "gemm g { weight: int4 activation: fixed output: f16 }"),
      "t.rho:5:35: error: 'fixed' has a residual, kernels are made of formats without parts "
      "[parts_not_compiled]\n"
      "gemm g { weight: int4 activation: fixed output: f16 }\n"
      "                                  ^~~~~\n");
}

TEST(PlanDiagnostics, Scales) {
  EXPECT_EQ(messageOf("gemm g { weight: int4 activation: int8 output: f16 "
                      "schedule { scales: operand } }"),
            "t.rho:4:63: error: scales: operand is not legal for 'g': operands are integers (s8) "
            "[scales_not_legal]\n"
            "gemm g { weight: int4 activation: int8 output: f16 schedule { scales: operand } }\n"
            "                                                              ^~~~~~\n");
  EXPECT_EQ(messageOf("format g8 { element: s4 scale: f16 per k[8] value = element * scale }\n"
                      "gemm g { weight: g8 activation: int8 output: f16 }"),
            "t.rho:5:18: error: scale 'scale' of 'g8' can be applied neither to operands nor to "
            "accumulators: operands are integers (s8); group 8 is no multiple of the instruction's "
            "k, 16 [no_legal_placement]\n"
            "gemm g { weight: g8 activation: int8 output: f16 }\n"
            "                 ^~\n");
  EXPECT_THAT(messageOf("format w { element: s4 scale: e5m2 per k[32] value = element * scale }\n"
                        "gemm g { weight: w activation: f16 output: f16 "
                        "schedule { scales: operand } }"),
              testing::HasSubstr("products with scales leave the range of f16 [scales_not_legal]"));
  EXPECT_THAT(messageOf("format w { element: s4 scale: f16 per k[40] value = element * scale }\n"
                        "gemm g { weight: w activation: int8 output: f16 }"),
              testing::HasSubstr("group 40 is no multiple of the instruction's k"));
  EXPECT_THAT(messageOf("format a { element: s8 scale: f16 per k[96] value = element * scale }\n"
                        "gemm g { weight: int4 activation: a output: f16 }"),
              testing::HasSubstr("group 96 of activations is no power of two"));
}

// Of an activation in parts, which is stored as numbers where kernels do not take them, the problem
// is whatever is left: the weight's or the schedule's.
TEST(Plan, SaysWhatIsWrongBesideAnActivationInParts) {
  auto message = [](const std::string &weight, const std::string &schedule) {
    dsl::Module module = *dsl::parseModule(
        "import \"rho:mosaic_channel\" format wide { element: e5m9 s: f32 per tensor "
        "value = element * s } format act { element: s4 s: f32 per token value = "
        "element * s residual fix: s4 / 16 per m[1] k[64] budget 20% } gemm g { "
        "weight: " +
            weight + " activation: act output: f16 " + schedule + " }",
        "t.rho", nullptr);
    const dsl::Gemm gemm = onTarget(module.gemms[0], "sm_90a").gemm;
    Result<Plan> planned = plan(gemm, {8, 64, 128}, *modelOfTarget("sm_90a"), nullptr);
    return planned ? "" : planned.error().diagnostics[0].message;
  };
  EXPECT_EQ(message("mosaic_channel", ""), "");
  EXPECT_THAT(message("mosaic_channel", "schedule { roles: excp }"),
              testing::HasSubstr("roles excp have no residual"));
  EXPECT_THAT(message("wide", ""), testing::HasSubstr("no decode from 'element' of 'wide'"));
}

TEST(Plan, SaysWhichExpressionsHaveDecodes) {
  EXPECT_THAT(messageOf("format z { element: u4 s: f16 per k[64] zero: u4 per k[64] value = "
                        "((element ^ 8) - (zero ^ 8)) * s encode { s = absmax(x) / 7 zero = 0 } } "
                        "gemm g { weight: z activation: f16 output: f16 }"),
              testing::HasSubstr("none is known for such expressions of what numbers share"));
}

TEST(PlanDiagnostics, OperandTypes) {
  const std::string fp8 = "format fp8 { element: e4m3 scale: f32 per token "
                          "value = element * scale }\n";
  auto message = [&](const std::string &gemm, const char *target) {
    Result<Plan> planned = planOf(fp8 + gemm, {16, 4096, 4096}, target);
    return planned.ok() ? planned->mmaType : planned.error().diagnostics[0].message;
  };
  const std::string gemm = "gemm g { weight: int4 activation: fp8 output: f16 }";
  EXPECT_EQ(messageOf(fp8 + gemm),
            "t.rho:5:35: error: activation 'fp8' has operands of e4m3, sm_80 has no matrix "
            "instruction for them; sm_89, sm_90, sm_90a, sm_120a do [no_mma_on_target]\n" +
                gemm + "\n                                  ^~~\n");
  EXPECT_EQ(message(gemm, "sm_86"), "activation 'fp8' has operands of e4m3, sm_86 has no matrix "
                                    "instruction for them; sm_89, sm_90, sm_90a, sm_120a do");
  EXPECT_EQ(message(gemm, "sm_89"), "e4m3");
  EXPECT_EQ(message(gemm, "sm_90a"), "e4m3");
  EXPECT_EQ(message("gemm g { weight: int4 activation: fp8 output: f16 "
                    "schedule { scales: operand } }",
                    "sm_89"),
            "scales: operand is not legal for 'g': products with scales do not fit operands of "
            "e4m3");
  EXPECT_EQ(
      message("format fp4 { element: e2m1 scale: e4m3 per k[16] value = element * scale }\n"
              "gemm g { weight: fp4 activation: fp8 output: f16 schedule { roles: imfp } }",
              "sm_90a"),
      "scale 'scale' of 'fp4' can be applied neither to operands nor to accumulators: products "
      "with scales do not fit operands of e4m3; group 16 is no multiple of the instruction's "
      "k, 32");
}

TEST(PlanDiagnostics, GroupScalesOfActivationsFitOneCopy) {
  const std::string text =
      "format a { element: s8 scale: f32 per k[128] value = element * scale }\n"
      "gemm g { weight: channel4 activation: a output: f16 "
      "schedule { roles: imfp tile: ";
  auto message = [&](const char *tile) {
    Result<Plan> planned = planOf(text + tile + " } }", {128, 4096, 4096}, "sm_90a");
    return planned.ok() ? "planned" : planned.error().diagnostics[0].message;
  };
  EXPECT_EQ(message("64 x 64 x 128"), "planned");
  EXPECT_EQ(message("128 x 64 x 128"),
            "tile m = 128 does not fit: a group has 512 bytes of 'scale'; a tensor map copies at "
            "most 256");
}

TEST(Placement, FourBitActivationsAreWidenedWhereNoInstructionTakesThem) {
  for (auto [target, roles, type] : {std::tuple{"sm_80", "uniform", "s4"},
                                     {"sm_89", "uniform", "s4"},
                                     {"sm_90", "uniform", "s8"},
                                     {"sm_90a", "uniform", "s8"},
                                     {"sm_90a", "imfp", "s8"},
                                     {"sm_120a", "uniform", "s8"}}) {
    Result<Plan> planned = planOf(std::string("gemm g { weight: int4 activation: int4 output: f16 "
                                              "schedule { roles: ") +
                                      roles + " } }",
                                  {16, 4096, 4096}, target);
    ASSERT_TRUE(planned.ok()) << planned.error().str();
    EXPECT_EQ(planned->mmaType, type) << target;
  }
  // Widened weights are 16 times their value: sums that overflow so fit the narrow instruction.
  const std::string channel = "format token4 { element: s4 scale: f32 per token "
                              "value = element * scale }\n"
                              "gemm g { weight: channel4 activation: token4 output: f16 }";
  Result<Plan> longSum = planOf(channel, {16, 64, int64_t(1) << 22}, "sm_89");
  ASSERT_TRUE(longSum.ok()) << longSum.error().str();
  EXPECT_EQ(longSum->mmaType, "s4");
  EXPECT_FALSE(planOf(channel, {16, 64, int64_t(1) << 22}, "sm_90"));
}

TEST(PlanDiagnostics, Accumulators) {
  EXPECT_EQ(
      messageOf("gemm g { weight: channel4 activation: int8 output: f16 }", {1, 64, 200000}),
      "t.rho:4:6: error: integer sums reach 3276800000 at k = 200000; an s32 accumulator holds "
      "2147483647 [accumulator_overflow]\n"
      "gemm g { weight: channel4 activation: int8 output: f16 }\n"
      "     ^\n");
}

TEST(PlanDiagnostics, SchedulesWithoutMatrixInstructions) {
  auto message = [](const std::string &activation, const std::string &entries, int64_t m) {
    const std::string formats =
        "format narrow8 { element: s8 scale: e4m3 per k[128] value = element * scale }\n"
        "format fp8 { element: e4m3 scale: f32 per token value = element * scale }\n";
    Result<Plan> planned = planOf(formats + "gemm g { weight: int4 activation: " + activation +
                                      " output: f16 schedule { roles: gemv " + entries + " } }",
                                  {m, 4096, 4096}, "sm_90a");
    return planned.ok() ? "planned" : planned.error().diagnostics[0].message;
  };
  EXPECT_EQ(message("f16", "", 4), "planned");
  EXPECT_EQ(message("f16", "", 5), "roles gemv do not fit m = 5: they take at most 4 batch rows");
  EXPECT_EQ(message("fp8", "", 1), "roles gemv do not fit activations of e4m3: CUDA cores multiply "
                                   "s8, f16 and bf16");
  EXPECT_EQ(message("narrow8", "", 1),
            "roles gemv do not fit 'scale': group scales of activations need 16 bits");
  for (const char *split : {"split_k: 2", "split_k: stream"})
    EXPECT_EQ(message("f16", split, 1),
              "roles gemv do not fit a split of k: one CTA sums all of k");
  EXPECT_EQ(message("f16", "cluster: 2 x 1", 1), "cluster 2 x 1 does not fit: it needs roles imfp");
  EXPECT_EQ(message("f16", "tile: 8 x 16 x 64", 1),
            "tile m = 8 does not fit: roles gemv take 1, 2 or 4 batch rows");
  EXPECT_EQ(message("f16", "tile: 4 x 16 x 64 warps: 2 x 1", 1),
            "warps 2 x 1 do not fit tile 4 x 16: each warp of roles gemv has all batch rows");
  EXPECT_EQ(message("f16", "tile: 4 x 16 x 512 warps: 1 x 1 x 16 pipeline: 4", 1),
            "tile 4 x 16 on warps 1 x 1 x 16 needs about 256 registers a thread; the limit is 128");
}

// All activations of a CTA lie in shared memory: where four rows do not fit, two do.
TEST(Planner, DividesTheBatchOfALongGemv) {
  const std::string gemm =
      "gemm g { weight: int4 activation: f16 output: f16 schedule { roles: gemv } }";
  for (auto [k, rows] : {std::pair<int64_t, int64_t>{14336, 4}, {28672, 2}, {60000, 1}}) {
    Result<Plan> planned = planOf(gemm, {4, 8192, k}, "sm_90a");
    ASSERT_TRUE(planned.ok()) << planned.error().str();
    EXPECT_EQ(planned->schedule.tileM, rows);
  }
}

// It waits for no room on an SM, and loads its first weights itself.
TEST(Planner, LeavesADependentGemvAsItIs) {
  Result<Plan> planned = planOf("gemm g { weight: int4 activation: int8 output: f16 "
                                "schedule { roles: gemv launch: dependent } }",
                                {1, 4096, 4096}, "sm_90a");
  ASSERT_TRUE(planned.ok()) << planned.error().str();
  EXPECT_TRUE(planned->schedule.dependent);
  EXPECT_EQ(planned->schedule.residentCtas, 0);
}

// On Hopper, for a single row and integers.
TEST(Planner, ChoosesAGemvWhereItWins) {
  using Roles = dsl::ScheduleDecl::Roles;
  auto rolesOf = [](const std::string &activation, int64_t m, const char *target) {
    std::string gemm = "gemm g { weight: int4 activation: " + activation + " output: f16 }";
    Result<Plan> planned = planOf(gemm, {m, 8192, 8192}, target);
    EXPECT_TRUE(planned.ok()) << planned.error().str();
    return planned.ok() ? planned->schedule.roles : Roles::Uniform;
  };
  EXPECT_EQ(rolesOf("int8", 1, "sm_90a"), Roles::Gemv);
  EXPECT_EQ(rolesOf("int8", 16, "sm_90a"), Roles::ImFP);
  EXPECT_NE(rolesOf("f16", 1, "sm_90a"), Roles::Gemv);
  EXPECT_EQ(rolesOf("int8", 1, "sm_80"), Roles::Uniform);
}

// Bounds of 8 * 16 * 128 * G (s4 in s8 operands, times 16) and 8 * 8 * G (s4 operands) against
// 2^22.
TEST(Sums, AreBiasedWhereTheirBoundIsProved) {
  struct Choice {
    int group;
    const char *activation;
    dsl::ScheduleDecl::Sums sums;
  };
  using Sums = dsl::ScheduleDecl::Sums;
  for (const Choice &each :
       {Choice{128, "int8", Sums::Biased}, Choice{256, "int8", Sums::Converted},
        Choice{32768, "s4wide", Sums::Biased}, Choice{65536, "s4wide", Sums::Converted}}) {
    std::string weight = "format grouped { element: s4 scale: f16 per k[" +
                         std::to_string(each.group) +
                         "] value = element * scale }\n"
                         "format s4wide { element: s4 scale: f32 per token "
                         "value = element * scale }\n";
    Result<Plan> planned = planOf(
        weight + "gemm g { weight: grouped activation: " + each.activation + " output: f16 }",
        {16, 256, 131072});
    ASSERT_TRUE(planned.ok()) << planned.error().str();
    EXPECT_EQ(planned->schedule.sums, each.sums) << each.group;
  }
}

TEST(Sums, ThatCannotBeBiasedSayWhy) {
  struct Refusal {
    const char *target, *weight, *activation, *roles, *why;
  };
  for (const Refusal &each :
       {Refusal{"sm_80", "int4", "f16", "uniform", "sums of f16 operands are floats already"},
        Refusal{"sm_80", "channel4", "int8", "uniform",
                "no scale is shared by a group along k, each output is converted once"},
        Refusal{"sm_90a", "int4", "int8", "imfp", "sums of roles imfp start at zero"},
        Refusal{"sm_80", "wide4", "int8", "uniform",
                "sums of a group reach 4194304, they must stay below 4194304"}}) {
    Result<Plan> planned = planOf(
        std::string("format wide4 { element: s4 scale: f16 per k[256] value = element * scale }\n"
                    "gemm g { weight: ") +
            each.weight + " activation: " + each.activation +
            " output: f16 schedule { roles: " + each.roles + " sums: biased } }",
        {16, 4096, 4096}, each.target);
    ASSERT_FALSE(planned.ok());
    EXPECT_EQ(planned.error().diagnostics[0].message,
              std::string("sums: biased does not fit 'g': ") + each.why);
    EXPECT_EQ(planned.error().diagnostics[0].id, DiagId::schedule_sums); // [schedule_sums]
  }
}

} // namespace
} // namespace rho::compiler
