// Schedules that users fix: completed by the planner, or refused.
#include "compiler/plan/Geometry.h"
#include "tests/compiler/Plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rho::compiler {
namespace {

std::string scheduled(const std::string &schedule) {
  return messageOf("gemm g { weight: int4 activation: f16 output: f16 schedule { " + schedule +
                   " } }");
}

TEST(PlanDiagnostics, Schedules) {
  auto expect = [](const std::string &schedule, const std::string &message, size_t column,
                   size_t width) {
    std::string line =
        "gemm g { weight: int4 activation: f16 output: f16 schedule { " + schedule + " } }";
    EXPECT_EQ(scheduled(schedule), "t.rho:4:" + std::to_string(column) + ": error: " + message +
                                       "\n" + line + "\n" + std::string(column - 1, ' ') + "^" +
                                       std::string(width - 1, '~') + "\n");
  };
  expect("tile: 16 x 48 x 64 warps: 2 x 4",
         "tile n = 48 does not fit: each of its 4 warps needs a power of two of rows, from 16 "
         "[schedule_tile]",
         62, 4);
  expect("tile: 16 x 64 x 64 warps: 4 x 2",
         "warps 4 x 2 do not fit tile 16 x 64: each warp needs at least 8 batch rows "
         "[schedule_warps]",
         81, 5);
  expect(
      "tile: 128 x 128 x 256 pipeline: 8",
      "tile 128 x 128 x 256 with pipeline 8 needs 659456 bytes of shared memory; sm_80 has 166912 "
      "[schedule_shared_memory]",
      84, 8);
  expect("tile: 256 x 256 x 64 warps: 2 x 2 pipeline: 2",
         "tile 256 x 256 on warps 2 x 2 needs about 1236 registers a thread; the limit is 255 "
         "[schedule_registers]",
         62, 4);
  expect("tile: 16 x 64 x 256 split_k: 32",
         "split_k 32 exceeds the 16 k tiles of this problem [schedule_split_k]", 82, 7);
  expect("split_k: 2 ctas: 100",
         "ctas 100 does not fit: it counts those of split_k: stream, others follow from tiles and "
         "parts of k [schedule_ctas]",
         73, 4);
  const std::string line = "gemm g { weight: int4 activation: f16 output: f16 schedule { tile: 8 x "
                           "64 x 64 split_k: 2 } }";
  EXPECT_EQ(messageOf(line, {8 * 1024, 64 * 64, 256}).substr(0, 7), "planned");
  EXPECT_EQ(messageOf(line, {8 * 1024 + 1, 64 * 64, 256}),
            "t.rho:4:80: error: split_k 2 shares 65600 output tiles, a workspace counts those of "
            "65536 [schedule_split_tiles]\n" +
                line + "\n" + std::string(79, ' ') + "^~~~~~~\n");
}

TEST(PlanDiagnostics, SpecializedSchedules) {
  struct Refusal {
    const char *target, *activation, *schedule;
    size_t at; // the entry that is pointed at, by its first characters in the schedule
    size_t width;
    const char *message;
  };
  for (const Refusal &each :
       {Refusal{"sm_80", "f16", "roles: imfp", 0, 5,
                "roles imfp do not fit sm_80: they need sm_90a [schedule_roles]"},
        Refusal{"sm_80", "f16", "roles: excp", 0, 5,
                "roles excp do not fit sm_80: they need sm_90a [schedule_roles]"},
        Refusal{
            "sm_90a", "f16", "roles: excp warps: 1 x 4 x 2 tile: 16 x 64 x 64", 12, 5,
            "warps 1 x 4 x 2 do not fit tile 16 x 64: roles excp have one or two warpgroups that "
            "multiply, 1 x 4 or 1 x 8, and one group of warps along k [schedule_warps]"},
        Refusal{"sm_90a", "f16", "roles: excp warps: 1 x 16 tile: 16 x 256 x 64", 12, 5,
                "warps 1 x 16 do not fit tile 16 x 256: roles excp have one or two warpgroups that "
                "multiply, 1 x 4 or 1 x 8, and one group of warps along k [schedule_warps]"},
        Refusal{
            "sm_90a", "f16",
            "roles: excp tile: 256 x 128 x 64 warps: 1 x 8 pipeline: 2 scales: operand", 12, 4,
            "tile 256 x 128 on warps 1 x 8 needs about 154 registers a thread; the limit is 128 "
            "[schedule_registers]"},
        Refusal{"sm_90a", "f16", "roles: uniform cluster: 2 x 1", 15, 7,
                "cluster 2 x 1 does not fit: it needs roles imfp [schedule_cluster]"},
        Refusal{"sm_90a", "f16", "roles: imfp cluster: 1 x 2 split_k: 4 tile: 16 x 64 x 64", 12, 7,
                "cluster 1 x 2 does not fit: k is split in 4, a cluster has all parts or one "
                "[schedule_cluster]"},
        Refusal{"sm_90a", "f16", "roles: imfp cluster: 2 x 8 split_k: 8 tile: 16 x 64 x 64", 12, 7,
                "cluster 2 x 8 does not fit: 16 CTAs, a cluster has at most 8 [schedule_cluster]"},
        Refusal{"sm_90a", "f16", "roles: imfp cluster: 4 x 1 tile: 16 x 64 x 64", 12, 7,
                "cluster 4 x 1 does not fit: of 16 batch rows each CTA copies an equal share, a "
                "multiple of 8 [schedule_cluster]"},
        // Of roles that nobody asked for those that have clusters say what is in the way.
        Refusal{"sm_90a", "f16", "cluster: 8 x 2", 0, 7,
                "cluster 8 x 2 does not fit: 16 CTAs, a cluster has at most 8 [schedule_cluster]"},
        Refusal{"sm_90a", "f16", "split_k: 5 cluster: 1 x 3", 11, 7,
                "cluster 1 x 3 does not fit: k is split in 5, a cluster has all parts or one "
                "[schedule_cluster]"},
        Refusal{"sm_90a", "f16", "cluster: 1 x 8 tile: 16 x 64 x 1024", 0, 7,
                "split_k 8 exceeds the 4 k tiles of this problem [schedule_split_k]"},
        Refusal{"sm_90a", "f16", "roles: imfp cluster: 2 x 1 split_k: stream tile: 16 x 64 x 64",
                12, 7,
                "cluster 2 x 1 does not fit: equal shares of k are those of single CTAs "
                "[schedule_cluster]"},
        Refusal{"sm_90a", "f16", "roles: uniform warps: 1 x 4 x 2 tile: 16 x 64 x 64", 15, 5,
                "warps 1 x 4 x 2 do not fit tile 16 x 64: groups of warps along k need roles imfp "
                "or gemv [schedule_warps]"},
        Refusal{
            "sm_90a", "f16", "roles: imfp warps: 2 x 4 tile: 16 x 64 x 64", 12, 5,
            "warps 2 x 4 do not fit tile 16 x 64: with roles imfp each has all batch rows, they "
            "stand 1 x N or 1 x N x K [schedule_warps]"},
        Refusal{"sm_90a", "f16", "roles: imfp warps: 1 x 2 tile: 16 x 64 x 64", 12, 5,
                "warps 1 x 2 do not fit tile 16 x 64: warps that share wgmma instructions stand 1 "
                "x 4, 1 x 8, 1 x 12 or 1 x 16 [schedule_warps]"},
        Refusal{
            "sm_90a", "f16", "tile: 16 x 272 x 64", 0, 4,
            "tile n = 272 does not fit: of 1 to 16 warps none have a power of two of rows, from "
            "16, each [schedule_tile]"},
        Refusal{"sm_90a", "f16", "roles: imfp warps: 1 x 8 tile: 16 x 64 x 64", 25, 4,
                "tile n = 64 does not fit: each of its 8 warps needs a power of two of rows, from "
                "16 [schedule_tile]"},
        Refusal{"sm_90a", "f16", "roles: imfp warps: 1 x 12 tile: 16 x 256 x 64", 26, 4,
                "tile n = 256 does not fit: each of its 12 warps needs a power of two of rows, "
                "from 16 [schedule_tile]"},
        Refusal{"sm_90a", "f16", "roles: imfp tile: 32 x 208 x 64", 12, 4,
                "tile n = 208 does not fit: warpgroups multiply 64 rows at a time; warps that "
                "multiply by themselves take 16, with roles imfp, at most 16 batch rows and no "
                "operands of e4m3 [schedule_tile]"},
        Refusal{"sm_90a", "f16",
                "roles: imfp warps: 1 x 4 x 2 tile: 16 x 64 x 64 pipeline: 2 scales: operand", 12,
                5,
                "warps 1 x 4 x 2 do not fit tile 16 x 64: 2 groups along k need a pipeline of a "
                "multiple of 2 stages, at least 4 [schedule_warps]"},
        Refusal{"sm_90a", "int8", "roles: imfp warps: 1 x 4 x 3 tile: 16 x 64 x 128 pipeline: 2",
                12, 5,
                "warps 1 x 4 x 3 do not fit tile 16 x 64: 3 groups along k need a pipeline of a "
                "multiple of 3 stages, at least 3 [schedule_warps]"},
        Refusal{"sm_90a", "int8", "roles: imfp tile: 40 x 64 x 128", 12, 4,
                "tile m = 40 does not fit: it must be a power of two of at least 8, or where "
                "warpgroups multiply a multiple of 16, or with roles gemv 1, 2 or 4 "
                "[schedule_tile]"},
        Refusal{"sm_90a", "int8", "roles: imfp tile: 16 x 64 x 64", 12, 4,
                "tile k = 64 does not fit: it must cover a multiple of 128 bytes of activations "
                "[schedule_tile]"},
        Refusal{"sm_90a", "wide8", "roles: imfp tile: 128 x 64 x 128 warps: 1 x 4 pipeline: 2", 12,
                4,
                "tile m = 128 does not fit: a group has 512 bytes of 'scale'; a tensor map copies "
                "at most 256 [schedule_tile]"},
        Refusal{"sm_90a", "narrow8", "roles: imfp tile: 8 x 64 x 128 warps: 1 x 4 pipeline: 2", 12,
                4,
                "tile m = 8 does not fit: a group has 8 bytes of 'scale'; they are copied in "
                "pieces of 16 [schedule_tile]"},
        // Not for stages that the planner chose, which could be fewer.
        Refusal{"sm_90a", "int8", "roles: imfp tile: 64 x 128 x 256 split_k: 64", 12 + 21, 7,
                "split_k 64 exceeds the 16 k tiles of this problem [schedule_split_k]"},
        Refusal{"sm_90a", "int8", "roles: imfp tile: 16 x 256 x 1024 warps: 1 x 8", 12, 4,
                "tile 16 x 256 x 1024 with pipeline 2 needs 304128 bytes of shared memory; sm_90a "
                "has 232448 [schedule_shared_memory]"},
        Refusal{"sm_90a", "int8", "roles: imfp tile: 256 x 64 x 128 warps: 1 x 4 pipeline: 2", 12,
                4,
                "tile 256 x 64 on warps 1 x 4 needs about 280 registers a thread; the limit is 240 "
                "[schedule_registers]"}}) {
    std::string line = std::string("gemm g { weight: int4 activation: ") + each.activation +
                       " output: f16 schedule { " + each.schedule + " } }";
    std::string more =
        "format wide8 { element: s8 scale: f32 per k[128] value = element * scale }\n"
        "format narrow8 { element: s8 scale: e4m3 per k[128] "
        "value = element * scale }\n";
    Result<Plan> planned = planOf(more + line, {16, 4096, 4096}, each.target);
    ASSERT_FALSE(planned.ok()) << line;
    size_t column = line.find(each.schedule) + each.at;
    EXPECT_EQ(planned.error().str(),
              "t.rho:6:" + std::to_string(column + 1) + ": error: " + each.message + "\n" + line +
                  "\n" + std::string(column, ' ') + "^" + std::string(each.width - 1, '~') + "\n");
  }
}

// What is not said the planner chooses, also where that is nothing that it tries otherwise.
TEST(Plan, CompletesWhatIsFixed) {
  struct Fixed {
    const char *target, *activation, *schedule;
    int64_t m;
  };
  for (const Fixed &fixed : {Fixed{"sm_80", "f16", "tile: 8 x 144 x 128", 16},
                             Fixed{"sm_80", "f16", "tile: 8 x 208 x 128", 16},
                             Fixed{"sm_80", "f16", "tile: 8 x 16 x 128", 16},
                             Fixed{"sm_90a", "f16", "roles: imfp tile: 8 x 512 x 128", 16},
                             Fixed{"sm_90a", "f16", "roles: imfp tile: 8 x 16 x 128", 16},
                             Fixed{"sm_80", "int8", "roles: gemv tile: 1 x 48 x 128", 1}}) {
    Result<Plan> planned =
        planOf(std::string("gemm g { weight: int4 activation: ") + fixed.activation +
                   " output: f16 schedule { " + fixed.schedule + " } }",
               {fixed.m, 300, 512}, fixed.target);
    EXPECT_TRUE(planned.ok()) << planned.error().str();
  }
}

// Why codes are not looked up in shared memory where that is asked for.
TEST(PlanDiagnostics, TablesInSharedMemory) {
  struct Refusal {
    const char *weight, *activation, *target, *roles, *why, *tables = "shared";
  };
  const char *codes = "codes of 4 bits are looked up there, alone in their factor, for operands of "
                      "f16 and bf16 that hold each of their numbers";
  for (const Refusal &each :
       {Refusal{"int4", "f16", "sm_90a", "roles: gemv ", "roles gemv have none, others have"},
        Refusal{"int4", "int8", "sm_80", "", codes},
        Refusal{"int4", "int8", "sm_90a", "roles: imfp ", codes},
        Refusal{"wide", "f16", "sm_90a", "roles: imfp ", codes},
        Refusal{"moved", "f16", "sm_90a", "roles: excp ", codes},
        Refusal{"patched", "f16", "sm_90a", "roles: imfp ",
                "codes of a residual are not looked up there"},
        Refusal{"int4", "mixed", "sm_90a", "roles: imfp ",
                "beside activations in parts there are none"},
        Refusal{"int4", "int8", "sm_80", "", codes, "mixed"},
        Refusal{"int4", "bf16", "sm_80", "",
                "the decode in registers wants codes in other places, or scales times other powers "
                "of two, "
                "than tables",
                "mixed"}}) {
    const std::string
        formats = "format wide { element: s8 scale: f32 per channel value = element * "
                  "scale }\n"
                  "format moved { element: u4 zero: u8 per k[64] value = element - zero }\n"
                  "format patched { element: s4 scale: f32 per channel value = element * "
                  "scale residual fix: rest per n[16] k[64] budget 30% }\n"
                  "format rest { element: s4 scale: f32 per k[64] value = element * "
                  "scale }\n"
                  "format parted { element: s8 scale: f32 per token value = element * "
                  "scale }\n"
                  "format mixed { partition per tensor k[64] { low: parted high: int8 } }\n",
        line = std::string("gemm g { weight: ") + each.weight + " activation: " + each.activation +
               " output: f16 schedule { " + each.roles + "tables: " + each.tables + " } }";
    const Result<Plan> planned = planOf(formats + line, {16, 128, 512}, each.target);
    const std::string message = planned.ok() ? planned->print() : planned.error().str();
    EXPECT_NE(message.find(std::string("tables: ") + each.tables +
                           " does not fit 'g': " + each.why + " [schedule_tables]\n" + line + "\n" +
                           std::string(line.find("tables"), ' ') + "^~~~~~\n"),
              std::string::npos)
        << message;
  }
}

// What is fixed may need more rows than the batch has: the planner finds a tile.
TEST(Plan, FindsTilesForWarpsAndClustersThatAreFixed) {
  for (auto [target, schedule] : {std::pair{"sm_80", "warps: 4 x 2"},
                                  {"sm_80", "warps: 16 x 1"},
                                  {"sm_90a", "warps: 4 x 2"},
                                  {"sm_90a", "cluster: 4 x 1"},
                                  {"sm_90a", "roles: imfp cluster: 4 x 1"},
                                  {"sm_90a", "cluster: 3 x 1"},
                                  {"sm_90a", "cluster: 3 x 2"},
                                  {"sm_90a", "roles: imfp cluster: 5 x 1"},
                                  {"sm_90a", "roles: imfp cluster: 6 x 1"},
                                  {"sm_90a", "roles: imfp cluster: 7 x 1"}})
    for (int64_t m : {1, 16, 64, 100, 1000, 5000}) {
      Result<Plan> planned =
          planOf("gemm g { weight: int4 activation: f16 output: f16 schedule { " +
                     std::string(schedule) + " } }",
                 {m, 256, 1024}, target);
      EXPECT_TRUE(planned.ok()) << planned.error().str();
    }
}

// Also for warps without matrix instructions, of which any number has the rows of a tile.
TEST(Plan, FindsTilesForTheWarpsOfAGemv) {
  for (int64_t warps = 1; warps <= Geometry::mostWarps; ++warps)
    for (int64_t m : {1, 4}) {
      Result<Plan> planned = planOf("gemm g { weight: int4 activation: int8 output: f16 schedule { "
                                    "roles: gemv warps: 1 x " +
                                        std::to_string(warps) + " } }",
                                    {m, 256, 512}, "sm_90a");
      ASSERT_TRUE(planned.ok()) << planned.error().str();
      EXPECT_EQ(planned->schedule.warpsN, warps);
    }
  // Rows of warps are not to blame for what else is in the way.
  EXPECT_THAT(messageOf("gemm g { weight: int4 activation: f16 output: f16 schedule { "
                        "roles: gemv warps: 1 x 2 } }",
                        {4, 256, 1 << 20}),
              testing::HasSubstr("bytes of shared memory; sm_80 has 166912"));
}

// Products on the CUDA cores that nobody has measured are no choice for warps that are fixed,
// either.
TEST(Plan, OfFixedWarpsIsTrustedAsAnyOther) {
  const DeviceModel device = modelOf(*shippedDevice("rtx_5090"));
  for (const char *warps : {"1 x 4", "1 x 8"}) {
    const dsl::Module module = parse(
        formats + "gemm g { weight: int4 activation: int8 output: f16 schedule { warps: " + warps +
        " } }");
    Result<Plan> planned = plan(module.gemms[0], {1, 4096, 4096}, device, nullptr);
    ASSERT_TRUE(planned.ok()) << planned.error().str();
    EXPECT_EQ(planned->schedule.roles, dsl::ScheduleDecl::Roles::Uniform);
  }
}

// Asked for, they are taken, and a plan says so.
TEST(Plan, TakesTablesInSharedMemory) {
  auto planned = [](const std::string &tables, int64_t m) {
    return planOf("gemm g { weight: int4 activation: f16 output: f16 schedule { " + tables + " } }",
                  {m, 4096, 4096}, "sm_90a")
        .value();
  };
  for (int64_t m : {1, 64, 512}) {
    const Plan shared = planned("tables: shared", m), usual = planned("", m);
    EXPECT_EQ(shared.schedule.tables, dsl::ScheduleDecl::Tables::Shared);
    EXPECT_NE(shared.print().find("\ntables shared\n"), std::string::npos);
    EXPECT_EQ(Plan::parse(shared.print())->schedule, shared.schedule);
    EXPECT_EQ(usual.print(), planned("tables: registers", m).print());
    EXPECT_EQ(usual.print().find("tables"), std::string::npos);
  }
  const std::string book = "format book { element: codebook [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, "
                           "3, 4, 5, 6, 7, 9] scale: f32 per channel value = element * scale }\n"
                           "gemm g { weight: book activation: f16 output: f16 schedule { ";
  const Plan mixed = planOf(book + "tables: mixed } }", {16, 4096, 4096}, "sm_90a").value();
  EXPECT_NE(mixed.print().find("\ntables mixed\n"), std::string::npos);
  EXPECT_EQ(Plan::parse(mixed.print())->schedule, mixed.schedule);
}

// Without roles it may be another entry that is in the way.
TEST(Plan, RefusesTheEntryThatIsInTheWay) {
  EXPECT_EQ(
      planOf("gemm g { weight: int4 activation: f16 output: f16 schedule { tile: 4 x 64 x 128 "
             "split_k: 5 packing: tiles } }",
             {4, 300, 512}, "sm_80")
          .error()
          .str(),
      "t.rho:4:81: error: roles gemv do not fit a split of k: one CTA sums all of k "
      "[schedule_roles]\n"
      "gemm g { weight: int4 activation: f16 output: f16 schedule { tile: 4 x 64 x 128 "
      "split_k: 5 packing: tiles } }\n" +
          std::string(80, ' ') + "^~~~~~~\n");
  EXPECT_EQ(
      planOf("gemm g { weight: int4 activation: f16 output: f16 schedule { tile: 4 x 64 x 128 "
             "roles: uniform } }",
             {4, 300, 512}, "sm_80")
          .error()
          .diagnostics[0]
          .id,
      DiagId::schedule_tile);
}

TEST(Plan, TakesWhatASpecializedScheduleFixes) {
  auto schedule = [](const std::string &more, int64_t m = 16) {
    Result<Plan> fixed = planOf("gemm g { weight: int4 activation: int8 output: f16 schedule { "
                                "roles: imfp pipeline: 4 tile: 32 x 64 x 128 " +
                                    more + " } }",
                                {m, 4096, 4096}, "sm_90a");
    EXPECT_TRUE(fixed.ok()) << fixed.error().str();
    Result<Plan> parsed = Plan::parse(fixed->print());
    EXPECT_EQ(parsed->schedule, fixed->schedule);
    return fixed->schedule;
  };
  Schedule parts = schedule("warps: 1 x 4 x 2 split_k: 2 launch: dependent");
  EXPECT_EQ(parts.roles, dsl::ScheduleDecl::Roles::ImFP);
  EXPECT_EQ(parts.warpsK, 2);
  EXPECT_TRUE(parts.dependent);
  EXPECT_EQ(parts.residentCtas, 0);
  // Without a split of k the grid is persistent: as many CTAs as fit the device.
  Schedule whole = schedule("warps: 1 x 4 split_k: 1");
  EXPECT_FALSE(whole.dependent);
  EXPECT_EQ(whole.residentCtas, 132 * whole.ctasPerSm);
  EXPECT_GT(whole.ctasPerSm, 1);
  // Four SMs of the sixteen or eighteen that may share a cluster leave none or two idle.
  Schedule pairs = schedule("warps: 1 x 4 split_k: 1 cluster: 2 x 1");
  EXPECT_EQ(pairs.residentCtas, 132 * pairs.ctasPerSm);
  Schedule fours = schedule("warps: 1 x 4 x 4 split_k: 1 cluster: 4 x 1");
  EXPECT_EQ(fours.ctasPerSm, 1);
  EXPECT_EQ(fours.residentCtas, 0); // 64 tiles, each of which has a CTA
  EXPECT_EQ(schedule("warps: 1 x 4 x 4 split_k: 1 cluster: 4 x 1", 96).residentCtas, 128);
  // All parts of k are one cluster's where nothing else is said.
  EXPECT_EQ(schedule("warps: 1 x 4 cluster: 1 x 5").splitK, 5);
}

// What a device's declaration leaves out is not guessed.
TEST(Schedule, RolesNeedADeclaredRateOfTheirOperands) {
  DeviceModel device = *modelOfTarget("sm_90a");
  device.name = "small";
  device.rates.tensor.erase("s8");
  device.rates.mma.erase("s8");
  device.rates.mma.erase("s4");
  const dsl::Gemm gemm =
      parse(formats + "gemm g { weight: int4 activation: int8 output: f16 }").gemms.at(0);
  Result<Plan> none = plan(gemm, {16, 256, 256}, device, nullptr);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().diagnostics[0].message,
            "roles uniform do not fit small: it declares no rate of s8 operands");
  EXPECT_EQ(none.error().diagnostics[0].id, DiagId::schedule_roles); // [schedule_roles]
  Result<Plan> onCudaCores = plan(gemm, {1, 256, 256}, device, nullptr);
  ASSERT_TRUE(onCudaCores.ok()) << onCudaCores.error().str();
  EXPECT_EQ(onCudaCores->schedule.roles, dsl::ScheduleDecl::Roles::Gemv);
}

// Instructions that take scales of blocks may be faster than those of their type.
TEST(Schedule, BlockScaledInstructionsHaveARateOfTheirOwn) {
  DeviceModel model = modelOf(*shippedDevice("rtx_5090"));
  const dsl::Gemm gemm =
      parse("format mxfp8 { element: e4m3 scale: e8m0 per k[32] value = element * scale }\n"
            "gemm g { weight: mxfp8 activation: mxfp8 output: f16 schedule { scales: hardware } }")
          .gemms.at(0);
  const double fast = plan(gemm, {4096, 8192, 8192}, model, nullptr)->predictedMicroseconds;
  model.rates.tensor.erase("e4m3_scaled");
  EXPECT_GT(plan(gemm, {4096, 8192, 8192}, model, nullptr)->predictedMicroseconds, 1.5 * fast);
}

// Of a device that has a type in mma.sync alone, costs of roles that wgmma has are not known.
TEST(Schedule, RolesNeedARateOfWgmma) {
  DeviceModel model = modelOfTarget("sm_90a").value();
  model.rates.tensor.erase("s8");
  ASSERT_TRUE(model.rates.mma.contains("s8"));
  dsl::Module module = parse(formats + "gemm g { weight: int4 activation: int8 output: f16 }");
  Result<std::vector<Plan>> plans =
      rankedPlans(module.gemms[0], {16, 4096, 4096}, model, 40, module.sources.get());
  ASSERT_TRUE(plans.ok()) << plans.error().str();
  for (const Plan &each : *plans)
    EXPECT_EQ(each.schedule.roles, dsl::ScheduleDecl::Roles::Uniform);
  module = parse(formats +
                 "gemm g { weight: int4 activation: int8 output: f16 schedule { roles: imfp } }");
  EXPECT_NE(plan(module.gemms[0], {16, 4096, 4096}, model, module.sources.get())
                .error()
                .str()
                .find("it declares no rate of s8 operands"),
            std::string::npos);
}

} // namespace
} // namespace rho::compiler
