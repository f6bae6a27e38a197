#include "runtime/cuda/Nvrtc.h"

#include "tests/runtime/FakeNvrtc.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rho::cuda {
namespace {

TEST(Nvrtc, AbsenceSaysWhatIsMissing) {
  Result<Nvrtc> nvrtc = Nvrtc::openFrom({"libnvrtc-absent.so.13"});
  ASSERT_FALSE(nvrtc);
  EXPECT_EQ(nvrtc.error().str(),
            "error: no NVRTC: libnvrtc-absent.so.13: cannot open shared object "
            "file: No such file or directory [nvrtc_not_available]\n");
}

TEST(Nvrtc, ALibraryWithoutTheSymbolsIsNone) {
  Result<Nvrtc> nvrtc = Nvrtc::openFrom({"libm.so.6"});
  ASSERT_FALSE(nvrtc);
  EXPECT_EQ(nvrtc.error().str(), "error: no NVRTC: libm.so.6 has no nvrtcVersion, it must be of "
                                 "CUDA 11.2 or later [nvrtc_not_available]\n");
}

TEST(Nvrtc, CompilesAndLeavesNothing) {
  FakeNvrtc &state = resetFakeNvrtc();
  const NvrtcOutput output =
      compileCuda(**fakeNvrtc(), {"text", "a.cu", "header", "a.cuh"}, {"--fmad=false", "-x"});
  EXPECT_EQ(output.cubin, "cubin of text");
  EXPECT_EQ(output.log, "");
  EXPECT_EQ(state.headers, (std::vector<std::string>{"header"}));
  EXPECT_EQ(state.options, (std::vector<std::string>{"--fmad=false", "-x"}));
  EXPECT_EQ(state.alive, 0);
}

TEST(Nvrtc, ProgramsMayIncludeNothing) {
  const FakeNvrtc &state = resetFakeNvrtc();
  EXPECT_EQ(compileCuda(**fakeNvrtc(), {"text", "a.cu"}, {}).cubin, "cubin of text");
  EXPECT_EQ(state.headers, std::vector<std::string>{});
}

TEST(Nvrtc, CompileErrorsQuoteTheFirstLineOfTheLog) {
  FakeNvrtc &state = resetFakeNvrtc();
  state.compiles = false;
  const NvrtcOutput output = compileCuda(**fakeNvrtc(), {"text", "a.cu"}, {});
  EXPECT_EQ(output.cubin, "");
  EXPECT_EQ(output.log, "NVRTC_ERROR_COMPILATION: a.cu(3): error: nonsense");
  EXPECT_EQ(state.alive, 0);
}

} // namespace
} // namespace rho::cuda
