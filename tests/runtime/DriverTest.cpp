#include "runtime/cuda/Driver.h"

#include "runtime/Rho.h"
#include "tests/runtime/FakeDriver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

namespace rho::cuda {
namespace {

TEST(Driver, AbsenceSaysWhatIsMissing) {
  Result<Driver> driver = Driver::openFrom({"libcuda-absent.so.1"});
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().str(), "error: no CUDA device: libcuda-absent.so.1: cannot open shared "
                                  "object file: No such file or directory [cuda_not_available]\n");
}

// Run when the process ends, after what functions keep.
struct AtEnd {
  ~AtEnd() {
    if (work)
      work();
  }
  std::function<void()> work;
} atEnd;

TEST(Driver, IsThereUntilTheProcessHasEnded) {
  EXPECT_EXIT(
      {
        const bool had = Device::cuda(0).ok();
        atEnd.work = [had] {
          std::fputs(Device::cuda(0).ok() == had ? "as before" : "gone", stderr);
        };
        std::exit(0);
      },
      testing::ExitedWithCode(0), "as before");
}

TEST(Driver, ALibraryWithoutTheSymbolsIsNoDriver) {
  Result<Driver> driver = Driver::openFrom({"libcuda-absent.so.1", "libm.so.6"});
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().str(), "error: no CUDA device: libm.so.6 has no cuInit, it must be of "
                                  "CUDA 11.4 or later [cuda_not_available]\n");
}

TEST(Driver, FailedCallsQuoteTheDriver) {
  const Driver &driver = resetFake();
  EXPECT_TRUE(check(driver, CUDA_SUCCESS, "cuLaunchKernel"));
  Status failed = check(driver, 200, "cuLaunchKernel");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().str(), "error: cuLaunchKernel failed with CUDA_ERROR_INVALID_IMAGE (as "
                                  "the test wants it) [cuda_call_failed]\n");
}

// PTX ISA reference, table "PTX Release History".
TEST(Driver, NewestPtxIsaOfADriver) {
  EXPECT_EQ(newestPtxIsa(10020), 0);
  EXPECT_EQ(newestPtxIsa(11000), 70);
  EXPECT_EQ(newestPtxIsa(11080), 78);
  EXPECT_EQ(newestPtxIsa(12000), 80);
  EXPECT_EQ(newestPtxIsa(12040), 84);
  EXPECT_EQ(newestPtxIsa(12060), 85);
  EXPECT_EQ(newestPtxIsa(13000), 90);
  EXPECT_EQ(newestPtxIsa(14000), 90);
}

TEST(Driver, ReadsPtxVersions) {
  EXPECT_EQ(ptxIsaOf("// a comment\n.version 8.3\n.target sm_90a\n"), 83);
  EXPECT_EQ(ptxIsaOf(".version 7.0"), 70);
  EXPECT_EQ(ptxIsaOf(".target sm_80"), 0);
  EXPECT_EQ(ptxIsaOf(".version"), 0);
  EXPECT_EQ(ptxIsaOf(".version x"), 0);
  EXPECT_EQ(ptxIsaOf(".version 8"), 0);
}

TEST(Driver, ContextScopeRestoresTheCallersContext) {
  const Driver &driver = resetFake();
  CUcontext current = nullptr;
  auto *mine = reinterpret_cast<CUcontext>(&current);
  {
    ContextScope outer(driver, mine);
    ContextScope inner(driver, mine); // current already
    driver.ctxGetCurrent(&current);
    EXPECT_EQ(current, mine);
  }
  driver.ctxGetCurrent(&current);
  EXPECT_EQ(current, nullptr);
}

} // namespace
} // namespace rho::cuda
