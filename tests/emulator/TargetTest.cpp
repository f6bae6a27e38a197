// Which targets have which instructions, as ptxas 13.0 answers for each of these.
#include "tests/emulator/Harness.h"

namespace rho::emulator::test {
namespace {

struct Row {
  std::string code, lacks, has;
};

TEST(Targets, InstructionsThatTheyLackAreRefused) {
  const std::string fragments = " {%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, "
                                "{%r0, %r1, %r2, %r3}";
  const Row rows[] = {
      {"wgmma.fence.sync.aligned;", "sm_90", "sm_90a"},
      {"wgmma.commit_group.sync.aligned;", "sm_100a", "sm_90a"},
      {"wgmma.wait_group.sync.aligned 0;", "sm_120a", "sm_90a"},
      {"setmaxnreg.inc.sync.aligned.u32 64;", "sm_90", "sm_90a"},
      {"setmaxnreg.dec.sync.aligned.u32 64;", "sm_120", "sm_120a"},
      {"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3."
       "f32.ue8m0" +
           fragments + ", %r6, {0, 0}, %r7, {0, 0};",
       "sm_100a", "sm_120a"},
      {"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32" + fragments + ";",
       "sm_90a", "sm_120a"},
      {"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32" + fragments + ";", "sm_86", "sm_89"},
      {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" + fragments + ";", "sm_75", "sm_80"},
      {"add.rn.f32x2 %d1, %d2, %d3;", "sm_90a", "sm_100"},
      {"fma.rn.f32.bf16 %r1, %h1, %h2, %r2;", "sm_90", "sm_100"},
      {"ld.global.v8.b32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%d1];", "sm_90", "sm_100"},
      {"st.global.v4.b64 [%d1], {%d2, %d3, %d4, %d5};", "sm_90a", "sm_120"},
      {"cp.async.bulk.commit_group;", "sm_89", "sm_90"},
      {"cp.async.wait_all;", "sm_75", "sm_80"},
      {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d1], [%r1], 16;", "sm_86",
       "sm_90"},
      {"mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;", "sm_89", "sm_90"},
      {"mbarrier.arrive.expect_tx.shared.b64 %d1, [%r1], %r2;", "sm_80", "sm_90"},
      {"mbarrier.init.shared.b64 [%r1], 1;", "sm_75", "sm_80"},
      {"mbarrier.test_wait.parity.shared.b64 %p1, [%r1], %r2;", "sm_75", "sm_80"},
      {"fence.proxy.async;", "sm_89", "sm_90"},
      {"fence.mbarrier_init.release.cluster;", "sm_89", "sm_90"},
      {"fence.acq_rel.cluster;", "sm_80", "sm_90"},
      {"barrier.cluster.arrive;", "sm_89", "sm_90"},
      {"mapa.shared::cluster.u32 %r1, %r2, %r3;", "sm_89", "sm_90"},
      {"ld.shared::cluster.u32 %r1, [%r2];", "sm_89", "sm_90"},
      {"elect.sync %r1|%p1, 0xffffffff;", "sm_89", "sm_90"},
      {"griddepcontrol.wait;", "sm_89", "sm_90"},
      {"stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};", "sm_89", "sm_90"},
      {"prefetch.tensormap [%d1];", "sm_89", "sm_90"},
      {"add.rn.bf16x2 %r1, %r2, %r3;", "sm_89", "sm_90"},
      {"fma.rn.bf16x2 %r1, %r2, %r3, %r4;", "sm_75", "sm_80"},
      {"cvt.rn.bf16.s32 %h1, %r1;", "sm_89", "sm_90"},
      {"cvt.f32.bf16 %r1, %h1;", "sm_75", "sm_80"},
      {"cvt.rn.satfinite.e4m3x2.f32 %h1, %r1, %r2;", "sm_86", "sm_89"},
      {"cvt.rn.f16x2.e5m2x2 %r1, %h1;", "sm_80", "sm_89"},
      {"cvt.rna.tf32.f32 %r1, %r2;", "sm_75", "sm_80"},
      {"redux.sync.add.u32 %r1, %r2, -1;", "sm_75", "sm_80"},
  };
  for (const Row &row : rows) {
    EXPECT_NE(parseError(forTarget(kernel(row.code), row.lacks)).find("[emulator_target]"),
              std::string::npos)
        << row.code << " for " << row.lacks;
    EXPECT_EQ(parseError(forTarget(kernel(row.code), row.has)), "") << row.code;
  }
}

TEST(Targets, ErrorsSayWhichHaveTheInstruction) {
  auto error = [](const std::string &code, const std::string &target) {
    return parseError(forTarget(kernel(code), target));
  };
  EXPECT_EQ(error("@%p1 elect.sync %r1|%p2, -1;", "sm_80"),
            "error: ptx line 21: `@%p1 elect.sync %r1|%p2, -1` needs sm_90 or later, the module is "
            "for sm_80 [emulator_target]\n");
  EXPECT_EQ(error("wgmma.fence.sync.aligned;", "sm_100a"),
            "error: ptx line 21: `wgmma.fence.sync.aligned` needs sm_90a, the module is for "
            "sm_100a [emulator_target]\n");
  EXPECT_EQ(error("setmaxnreg.inc.sync.aligned.u32 64;", "sm_100"),
            "error: ptx line 21: `setmaxnreg.inc.sync.aligned.u32 64` needs sm_90a or a later one "
            "with a letter, the module is for sm_100 [emulator_target]\n");
}

} // namespace
} // namespace rho::emulator::test
