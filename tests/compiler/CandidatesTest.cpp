// Plans for measuring, and plans that come back from a measurement.
#include "compiler/Candidates.h"
#include "compiler/Explain.h"
#include "compiler/OnTarget.h"
#include "compiler/Targets.h"

#include "compiler/plan/Geometry.h"
#include "dsl/Module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <locale>
#include <map>
#include <set>

namespace rho::compiler {
namespace {

// "1.000" for a thousand.
struct Grouping : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

class CandidatesTest : public testing::Test {
protected:
  Result<std::vector<Plan>> candidates(size_t most, int gemm = 0) const {
    return planCandidates(module.gemms.at(static_cast<size_t>(gemm)), problem, device, most,
                          nullptr);
  }
  // The plan's text after the way through a file.
  Result<Plan> adopted(const std::string &text, Problem problem, int gemm = 0) const {
    return adoptPlan(module.gemms.at(static_cast<size_t>(gemm)), problem, device,
                     Plan::parse(text).value(), nullptr);
  }

  std::string layoutOf(const Plan &plan) const {
    const dsl::Gemm &gemm = module.gemms[0];
    PlacedGemm placed = place(gemm, plan, nullptr).value();
    return makeWeightLayout(gemm, placed, makeGeometry(placed, plan.schedule), plan.problem)
        .print();
  }

  const dsl::Module module =
      dsl::parseModule("format int4 { element: s4 scale: f16 per k[128] value = element * scale }\n"
                       "format int8 { element: s8 scale: f32 per token value = element * scale }\n"
                       "gemm g { weight: int4 activation: int8 output: f16 }\n"
                       "gemm fixed { weight: int4 activation: int8 output: f16\n"
                       "  schedule { tile: 16 x 64 x 128 pipeline: 4 } }\n",
                       "t.rho", [](const std::string &) { return std::nullopt; })
          .value();
  const Problem problem{16, 4096, 4096};
  const DeviceModel device = modelOfTarget("sm_90a").value();
};

// A tuner measures the same without.
TEST_F(CandidatesTest, ManyRowsHaveClustersThatShareActivations) {
  dsl::Gemm gemm = module.gemms[0];
  auto clusters = [&](const Problem &shape) {
    std::vector<int64_t> result;
    for (const Plan &each : planCandidates(gemm, shape, device, 24, nullptr).value())
      result.push_back(each.schedule.clusterN);
    return result;
  };
  for (int64_t m : {1024, 4096}) {
    const std::vector<int64_t> found = clusters({m, 8192, 8192});
    EXPECT_EQ(found[0], 2);
    EXPECT_THAT(found, testing::Contains(1));
  }
  EXPECT_THAT(clusters({512, 8192, 8192}), testing::Each(1));
  EXPECT_THAT(clusters({1024, 256, 8192}), testing::Each(1)) << "one wave";
  gemm.schedule.cluster = dsl::ScheduleDecl::Cluster{1, 1};
  EXPECT_THAT(clusters({4096, 8192, 8192}), testing::Each(1)) << "as declared";
}

TEST_F(CandidatesTest, thePlannersChoiceIsTheFirst) {
  std::vector<Plan> plans = candidates(24).value();
  EXPECT_EQ(plans.at(0).print(), plan(module.gemms[0], problem, device, nullptr).value().print());
  ASSERT_EQ(plans.size(), 24U);
  for (size_t i = 1; i < plans.size(); ++i)
    EXPECT_LE(plans[i - 1].predictedMicroseconds, plans[i].predictedMicroseconds);
  EXPECT_EQ(candidates(1).value().size(), 1U);
}

// Also those that four warps do not fit, and those that no matrix instruction has.
TEST_F(CandidatesTest, smallTilesOfTheScheduleAreTaken) {
  for (const char *target : {"sm_80", "sm_90a"})
    for (int64_t m : {16, 8, 4})
      for (int64_t n : {16, 32, 64}) {
        dsl::Gemm small = module.gemms[0];
        small.schedule.tile = dsl::ScheduleDecl::Tile{m, n, 128};
        Result<Plan> planned = plan(small, {4, 96, 256}, modelOfTarget(target).value(), nullptr);
        ASSERT_TRUE(planned.ok()) << target << ": " << planned.error().str();
        EXPECT_EQ(planned->schedule.roles == dsl::ScheduleDecl::Roles::Gemv, m == 4);
      }
}

// A device may have more shared memory than the one that stands for its target: what is planned for
// it is a plan from its text as well.
TEST_F(CandidatesTest, whatIsPlannedForADeviceCanBeGenerated) {
  for (const dsl::Device &shipped : shippedDevices())
    for (int64_t m : {1, 64}) {
      const DeviceModel model = modelOf(shipped);
      const dsl::Gemm gemm = onTarget(module.gemms[0], model.target).gemm;
      Result<Plan> planned = plan(gemm, {m, 4096, 4096}, model, nullptr);
      ASSERT_TRUE(planned.ok()) << planned.error().str();
      const Plan read = Plan::parse(planned->print()).value();
      const Result<Plan> checked = checkedPlan(gemm, read);
      ASSERT_TRUE(checked.ok()) << shipped.name << ": " << checked.error().str();
      EXPECT_EQ(checked->print(), planned->print()); // with placements
    }
}

TEST_F(CandidatesTest, whyTheFastestByPredictionIsNotChosen) {
  auto reasonOfGemv = [&](const dsl::Gemm &gemm, const char *device, int64_t m) {
    const DeviceModel model = modelOf(*shippedDevice(device));
    const std::vector<Alternative> all = explain(gemm, {m, 8192, 8192}, model, nullptr).value();
    for (const Alternative &each : all)
      if (each.roles == dsl::ScheduleDecl::Roles::Gemv)
        return std::string(each.winner ? "chosen" : each.distrust);
    return std::string("none");
  };
  const std::string elsewhere =
      "products on the CUDA cores were measured on Hopper and, of floats, on sm_120a alone";
  EXPECT_EQ(reasonOfGemv(module.gemms[0], "rtx_4090", 1), elsewhere);
  EXPECT_EQ(reasonOfGemv(module.gemms[0], "a100_80g", 1), elsewhere);
  const std::string others =
      "of products on the CUDA cores nobody has measured others than of floats for m = 1";
  const dsl::Module razer = *dsl::loadModule(RHO_SOURCE_DIR "/kernels/gemms/razer_g128_f16.rho");
  EXPECT_EQ(reasonOfGemv(razer.gemms[0], "rtx_5090", 1), "chosen");
  EXPECT_EQ(reasonOfGemv(razer.gemms[0], "rtx_5090", 2), others);
  EXPECT_EQ(reasonOfGemv(razer.gemms[0], "dgx_spark", 1), elsewhere);
}

TEST_F(CandidatesTest, placementsSayWhereCodesAreLookedUp) {
  auto elementsOf = [&](const std::string &tables) {
    const dsl::Module module =
        dsl::parseModule(
            "import \"rho:nf4_g64\"\ngemm g { weight: nf4_g64 activation: bf16 output: "
            "bf16 schedule { tables: " +
                tables + " } }",
            "t.rho", nullptr)
            .value();
    const DeviceModel h200 = modelOf(*shippedDevice("h200"));
    return plan(module.gemms[0], {16, 8192, 8192}, h200, nullptr).value().placements.at(0).reason;
  };
  EXPECT_EQ(elementsOf("registers"), "decoded to bf16 in 21 instructions per 8");
  EXPECT_EQ(elementsOf("shared"),
            "decoded to bf16 in 8 instructions per 8, looked up in shared memory");
  EXPECT_EQ(elementsOf("mixed"),
            "decoded to bf16 in 11.25 instructions per 8, 3 words of 4 looked up in shared memory");
}

// Tables in shared memory are explained beside registers where they pay, and alone where they are
// asked for.
TEST_F(CandidatesTest, tablesInSharedMemoryAreExplainedWhereTheyPay) {
  using Tables = dsl::ScheduleDecl::Tables;
  auto explained = [&](const std::string &weight, const std::string &schedule,
                       const std::array<size_t, 3> &expected) {
    const dsl::Module module =
        dsl::parseModule("import \"rho:" + weight + "\"\ngemm g { weight: " + weight +
                             " activation: bf16 output: bf16 schedule { roles: imfp " + schedule +
                             " } }",
                         "t.rho", nullptr)
            .value();
    std::multiset<Tables> tables;
    const std::vector<Alternative> all =
        explain(module.gemms[0], {16, 8192, 8192}, device, nullptr).value();
    for (const Alternative &each : all) {
      tables.insert(each.tables);
      if (!each.plan)
        continue;
      EXPECT_EQ(each.plan->schedule.tables, each.tables);
      // As a plan that a measurement found.
      const Plan read = Plan::parse(each.plan->print()).value();
      EXPECT_TRUE(checkedPlan(module.gemms[0], read).ok());
      const Result<Plan> adopted = adoptPlan(module.gemms[0], read.problem, device, read, nullptr);
      ASSERT_TRUE(adopted.ok()) << adopted.error().str();
      EXPECT_EQ(adopted->schedule.tables, each.tables);
    }
    EXPECT_EQ((std::array{tables.count(Tables::Registers), tables.count(Tables::Shared),
                          tables.count(Tables::Mixed)}),
              expected);
  };
  explained("razer_g16", "", {2, 2, 2});
  explained("razer_g16", "tables: shared", {0, 2, 0});
  explained("razer_g16", "tables: mixed", {0, 0, 2});
  explained("razer_g16", "tables: registers", {2, 0, 0});
  explained("int4_g128", "", {2, 0, 0});
}

// Before sm_90 there is no instruction for it.
TEST_F(CandidatesTest, launchesOverlapWhereATargetCan) {
  dsl::Gemm early = module.gemms[0];
  early.schedule.dependent = true;
  for (const std::string &target : allTargets())
    EXPECT_EQ(plan(early, problem, modelOfTarget(target).value(), nullptr)->schedule.dependent,
              capabilityOf(target) >= 90)
        << target;
}

// What k tiles of each part cost goes along with a plan that divides k by work.
TEST_F(CandidatesTest, dividedPartsHaveTheCostsOfTheirTiles) {
  const dsl::Module parts =
      dsl::parseModule("import \"rho:comet_token\" import \"rho:int4_channel\"\n"
                       "gemm g { weight: int4_channel activation: comet_token output: f16 }",
                       "t.rho", nullptr)
          .value();
  const std::vector<Plan> plans =
      planCandidates(parts.gemms[0], problem, device, 24, nullptr).value();
  size_t divided = 0;
  for (const Plan &plan : plans) {
    EXPECT_EQ(plan.schedule.tileCosts.size(), plan.schedule.splitK == 1 ? 0U : 2U);
    divided += plan.schedule.splitK != 1 ? 1 : 0;
  }
  EXPECT_GT(divided, 0U);
}

// Of a tile with fewer rows than its warps need nothing is estimated before it is refused.
TEST_F(CandidatesTest, moreWarpsThanRowsAreRefused) {
  dsl::Gemm wide = module.gemms[0];
  wide.schedule.warps = dsl::ScheduleDecl::Warps{1, 16};
  wide.schedule.splitK = dsl::ScheduleDecl::streamK;
  for (const char *target : {"sm_80", "sm_90a", "sm_120a"})
    EXPECT_TRUE(plan(wide, {1, 96, 256}, modelOfTarget(target).value(), nullptr).ok()) << target;
  wide.schedule.tile = dsl::ScheduleDecl::Tile{8, 32, 128};
  EXPECT_EQ(plan(wide, {1, 96, 256}, modelOfTarget("sm_80").value(), nullptr).error().str(),
            "error: tile n = 32 does not fit: each of its 16 warps needs a power of two of rows, "
            "from 16 [schedule_tile]\n");
  // Where the tile is the planner's it has their rows, wherever the gemm's end.
  wide.schedule = {};
  for (int64_t warps : {5, 6, 12}) {
    wide.schedule.warps = dsl::ScheduleDecl::Warps{1, warps};
    for (const char *target : {"sm_80", "sm_90a"})
      EXPECT_TRUE(plan(wide, {1, 53, 600}, modelOfTarget(target).value(), nullptr).ok()) << warps;
  }
}

// What is said of warps alone leaves the planner tiles and stages, which it has for any.
TEST_F(CandidatesTest, groupsOfWarpsGetAsManyStages) {
  dsl::Gemm own = module.gemms[0];
  for (int64_t groups : {5, 7}) {
    own.schedule.roles = dsl::ScheduleDecl::Roles::ImFP;
    own.schedule.tile = dsl::ScheduleDecl::Tile{8, 32, 128};
    own.schedule.warps = dsl::ScheduleDecl::Warps{1, 2, groups};
    Result<Plan> planned = plan(own, {8, 53, 600}, modelOfTarget("sm_90a").value(), nullptr);
    ASSERT_TRUE(planned.ok()) << planned.error().str();
    EXPECT_EQ(planned->schedule.pipeline % groups, 0);
  }
}

TEST_F(CandidatesTest, plansOfSeveralBatchesShareALayoutOrSayThatNoneServes) {
  std::vector<Problem> problems{{1, 4096, 4096}, {4096, 4096, 4096}, {1, 4096, 4096}};
  std::vector<Plan> shared = sharedPlans(module.gemms[0], problems, device, nullptr).value();
  ASSERT_EQ(shared.size(), 3U);
  EXPECT_EQ(shared[0].print(), shared[2].print());
  EXPECT_EQ(shared[1].problem, problems[1]);
  EXPECT_EQ(layoutOf(shared[0]), layoutOf(shared[1]));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_GE(shared[i].predictedMicroseconds,
              plan(module.gemms[0], problems[i], device, nullptr)->predictedMicroseconds);
  // Panels are what tiles of different sizes have in common.
  EXPECT_NE(shared[0].schedule.tileN, shared[1].schedule.tileN);
  for (const Plan &plan : shared)
    EXPECT_EQ(plan.schedule.packing, dsl::ScheduleDecl::Packing::Panels);
  Result<Plan> again = Plan::parse(shared[1].print());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->schedule, shared[1].schedule);
  const std::string text = shared[1].print();
  std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouping));
  EXPECT_EQ(shared[1].print(), text);
  EXPECT_EQ(Plan::parse(text)->printForKernel(), shared[1].printForKernel());
  std::locale::global(before);
  EXPECT_EQ(adoptPlan(module.gemms[0], problems[1], device, *again, nullptr)->printForKernel(),
            shared[1].printForKernel());
  // Nor is a plan by tiles adopted where panels are declared.
  dsl::Gemm panels = module.gemms[0];
  panels.schedule.packing = dsl::ScheduleDecl::Packing::Panels;
  Plan byTiles = shared[1];
  byTiles.schedule.packing = dsl::ScheduleDecl::Packing::Tiles;
  EXPECT_EQ(adoptPlan(panels, problems[1], device, byTiles, nullptr).error().diagnostics[0].id,
            DiagId::plan_differs);
  // One problem has its own plan.
  EXPECT_EQ(sharedPlans(module.gemms[0], {problem}, device, nullptr)->at(0).print(),
            candidates(1)->at(0).print());
  // A packed weight is of one n.
  Result<std::vector<Plan>> none =
      sharedPlans(module.gemms[0], {{1, 4096, 4096}, {16, 8192, 4096}}, device, nullptr);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().str(), "error: no packed weight of 'g' serves all of m = 1, 16: compile "
                                "them one by one [no_shared_layout]\n");
}

TEST_F(CandidatesTest, gemvHasNoPanels) {
  dsl::Gemm gemm = module.gemms[0];
  gemm.schedule.packing = dsl::ScheduleDecl::Packing::Panels;
  for (const char *target : {"sm_80", "sm_90a"})
    EXPECT_EQ(plan(gemm, {1, 4096, 4096}, modelOfTarget(target).value(), nullptr)->schedule.packing,
              dsl::ScheduleDecl::Packing::Panels);
  gemm.schedule.roles = dsl::ScheduleDecl::Roles::Gemv;
  EXPECT_EQ(plan(gemm, {1, 4096, 4096}, device, nullptr).error().diagnostics[0].message,
            "roles gemv do not fit packing: panels: each warp streams tiles of its own");
}

// Where tiles of 64 weight rows would leave half of the SMs without outputs, each has all of k.
TEST_F(CandidatesTest, aWeightOfFewRowsIsDividedIntoNarrowTiles) {
  const dsl::Module more =
      dsl::parseModule("format int4 { element: s4 scale: f16 per k[128] value = element * scale }\n"
                       "format int8 { element: s8 scale: f32 per token value = element * scale }\n"
                       "gemm g8 { weight: int4 activation: int8 output: f16\n"
                       "  schedule { roles: imfp } }\n"
                       "gemm g16 { weight: int4 activation: f16 output: f16\n"
                       "  schedule { roles: imfp } }\n"
                       "gemm g4 { weight: int4 activation: int4 output: f16\n"
                       "  schedule { roles: imfp } }\n",
                       "t.rho", [](const std::string &) { return std::nullopt; })
          .value();
  auto rowsOf = [&](size_t gemm, const Problem &problem) {
    return plan(more.gemms.at(gemm), problem, device, nullptr).value().schedule.tileN;
  };
  EXPECT_EQ(rowsOf(0, {8, 4096, 4096}), 32);
  EXPECT_EQ(rowsOf(0, {16, 4096, 4096}), 32);
  EXPECT_EQ(rowsOf(1, {8, 4096, 4096}), 32);
  EXPECT_EQ(rowsOf(0, {8, 4096, 14336}), 32);
  // Of 16 bits with a long k, of which each CTA reads all, in longer tiles.
  const Schedule longest = plan(more.gemms[1], {8, 4096, 14336}, device, nullptr)->schedule;
  EXPECT_EQ(longest.tileN, 32);
  EXPECT_EQ(longest.tileK, 512);
  EXPECT_NE(rowsOf(2, {8, 4096, 4096}), 32);  // activations have scales, too
  EXPECT_NE(rowsOf(0, {32, 4096, 4096}), 32); // more rows than warps multiply alone
  EXPECT_NE(rowsOf(0, {8, 8192, 8192}), 32);
}

TEST_F(CandidatesTest, atMostThreeAreAlikeAndNoTwoTheSame) {
  std::map<std::string, int> alike;
  std::set<std::string> texts;
  std::vector<Plan> plans = candidates(24).value();
  for (const Plan &plan : plans) {
    const Schedule &s = plan.schedule;
    std::string shape = std::string(dsl::name(s.roles)) + std::to_string(s.tileM) + "x" +
                        std::to_string(s.tileN) + "x" + std::to_string(s.tileK);
    EXPECT_LE(++alike[shape], 3) << shape;
    texts.insert(plan.printForKernel());
  }
  EXPECT_EQ(texts.size(), plans.size());
  EXPECT_GE(alike.size(), 8U);
}

TEST_F(CandidatesTest, aFixedTileHasThreeOfItsKind) {
  std::vector<Plan> plans = candidates(24, 1).value();
  for (const Plan &plan : plans) {
    EXPECT_EQ(plan.schedule.tileN, 64);
    EXPECT_EQ(plan.schedule.pipeline, 4);
  }
  std::set<dsl::ScheduleDecl::Roles> roles;
  for (const Plan &plan : plans)
    roles.insert(plan.schedule.roles);
  EXPECT_LE(plans.size(), 3 * roles.size());
}

TEST_F(CandidatesTest, everyCandidateComesBackFromItsText) {
  std::vector<Plan> plans = candidates(24).value();
  for (const Plan &plan : plans) {
    Result<Plan> back = adopted(plan.print(), problem);
    ASSERT_TRUE(back) << back.error().str();
    EXPECT_EQ(back->print(), plan.print()); // with placements and prediction
  }
}

TEST_F(CandidatesTest, anEndlessLineIsShownShort) {
  EXPECT_EQ(Plan::parse(std::string(1 << 20, 'a')).error().str(),
            "error: malformed plan at '" + std::string(48, 'a') + "...' [bad_plan]\n");
}

TEST_F(CandidatesTest, aPlanIsAdoptedForAnotherM) {
  Plan plan = candidates(2).value().at(1);
  Result<Plan> back = adopted(plan.print(), {9, 4096, 4096});
  ASSERT_TRUE(back) << back.error().str();
  EXPECT_EQ(back->problem.m, 9);
  EXPECT_EQ(back->schedule, plan.schedule);
}

TEST_F(CandidatesTest, whatIsNotForThisDeclarationOrDeviceIsRefused) {
  std::string text = candidates(1).value().at(0).print();
  auto changed = [&](const std::string &from, const std::string &to) {
    std::string other = text;
    size_t at = other.find(from);
    EXPECT_NE(at, std::string::npos) << text;
    return other.replace(at, other.find('\n', at) - at, to);
  };
  auto message = [](const Result<Plan> &plan) { return plan ? "adopted" : plan.error().str(); };
  EXPECT_EQ(message(adopted(text, {16, 4096, 8192})),
            "error: a plan of another problem, device or declaration: it says "
            "'shape n=4096 k=4096', here it is 'shape n=4096 k=8192' [plan_differs]\n");
  const std::string another = "error: a plan of another problem, device or declaration: it says '";
  EXPECT_EQ(message(adopted(changed("mma ", "mma f16"), problem)),
            another + "mma f16', here it is 'mma s8' [plan_differs]\n");
  EXPECT_TRUE(
      message(adopted(changed("target ", "target sm_80"), problem))
          .starts_with(another + "target sm_80', here it is 'target sm_90a' [plan_differs]"));
  EXPECT_TRUE(message(adopted(changed("resident ", "resident 7 at 1"), problem))
                  .starts_with(another + "resident 7 at 1', here it is 'resident "));
  // The gemm that fixes its pipeline has another.
  std::string other = candidates(1, 1).value().at(0).print();
  ASSERT_TRUE(adopted(other, problem, 1));
  text = other;
  EXPECT_TRUE(message(adopted(changed("pipeline ", "pipeline 3"), problem, 1))
                  .starts_with(another + "pipeline 3', here it is 'pipeline "));
  EXPECT_NE(message(adopted(changed("tile ", "tile 16 x 48 x 128"), problem)).find("[schedule_"),
            std::string::npos);
}

// RaZeR, appendix E: of equal shares of k, fewer CTAs have fuller ones.
TEST(Shares, haveAsManyCtasAsIsFixedOrFewerWhereThatIsFaster) {
  auto planned = [](const std::string &schedule, const Problem &problem,
                    const DeviceModel &device = *modelOfTarget("sm_90a")) {
    Result<dsl::Module> module = dsl::parseModule(
        "format int4 { element: s4 scale: f16 per k[128] value = element * scale }\n"
        "gemm g { weight: int4 activation: f16 output: f16 schedule { " +
            schedule + " } }",
        "t.rho", [](const std::string &) { return std::nullopt; });
    return plan(module.value().gemms.at(0), problem, device, nullptr).value();
  };
  // Where nobody asks for shares as well.
  const Plan free = planned("tile: 64 x 128 x 128 roles: uniform", {16, 4096, 4096},
                            modelOf(*shippedDevice("rtx_5090")));
  EXPECT_TRUE(free.schedule.streamsK());
  EXPECT_LT(free.schedule.residentCtas, 170);
  const Problem small{16, 1024, 2048}, large{16, 28672, 8192};
  for (const char *roles : {"imfp", "uniform"}) {
    std::string own = std::string("split_k: stream roles: ") + roles;
    EXPECT_EQ(planned(own + " ctas: 40", small).schedule.residentCtas, 40);
    Plan all = planned(own + " ctas: 65535", small), chosen = planned(own, small);
    EXPECT_GE(all.schedule.residentCtas, 132);
    EXPECT_LE(chosen.predictedMicroseconds, all.predictedMicroseconds);
    if (chosen.schedule.roles == dsl::ScheduleDecl::Roles::ImFP)
      EXPECT_LT(chosen.schedule.residentCtas, 132 * chosen.schedule.ctasPerSm);
    EXPECT_GE(planned(own, large).schedule.residentCtas, 128) << roles;
  }
}

// Outputs that leave many SMs idle in their last wave; not where whole tiles fit, of few rows of
// the batch or of many, beside a residual, or where the declaration fixes another split.
TEST(Shares, areEqualWhereTheLastWaveWouldIdle) {
  const dsl::Module module =
      dsl::parseModule(
          "format int4 { element: s4 scale: f16 per channel value = element * scale }\n"
          "format both { element: s4 scale: f16 per channel value = element * scale\n"
          "  residual rest: int4 per n[64] k[64] budget 10% }\n"
          "format int8 { element: s8 scale: f32 per token value = element * scale }\n"
          "gemm g { weight: int4 activation: int8 output: f16 }\n"
          "gemm early { weight: int4 activation: int8 output: f16 schedule { launch: dependent } "
          "}\n"
          "gemm with_residual { weight: both activation: int8 output: f16 }\n"
          "gemm fixed { weight: int4 activation: int8 output: f16 schedule { split_k: 1 } }\n",
          "t.rho", [](const std::string &) { return std::nullopt; })
          .value();
  auto isEqual = [&](const char *name, const Problem &problem) {
    Plan planned =
        plan(*module.findGemm(name), problem, modelOfTarget("sm_90a").value(), nullptr).value();
    return planned.schedule.splitK == dsl::ScheduleDecl::streamK;
  };
  const Problem idle{256, 10240, 8192}; // 160 tiles of 64 rows for 132 SMs
  EXPECT_TRUE(isEqual("g", idle));
  EXPECT_FALSE(isEqual("g", {256, 8192, 8192}));
  // 80 CTAs do not load as fast as 132 while the next kernel's do.
  EXPECT_TRUE(isEqual("early", {32, 20480, 16384}));
  EXPECT_FALSE(isEqual("early", {8, 20480, 16384})); // 128 tiles of 160 rows
  EXPECT_FALSE(isEqual("early", {8, 8192, 8192}));
  EXPECT_FALSE(isEqual("g", {8, 20480, 16384}));
  EXPECT_FALSE(isEqual("g", {1024, 10240, 8192}));
  EXPECT_FALSE(isEqual("with_residual", idle));
  EXPECT_FALSE(isEqual("fixed", idle));
}

// Weights of which tiles of a power of two leave SMs without outputs, or fill a second wave in
// part: 64 tiles of 192 rows, 128 of 96, 48, 80 and 224, 256 of 224.
TEST(Tiles, haveRowsThatFillTheSms) {
  const dsl::Module module =
      dsl::parseModule(
          "format int4 { element: s4 scale: bf16 per k[128] value = element * scale }\n"
          "format rows { element: s4 scale: f16 per channel value = element * scale }\n"
          "format int8 { element: s8 scale: f32 per token value = element * scale }\n"
          "gemm g { weight: rows activation: int8 output: f16 }\n"
          "gemm half { weight: int4 activation: bf16 output: bf16 }\n",
          "t.rho", [](const std::string &) { return std::nullopt; })
          .value();
  auto rowsOf = [&](const char *name, const Problem &problem, const char *target = "sm_90a") {
    Plan planned =
        plan(*module.findGemm(name), problem, modelOfTarget(target).value(), nullptr).value();
    return planned.schedule.tileN;
  };
  EXPECT_EQ(rowsOf("g", {256, 12288, 4096}), 192);
  EXPECT_EQ(rowsOf("half", {256, 12288, 4096}), 192);
  EXPECT_EQ(rowsOf("half", {8, 12288, 4096}), 96);
  EXPECT_EQ(rowsOf("half", {8, 6144, 4096}), 48);
  EXPECT_EQ(rowsOf("half", {8, 10240, 8192}), 80);
  EXPECT_EQ(rowsOf("half", {8, 28672, 4096}), 224);
  EXPECT_EQ(rowsOf("half", {8, 57344, 8192}), 224);
  EXPECT_NE(rowsOf("g", {256, 8192, 8192}), 192); // 128 tiles of 128 x 128
  EXPECT_NE(rowsOf("half", {256, 12288, 4096}, "sm_80") % 3, 0);
}

// Batches between powers of two: the rows of one tile, or of each of two.
TEST(Tiles, haveRowsThatTheBatchDividesInto) {
  const dsl::Module module =
      dsl::parseModule(
          "format rows { element: s4 scale: f16 per channel value = element * scale }\n"
          "format int8 { element: s8 scale: f32 per token value = element * scale }\n"
          "gemm g { weight: rows activation: int8 output: f16 }\n",
          "t.rho", [](const std::string &) { return std::nullopt; })
          .value();
  auto batchOf = [&](int64_t m, const char *target = "sm_90a") {
    return plan(module.gemms.at(0), {m, 8192, 8192}, modelOfTarget(target).value(), nullptr)
        ->schedule.tileM;
  };
  EXPECT_EQ(batchOf(75), 80);
  for (int64_t m : {96, 128, 160, 256}) // one or more whole tiles
    EXPECT_EQ(m % batchOf(m), 0) << m;
  EXPECT_EQ(batchOf(300), 160);
  EXPECT_EQ(batchOf(96, "sm_80") & (batchOf(96, "sm_80") - 1), 0);
  for (int64_t m = 1; m <= 1100; ++m) {
    EXPECT_GE(mostRowsAlike(m), m);
    EXPECT_EQ(mostRowsAlike(mostRowsAlike(m)), mostRowsAlike(m));
  }
  EXPECT_EQ(mostRowsAlike(9), 16);
  EXPECT_EQ(mostRowsAlike(17), 32);
  EXPECT_EQ(mostRowsAlike(33), 48);
  EXPECT_EQ(mostRowsAlike(1009), 1024);
  EXPECT_EQ(mostRowsAlike(1025), 2048);
}

} // namespace
} // namespace rho::compiler
