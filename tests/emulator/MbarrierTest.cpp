// mbarrier: phases, transactions, and what goes wrong with them.
#include "tests/emulator/Harness.h"

#include <gmock/gmock.h>

namespace rho::emulator::test {
namespace {

using testing::HasSubstr;

const std::string mbarrierBuffers = ".shared .align 8 .b64 full; .shared .align 8 .b64 empty; "
                                    ".shared .align 16 .b32 data[32];";

// Lane 0 of warp 0 initialises full and empty; %p0: the thread is in warp 0.
std::string initBarriers(const std::string &fullCount, const std::string &emptyCount) {
  return "setp.lt.u32 %p0, %tid32, 32;\nsetp.eq.u32 %p1, %tid32, 0;\n"
         "@%p1 mbarrier.init.shared::cta.b64 [full], " +
         fullCount + ";\n@%p1 mbarrier.init.shared::cta.b64 [empty], " + emptyCount +
         ";\nfence.mbarrier_init.release.cluster;\nbar.sync 0;\n";
}

std::string waitFor(const std::string &barrier, const std::string &parity,
                    const std::string &label) {
  return label + ": mbarrier.try_wait.parity.shared::cta.b64 %p7, [" + barrier + "], " + parity +
         ";\n@!%p7 bra " + label + ";\n";
}

Ran runMbarriers(const std::string &body, uint32_t threads = 32) {
  Config config;
  config.block.x = threads;
  config.outBytes = 1024;
  return runKernel(kernel(body, mbarrierBuffers), config);
}

// Warp 0 writes `rounds` times 32 numbers, warp 1 adds them up.
std::string pipeline(const std::string &producerWait, const std::string &consumerWait) {
  return initBarriers("32", "32") + R"(
  mov.b32 %r1, 0;  // round
  mov.b32 %r2, 0;  // sum
  shl.b32 %r3, %tid32, 2;
  and.b32 %r3, %r3, 127;
  mov.b32 %r5, data;
  add.u32 %r4, %r3, %r5;
  @!%p0 bra CONSUMER;
PRODUCER:
  and.b32 %r6, %r1, 1;
  xor.b32 %r7, %r6, 1;
)" + producerWait +
         R"(
  add.u32 %r8, %r1, %tid32;
  st.shared.b32 [%r4], %r8;
  mbarrier.arrive.shared::cta.b64 _, [full];
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p2, %r1, 5;
  @%p2 bra PRODUCER;
  exit;
CONSUMER:
  and.b32 %r6, %r1, 1;
)" + consumerWait +
         R"(
  ld.shared.b32 %r8, [%r4];
  add.u32 %r2, %r2, %r8;
  mbarrier.arrive.release.cta.shared::cta.b64 %d1, [empty], 1;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p2, %r1, 5;
  @%p2 bra CONSUMER;
  mad.wide.u32 %d9, %tid32, 4, %dout;
  st.global.b32 [%d9], %r2;
)";
}

TEST(Mbarrier, PhasesOrderProducerAndConsumer) {
  Ran ran = runMbarriers(pipeline(waitFor("empty", "%r7", "WE"), waitFor("full", "%r6", "WF")), 64);
  ASSERT_EQ(ran.error, "");
  for (uint32_t lane = 0; lane < 32; ++lane)
    EXPECT_EQ(ran.as<uint32_t>()[32 + lane], 10 + 5 * lane);
}

// Warp 0 waits for warp 1 in each round and for warp 2 in none (`others` 32) or in each (64). Where
// it does not, warp 2 may fall a round behind and take one phase of `full` for another.
std::string audience(const std::string &others) {
  return initBarriers("32", others) + R"(
  mov.b32 %r1, 0;  // round
  @!%p0 bra CONSUMER;
PRODUCER:
  and.b32 %r6, %r1, 1;
  xor.b32 %r7, %r6, 1;
)" + waitFor("empty", "%r7", "WE") +
         R"(
  mbarrier.arrive.shared::cta.b64 _, [full];
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p2, %r1, 40;
  @%p2 bra PRODUCER;
  exit;
CONSUMER:
  sub.u32 %r9, %tid32, 32;
  setp.lt.u32 %p3, %r9, )" +
         others + R"(;
NEXT:
  and.b32 %r6, %r1, 1;
)" + waitFor("full", "%r6", "WF") +
         R"(
  @%p3 mbarrier.arrive.shared::cta.b64 _, [empty];
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p2, %r1, 40;
  @%p2 bra NEXT;
)";
}

TEST(Mbarrier, AWarpThatNobodyWaitsForFallsBehind) {
  auto run = [](const std::string &others) {
    Config config;
    config.block.x = 96;
    config.grid.x = 16;
    config.outBytes = 1024;
    return runKernel(kernel(audience(others), mbarrierBuffers), config).error;
  };
  EXPECT_EQ(run("64"), "");
  EXPECT_THAT(run("32"), HasSubstr("[emulator_deadlock]"));
}

TEST(Mbarrier, WithoutAWaitThereIsARace) {
  std::string once = initBarriers("32", "1") + R"(
  @!%p0 st.shared.b32 [data], %tid32;
  @!%p0 mbarrier.arrive.shared.b64 _, [full];
)";
  EXPECT_THAT(
      runMbarriers(once + waitFor("full", "0", "W") + "@%p0 ld.shared.b32 %r1, [data];", 64).error,
      "");
  EXPECT_THAT(runMbarriers(once + "@%p0 ld.shared.b32 %r1, [data];", 64).error,
              HasSubstr("[emulator_race_read]"));
  // Relaxed arrivals order nothing.
  std::string relaxed = once;
  relaxed.replace(relaxed.find("arrive.shared"), 6, "arrive.relaxed.cta");
  EXPECT_THAT(
      runMbarriers(relaxed + waitFor("full", "0", "W") + "@%p0 ld.shared.b32 %r1, [data];", 64)
          .error,
      HasSubstr("[emulator_race_read]"));
}

TEST(Mbarrier, PhasesAlsoWaitForBytes) {
  // State before and after the transaction is complete.
  Ran ran = runMbarriers(initBarriers("1", "1") + R"(
  mbarrier.arrive.expect_tx.shared::cta.b64 %d1, [full], 32;
  mbarrier.test_wait.shared::cta.b64 %p2, [full], %d1;
  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [full], 16;
  mbarrier.test_wait.parity.shared::cta.b64 %p3, [full], 0;
  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [full], 8;
  mbarrier.complete_tx.shared::cta.b64 [full], 24;
  mbarrier.test_wait.shared::cta.b64 %p4, [full], %d1;
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p5, [full], 0, 1000;
  mbarrier.try_wait.parity.shared::cta.b64 %p6, [full], 1;
  selp.b32 %r1, 1, 0, %p2;
  selp.b32 %r2, 2, 0, %p3;
  selp.b32 %r3, 4, 0, %p4;
  selp.b32 %r4, 8, 0, %p5;
  selp.b32 %r5, 16, 0, %p6;
  or.b32 %r1, %r1, %r2;
  or.b32 %r1, %r1, %r3;
  or.b32 %r1, %r1, %r4;
  or.b32 %r1, %r1, %r5;
  st.global.b32 [%dout], %r1;
)",
                         1);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.as<uint32_t>()[0], 12u);
}

// A loop around a test that nobody makes true ends by its own count.
TEST(Mbarrier, FalseTestsAreAnswered) {
  Ran ran = runMbarriers(initBarriers("1", "1") + R"(
  mov.b32 %r1, 0;
LOOP:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [full], 0;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p3, %r1, 100;
  @%p3 bra LOOP;
  st.global.b32 [%dout], %r1;
)");
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.as<uint32_t>()[0], 100u);
}

TEST(Mbarrier, NobodyArrives) {
  std::string error = runMbarriers(initBarriers("2", "1") + R"(
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 64;
)" + waitFor("full", "0", "W"))
                          .error;
  EXPECT_THAT(error, HasSubstr("lacks 1 of 2 arrivals and 64 bytes"));
  EXPECT_THAT(error, HasSubstr("[emulator_deadlock]"));
}

TEST(Mbarrier, Misuse) {
  auto expect = [](const std::string &body, const std::string &what) {
    std::string error = runMbarriers(body).error;
    EXPECT_THAT(error, HasSubstr(what)) << body;
    EXPECT_THAT(error, HasSubstr("[emulator_mbarrier]")) << body;
  };
  expect(waitFor("full", "0", "W"), "is not initialised");
  expect("mbarrier.arrive.shared.b64 _, [full];", "is not initialised");
  expect(initBarriers("0", "1"), "0 arrivals, it takes 1 to 1048575");
  expect(initBarriers("31", "1") + "mbarrier.arrive.shared.b64 _, [full], 32;",
         "32 arrivals, the phase lacks 31 of 31");
  expect(initBarriers("2", "1") + "@%p1 mbarrier.arrive.shared.b64 _, [full];\n"
                                  "@%p1 mbarrier.init.shared.b64 [full], 2;",
         "is initialised again in the middle of a phase");
  expect(initBarriers("1", "1") + "mbarrier.expect_tx.shared.b64 [full], 1048576;",
         "1048576 bytes");
  expect(initBarriers("1", "1") + "mbarrier.expect_tx.shared.b64 [full], 524288;",
         "1048576 bytes to come, a phase has at most 1048575");
  expect(initBarriers("1", "1") + "@%p1 mbarrier.complete_tx.shared.b64 [full], 16;\n"
                                  "@%p1 mbarrier.arrive.shared.b64 _, [full];",
         "16 bytes more have come than its phase expects");
  expect(initBarriers("1", "1") + "@%p1 mbarrier.inval.shared.b64 [full];\n"
                                  "@%p1 mbarrier.arrive.shared.b64 _, [full];",
         "is not initialised");
}

TEST(Mbarrier, OthersMustKnowOfTheInitialisation) {
  EXPECT_THAT(
      runMbarriers("setp.eq.u32 %p1, %tid32, 0;\n@%p1 mbarrier.init.shared.b64 [full], 64;\n"
                   "mbarrier.arrive.shared.b64 _, [full];",
                   64)
          .error,
      HasSubstr("[emulator_race_read]"));
}

} // namespace
} // namespace rho::emulator::test
