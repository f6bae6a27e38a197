#include "runtime/cuda/Nvrtc.h"

#include <gtest/gtest.h>

#include <cstring>
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

std::vector<std::string> givenOptions;
int alive = 0;

// Compiles everything to "cubin", or nothing, with a log of two lines.
Nvrtc makeFake(bool works) {
  Nvrtc fake;
  fake.getErrorString = [](int) { return "NVRTC_ERROR_COMPILATION"; };
  fake.createProgram = [](Nvrtc::Program *program, const char *, const char *, int,
                          const char *const *, const char *const *) {
    *program = reinterpret_cast<Nvrtc::Program>(&alive);
    ++alive;
    return 0;
  };
  fake.compileProgram = [](Nvrtc::Program, int count, const char *const *options) {
    givenOptions.assign(options, options + count);
    return 0;
  };
  if (!works)
    fake.compileProgram = [](Nvrtc::Program, int, const char *const *) { return 6; };
  fake.getProgramLogSize = [](Nvrtc::Program, size_t *size) {
    *size = sizeof("a.cu(3): error: nonsense\nmore");
    return 0;
  };
  fake.getProgramLog = [](Nvrtc::Program, char *log) {
    std::strcpy(log, "a.cu(3): error: nonsense\nmore");
    return 0;
  };
  fake.getCubinSize = [](Nvrtc::Program, size_t *size) {
    *size = 5;
    return 0;
  };
  fake.getCubin = [](Nvrtc::Program, char *cubin) {
    std::string("cubin").copy(cubin, 5);
    return 0;
  };
  fake.destroyProgram = [](Nvrtc::Program *) { return --alive; };
  return fake;
}

TEST(Nvrtc, CompilesForTheDeviceWithoutContraction) {
  Result<std::string> cubin = compileToCubin(makeFake(true), {"", "a.cu", "", "h"}, 86, "a8");
  ASSERT_TRUE(cubin);
  EXPECT_EQ(*cubin, "cubin");
  EXPECT_EQ(givenOptions,
            (std::vector<std::string>{"--gpu-architecture=sm_86", "--std=c++17", "--fmad=false"}));
  EXPECT_EQ(alive, 0);
}

TEST(Nvrtc, CompileErrorsQuoteTheFirstLineOfTheLog) {
  Result<std::string> cubin = compileToCubin(makeFake(false), {"", "a.cu", "", "h"}, 86, "a8");
  ASSERT_FALSE(cubin);
  EXPECT_EQ(cubin.error().str(),
            "error: NVRTC refuses the activation quantizer of 'a8': NVRTC_ERROR_COMPILATION: "
            "a.cu(3): error: nonsense [nvrtc_failed]\n");
  EXPECT_EQ(alive, 0);
}

} // namespace
} // namespace rho::cuda
