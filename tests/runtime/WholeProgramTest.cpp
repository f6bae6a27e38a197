#include "runtime/cuda/WholeProgram.h"

#include "tests/runtime/FakeNvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rho::cuda {
namespace {

using testing::HasSubstr;

// What stands in the PTX and in the program alike.
const std::string kernelHead = R"(
	// .globl	g
.extern .shared .align 1024 .b8 g_shared[];

.visible .entry g(
	.param .u64 .ptr .global .align 1 g_param_0,
	.param .align 64 .b8 g_param_1[128],
	.param .u32 g_param_2
)
.reqntid 384, 1, 1
.maxnreg 168
{
	.reg .b32 	%r<3>;
)";

const std::string program = R"(.version 8.0
.target sm_90a
.address_size 64
)" + kernelHead + R"(	.loc	1 1 0
	ld.param.b32 	%r1, [g_param_2];
	setmaxnreg.dec.sync.aligned.u32 24;
$L__BB0_1:
	ret;
$L__func_end0:

}
	.file	1 "rho"
	.section	.debug_loc	{	}
)";

std::string with(const std::string &from, const std::string &to) {
  std::string text = program;
  text.replace(text.find(from), from.size(), to);
  return text;
}

compiler::KernelImage wholeProgram(const std::string &text = program) {
  compiler::KernelImage image;
  image.entry = "g";
  image.target = "sm_90a";
  image.ptx = text;
  image.wholeProgram = true;
  return image;
}

TEST(WholeProgram, IsPtxBehindAFunctionThatItEnds) {
  EXPECT_EQ(asCudaProgram(program).value_or("none"), R"(extern "C" __global__ void rho_before() {
  asm volatile(R"ptx(ret;
}
)" + kernelHead + R"(	ld.param.b32 	%r1, [g_param_2];
	setmaxnreg.dec.sync.aligned.u32 24;
$L__BB0_1:
)ptx");
}
)");
}

TEST(WholeProgram, OtherEndsAreNone) {
  EXPECT_EQ(asCudaProgram(""), std::nullopt);
  EXPECT_EQ(asCudaProgram("ret;"), std::nullopt);
  for (const auto &[from, to] :
       std::vector<std::pair<std::string, std::string>>{{".address_size 64", ".address_size 32"},
                                                        {"\tret;\n", "\tbra.uni $L__BB0_1;\n"},
                                                        {"\n}\n", "\n"},
                                                        {"\n}\n", "\n{\n}\n}\n"},
                                                        {"\n}\n", "\n}\n.func f() {\n}\n"}})
    EXPECT_EQ(asCudaProgram(with(from, to)), std::nullopt) << to;
}

TEST(WholeProgram, IsCompiledForItsTarget) {
  FakeNvrtc &state = resetFakeNvrtc();
  state.toolkit = 13000;
  EXPECT_EQ(assembleWholeProgram(**fakeNvrtc(), 13000, wholeProgram()),
            "cubin of " + *asCudaProgram(program));
  EXPECT_EQ(state.options, (std::vector<std::string>{"--gpu-architecture=sm_90a", "--minimal"}));
  EXPECT_EQ(state.alive, 0);
}

// A driver takes cubins of its own CUDA version, and older ones.
TEST(WholeProgram, VersionsMustFit) {
  FakeNvrtc &state = resetFakeNvrtc();
  for (auto [toolkit, driver, works] : {std::tuple{12060, 12090, false},
                                        {12080, 12060, false},
                                        {12080, 12080, true},
                                        {12090, 13000, true},
                                        {13000, 12090, false},
                                        {13000, 13000, true},
                                        {13000, 13020, true},
                                        {13020, 13000, false},
                                        {13020, 14000, true}}) {
    state.toolkit = toolkit;
    EXPECT_EQ(assembleWholeProgram(**fakeNvrtc(), driver, wholeProgram()).has_value(), works)
        << toolkit << " " << driver;
  }
}

TEST(WholeProgram, RefusedTextsHaveNone) {
  FakeNvrtc &state = resetFakeNvrtc();
  state.toolkit = 13000;
  EXPECT_EQ(assembleWholeProgram(**fakeNvrtc(), 13000, wholeProgram("")), std::nullopt);
  EXPECT_EQ(state.programs.size(), 0U);
  state.compiles = false;
  EXPECT_EQ(assembleWholeProgram(**fakeNvrtc(), 13000, wholeProgram()), std::nullopt);
  EXPECT_EQ(state.programs.size(), 1U);
}

// Needs no GPU.
TEST(WholeProgram, IsWhatNvrtcTakes) {
  Result<const Nvrtc *> nvrtc = Nvrtc::open();
  if (!nvrtc)
    GTEST_SKIP() << nvrtc.error().str();
  if ((*nvrtc)->toolkit < oldestWholeProgramToolkit)
    GTEST_SKIP() << "NVRTC of CUDA " << (*nvrtc)->toolkit << " makes no whole programs";
  const NvrtcOutput output = compileCuda(**nvrtc, {*asCudaProgram(program), "whole_program.cu"},
                                         {"--gpu-architecture=sm_90a", "--minimal"});
  EXPECT_NE(output.cubin, "") << output.log;
  EXPECT_THAT(output.cubin, HasSubstr(".text.g"));
}

} // namespace
} // namespace rho::cuda
