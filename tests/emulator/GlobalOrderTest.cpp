// Sums that CTAs leave in global memory for the last of them, or for one that waits.
#include "tests/emulator/Harness.h"

#include <gmock/gmock.h>

namespace rho::emulator::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Each of two CTAs leaves 64 numbers, behind a counter.
const std::string leaveNumbers = "mov.u32 %r1, %ctaid.x;\nmad.lo.u32 %r2, %r1, 64, %tid32;\n"
                                 "mul.wide.u32 %d1, %r2, 4;\nadd.u64 %d1, %dout, %d1;\n"
                                 "add.u32 %r3, %r2, 1;\nst.global.u32 [%d1+64], %r3;\n";
// Reads those of the other, by other threads.
const std::string gatherNumbers = "sub.u32 %r6, 1, %r1;\nsub.u32 %r7, 63, %tid32;\n"
                                  "mad.lo.u32 %r6, %r6, 64, %r7;\nmul.wide.u32 %d2, %r6, 4;\n"
                                  "add.u64 %d2, %dout, %d2;\nld.global.u32 %r8, [%d2+64];\n"
                                  "mul.wide.u32 %d3, %tid32, 4;\nadd.u64 %d3, %dout, %d3;\n"
                                  "st.global.u32 [%d3+1024], %r8;\n";

Ran runOnTwo(const std::string &body, int threads = 1) {
  Config config;
  config.grid.x = 2;
  config.block.x = 64;
  config.outBytes = 2048;
  config.threads = threads;
  return runKernel(kernel(body, ".shared .align 4 .b32 flag;"), config);
}

std::string lastGathers(const std::string &between, const std::string &before,
                        const std::string &after, const std::string &behind = "",
                        const std::string &atomic = "atom.global.add.u32") {
  return leaveNumbers + between + "setp.ne.u32 %p1, %tid32, 0;\n@%p1 bra WAIT;\n" + before +
         atomic + " %r4, [%dout], 1;\n" + after +
         "st.shared.u32 [flag], %r4;\nWAIT: bar.sync 0;\nld.shared.u32 %r5, [flag];\n"
         "setp.ne.u32 %p2, %r5, 1;\n@%p2 bra END;\n" +
         behind + gatherNumbers + "END:\n";
}

// The second waits for the first.
std::string secondWaits(const std::string &load, const std::string &behind = "",
                        const std::string &signal = "membar.gl;\nred.global.add.u32") {
  return leaveNumbers +
         "bar.sync 0;\nsetp.ne.u32 %p1, %tid32, 0;\n@%p1 bra WAIT;\n"
         "setp.ne.u32 %p3, %r1, 0;\n@%p3 bra SPIN;\n" +
         signal + " [%dout], 1;\nbra WAIT;\nSPIN: " + load +
         " %r4, [%dout];\nsetp.ne.u32 %p3, %r4, 1;\n@%p3 bra SPIN;\n" + behind +
         "WAIT: bar.sync 0;\n"
         "setp.eq.u32 %p3, %r1, 0;\n@%p3 bra END;\n" +
         gatherNumbers + "END:\n";
}

const std::string ctaBarrier = "bar.sync 0;\n", gpuFence = "membar.gl;\n";
const auto isRace =
    AllOf(HasSubstr("error: global address 0x"),
          HasSubstr(" of cta 0 has written it and no fences and atomics order the two: "),
          HasSubstr(" is read, warp "), HasSubstr("[emulator_race_global]"));

TEST(GlobalOrder, TheLastOneReadsWhatAllHaveLeft) {
  for (int threads : {1, 2}) {
    Ran ran = runOnTwo(lastGathers(ctaBarrier, gpuFence, gpuFence), threads);
    ASSERT_EQ(ran.error, "");
    for (uint32_t i = 0; i < 64; ++i) { // of the first CTA, or the other way round
      const uint32_t number = ran.as<uint32_t>()[256 + i];
      EXPECT_TRUE(number == 64 - i || number == 128 - i) << number;
    }
  }
  EXPECT_EQ(runOnTwo(lastGathers(ctaBarrier, "fence.acq_rel.gpu;\n", "fence.sc.sys;\n")).error, "");
}

// All threads before the barrier, and all behind it.
TEST(GlobalOrder, FencesMayBeThoseOfEachThread) {
  EXPECT_EQ(runOnTwo(lastGathers(gpuFence + ctaBarrier, "", "", gpuFence)).error, "");
  EXPECT_THAT(runOnTwo(lastGathers(ctaBarrier, "", "", gpuFence)).error, isRace);
  EXPECT_THAT(runOnTwo(lastGathers(gpuFence + ctaBarrier, "", "")).error, isRace);
}

TEST(GlobalOrder, EachPartOfThePatternIsNeeded) {
  EXPECT_THAT(runOnTwo(lastGathers("", gpuFence, gpuFence)).error, isRace);
  EXPECT_THAT(runOnTwo(lastGathers(ctaBarrier, "", gpuFence)).error, isRace);
  EXPECT_THAT(runOnTwo(lastGathers(ctaBarrier, gpuFence, "")).error, isRace);
  EXPECT_THAT(runOnTwo(lastGathers(ctaBarrier, "membar.cta;\n", gpuFence)).error, isRace);
  EXPECT_THAT(runOnTwo(lastGathers(ctaBarrier, gpuFence, "fence.acq_rel.cta;\n")).error, isRace);
}

TEST(GlobalOrder, ALoadThatAcquiresIsAFence) {
  EXPECT_EQ(runOnTwo(secondWaits("ld.acquire.gpu.global.u32")).error, "");
  EXPECT_THAT(runOnTwo(secondWaits("ld.acquire.cta.global.u32")).error, isRace);
  for (const char *strong : {"ld.relaxed.gpu.global.u32", "ld.volatile.global.u32"}) {
    EXPECT_THAT(runOnTwo(secondWaits(strong)).error, isRace);
    EXPECT_EQ(runOnTwo(secondWaits(strong, gpuFence)).error, "");
  }
}

TEST(GlobalOrder, ReleasesAndAcquiresAreFences) {
  auto last = [](const std::string &before, const std::string &order, const std::string &after) {
    return runOnTwo(lastGathers(ctaBarrier, before, after, "", "atom." + order + ".global.add.u32"))
        .error;
  };
  EXPECT_EQ(last("", "acq_rel.gpu", ""), "");
  EXPECT_EQ(last("", "acq_rel.sys", ""), "");
  EXPECT_EQ(last(gpuFence, "acquire.gpu", ""), "");
  EXPECT_EQ(last("", "release.gpu", gpuFence), "");
  EXPECT_THAT(last("", "release.gpu", ""), isRace);
  EXPECT_THAT(last("", "acquire.gpu", ""), isRace);
  EXPECT_THAT(last("", "relaxed.gpu", gpuFence), isRace);
  const std::string acquire = "ld.acquire.gpu.global.u32";
  for (const char *signal :
       {"red.release.gpu.global.add.u32", "st.release.gpu.global.u32",
        "membar.gl;\nst.relaxed.gpu.global.u32", "membar.gl;\nst.volatile.global.u32"})
    EXPECT_EQ(runOnTwo(secondWaits(acquire, "", signal)).error, "") << signal;
  // Of the last, the release is one of another address.
  for (const char *signal : {"red.relaxed.gpu.global.add.u32", "st.relaxed.gpu.global.u32",
                             "st.release.gpu.global.u32 [%dout+4], 1;\nst.relaxed.gpu.global.u32"})
    EXPECT_THAT(runOnTwo(secondWaits(acquire, "", signal)).error, isRace) << signal;
}

TEST(GlobalOrder, ScopesEndAtTheCluster) {
  for (const char *scope : {"cta", "cluster"}) {
    const std::string near = scope;
    EXPECT_THAT(runOnTwo(lastGathers(ctaBarrier, gpuFence, gpuFence, "",
                                     "atom.relaxed." + near + ".global.add.u32"))
                    .error,
                isRace);
    EXPECT_THAT(
        runOnTwo(lastGathers(ctaBarrier, "", "", "", "atom.acq_rel." + near + ".global.add.u32"))
            .error,
        isRace);
    EXPECT_THAT(runOnTwo(secondWaits("ld.acquire." + near + ".global.u32", gpuFence)).error,
                isRace);
    EXPECT_THAT(runOnTwo(secondWaits("ld.acquire.gpu.global.u32", gpuFence,
                                     "st.release." + near + ".global.u32"))
                    .error,
                isRace);
  }
  // Of one cluster.
  Config config;
  config.grid.x = config.cluster.x = 2;
  config.block.x = 64;
  config.outBytes = 2048;
  auto inCluster = [&](const std::string &load, const std::string &signal) {
    return runKernel(kernel(secondWaits(load, "", signal), ".shared .align 4 .b32 flag;"), config)
        .error;
  };
  EXPECT_EQ(inCluster("ld.acquire.cluster.global.u32", "st.release.cluster.global.u32"), "");
  EXPECT_EQ(inCluster("ld.acquire.gpu.global.u32", "red.release.cluster.global.add.u32"), "");
  EXPECT_EQ(inCluster("ld.acquire.cluster.global.u32", "red.release.gpu.global.add.u32"), "");
  EXPECT_THAT(inCluster("ld.relaxed.cluster.global.u32", "st.release.cluster.global.u32"), isRace);
}

} // namespace
} // namespace rho::emulator::test
