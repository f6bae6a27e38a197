// The generated PTX of every shipped gemm passes NVIDIA's assembler for its targets.
// Skipped where there is no ptxas, in PATH or where the CUDA toolkit is installed by default.
#include "compiler/Compiler.h"
#include "compiler/OnTarget.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

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

class Ptxas : public testing::TestWithParam<std::string> {};

// On every target that has a kernel for it.
TEST_P(Ptxas, TakesWhatIsGenerated) {
  const std::string ptxas = findPtxas();
  if (ptxas.empty())
    GTEST_SKIP() << "there is no ptxas";
  const std::string known = outputOf(ptxas + " --help");
  Result<dsl::Module> module =
      dsl::loadModule(RHO_SOURCE_DIR "/kernels/gemms/" + GetParam() + ".rho");
  ASSERT_TRUE(module.ok());
  TemporaryFolder folder;
  int assembled = 0;
  for (const std::string &target : allTargets()) {
    const dsl::Gemm gemm = onTarget(module->gemms[0], target).gemm;
    Result<Plan> planned = plan(gemm, {16, 256, 512}, *modelOfTarget(target), nullptr);
    if (!planned || known.find(target) == std::string::npos)
      continue;
    Result<Compiled> compiled = compile(gemm, *planned, nullptr);
    ASSERT_TRUE(compiled.ok()) << compiled.error().str();
    const std::string file = folder.path() + "/" + target + ".ptx";
    writeText(file, compiled->image.ptx);
    EXPECT_EQ(outputOf(ptxas + " --warning-as-error --gpu-name=" + target +
                       " --output-file=" + file + ".cubin " + file),
              "0\n")
        << target;
    ++assembled;
  }
  EXPECT_GE(assembled, 1);
}

// Nor does it say that it waits for each instruction (C7510 and what follows), of tiles of all
// sizes.
TEST_P(Ptxas, LetsMatrixInstructionsRunOn) {
  const std::string ptxas = findPtxas();
  if (ptxas.empty())
    GTEST_SKIP() << "there is no ptxas";
  Result<dsl::Module> module =
      dsl::loadModule(RHO_SOURCE_DIR "/kernels/gemms/" + GetParam() + ".rho");
  ASSERT_TRUE(module.ok());
  const dsl::Gemm gemm = onTarget(module->gemms[0], "sm_90a").gemm;
  TemporaryFolder folder;
  for (int64_t m : {32, 64, 128, 512}) {
    Result<Plan> planned = plan(gemm, {m, 8192, 8192}, *modelOfTarget("sm_90a"), nullptr);
    if (!planned)
      continue; // instructions that Hopper lacks
    Result<Compiled> compiled = compile(gemm, *planned, nullptr);
    ASSERT_TRUE(compiled.ok()) << compiled.error().str();
    const std::string file = folder.path() + "/kernel.ptx";
    writeText(file, compiled->image.ptx);
    EXPECT_EQ(outputOf(ptxas + " --gpu-name=sm_90a --output-file=" + file + ".cubin " + file),
              "0\n")
        << m;
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, Ptxas, testing::ValuesIn(shippedGemms()),
                         [](const auto &info) { return info.param; });

} // namespace
} // namespace rho::compiler
