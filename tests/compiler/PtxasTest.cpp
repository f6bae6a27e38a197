// The generated PTX of every family of instructions passes NVIDIA's assembler for its target.
// Skipped where there is no ptxas, in PATH or where the CUDA toolkit is installed by default.
#include "compiler/Compiler.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>

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

struct Kernel {
  const char *gemm, *target;
};

class Ptxas : public testing::TestWithParam<Kernel> {};

TEST_P(Ptxas, TakesWhatIsGenerated) {
  std::string ptxas = findPtxas();
  if (ptxas.empty())
    GTEST_SKIP() << "there is no ptxas";
  auto [name, target] = GetParam();
  if (outputOf(ptxas + " --help").find(target) == std::string::npos)
    GTEST_SKIP() << ptxas << " knows no " << target;
  Result<dsl::Module> module =
      dsl::loadModule(std::string(RHO_SOURCE_DIR) + "/kernels/gemms/" + name + ".rho");
  ASSERT_TRUE(module.ok());
  dsl::Gemm &gemm = module->gemms[0];
  gemm.schedule.tile = {16, 64, 128};
  Result<Plan> planned = plan(gemm, {16, 256, 512}, *modelOfTarget(target), nullptr);
  ASSERT_TRUE(planned.ok()) << planned.error().str();
  Result<Compiled> compiled = compile(gemm, *planned, nullptr);
  ASSERT_TRUE(compiled.ok()) << compiled.error().str();
  TemporaryFolder folder;
  std::string file = folder.path() + "/kernel.ptx";
  writeText(file, compiled->image.ptx);
  EXPECT_EQ(outputOf(ptxas + " --warning-as-error --gpu-name=" + target + " --output-file=" + file +
                     ".cubin " + file),
            "0\n");
}

INSTANTIATE_TEST_SUITE_P(
    Shipped, Ptxas,
    testing::Values(Kernel{"int4_g128_f16", "sm_86"}, Kernel{"int4_channel_bf16", "sm_89"},
                    Kernel{"int4_g128_fp8", "sm_89"}, Kernel{"fp8_channel_fp8", "sm_89"},
                    Kernel{"nvfp4_nvfp4", "sm_120a"}, Kernel{"int4_channel_int4", "sm_120a"},
                    Kernel{"int4_g128_fp8", "sm_120a"}, Kernel{"nvfp4_bf16", "sm_120a"},
                    Kernel{"mosaic_channel_int8", "sm_90a"},
                    Kernel{"mosaic_channel_int4_g128", "sm_80"}),
    [](const auto &info) { return std::string(info.param.gemm) + "_" + info.param.target; });

} // namespace
} // namespace rho::compiler
