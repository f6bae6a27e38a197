// The stages as values: what each prints, that each can be entered again, and what is refused.
#include "compiler/Compiler.h"
#include "compiler/OnTarget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <sstream>
#include <thread>

namespace rho::compiler {
namespace {

struct Prepared {
  dsl::Module module;
  Plan plan;
};

// A shipped gemm, with a schedule of our own if one is given.
Prepared prepare(const std::string &name, const std::string &target = "sm_80",
                 const dsl::ScheduleDecl *schedule = nullptr, int64_t m = 16) {
  Prepared result;
  Result<dsl::Module> module =
      dsl::loadModule(std::string(RHO_SOURCE_DIR) + "/kernels/gemms/" + name + ".rho");
  EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
  result.module = *module;
  if (schedule)
    result.module.gemms[0].schedule = *schedule;
  Result<Plan> planned =
      plan(result.module.gemms[0], {m, 256, 512}, *modelOfTarget(target), nullptr);
  EXPECT_TRUE(planned.ok()) << (planned.ok() ? "" : planned.error().str());
  result.plan = *planned;
  return result;
}

std::string emitted(const Prepared &setup, Stage stage) {
  Result<std::string> text = emit(setup.module.gemms[0], setup.plan, stage, nullptr);
  EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().str());
  return text.ok() ? *text : "";
}

// Entering any printed stage again leads to the very PTX that compiling leads to.
void expectSameWhenReentered(const Prepared &setup) {
  std::string ptx = emitted(setup, Stage::Ptx);
  EXPECT_EQ(compile(setup.module.gemms[0], setup.plan, nullptr)->image.ptx, ptx);
  for (Stage from : {Stage::Rho, Stage::Tile, Stage::Llvm}) {
    std::string text = emitted(setup, from);
    Result<std::string> again = reenter(text, "stage", from, Stage::Ptx);
    ASSERT_TRUE(again.ok()) << again.error().str();
    EXPECT_EQ(*again, ptx) << "from stage " << static_cast<int>(from);
    Result<std::string> same = reenter(text, "stage", from, from);
    ASSERT_TRUE(same.ok()) << same.error().str();
    if (from != Stage::Llvm) // its reader renumbers attributes
      EXPECT_EQ(*same, text);
  }
}

class Stages : public testing::TestWithParam<const char *> {};

TEST_P(Stages, ReenteredGiveTheSamePtx) { expectSameWhenReentered(prepare(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Shipped, Stages,
                         testing::Values("int4_g128_f16", "int4_channel_bf16", "nvfp4_f16",
                                         "nvfp4_bf16", "int4_g64_int8", "liquidquant_int8",
                                         "int4_g128_int4_g128"),
                         [](const auto &info) { return std::string(info.param); });

class GemvStages : public testing::TestWithParam<const char *> {};

TEST_P(GemvStages, ReenteredGiveTheSamePtx) {
  dsl::ScheduleDecl schedule;
  schedule.roles = dsl::ScheduleDecl::Roles::Gemv;
  for (int64_t m : {1, 3}) {
    schedule.dependent = m == 1;
    expectSameWhenReentered(prepare(GetParam(), "sm_80", &schedule, m));
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, GemvStages,
                         testing::Values("int4_g128_f16", "nvfp4_bf16", "int4_g64_int8",
                                         "liquidquant_int8", "int4_g128_int4_g128"),
                         [](const auto &info) { return std::string(info.param); });

class SpecializedStages : public testing::TestWithParam<const char *> {};

TEST_P(SpecializedStages, ReenteredGiveTheSamePtx) {
  dsl::ScheduleDecl schedule;
  using Roles = dsl::ScheduleDecl::Roles;
  schedule.tile = {32, 64, 128};
  schedule.pipeline = 4;
  struct Division {
    Roles roles;
    dsl::ScheduleDecl::Warps warps;
  };
  for (const Division &division :
       {Division{Roles::ImFP, {1, 4, 1}}, {Roles::ImFP, {1, 4, 2}}, {Roles::ExCP, {1, 4, 1}}})
    for (int64_t split : {1, 3}) {
      schedule.tile->m = split == 1 ? 32 : 16; // outputs through shared memory, or by threads
      schedule.roles = division.roles;
      schedule.warps = division.warps;
      schedule.splitK = split;
      schedule.dependent = split == 1;
      expectSameWhenReentered(prepare(GetParam(), "sm_90a", &schedule));
    }
}

INSTANTIATE_TEST_SUITE_P(Shipped, SpecializedStages,
                         testing::Values("int4_g128_f16", "int4_channel_bf16", "int4_g64_int8",
                                         "liquidquant_int8"),
                         [](const auto &info) { return std::string(info.param); });

// What the emulator does not see, in the text: a slot is given back by a lane once its whole warp
// has met, and the registers that the loading warpgroup gives up are taken by those that multiply.
void expectRolesKeepTheirRules(const std::string &ptx, bool decodesApart) {
  std::istringstream lines(ptx);
  bool met = false; // the warp, and nothing but an address of another CTA since
  int arrivals = 0;
  std::vector<std::string> registers; // of the roles, in the order of their code
  std::set<size_t> load, multiply;    // the roles that do
  for (std::string line; std::getline(lines, line);) {
    auto has = [&](const char *text) { return line.find(text) != std::string::npos; };
    if (has("mbarrier.arrive.") && !has("expect_tx")) {
      ++arrivals;
      EXPECT_TRUE(met) << line;
      EXPECT_TRUE(line.starts_with("@%p")) << line;
    }
    met = has("bar.warp.sync 0xffffffff;") || (met && has("mapa.shared::cluster"));
    if (has("setmaxnreg."))
      registers.push_back(line);
    if (has("mbarrier::complete_tx"))
      load.insert(registers.size());
    if (has("mma.sync.") || has("wgmma.mma_async."))
      multiply.insert(registers.size());
  }
  EXPECT_GE(arrivals, decodesApart ? 4 : 1);
  ASSERT_EQ(registers.size(), decodesApart ? 3 : 2);
  EXPECT_EQ(registers.front(), "\tsetmaxnreg.dec.sync.aligned.u32 24;");
  EXPECT_THAT(registers.back(), testing::StartsWith("\tsetmaxnreg.inc.sync.aligned.u32 "));
  EXPECT_TRUE(load.contains(1)); // pieces of a residual may be loaded by code behind the others'
  EXPECT_THAT(multiply, testing::ElementsAre(registers.size()));
}

TEST(SpecializedPtx, GivesSlotsBackBehindItsWarpsAndRegistersToThoseThatMultiply) {
  using Roles = dsl::ScheduleDecl::Roles;
  std::set<std::filesystem::path> files;
  for (const auto &entry : std::filesystem::directory_iterator(RHO_SOURCE_DIR "/kernels/gemms"))
    files.insert(entry.path());
  size_t kernels = 0, turn = 0;
  for (const std::filesystem::path &file : files) {
    ++turn;
    const dsl::Gemm declared =
        onTarget(dsl::loadModule(file.string()).value().gemms.at(0), "sm_90a").gemm;
    for (Roles roles : {Roles::ImFP, Roles::ExCP}) {
      dsl::Gemm gemm = declared;
      gemm.schedule.roles = roles;
      if (roles == Roles::ImFP && turn % 3 == 0)
        gemm.schedule.cluster = dsl::ScheduleDecl::Cluster{2, 1};
      const int64_t m = int64_t{8} << turn % 6;
      SCOPED_TRACE(file.stem().string() + (roles == Roles::ExCP ? ", excp" : ", imfp"));
      Result<Plan> planned = plan(gemm, {m, 256, 1024}, *modelOfTarget("sm_90a"), nullptr);
      if (!planned)
        continue;
      ++kernels;
      expectRolesKeepTheirRules(compile(gemm, *planned, nullptr).value().image.ptx,
                                roles == Roles::ExCP);
    }
  }
  EXPECT_GE(kernels, 3 * files.size() / 2);
}

TEST(Compile, IsDeterministic) {
  Prepared setup = prepare("liquidquant_int8");
  EXPECT_EQ(emitted(setup, Stage::Ptx), emitted(setup, Stage::Ptx));
}

TEST(Compile, MovingTextChangesNeitherSpecNorPtx) {
  std::string text = "format f { element: s4 scale: f16 per k[64] value = element * scale }\n"
                     "gemm g { weight: f activation: f16 output: f16 }\n";
  std::string moved = "// a comment\n\n\n" + text;
  std::string spec[2], ptx[2];
  for (int i = 0; i < 2; ++i) {
    Result<dsl::Module> module = dsl::parseModule(i ? moved : text, "t.rho",
                                                  [](const std::string &) { return std::nullopt; });
    ASSERT_TRUE(module.ok());
    Result<Plan> planned = plan(module->gemms[0], {8, 64, 64}, *modelOfTarget("sm_80"), nullptr);
    ASSERT_TRUE(planned.ok());
    spec[i] = printSpec(module->gemms[0], *planned);
    ptx[i] = compile(module->gemms[0], *planned, nullptr)->image.ptx;
  }
  EXPECT_EQ(spec[0], spec[1]);
  EXPECT_EQ(ptx[0], ptx[1]);
}

// The lowest PTX version that knows the architecture and the instructions: old drivers accept it.
TEST(Compile, PtxVersionIsAsOldAsTheTargetAllows) {
  auto header = [](const char *target, const dsl::ScheduleDecl *schedule = nullptr) {
    std::string ptx = emitted(prepare("int4_g128_f16", target, schedule, 1), Stage::Ptx);
    return ptx.substr(ptx.find(".version"), ptx.find(".address_size") - ptx.find(".version"));
  };
  EXPECT_EQ(header("sm_80"), ".version 7.0\n.target sm_80\n");
  EXPECT_EQ(header("sm_86"), ".version 7.1\n.target sm_86\n");
  EXPECT_EQ(header("sm_89"), ".version 7.8\n.target sm_89\n");
  EXPECT_EQ(header("sm_90"), ".version 7.8\n.target sm_90\n");
  EXPECT_EQ(header("sm_90a"), ".version 8.0\n.target sm_90a\n");
  dsl::ScheduleDecl gemv; // whose loads know of L1
  gemv.roles = dsl::ScheduleDecl::Roles::Gemv;
  EXPECT_EQ(header("sm_80", &gemv), ".version 7.4\n.target sm_80\n");
  EXPECT_EQ(header("sm_86", &gemv), ".version 7.4\n.target sm_86\n");
  EXPECT_EQ(header("sm_89", &gemv), ".version 7.8\n.target sm_89\n");
}

std::string failure(std::string_view text, Stage from, Stage to = Stage::Ptx) {
  Result<std::string> result = reenter(text, "in", from, to);
  return result.ok() ? "accepted" : result.error().str();
}

TEST(Reenter, NamesWhatIsWrong) {
  EXPECT_EQ(failure("rho.gemm", Stage::Rho).substr(0, 34), "error: malformed rho module: in:1:");
  EXPECT_EQ(failure("define void @f() { ret }", Stage::Llvm),
            "error: malformed llvm module: in:1: expected type [bad_ir]\n");
  EXPECT_EQ(failure("", Stage::Llvm), "error: malformed llvm module: no function has the attribute "
                                      "\"target-cpu\" [bad_ir]\n");
  for (Stage stage : {Stage::Rho, Stage::Tile})
    EXPECT_EQ(failure("", stage), "error: malformed llvm module: no function has the attribute "
                                  "\"rho.target\" [bad_ir]\n");
  std::string nested;
  for (int i = 0; i < 5000; ++i)
    nested += "module {";
  EXPECT_EQ(failure(nested + std::string(5000, '}'), Stage::Tile),
            "error: malformed tile module: it nests deeper than 256 [bad_ir]\n");
  EXPECT_EQ(failure(std::string(5000, '['), Stage::Llvm),
            "error: malformed llvm module: it nests deeper than 256 [bad_ir]\n");
  EXPECT_EQ(
      failure("", Stage::Llvm, Stage::Rho),
      "error: cannot go from llvm to rho; stages run rho, tile, llvm, ptx [bad_stage_order]\n");
}

// A placed body says a second time what its plan says.
TEST(Reenter, BodiesAreThoseOfTheirPlan) {
  const std::string text = emitted(prepare("int4_g128_f16"), Stage::Rho);
  auto changed = [&](std::string_view from, std::string_view to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << text;
    return failure(std::string(text).replace(at, from.size(), to), Stage::Rho);
  };
  for (auto [from, to] : {std::pair{R"("weight" "scale")", R"("weight" "scaIe")"},
                          {R"("activation" "element")", R"("weight" "element")"},
                          {R"("weight" "scale")", R"("weight" "element")"}})
    EXPECT_NE(changed(from, to).find("body is not that of its plan [bad_ir]"), std::string::npos)
        << changed(from, to);
  EXPECT_NE(changed("out t5 t6 t7 t8", "out t5 t6")
                .find("its program has other outputs than the plan's [bad_ir]"),
            std::string::npos);
}

// LLVM's own answer to these is to end the process.
TEST(Reenter, SurvivesCodeThatCannotBeCompiled) {
  auto kernel = [](const std::string &body) {
    return "target triple = \"nvptx64-nvidia-cuda\"\n"
           "declare <4 x float> @llvm.x86.sse.rcp.ss(<4 x float>)\n"
           "define ptx_kernel void @k(ptr %p, i32 %i) #0 {\n" +
           body + "}\nattributes #0 = { \"target-cpu\"=\"sm_80\" }\n";
  };
  const std::string good = kernel("store i32 %i, ptr %p\nret void\n");
  const std::string bad = kernel("%a = load <4 x float>, ptr %p\n"
                                 "%b = call <4 x float> @llvm.x86.sse.rcp.ss(<4 x float> %a)\n"
                                 "store <4 x float> %b, ptr %p\nret void\n");
  const std::string broken = kernel("store i32 %j, ptr %p\n%j = add i32 %i, 1\nret void\n");
  EXPECT_EQ(failure(good, Stage::Llvm), "accepted");
  const std::string reason = failure(bad, Stage::Llvm);
  EXPECT_THAT(reason, testing::StartsWith("error: malformed llvm module: "));
  std::vector<std::thread> threads; // of which each gets its own answer
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(failure(bad, Stage::Llvm), reason);
        EXPECT_EQ(failure(good, Stage::Llvm), "accepted");
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(failure(broken, Stage::Llvm),
            "error: malformed llvm module: Instruction does not dominate all uses! [bad_ir]\n");
  EXPECT_EQ(failure(good, Stage::Llvm), "accepted");
}

} // namespace
} // namespace rho::compiler
