// What memory accesses do, and what is found when they are wrong. Messages are checked whole.
#include "tests/emulator/Harness.h"

namespace rho::emulator::test {
namespace {

// Addresses differ from run to run: "0x10000100000" relative to the buffers of a launch.
struct Fault {
  Memory memory;
  uint64_t in = 0, out = 0;
  std::string error;
};
std::unique_ptr<Fault> faultOf(const std::string &body, uint32_t threads = 32,
                               const std::string &declarations = "", int64_t shared = 0,
                               std::vector<std::string> origins = {}) {
  auto fault = std::make_unique<Fault>();
  Result<Program> program = Program::parse(kernel(body, declarations));
  if (!program) {
    fault->error = program.error().str();
    return fault;
  }
  fault->in = fault->memory.allocate(64);
  fault->out = fault->memory.allocate(4096);
  Launch launch;
  launch.entry = "k";
  launch.block.x = threads;
  launch.sharedBytes = shared;
  launch.origins = std::move(origins);
  launch.parameters.resize(16);
  std::memcpy(launch.parameters.data(), &fault->in, 8);
  std::memcpy(launch.parameters.data() + 8, &fault->out, 8);
  Result<LaunchStats> stats = run(*program, fault->memory, launch, 1);
  if (!stats)
    fault->error = stats.error().str();
  return fault;
}

std::string hex(uint64_t value) {
  char buffer[24];
  std::snprintf(buffer, sizeof buffer, "0x%llx", static_cast<unsigned long long>(value));
  return buffer;
}

TEST(Memory, AllocationsHaveGuardSpaceAndAlignment) {
  Memory memory;
  uint64_t a = memory.allocate(10), b = memory.allocate(10);
  EXPECT_EQ(a % 256, 0u);
  EXPECT_EQ(b % 256, 0u);
  EXPECT_GE(b - a, 4096u);
  EXPECT_EQ(memory.allocate(-1), 0u);
  int value = 7;
  EXPECT_TRUE(memory.write(a + 4, &value, 4));
  EXPECT_TRUE(memory.fill(a, 1, 2));
  int back = 0;
  EXPECT_TRUE(memory.read(a + 4, &back, 4));
  EXPECT_EQ(back, 7);
  EXPECT_EQ(memory.read(a + 8, &back, 4).error().str(),
            "error: 4 bytes at " + hex(a + 8) +
                ", copies stay inside one allocation [emulator_bad_range]\n");
  EXPECT_FALSE(memory.write(a + 1, &back, -1));
  EXPECT_FALSE(memory.fill(b - 1, 0, 1));
  EXPECT_FALSE(memory.release(a + 1));
  EXPECT_TRUE(memory.release(a));
  EXPECT_FALSE(memory.release(a));
  EXPECT_FALSE(memory.read(a, &back, 4));
}

TEST(Memory, LoadsExtendAndStoresTruncate) {
  std::string body = R"(
  ld.global.s8 %r1, [%din];
  ld.global.u8 %r2, [%din+1];
  ld.global.s16 %d1, [%din+2];
  ld.global.u8 %h1, [%din+0];
  cvt.u32.u16 %r3, %h1;
  st.global.b32 [%dout], %r1;
  st.global.b32 [%dout+4], %r2;
  st.global.b64 [%dout+8], %d1;
  st.global.b32 [%dout+16], %r3;
  mov.b32 %r4, 0x12345678;
  st.global.b8 [%dout+20], %r4;
  st.global.u16 [%dout+22], %r4;
  st.global.b32 [%dout+24], 5;
  st.global.v2.b32 [%dout+32], {%r4, 9};
  ld.global.v2.u32 {%r5, _}, [%dout+32];
  st.global.f32 [%dout+28], 0f3F800000;
  st.global.b32 [%dout+40], %r5;)";
  Config config;
  config.block.x = 1;
  config.in = {0x80, 0x80, 0x01, 0xff};
  config.outBytes = 48;
  Ran ran = runKernel(kernel(body), config);
  ASSERT_EQ(ran.error, "");
  auto out = ran.as<uint32_t>();
  EXPECT_EQ(out[0], 0xffffff80u);
  EXPECT_EQ(out[1], 0x80u);
  EXPECT_EQ(out[2], 0xffffff01u);
  EXPECT_EQ(out[3], 0xffffffffu);
  EXPECT_EQ(out[4], 0x80u);
  EXPECT_EQ(out[5], 0x56780078u);
  EXPECT_EQ(out[6], 5u);
  EXPECT_EQ(out[7], 0x3f800000u);
  EXPECT_EQ(out[8], 0x12345678u);
  EXPECT_EQ(out[9], 9u);
  EXPECT_EQ(out[10], 0x12345678u);
}

TEST(Memory, GenericAddressesReachEverySpace) {
  std::string body = R"(
  mov.u64 %d1, buffer;
  cvta.shared.u64 %d2, %d1;
  st.b32 [%d2+8], 11;
  ld.shared.b32 %r1, [buffer+8];
  mov.u64 %d3, depot;
  cvta.local.u64 %d4, %d3;
  st.b32 [%d4], %tid32;
  ld.local.b32 %r2, [depot];
  mov.u64 %d5, table;
  ld.b32 %r3, [%d5+4];
  ld.const.b32 %r4, [numbers+4];
  cvta.to.shared.u64 %d6, %d2;
  isspacep.shared %p1, %d2;
  isspacep.global %p2, %d2;
  mov.u64 %d7, numbers;
  cvta.const.u64 %d7, %d7;
  isspacep.const %p3, %d7;
  isspacep.const %p4, %d5;
  selp.b32 %r5, 1, 0, %p1;
  selp.b32 %r6, 1, 0, %p2;
  selp.b32 %r8, 1, 0, %p3;
  selp.b32 %r9, 1, 0, %p4;
  shl.b32 %r8, %r8, 4;
  or.b32 %r9, %r8, %r9;
  cvt.u32.u64 %r7, %d6;
  mad.wide.u32 %d9, %tid32, 32, %dout;
  st.v4.b32 [%d9], {%r1, %r2, %r3, %r4};
  st.v4.b32 [%d9+16], {%r5, %r6, %r7, %r9};)";
  std::string declarations = ".shared .align 4 .b32 buffer[4]; "
                             ".global .align 4 .u32 table[2] = {5, 6}; "
                             ".const .align 4 .b32 numbers[3] = {7, -8};";
  Config config;
  config.block.x = 1;
  config.outBytes = 32;
  Ran ran = runKernel(kernel(".local .align 4 .b8 depot[16];" + body, declarations), config);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.as<uint32_t>(), (std::vector<uint32_t>{11, 0, 6, uint32_t(-8), 1, 0, 0, 16}));
}

TEST(Memory, VariablesStartAnewInEveryLaunch) {
  Config config;
  config.block.x = 1;
  config.outBytes = 4;
  std::string text = kernel("ld.global.b32 %r1, [v]; add.u32 %r1, %r1, 1; st.global.b32 [v], %r1;\n"
                            "st.global.b32 [%dout], %r1;",
                            ".global .u32 v = 4;");
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(runKernel(text, config).as<uint32_t>(), std::vector<uint32_t>{5});
}

TEST(Memory, DynamicSharedMemoryFollowsTheStaticArrays) {
  std::string body = R"(
  mov.u32 %r1, fixed;
  mov.u32 %r2, dynamic;
  mov.u32 %r3, %dynamic_smem_size;
  mov.u32 %r4, %total_smem_size;
  st.global.v4.b32 [%dout], {%r1, %r2, %r3, %r4};)";
  Config config;
  config.block.x = 1;
  config.shared = 100;
  config.outBytes = 16;
  Ran ran = runKernel(kernel(body, ".shared .align 4 .b8 fixed[20]; "
                                   ".extern .shared .align 16 .b8 dynamic[]; "
                                   ".shared .b8 unused[1000];"),
                      config);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.as<uint32_t>(), (std::vector<uint32_t>{0, 32, 100, 132}));
}

TEST(Faults, GlobalOutOfBoundsNamesThePlaceAndTheNearestAllocation) {
  auto f = faultOf("mad.wide.u32 %d1, %tid32, 16, %din;\n.loc 1 2 0\nld.global.v4.b32 {%r1, %r2, "
                   "%r3, %r4},\n   [%d1];",
                   32, "", 0, {"weight", "weight.scale"});
  EXPECT_EQ(f->error,
            "error: global address " + hex(f->in + 64) +
                " of 16 bytes is in no allocation (the "
                "nearest is [" +
                hex(f->in) + ", " + hex(f->in + 64) +
                ")): ptx line 23 `ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d1]` in cta (0,0,0), "
                "thread (4,0,0), from weight.scale [emulator_global_bounds]\n");
}

TEST(Faults, StoresPastTheEndAndNullPointersAreFound) {
  auto f = faultOf("st.global.b32 [%din+62], 1;");
  EXPECT_EQ(f->error, "error: global address " + hex(f->in + 62) +
                          ", an access of 4 bytes needs a multiple of 4: ptx line 21 "
                          "`st.global.b32 [%din+62], 1` in cta (0,0,0), thread (0,0,0) "
                          "[emulator_misaligned]\n");
  f = faultOf("mov.u64 %d1, 0; ld.global.b32 %r1, [%d1];");
  EXPECT_NE(f->error.find("global address 0x0 of 4 bytes is in no allocation (the nearest is ["),
            std::string::npos)
      << f->error;
  f = faultOf("st.global.b8 [%din+64], 1;");
  EXPECT_NE(f->error.find("[emulator_global_bounds]"), std::string::npos) << f->error;
  f = faultOf("st.global.b32 [numbers], 1;", 32, ".const .b32 numbers[2] = {1, 2};");
  EXPECT_NE(f->error.find("is in no allocation (only in the constant ["), std::string::npos)
      << f->error;
}

TEST(Faults, UseAfterReleaseIsToldFromOutOfBounds) {
  Memory memory;
  uint64_t address = memory.allocate(64);
  Result<Program> program = Program::parse(kernel("ld.global.b32 %r1, [%din+4];"));
  ASSERT_TRUE(program);
  Launch launch;
  launch.entry = "k";
  launch.block.x = 32;
  launch.parameters.resize(16);
  std::memcpy(launch.parameters.data(), &address, 8);
  ASSERT_TRUE(run(*program, memory, launch, 1));
  memory.release(address);
  EXPECT_EQ(run(*program, memory, launch, 1).error().str(),
            "error: global address " + hex(address + 4) + " of 4 bytes is in [" + hex(address) +
                ", " + hex(address + 64) +
                "), which is released: ptx line 21 `ld.global.b32 %r1, [%din+4]` in cta (0,0,0), "
                "thread (0,0,0) [emulator_released]\n");
}

TEST(Faults, SharedLocalAndParameterBounds) {
  EXPECT_EQ(faultOf("shl.b32 %r1, %tid32, 2;\nst.shared.b32 [%r1+4], 1;", 32, "", 128)->error,
            "error: shared address 0x80 of 4 bytes, the cta has [0x0, 0x80): ptx line 22 "
            "`st.shared.b32 [%r1+4], 1` in cta (0,0,0), thread (31,0,0) "
            "[emulator_shared_bounds]\n");
  EXPECT_EQ(faultOf(".local .align 8 .b8 depot[16];\nst.local.b64 [depot+16], %d1;")->error,
            "error: local address 0x10 of 8 bytes, the thread has [0x0, 0x10): ptx line 22 "
            "`st.local.b64 [depot+16], %d1` in cta (0,0,0), thread (0,0,0) "
            "[emulator_local_bounds]\n");
  EXPECT_EQ(faultOf("ld.param.b64 %d1, [out+8];")->error,
            "error: parameter address 0x10 of 8 bytes, the entry may read [0x0, 0x10): ptx line 21 "
            "`ld.param.b64 %d1, [out+8]` in cta (0,0,0), thread (0,0,0) "
            "[emulator_parameter_bounds]\n");
  EXPECT_NE(faultOf("st.shared.b32 [%din], 1;")->error.find("[emulator_shared_bounds]"),
            std::string::npos);
}

TEST(Faults, MisalignmentOfEveryKindOfAccess) {
  std::string shared = ".shared .align 16 .b8 s[1024];";
  EXPECT_EQ(faultOf("mov.u32 %r1, s;\nst.shared.v2.b32 [%r1+4], {%r1, %r1};", 32, shared)->error,
            "error: shared address 0x4, an access of 8 bytes needs a multiple of 8: ptx line 22 "
            "`st.shared.v2.b32 [%r1+4], {%r1, %r1}` in cta (0,0,0), thread (0,0,0) "
            "[emulator_misaligned]\n");
  EXPECT_EQ(
      faultOf("mov.u32 %r1, s;\ncp.async.cg.shared.global [%r1+8], [%din], 16;", 32, shared)->error,
      "error: shared address 0x8, an access of 16 bytes needs a multiple of 16: ptx line 22 "
      "`cp.async.cg.shared.global [%r1+8], [%din], 16` in cta (0,0,0), thread (0,0,0) "
      "[emulator_misaligned]\n");
  auto f = faultOf("mov.u32 %r1, s;\ncp.async.cg.shared.global [%r1], [%din+8], 16;", 32, shared);
  EXPECT_EQ(f->error, "error: global address " + hex(f->in + 8) +
                          ", an access of 16 bytes needs a multiple of 16: ptx line 22 "
                          "`cp.async.cg.shared.global [%r1], [%din+8], 16` in cta (0,0,0), "
                          "thread (0,0,0) [emulator_misaligned]\n");
  EXPECT_EQ(faultOf("shl.b32 %r1, %tid32, 4; st.shared.v4.b32 [%r1], {%r1, %r1, %r1, %r1};\n"
                    "mad.lo.u32 %r1, %tid32, 8, s;\n"
                    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];",
                    32, shared)
                ->error,
            "error: shared address 0x8, an access of 16 bytes needs a multiple of 16: ptx line 23 "
            "`ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1]` in cta (0,0,0), thread "
            "(1,0,0) [emulator_misaligned]\n");
  f = faultOf("st.global.b16 [%dout+1], %h1;");
  EXPECT_NE(f->error.find("[emulator_misaligned]"), std::string::npos);
}

TEST(Faults, UnwrittenSharedMemory) {
  EXPECT_EQ(faultOf("shl.b32 %r1, %tid32, 2;\nsetp.eq.u32 %p1, %tid32, 9;\n"
                    "@!%p1 st.shared.b32 [%r1], 1;\nld.shared.b32 %r2, [%r1];",
                    32, "", 128)
                ->error,
            "error: shared address 0x24 is read, nothing has written it: ptx line 24 "
            "`ld.shared.b32 %r2, [%r1]` in cta (0,0,0), thread (9,0,0) "
            "[emulator_unwritten_shared]\n");
  // What one CTA wrote is not there for the next.
  Config config;
  config.grid.x = 2;
  config.block.x = 1;
  config.shared = 16;
  config.outBytes = 16;
  std::string body = "mov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p1, %r1, 0;\nmov.u32 %r3, 0;\n"
                     "@%p1 st.shared.b32 [%r3], 1;\nld.shared.b32 %r2, [%r3];";
  EXPECT_EQ(runKernel(kernel(body), config).error,
            "error: shared address 0x0 is read, nothing has written it: ptx line 25 "
            "`ld.shared.b32 %r2, [%r3]` in cta (1,0,0), thread (0,0,0) "
            "[emulator_unwritten_shared]\n");
}

TEST(Races, ReadOfAnotherWarpsWriteNeedsABarrier) {
  std::string write = "shl.b32 %r1, %tid32, 2;\nst.shared.b32 [%r1], %tid32;\n";
  // Warp 1 reads what warp 0 wrote.
  std::string read = "xor.b32 %r2, %r1, 128;\nld.shared.b32 %r3, [%r2];";
  EXPECT_EQ(faultOf(write + "setp.ge.u32 %p1, %tid32, 32;\n@%p1 bra READ;\nret;\nREAD:\n" + read,
                    64, "", 256)
                ->error,
            "error: shared address 0x0 is read, warp 0 has written it with no barrier in between: "
            "ptx line 28 `ld.shared.b32 %r3, [%r2]` in cta (0,0,0), thread (32,0,0) "
            "[emulator_race_read]\n");
  EXPECT_EQ(faultOf(write + "bar.sync 0;\n" + read, 64, "", 256)->error, "");
}

TEST(Races, OverwritingWhatAnotherWarpReadNeedsABarrier) {
  std::string body = "shl.b32 %r1, %tid32, 2;\nst.shared.b32 [%r1], %tid32;\nbar.sync 0;\n"
                     "xor.b32 %r2, %r1, 128;\nld.shared.b32 %r3, [%r2];\n"
                     "setp.lt.u32 %p1, %tid32, 32;\n";
  EXPECT_EQ(faultOf(body + "@%p1 st.shared.b32 [%r1], 0;", 64, "", 256)->error,
            "error: shared address 0x0 is written, warp 1 has read it with no barrier in between: "
            "ptx line 27 `@%p1 st.shared.b32 [%r1], 0` in cta (0,0,0), thread (0,0,0) "
            "[emulator_race_write_after_read]\n");
  EXPECT_EQ(faultOf(body + "bar.sync 0;\n@%p1 st.shared.b32 [%r1], 0;", 64, "", 256)->error, "");
}

TEST(Races, TwoWarpsWritingOneAddress) {
  EXPECT_EQ(faultOf("and.b32 %r1, %tid32, 31;\nshl.b32 %r1, %r1, 2;\nst.shared.b32 [%r1], 3;", 64,
                    "", 256)
                ->error,
            "error: shared address 0x0 is written, warp 0 has written it with no barrier in "
            "between: ptx line 23 `st.shared.b32 [%r1], 3` in cta (0,0,0), thread (32,0,0) "
            "[emulator_race_write]\n");
}

TEST(Races, NeighbouringBytesAreNoRace) {
  // Thread t of both warps writes byte t of pairs: adjacent bytes belong to different warps.
  EXPECT_EQ(faultOf("and.b32 %r1, %tid32, 31;\nshr.u32 %r2, %tid32, 5;\n"
                    "mad.lo.u32 %r3, %r1, 2, %r2;\nst.shared.b8 [%r3], %r1;\n"
                    "ld.shared.u8 %r4, [%r3];",
                    64, "", 256)
                ->error,
            "");
}

TEST(Races, NamedBarriersOrderOnlyTheirWarps) {
  // Warp 0 produces, warp 1 consumes through barrier 1; warp 2 has no part in it.
  std::string body = R"(
  shr.u32 %r1, %tid32, 5;
  and.b32 %r2, %tid32, 31;
  shl.b32 %r2, %r2, 2;
  setp.eq.u32 %p1, %r1, 0;
  setp.eq.u32 %p2, %r1, 1;
  @%p1 bra PRODUCE;
  @%p2 bra CONSUME;
  ODD
  ret;
PRODUCE:
  st.shared.b32 [%r2], 7;
  bar.arrive 1, 64;
  ret;
CONSUME:
  bar.sync 1, 64;
  ld.shared.b32 %r3, [%r2];)";
  auto with = [&](const std::string &odd) {
    std::string text = body;
    text.replace(text.find("ODD"), 3, odd);
    return faultOf(text, 96, "", 256)->error;
  };
  EXPECT_EQ(with(""), "");
  EXPECT_NE(with("ld.shared.b32 %r3, [%r2];").find("[emulator_race_read]"), std::string::npos);
}

TEST(Races, ABufferGoesBackToItsProducerOnceAllConsumersArrived) {
  // Warps 1 and 2 read at different times and arrive without waiting; warp 0 then writes again.
  std::string body = R"(
  and.b32 %r2, %tid32, 31;
  shl.b32 %r2, %r2, 2;
  setp.lt.u32 %p1, %tid32, 32;
  @%p1 st.shared.b32 [%r2], 1;
  bar.sync 0;
  @%p1 bra PRODUCE;
  ld.shared.b32 %r3, [%r2];
  bar.arrive 2, 96;
  LATE
  ret;
PRODUCE:
  bar.sync 2, 96;
  st.shared.b32 [%r2], 2;)";
  auto with = [&](const std::string &late) {
    std::string text = body;
    text.replace(text.find("LATE"), 4, late);
    return faultOf(text, 96, "", 256)->error;
  };
  EXPECT_EQ(with(""), "");
  EXPECT_NE(with("ld.shared.b32 %r3, [%r2];").find("[emulator_race_write_after_read]"),
            std::string::npos);
}

// One cp.async of 16 bytes per thread of one warp.
std::string copyThen(const std::string &rest) {
  return "and.b32 %r1, %tid32, 3;\nmad.wide.u32 %d1, %r1, 16, %din;\nshl.b32 %r2, %tid32, 4;\n"
         "cp.async.cg.shared.global [%r2], [%d1], 16;\ncp.async.commit_group;\n" +
         rest;
}

TEST(Async, DataIsThereAfterTheWaitOnly) {
  std::string read = "ld.shared.b32 %r3, [%r2+4];";
  EXPECT_EQ(faultOf(copyThen(read), 32, "", 1024)->error,
            "error: shared address 0x4 is read while a cp.async of thread 0 writes it, that thread "
            "must wait for its group first: ptx line 26 `ld.shared.b32 %r3, [%r2+4]` in cta "
            "(0,0,0), thread (0,0,0) [emulator_async_not_waited]\n");
  EXPECT_EQ(faultOf(copyThen("cp.async.wait_group 0;\n" + read), 32, "", 1024)->error, "");
  EXPECT_EQ(faultOf(copyThen("cp.async.wait_all;\n" + read), 32, "", 1024)->error, "");
  EXPECT_NE(faultOf(copyThen("cp.async.wait_group 1;\n" + read), 32, "", 1024)->error, "");
}

TEST(Async, AnEmptyGroupCountsForWaitGroup) {
  EXPECT_EQ(faultOf(copyThen("cp.async.commit_group;\ncp.async.wait_group 1;\n"
                             "ld.shared.b32 %r3, [%r2];"),
                    32, "", 1024)
                ->error,
            "");
}

TEST(Async, OtherWarpsNeedWaitAndBarrier) {
  std::string read = "xor.b32 %r4, %r2, 512;\nld.shared.b32 %r3, [%r4];";
  EXPECT_EQ(faultOf(copyThen("cp.async.wait_all;\nbar.sync 0;\n" + read), 64, "", 1024)->error, "");
  // A barrier without a wait.
  EXPECT_NE(faultOf(copyThen("bar.sync 0;\n" + read), 64, "", 1024)
                ->error.find("[emulator_async_not_waited]"),
            std::string::npos);
  // A wait without a barrier: warp 1 reads what warp 0's copy wrote.
  EXPECT_NE(
      faultOf(copyThen("cp.async.wait_all;\nsetp.lt.u32 %p1, %tid32, 32;\n@%p1 ret;\n" + read), 64,
              "", 1024)
          ->error.find("[emulator_race_read]"),
      std::string::npos);
}

TEST(Async, WritingWhileACopyIsOnItsWay) {
  EXPECT_EQ(faultOf(copyThen("st.shared.b32 [%r2], 1;"), 32, "", 1024)->error,
            "error: shared address 0x0 is written while a cp.async of thread 0 writes it, that "
            "thread must wait for its group first: ptx line 26 `st.shared.b32 [%r2], 1` in cta "
            "(0,0,0), thread (0,0,0) [emulator_async_overwritten]\n");
}

TEST(Async, TheSourceIsNoLargerThanTheCopy) {
  EXPECT_EQ(
      faultOf("mov.b32 %r1, 17;\ncp.async.ca.shared.global [0], [%din], 16, %r1;", 32, "", 1024)
          ->error,
      "error: an operand says 17 bytes of the source where 16 are copied: ptx line 22 "
      "`cp.async.ca.shared.global [0], [%din], 16, %r1` in cta (0,0,0), thread (0,0,0) "
      "[emulator_value]\n");
}

TEST(Async, SourceSizeFillsWithZero) {
  std::string body = R"(
  and.b32 %r1, %tid32, 3;
  mul.lo.u32 %r5, %r1, 4;
  shl.b32 %r2, %tid32, 4;
  cp.async.ca.shared.global [%r2], [%din], 16, %r5;
  setp.eq.u32 %p1, %r1, 0;
  mov.u64 %d2, 3;
  selp.b64 %d2, %d2, %din, %p1;
  cp.async.ca.shared.global.L2::128B [%r2+512], [%d2], 8, %p1;
  cp.async.wait_all;
  ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r2];
  ld.shared.v2.b32 {%r14, %r15}, [%r2+512];
  mad.wide.u32 %d9, %tid32, 32, %dout;
  st.global.v4.b32 [%d9], {%r10, %r11, %r12, %r13};
  st.global.v4.b32 [%d9+16], {%r14, %r15, 0, 0};)";
  Config config;
  config.shared = 1024;
  config.in = bytesOf(std::vector<uint32_t>{1, 2, 3, 4});
  config.outBytes = 1024;
  Ran ran = runKernel(kernel(body), config);
  ASSERT_EQ(ran.error, "");
  auto out = ran.as<uint32_t>();
  for (uint32_t t = 0; t < 32; ++t) {
    for (uint32_t i = 0; i < 4; ++i)
      ASSERT_EQ(out[t * 8 + i], i < t % 4 ? i + 1 : 0);
    ASSERT_EQ(out[t * 8 + 4], t % 4 == 0 ? 0u : 1u);
    ASSERT_EQ(out[t * 8 + 5], t % 4 == 0 ? 0u : 2u);
  }
}

} // namespace
} // namespace rho::emulator::test
