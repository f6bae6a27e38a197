// Branches, divergence, barriers, exchanges between lanes, atomics and the watchdog.
#include "tests/emulator/Harness.h"

#include <bit>

namespace rho::emulator::test {
namespace {

Ran runBody(const std::string &body, uint32_t threads, int64_t outBytes, uint32_t grid = 1,
            int hosts = 1, const std::string &declarations = "") {
  Config config;
  config.block.x = threads;
  config.grid.x = grid;
  config.outBytes = outBytes;
  config.threads = hosts;
  config.shared = 4096;
  return runKernel(kernel(body, declarations), config);
}

std::string errorOf(const std::string &body, uint32_t threads = 32) {
  return runBody(body, threads, 4096).error;
}

const char *storeR1 = "\nmad.wide.u32 %d9, %tid32, 4, %dout;\nst.global.b32 [%d9], %r1;";

TEST(Divergence, LanesLoopTheirOwnNumberOfTimesAndMeetAgain) {
  // r1 = tid * (tid + 1) / 2 by a loop, then every lane sees the whole warp.
  Ran ran = runBody(std::string(R"(
  mov.b32 %r1, 0;
  mov.b32 %r2, %tid32;
LOOP:
  setp.eq.u32 %p1, %r2, 0;
  @%p1 bra DONE;
  add.u32 %r1, %r1, %r2;
  sub.u32 %r2, %r2, 1;
  bra.uni LOOP;
DONE:
  activemask.b32 %r3;
  setp.ne.u32 %p2, %r3, -1;
  @%p2 trap;)") + storeR1,
                    32, 128);
  ASSERT_EQ(ran.error, "");
  auto out = ran.as<uint32_t>();
  for (uint32_t t = 0; t < 32; ++t)
    ASSERT_EQ(out[t], t * (t + 1) / 2);
}

TEST(Divergence, NestedBranchesTakeTheirOwnWays) {
  Ran ran = runBody(std::string(R"(
  and.b32 %r2, %tid32, 1;
  and.b32 %r3, %tid32, 2;
  setp.eq.u32 %p1, %r2, 0;
  setp.eq.u32 %p2, %r3, 0;
  mov.b32 %r1, 0;
  @%p1 bra EVEN;
  @%p2 bra ODD_LOW;
  add.u32 %r1, %r1, 1000;
ODD_LOW:
  add.u32 %r1, %r1, 1;
  bra JOIN;
EVEN:
  @!%p2 add.u32 %r1, %r1, 2000;
  add.u32 %r1, %r1, 2;
JOIN:
  add.u32 %r1, %r1, 10000;)") +
                        storeR1,
                    40, 160);
  ASSERT_EQ(ran.error, "");
  auto out = ran.as<uint32_t>();
  for (uint32_t t = 0; t < 40; ++t)
    ASSERT_EQ(out[t], 10000 + (t % 2 ? 1 + (t & 2 ? 1000 : 0) : 2 + (t & 2 ? 2000 : 0)));
}

TEST(Divergence, BranchTablesSendEachLaneItsWay) {
  std::string body = R"(
TARGETS:
  .branchtargets A, B, A, C;
  and.b32 %r2, %tid32, MASK;
  brx.idx %r2, TARGETS;
A:
  mov.b32 %r1, 10;
  bra.uni END;
B:
  mov.b32 %r1, 20;
  bra.uni END;
C:
  mov.b32 %r1, 30;
END:
  add.u32 %r1, %r1, 1;)" +
                     std::string(storeR1);
  auto with = [&](const std::string &mask) {
    std::string text = body;
    text.replace(text.find("MASK"), 4, mask);
    return text;
  };
  Ran ran = runBody(with("3"), 32, 128);
  ASSERT_EQ(ran.error, "");
  auto out = ran.as<uint32_t>();
  const uint32_t expected[] = {11, 21, 11, 31};
  for (uint32_t t = 0; t < 32; ++t)
    ASSERT_EQ(out[t], expected[t % 4]);
  EXPECT_EQ(errorOf(with("7")),
            "error: branch index 4, there are 4 targets: ptx line 25 `brx.idx %r2, TARGETS` in cta "
            "(0,0,0), thread (4,0,0) [emulator_branch_index]\n");
}

TEST(Divergence, ExitedLanesAreGone) {
  Ran ran =
      runBody(std::string("setp.gt.u32 %p1, %tid32, 4;\n@%p1 exit;\nactivemask.b32 %r1;") + storeR1,
              32, 128);
  ASSERT_EQ(ran.error, "");
  auto out = ran.as<uint32_t>();
  for (uint32_t t = 0; t < 32; ++t)
    ASSERT_EQ(out[t], t <= 4 ? 0x1fu : 0u);
}

TEST(Divergence, StatsCountThreads) {
  Ran all = runBody("", 64, 0, 3);
  Ran more =
      runBody("setp.lt.u32 %p1, %tid32, 8;\n@%p1 bra SKIP;\nadd.u32 %r1, %r1, 1;\nSKIP:", 64, 0, 3);
  EXPECT_EQ(all.stats.ctas, 3u);
  EXPECT_EQ(more.stats.threadInstructions - all.stats.threadInstructions, 3u * (64 + 64 + 56));
}

TEST(Special, RegistersDescribeTheLaunch) {
  Config config;
  config.block = {4, 8, 2};
  config.grid = {2, 3, 2};
  config.outBytes = 24576;
  Ran ran = runKernel(kernel(R"(
  mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ntid.x; mov.u32 %r4, %ntid.y;
  mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ctaid.y; mov.u32 %r7, %ctaid.z;
  mov.u32 %r8, %nctaid.x; mov.u32 %r9, %nctaid.y;
  mad.lo.u32 %r10, %r2, %r4, %r1;
  mad.lo.u32 %r10, %r10, %r3, %tid32;   // thread in the block
  mad.lo.u32 %r11, %r7, %r9, %r6;
  mad.lo.u32 %r11, %r11, %r8, %r5;      // block in the grid
  mad.lo.u32 %r12, %r11, 64, %r10;
  mad.wide.u32 %d1, %r12, 32, %dout;
  mov.u32 %r13, %laneid; mov.u32 %r14, %warpid; mov.u32 %r15, %lanemask_lt; mov.u32 %r16, %lanemask_ge;
  st.global.v4.b32 [%d1], {%r12, %r13, %r14, %r15};
  mov.u32 %r17, %clock; mov.u64 %d2, %globaltimer;
  st.global.b32 [%d1+16], %r16;)"),
                      config);
  ASSERT_EQ(ran.error, "");
  auto out = ran.as<uint32_t>();
  for (size_t i = 0; i < 12 * 64; ++i) {
    ASSERT_EQ(out[i * 8], i);
    ASSERT_EQ(out[i * 8 + 1], i % 32);
    ASSERT_EQ(out[i * 8 + 2], i % 64 / 32);
    ASSERT_EQ(out[i * 8 + 3], (1u << i % 32) - 1);
    ASSERT_EQ(out[i * 8 + 4], ~((1u << i % 32) - 1));
  }
}

TEST(Barriers, AllThreadsOfTheBlockMeet) {
  // A reversal through shared memory across four warps, twice, with no other order.
  Ran ran = runBody(std::string(R"(
  shl.b32 %r2, %tid32, 2;
  sub.u32 %r3, 508, %r2;
  mul.lo.u32 %r1, %tid32, 3;
  st.shared.b32 [%r2], %r1;
  barrier.cta.sync.aligned 0;
  ld.shared.b32 %r4, [%r3];
  bar.sync 0, 128;
  st.shared.b32 [%r2], %r4;
  barrier.sync 3;
  ld.shared.b32 %r1, [%r3];)") +
                        storeR1,
                    128, 512);
  ASSERT_EQ(ran.error, "");
  auto out = ran.as<uint32_t>();
  for (uint32_t t = 0; t < 128; ++t)
    ASSERT_EQ(out[t], 3 * t);
}

TEST(Barriers, PartOfAWarpIsAnError) {
  EXPECT_EQ(errorOf("setp.lt.u32 %p1, %tid32, 40;\n@%p1 bar.sync 0;", 64),
            "error: barrier 0 is reached by 8 of the 32 live threads of warp 1, a warp's threads "
            "arrive together: ptx line 22 `@%p1 bar.sync 0` in cta (0,0,0), thread (32,0,0) "
            "[emulator_divergent_barrier]\n");
  EXPECT_EQ(errorOf("setp.lt.u32 %p1, %tid32, 8;\n@%p1 bra A;\nbar.sync 0;\nret;\nA:\nbar.sync 0;"),
            "error: barrier 0 is reached by 24 of the 32 live threads of warp 0, a warp's threads "
            "arrive together: ptx line 23 `bar.sync 0` in cta (0,0,0), thread (8,0,0) "
            "[emulator_divergent_barrier]\n");
}

TEST(Barriers, ExitedOrAbsentThreadsAreADeadlock) {
  EXPECT_EQ(errorOf("setp.lt.u32 %p1, %tid32, 32;\n@%p1 ret;\nbar.sync 0;", 96),
            "error: every warp waits (barrier 0 has 64 of 96 threads; 32 threads have exited): ptx "
            "line 23 `bar.sync 0` in cta (0,0,0), thread (32,0,0) [emulator_deadlock]\n");
  EXPECT_EQ(errorOf("setp.lt.u32 %p1, %tid32, 3;\n@%p1 ret;\nbar.sync 0;", 32),
            "error: every warp waits (barrier 0 has 29 of 32 threads; 3 threads have exited): ptx "
            "line 23 `bar.sync 0` in cta (0,0,0), thread (3,0,0) [emulator_deadlock]\n");
  EXPECT_EQ(errorOf("shr.u32 %r1, %tid32, 5;\nbar.sync %r1;", 64),
            "error: every warp waits (barrier 0 has 32 of 64 threads, barrier 1 has 32 of 64 "
            "threads; 0 threads have exited): ptx line 22 `bar.sync %r1` in cta (0,0,0), thread "
            "(0,0,0) [emulator_deadlock]\n");
}

TEST(Barriers, OperandsAreChecked) {
  EXPECT_EQ(errorOf("bar.sync 16;"),
            "error: barrier 16, there are barriers 0 to 15: ptx line 21 `bar.sync 16` in cta "
            "(0,0,0), thread (0,0,0) [emulator_barrier_operand]\n");
  EXPECT_EQ(
      errorOf("bar.sync 1, 40;", 64),
      "error: 40 threads, a barrier takes a multiple of 32 up to 64: ptx line 21 `bar.sync 1, "
      "40` in cta (0,0,0), thread (0,0,0) [emulator_barrier_operand]\n");
  EXPECT_EQ(errorOf("bar.sync %tid32;"),
            "error: different operands in one warp, its threads arrive together: ptx line 21 "
            "`bar.sync %tid32` in cta (0,0,0), thread (1,0,0) [emulator_barrier_operand]\n");
  EXPECT_EQ(errorOf("setp.lt.u32 %p1, %tid32, 32;\n@%p1 bra A;\nbar.sync 1, 96;\nA:\nbar.sync 1, "
                    "64;",
                    96),
            "error: 96 threads at barrier 1, others wait for 64: ptx line 23 `bar.sync 1, 96` in "
            "cta (0,0,0), thread (32,0,0) [emulator_barrier_operand]\n");
}

TEST(Aligned, InstructionsNeedTheWholeWarp) {
  EXPECT_EQ(
      errorOf("setp.ne.u32 %p1, %tid32, 7;\n@%p1 bra A;\nret;\nA:\nmma.sync.aligned.m16n8k8.row."
              "col.f32.f16.f16.f32 {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%r6}, {%r0,%r1,%r2,%r3};"),
      "error: 31 threads execute an aligned instruction, all 32 of the warp must: ptx line 25 "
      "`mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r0,%r1,%r2,%r3}, {%r4,%r5}, "
      "{%r6}, {%r0,%r1,%r2,%r3}` in cta (0,0,0), thread (0,0,0) "
      "[emulator_divergent_instruction]\n");
  EXPECT_NE(errorOf("mov.b32 %r1, 0;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];", 16)
                .find("[emulator_divergent_instruction]"),
            std::string::npos);
}

TEST(Watchdog, EndsALoopWithoutEnd) {
  EXPECT_EQ(errorOf("LOOP:\nadd.u32 %r1, %r1, 1;\nbra LOOP;"),
            "error: 16777216 instructions in one warp, the launch allows no more: ptx line 23 `bra "
            "LOOP` in cta (0,0,0), thread (0,0,0) [emulator_no_progress]\n");
}

TEST(Trap, EndsTheLaunchAtTheLowestCta) {
  std::string body = "mov.u32 %r1, %ctaid.x;\nsetp.ge.u32 %p1, %r1, 5;\n@%p1 trap;";
  for (int hosts : {1, 4})
    EXPECT_EQ(runBody(body, 32, 4, 64, hosts).error,
              "error: trap: ptx line 23 `@%p1 trap` in cta (5,0,0), thread (0,0,0) "
              "[emulator_trap]\n");
}

TEST(Exchange, ShufflesFollowTheIsasFormulas) {
  struct Mode {
    const char *name;
    int index;
  };
  for (Mode mode : {Mode{"up", 0}, Mode{"down", 1}, Mode{"bfly", 2}, Mode{"idx", 3}})
    for (uint32_t b : {0u, 1u, 3u, 16u, 31u})
      for (uint32_t c : {0u, 0x1fu, 0x181fu, 0x1c03u}) {
        std::string body = "add.u32 %r2, %tid32, 100;\nshfl.sync." + std::string(mode.name) +
                           ".b32 %r1|%p1, %r2, " + std::to_string(b) + ", " + std::to_string(c) +
                           ", -1;\n@%p1 add.u32 %r1, %r1, 1000;";
        Ran ran = runBody(body + storeR1, 32, 128);
        ASSERT_EQ(ran.error, "");
        auto out = ran.as<uint32_t>();
        for (int lane = 0; lane < 32; ++lane) {
          // The ISA's pseudocode.
          int bval = int(b & 31), cval = int(c & 31), mask = int(c >> 8 & 31);
          int maxLane = (lane & mask) | (cval & ~mask), minLane = lane & mask, j = 0;
          bool pval = false;
          switch (mode.index) {
          case 0:
            j = lane - bval, pval = j >= maxLane;
            break;
          case 1:
            j = lane + bval, pval = j <= maxLane;
            break;
          case 2:
            j = lane ^ bval, pval = j <= maxLane;
            break;
          default:
            j = minLane | (bval & ~mask), pval = j <= maxLane;
            break;
          }
          if (!pval)
            j = lane;
          ASSERT_EQ(out[size_t(lane)], uint32_t(100 + j + (pval ? 1000 : 0)))
              << mode.name << " " << b << " " << c << " lane " << lane;
        }
      }
}

TEST(Exchange, VotesMatchesAndReductions) {
  auto of = [](const std::string &body) { return runBody(body + storeR1, 32, 128).as<uint32_t>(); };
  std::string odd = "and.b32 %r2, %tid32, 1;\nsetp.eq.u32 %p1, %r2, 1;\n";
  EXPECT_EQ(of(odd + "vote.sync.ballot.b32 %r1, %p1, -1;")[3], 0xaaaaaaaau);
  EXPECT_EQ(of(odd + "vote.sync.ballot.b32 %r1, !%p1, -1;")[3], 0x55555555u);
  EXPECT_EQ(of(odd + "vote.sync.any.pred %p2, %p1, -1; selp.b32 %r1, 1, 0, %p2;")[0], 1u);
  EXPECT_EQ(of(odd + "vote.sync.all.pred %p2, %p1, -1; selp.b32 %r1, 1, 0, %p2;")[1], 0u);
  EXPECT_EQ(of(odd + "match.any.sync.b32 %r1, %r2, -1;")[5], 0xaaaaaaaau);
  EXPECT_EQ(of("redux.sync.add.s32 %r1, %tid32, -1;")[9], 496u);
  EXPECT_EQ(of("redux.sync.max.u32 %r1, %tid32, -1;")[9], 31u);
  EXPECT_EQ(of("elect.sync %r1|%p1, -1;\n@!%p1 mov.b32 %r1, 77;"), [] {
    std::vector<uint32_t> expected(32, 77);
    expected[0] = 0;
    return expected;
  }());
}

TEST(Exchange, MemberMasksNameTheLanesThatAreThere) {
  EXPECT_EQ(errorOf("setp.lt.u32 %p1, %tid32, 8;\n@%p1 shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;"),
            "error: member mask 0xffffffff, the threads 0xff execute the instruction together: ptx "
            "line 22 `@%p1 shfl.sync.idx.b32 %r1, %r2, 0, 31, -1` in cta (0,0,0), thread (0,0,0) "
            "[emulator_wrong_members]\n");
  EXPECT_EQ(errorOf("setp.lt.u32 %p1, %tid32, 8;\n@%p1 shfl.sync.idx.b32 %r1, %r2, 9, 31, 255;"),
            "error: a value is taken from lane 9, which does not execute the instruction: ptx line "
            "22 `@%p1 shfl.sync.idx.b32 %r1, %r2, 9, 31, 255` in cta (0,0,0), thread (0,0,0) "
            "[emulator_inactive_lane]\n");
  EXPECT_EQ(
      errorOf("setp.lt.u32 %p1, %tid32, 8;\n@%p1 bra A;\nbar.warp.sync 0xffffff00;\nret;\nA:\n"
              "bar.warp.sync 255;"),
      "");
}

TEST(Exchange, WarpBarriersWaitForTheLanesThatTheyName) {
  // The lanes that come first to A stand before the others, which come from behind it.
  std::string apart = "setp.lt.u32 %p1, %tid32, 8;\n@%p1 bra B;\nA:\n";
  Ran ran = runBody(apart + "bar.warp.sync -1;\nredux.sync.add.s32 %r1, %tid32, -1;\n" + storeR1 +
                        "\nret;\nB:\nbra A;",
                    32, 128);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.as<uint32_t>()[9], 496u);
  EXPECT_EQ(errorOf(apart + "bar.warp.sync -1;\nret;\nB:\nret;"),
            "error: member mask 0xffffffff, the threads 0xffffff00 execute the instruction "
            "together: ptx line 24 `bar.warp.sync -1` in cta (0,0,0), thread (8,0,0) "
            "[emulator_wrong_members]\n");
  EXPECT_EQ(errorOf(apart + "bar.warp.sync -1;\nret;\nB:\nbar.warp.sync -1;"),
            "error: member mask 0xffffffff, the threads 0xff execute the instruction together: ptx "
            "line 27 `bar.warp.sync -1` in cta (0,0,0), thread (0,0,0) [emulator_wrong_members]\n");
}

TEST(Atomics, EveryOperation) {
  struct Row {
    const char *operation;
    uint32_t start, b, c, expected;
  };
  const Row rows[] = {
      {"add.u32", 7, 5, 0, 12},
      {"add.s32", 0xffffffff, 2, 0, 1},
      {"min.s32", 5, 0xfffffff0, 0, 0xfffffff0},
      {"min.u32", 5, 0xfffffff0, 0, 5},
      {"max.s32", 5, 0xfffffff0, 0, 5},
      {"max.u32", 5, 9, 0, 9},
      {"and.b32", 12, 10, 0, 8},
      {"or.b32", 12, 10, 0, 14},
      {"xor.b32", 12, 10, 0, 6},
      {"exch.b32", 12, 10, 0, 10},
      {"cas.b32", 12, 12, 4, 4},
      {"cas.b32", 12, 11, 4, 12},
      {"inc.u32", 12, 12, 0, 0},
      {"inc.u32", 3, 12, 0, 4},
      {"dec.u32", 0, 12, 0, 12},
      {"dec.u32", 5, 12, 0, 4},
      {"add.f32", 0x3f800000, 0x40000000, 0, 0x40400000},
      {"add.noftz.f16x2", 0x3c003c00, 0x40003c00, 0, 0x42004000},
      {"add.noftz.bf16x2", 0x3f803f80, 0x40003f80, 0, 0x40404000},
  };
  for (const Row &row : rows)
    for (const char *space : {"global", "shared"}) {
      bool cas = std::string(row.operation).starts_with("cas");
      std::string third = cas ? ", %r4" : "", name = space;
      std::string at = name == "global" ? "%dout+8" : "%r9";
      std::string body = "mov.b32 %r9, 16; mov.b32 %r2, " + std::to_string(row.start) +
                         "; mov.b32 %r3, " + std::to_string(row.b) + "; mov.b32 %r4, " +
                         std::to_string(row.c) + ";\nst." + name + ".b32 [" + at +
                         "], %r2;\natom." + name + "." + row.operation + " %r5, [" + at + "], %r3" +
                         third + ";\nld." + name + ".b32 %r6, [" + at +
                         "];\nst.global.v2.b32 [%dout], {%r5, %r6};";
      Ran ran = runBody(body, 1, 16);
      ASSERT_EQ(ran.error, "") << row.operation;
      EXPECT_EQ(ran.as<uint32_t>()[0], row.start) << row.operation;
      EXPECT_EQ(ran.as<uint32_t>()[1], row.expected) << row.operation << " " << space;
    }
}

TEST(Atomics, CtasOnSeveralHostThreadsLoseNothing) {
  Ran ran = runBody(R"(
  atom.global.add.u32 %r1, [%dout], 1;
  red.global.add.u64 [%dout+8], 3;
  red.relaxed.gpu.global.add.f32 [%dout+16], 0f3F800000;
  red.shared.add.u32 [0], 1;)",
                    64, 24, 200, 4);
  EXPECT_NE(ran.error.find("[emulator_unwritten_shared]"), std::string::npos);
  ran = runBody(R"(
  atom.global.add.u32 %r1, [%dout], 1;
  red.global.add.u64 [%dout+8], 3;
  red.relaxed.gpu.global.add.f32 [%dout+16], 0f3F800000;)",
                64, 24, 200, 4);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.as<uint32_t>()[0], 12800u);
  EXPECT_EQ(ran.as<uint64_t>()[1], 38400u);
  EXPECT_EQ(std::bit_cast<float>(ran.as<uint32_t>()[4]), 12800.0f);
}

TEST(Atomics, WarpsMeetInSharedAtomicsWithoutABarrier) {
  Ran ran = runBody(R"(
  setp.eq.u32 %p1, %tid32, 0;
  mov.b32 %r2, 0;
  @%p1 st.shared.b32 [%r2], 0;
  bar.sync 0;
  red.shared.add.u32 [%r2], %tid32;
  bar.sync 0;
  ld.shared.b32 %r1, [%r2];)" +
                        std::string(storeR1),
                    128, 512);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.as<uint32_t>()[100], 127u * 64);
}

TEST(Atomics, TheLastCtaOfASplitReductionSeesEveryPart) {
  // Each CTA stores its number, then the last arriver sums all: the pattern of split K.
  Ran ran = runBody(R"(
  mov.u32 %r1, %ctaid.x;
  mad.wide.u32 %d1, %r1, 4, %dout;
  st.global.b32 [%d1+8], %r1;
  membar.gl;
  atom.acq_rel.gpu.global.inc.u32 %r2, [%dout], 99;
  setp.ne.u32 %p1, %r2, 99;
  @%p1 ret;
  fence.acq_rel.gpu;
  mov.b32 %r3, 0;
  mov.b32 %r4, 0;
SUM:
  mad.wide.u32 %d1, %r4, 4, %dout;
  ld.global.b32 %r5, [%d1+8];
  add.u32 %r3, %r3, %r5;
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p1, %r4, 100;
  @%p1 bra SUM;
  st.global.b32 [%dout+4], %r3;)",
                    1, 8 + 400, 100, 4);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.as<uint32_t>()[0], 0u);
  EXPECT_EQ(ran.as<uint32_t>()[1], 4950u);
}

} // namespace
} // namespace rho::emulator::test
