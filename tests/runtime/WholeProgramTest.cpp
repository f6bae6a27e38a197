#include "runtime/cuda/WholeProgram.h"

#include "tests/runtime/FakeNvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rho::cuda {
namespace {

using testing::HasSubstr;

const std::string program = R"(.version 8.0
.target sm_90a
.address_size 64

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
	.loc	1 1 0
	ld.param.b32 	%r1, [g_param_2];
	setmaxnreg.dec.sync.aligned.u32 24;
$L__BB0_1:
	ret;
$L__func_end0:

}
	.file	1 "rho"
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

TEST(WholeProgram, IsAKernelOfInlinePtx) {
  EXPECT_EQ(asCudaProgram(program).value_or("none"),
            R"(struct alignas(64) Bytes1 { char at[128]; };
extern __shared__ __align__(1024) char g_shared[];
extern "C" __global__ void __block_size__((384, 1, 1), (1, 1, 1)) __maxnreg__(168) )"
            R"(g(unsigned long long a0, const __grid_constant__ Bytes1 a1, unsigned a2) {
  asm volatile("" ::"l"(g_shared));
  asm volatile(R"ptx({
	.reg .b32 	%r<3>;
	ld.param.b32 	%r1, [g_param_2];
	setmaxnreg.dec.sync.aligned.u32 24;
$L__BB0_1:
})ptx");
}
)");
}

TEST(WholeProgram, WhatCudaCannotSayIsNone) {
  EXPECT_EQ(asCudaProgram(""), std::nullopt);
  EXPECT_EQ(asCudaProgram("ret;"), std::nullopt);
  for (const auto &[from, to] : std::vector<std::pair<std::string, std::string>>{
           {".extern .shared", ".shared"},
           {"\n.visible .entry", "\n.global .b32 g_table;\n.visible .entry"},
           {"\n.visible .entry", "\n.func f() { ret; }\n.visible .entry"},
           {".param .u32", ".param .f64"},
           {".b8 g_param_1[128]", ".b8 g_param_1"},
           {".maxnreg 168\n", ""},
           {".reqntid 384, 1, 1\n", ".maxntid 384, 1, 1\n"},
           {".maxnreg 168\n", ".maxnreg 168\n.minnctapersm 2\n"},
           {"$L__BB0_1:\n", "\tret;\n$L__BB0_1:\n"},
           {"\tret;\n", "\tbra.uni $L__BB0_1;\n"}})
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

// A driver takes cubins of its own CUDA version, and older ones; block sizes came with CUDA 13.
TEST(WholeProgram, VersionsMustFit) {
  FakeNvrtc &state = resetFakeNvrtc();
  for (auto [toolkit, driver, works] : {std::tuple{12090, 12090, false},
                                        {12090, 13000, false},
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

TEST(WholeProgram, HasItsClusters) {
  FakeNvrtc &state = resetFakeNvrtc();
  state.toolkit = 13000;
  compiler::KernelImage clustered = wholeProgram();
  clustered.clusterN = 2;
  clustered.clusterK = clustered.splitK = 4;
  ASSERT_NE(assembleWholeProgram(**fakeNvrtc(), 13000, clustered), std::nullopt);
  EXPECT_THAT(state.programs[0], HasSubstr(" __block_size__((384, 1, 1), (2, 1, 4)) "));
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
  if ((*nvrtc)->toolkit < 13000)
    GTEST_SKIP() << "NVRTC of CUDA " << (*nvrtc)->toolkit << " has no block sizes";
  for (const compiler::Dim3 &cluster : {compiler::Dim3{1, 1, 1}, {2, 1, 1}, {1, 1, 4}}) {
    const NvrtcOutput output =
        compileCuda(**nvrtc, {*asCudaProgram(program, cluster), "whole_program.cu"},
                    {"--gpu-architecture=sm_90a", "--minimal"});
    EXPECT_NE(output.cubin, "") << output.log;
  }
}

} // namespace
} // namespace rho::cuda
