#include "runtime/cuda/Nvrtc.h"

#include "tests/runtime/FakeNvrtc.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

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

// Of a thread that nobody joins; NVRTC does not survive what it keeps.
TEST(NvrtcDeathTest, TheEndOfAProcessWaitsForPrograms) {
  const auto leave = [] {
    static Nvrtc slow = **fakeNvrtc();
    ASSERT_EQ(compileCuda(slow, {"first", "a.cu"}, {}).log, "");
    static std::promise<void> begun;
    slow.compileProgram = [](Nvrtc::Program, int, const char *const *) {
      begun.set_value();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      std::fputs("compiled", stderr);
      return 0;
    };
    std::thread([] { compileCuda(slow, {"second", "a.cu"}, {}); }).detach();
    begun.get_future().wait();
    std::exit(0);
  };
  EXPECT_EXIT(leave(), testing::ExitedWithCode(0), "^compiled$");
}

TEST(NvrtcDeathTest, NoProgramBeginsBehindIt) {
  const auto leave = [] {
    static const Nvrtc &nvrtc = **fakeNvrtc();
    std::atexit([] { std::fputs(compileCuda(nvrtc, {"second", "a.cu"}, {}).log.c_str(), stderr); });
    compileCuda(nvrtc, {"first", "a.cu"}, {});
    std::exit(0);
  };
  EXPECT_EXIT(leave(), testing::ExitedWithCode(0), "^the process ends$");
}

// What other threads did as it was forked is not waited for.
TEST(NvrtcDeathTest, AForkedProcessEnds) {
  const auto leave = [] {
    static Nvrtc endless = **fakeNvrtc();
    compileCuda(endless, {"first", "a.cu"}, {});
    static std::promise<void> begun;
    endless.compileProgram = [](Nvrtc::Program, int, const char *const *) -> int {
      begun.set_value();
      for (;;)
        std::this_thread::sleep_for(std::chrono::hours(1));
    };
    std::thread([] { compileCuda(endless, {"second", "a.cu"}, {}); }).detach();
    begun.get_future().wait();
    const pid_t child = ::fork();
    if (child == 0)
      std::exit(7);
    int status = 0;
    ::waitpid(child, &status, 0);
    ::_exit(WEXITSTATUS(status));
  };
  EXPECT_EXIT(leave(), testing::ExitedWithCode(7), "");
}

} // namespace
} // namespace rho::cuda
