// The generated PTX of every shipped gemm passes NVIDIA's assembler for all targets.
// Skipped where there is no ptxas, in PATH or where the CUDA toolkit is installed by default.
#include "compiler/Compiler.h"
#include "compiler/OnTarget.h"
#include "tests/compiler/ShippedWeights.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace rho::compiler {
namespace {

// The output of a command, with its exit status as the last line.
std::string outputOf(const std::string &command) {
  std::string text;
  // NOLINTNEXTLINE(bugprone-command-processor): the command is the test's own
  FILE *pipe = ::popen(("(" + command + ") 2>&1; echo $?").c_str(), "r");
  if (!pipe)
    return "no shell";
  std::array<char, 512> line;
  while (std::fgets(line.data(), line.size(), pipe))
    text += line.data();
  ::pclose(pipe);
  return text;
}

std::string findPtxas() {
  for (const char *name : {"ptxas", "/usr/local/cuda/bin/ptxas"})
    if (outputOf(std::string("command -v ") + name + " >/dev/null") == "0\n")
      return name;
  return "";
}

// Gemms that are shipped, by the names of their files.
std::vector<std::string> shippedGemms() {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(RHO_SOURCE_DIR "/kernels/gemms"))
    if (entry.path().extension() == ".rho")
      names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

// What ptxas says of the kernel that is planned, which there is for every shipped gemm.
std::string outputOfPtxas(const std::string &ptxas, const TemporaryFolder &folder,
                          const dsl::Gemm &declared, const Problem &problem,
                          const std::string &target, const std::string &options) {
  const dsl::Gemm gemm = onTarget(declared, target).gemm;
  Result<Plan> planned = plan(gemm, problem, *modelOfTarget(target), nullptr);
  if (!planned)
    return planned.error().str();
  Result<Compiled> compiled = compile(gemm, *planned, nullptr);
  if (!compiled)
    return compiled.error().str();
  const std::string file = folder.path() + "/kernel.ptx";
  writeText(file, compiled->image.ptx);
  return outputOf(ptxas + options + " --gpu-name=" + target + " --output-file=" + file + ".cubin " +
                  file);
}

// Of a thread, as -v says: "24 bytes spill stores, 24 bytes spill loads". -1: it does not.
int spilledBytes(const std::string &said) {
  const size_t end = said.find(" bytes spill stores");
  if (end == said.npos)
    return -1;
  return std::stoi(said.substr(said.rfind(' ', end - 1) + 1));
}

// The gemms of a file: of the first all of what is tried, of each other one of these in turn.
class Ptxas : public testing::TestWithParam<std::string> {
protected:
  const std::string ptxas = findPtxas();
  TemporaryFolder folder;
  dsl::Module module =
      dsl::loadModule(RHO_SOURCE_DIR "/kernels/gemms/" + GetParam() + ".rho").value();

  void SetUp() override {
    if (ptxas.empty())
      GTEST_SKIP() << "there is no ptxas";
  }

  template <class Tried>
  static std::vector<Tried> triedOf(size_t gemm, const std::vector<Tried> &all) {
    return gemm == 0 ? all : std::vector<Tried>{all[gemm % all.size()]};
  }

  std::string saidOf(const dsl::Gemm &declared, const Problem &problem, const std::string &target,
                     const std::string &options) {
    return outputOfPtxas(ptxas, folder, declared, problem, target, options);
  }
};

TEST_P(Ptxas, TakesWhatIsGenerated) {
  const std::string known = outputOf(ptxas + " --help");
  std::vector<std::string> targets = allTargets();
  std::erase_if(targets,
                [&](const std::string &target) { return known.find(target) == std::string::npos; });
  ASSERT_FALSE(targets.empty());
  for (size_t i = 0; i < module.gemms.size(); ++i)
    for (const std::string &target : triedOf(i, targets))
      EXPECT_EQ(saidOf(module.gemms[i], {16, 256, 512}, target, " --warning-as-error"), "0\n")
          << module.gemms[i].name << ", " << target;
}

// Nor does it say that it waits for each instruction (C7510 and what follows), of tiles of all
// sizes. Registers hold all but a few words of what changes seldom.
TEST_P(Ptxas, LetsMatrixInstructionsRunOn) {
  for (size_t i = 0; i < module.gemms.size(); ++i)
    for (int64_t m : triedOf<int64_t>(i, {32, 64, 128, 512})) {
      const dsl::Gemm &gemm = module.gemms[i];
      const std::string said = saidOf(gemm, {m, 8192, 8192}, "sm_90a", " -v");
      SCOPED_TRACE(gemm.name + ", m = " + std::to_string(m) + ": " + said);
      EXPECT_TRUE(said.ends_with("\n0\n"));
      EXPECT_EQ(said.find("(C7"), said.npos);
      EXPECT_GE(spilledBytes(said), 0);
      EXPECT_LE(spilledBytes(said), gemm.name == "comet_w4ax_g128" ? 32 : 12);
    }
}

// Every weight format of the library, beside activations and on targets that take turns.
TEST(PtxasOfLibrary, TakesWhatIsGenerated) {
  const std::string ptxas = findPtxas();
  if (ptxas.empty())
    GTEST_SKIP() << "there is no ptxas";
  const std::string known = outputOf(ptxas + " --help");
  std::vector<std::string> targets = allTargets();
  std::erase_if(targets,
                [&](const std::string &target) { return known.find(target) == std::string::npos; });
  const std::vector<std::string> activations = {
      "f16", "bf16", "int8_token", "int4_token", "fp8_token", "int4_g128", "nvfp4_token"};
  const std::vector<int64_t> batches = {1, 16, 40, 200};
  TemporaryFolder folder;
  size_t turn = 0;
  for (const std::string &weight : test::shippedWeights()) {
    const std::string &target = targets[turn % targets.size()];
    const test::Case tried{weight, activations[turn % activations.size()],     "f16", "",
                           target, {batches[turn % batches.size()], 512, 1024}};
    ++turn;
    const Result<dsl::Module> module = dsl::parseModule(
        declaration(tried), "t.rho", [](const std::string &) { return std::nullopt; });
    ASSERT_TRUE(module) << module.error().str();
    const Problem problem{tried.shape.m, tried.shape.n, tried.shape.k};
    EXPECT_EQ(outputOfPtxas(ptxas, folder, module->gemms[0], problem, target, ""), "0\n")
        << weight << " x " << tried.activation << ", " << target << ", m = " << problem.m;
  }
}

// Of one warpgroup, which has as many sums a thread as there is room for.
class PtxasOfOneWarpgroup : public Ptxas {};

TEST_P(PtxasOfOneWarpgroup, LetsMatrixInstructionsRunOn) {
  dsl::Gemm gemm = module.gemms[0];
  gemm.schedule.roles = dsl::ScheduleDecl::Roles::ImFP;
  gemm.schedule.warps = {1, 4, 1};
  for (int64_t m : {64, 256})
    EXPECT_EQ(saidOf(gemm, {m, 8192, 8192}, "sm_90a", ""), "0\n") << "m = " << m;
}

INSTANTIATE_TEST_SUITE_P(Shipped, PtxasOfOneWarpgroup,
                         testing::Values("int4_g64_int8", "int4_g128_int8", "int4_g128_fp8",
                                         "int4_g128_int4_g128"),
                         [](const auto &info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(Shipped, Ptxas, testing::ValuesIn(shippedGemms()),
                         [](const auto &info) { return info.param; });

} // namespace
} // namespace rho::compiler
