// What an H200 answered where the PTX ISA is silent, brief, or was misread: single instructions and
// their results there. Values that the ISA calls unspecified are here only where the emulator
// follows the hardware.
#include "tests/emulator/Harness.h"

namespace rho::emulator::test {
namespace {

struct Row {
  const char *code;
  int width;
  Case sources;
  uint64_t result;
};

void expectRows(std::initializer_list<Row> rows) {
  for (const Row &row : rows)
    EXPECT_EQ(evaluate(row.code, row.width, {row.sources})[0], row.result)
        << row.code << std::hex << " of " << row.sources[0] << ", " << row.sources[1] << ", "
        << row.sources[2];
}

TEST(Hardware, ComparisonsFlushSubnormals) {
  expectRows({
      {"setp.eq.ftz.f32 %q, %a32, %b32;", 1, {0, 1}, 1},
      {"setp.eq.f32 %q, %a32, %b32;", 1, {0, 1}, 0},
      {"setp.ne.ftz.f32 %q, %a32, %b32;", 1, {1, 0x7fffff}, 0},
      {"setp.lt.ftz.f32 %q, %a32, %b32;", 1, {0x80000001, 1}, 0},
      {"setp.le.ftz.f32 %q, %a32, %b32;", 1, {2, 0x807fffff}, 1},
      {"setp.geu.ftz.f32 %q, %a32, %b32;", 1, {0, 0x7fffff}, 1},
      {"setp.lt.ftz.f32 %q, %a32, %b32;", 1, {0, 0x800000}, 1},
      {"setp.eq.ftz.f16 %q, %a16, %b16;", 1, {0, 0x3ff}, 1},
      {"setp.lt.ftz.f16 %q, %a16, %b16;", 1, {1, 2}, 0},
      {"setp.lt.f16 %q, %a16, %b16;", 1, {1, 2}, 1},
      {"setp.gt.ftz.f16 %q, %a16, %b16;", 1, {0, 0x8002}, 0},
      {"setp.lt.ftz.f16 %q, %a16, %b16;", 1, {0x3ff, 0x400}, 1},
      {"set.ne.ftz.f32.f32 %x32, %a32, %b32;", 32, {0, 1}, 0},
      {"set.eq.ftz.f32.f32 %x32, %a32, %b32;", 32, {0, 1}, 0x3f800000},
      {"set.lt.ftz.u32.f16 %x32, %a16, %b16;", 32, {0, 0x3ff}, 0},
      {"set.geu.ftz.u32.f16 %x32, %a16, %b16;", 32, {0, 1}, 0xffffffff},
      {"slct.ftz.b32.f32 %x32, %a32, %b32, %c32;", 32, {5, 6, 0x807fffff}, 5},
      {"slct.b32.f32 %x32, %a32, %b32, %c32;", 32, {5, 6, 0x807fffff}, 6},
      {"slct.ftz.b32.f32 %x32, %a32, %b32, %c32;", 32, {5, 6, 0x80800000}, 6},
      {"slct.ftz.u64.f32 %x64, %a64, %b64, %c32;", 64, {5, 6, 0x80000001}, 5},
  });
}

TEST(Hardware, IntegersBecomeF64AsAsked) {
  expectRows({
      {"cvt.rz.f64.u64 %x64, %a64;", 64, {0xffffffffffffff7d}, 0x43efffffffffffff},
      {"cvt.rm.f64.u64 %x64, %a64;", 64, {0xffffffffffffff7d}, 0x43efffffffffffff},
      {"cvt.rp.f64.u64 %x64, %a64;", 64, {0x800000000000007d}, 0x43e0000000000001},
      {"cvt.rp.f64.u64 %x64, %a64;", 64, {0xffffffffffffff7d}, 0x43f0000000000000},
      {"cvt.rz.f64.s64 %x64, %a64;", 64, {0x800000000000007d}, 0xc3dfffffffffffff},
      {"cvt.rm.f64.s64 %x64, %a64;", 64, {0x8000000000000201}, 0xc3e0000000000000},
      {"cvt.rp.f64.s64 %x64, %a64;", 64, {0x800000000000007d}, 0xc3dfffffffffffff},
      {"cvt.rn.f64.s64 %x64, %a64;", 64, {0x800000000000007d}, 0xc3e0000000000000},
      {"cvt.rn.sat.f64.u8 %x64, %a32;", 64, {0x7d}, 0x3ff0000000000000},
      {"cvt.rn.sat.f64.s64 %x64, %a64;", 64, {0xffffffffffffff7d}, 0},
      {"cvt.rz.sat.f64.s64 %x64, %a64;", 64, {0x7d}, 0x3ff0000000000000},
  });
}

TEST(Hardware, NanBecomesTheLeastIntegerWhereOneSideHas64Bits) {
  expectRows({
      {"cvt.rni.u64.f16 %x64, %a16;", 64, {0x7c01}, uint64_t(1) << 63},
      {"cvt.rzi.s64.bf16 %x64, %a16;", 64, {0x7fc0}, uint64_t(1) << 63},
      {"cvt.rni.sat.u64.f32 %x64, %a32;", 64, {0x7fc00000}, uint64_t(1) << 63},
      {"cvt.rzi.s32.f32 %x32, %a32;", 32, {0x7fc00000}, 0},
      {"cvt.rni.u8.f64 %x16, %a64;", 16, {0x7ff8000000000000}, 0x80},
      {"cvt.rni.s8.f64 %x16, %a64;", 16, {0x7ff8000000000000}, 0xff80},
      {"cvt.rni.u16.f64 %x16, %a64;", 16, {0x7ff0000000000001}, 0x8000},
      {"cvt.rni.sat.u32.f64 %x32, %a64;", 32, {0x7ff8000000000005}, 0x80000000},
      {"cvt.rzi.s32.f64 %x32, %a64;", 32, {0xfff0000000000001}, 0x80000000},
      {"cvt.rni.u64.f64 %x64, %a64;", 64, {0xfff8000000000000}, uint64_t(1) << 63},
  });
}

TEST(Hardware, ZerosAreNormal) {
  expectRows({
      {"testp.normal.f32 %q, %a32;", 1, {0}, 1},
      {"testp.normal.f32 %q, %a32;", 1, {0x80000000}, 1},
      {"testp.normal.f32 %q, %a32;", 1, {1}, 0},
      {"testp.subnormal.f32 %q, %a32;", 1, {0}, 0},
      {"testp.normal.f64 %q, %a64;", 1, {0}, 1},
  });
}

TEST(Hardware, ReluMakesPositiveZeros) {
  expectRows({
      {"cvt.rn.relu.f16.f32 %x16, %a32;", 16, {0x80000000}, 0},
      {"cvt.rz.relu.bf16.f32 %x16, %a32;", 16, {0x80000000}, 0},
      {"cvt.rn.relu.f16x2.f32 %x32, %a32, %b32;", 32, {0xc380c000, 0x80000000}, 0},
      {"cvt.rn.satfinite.relu.e5m2x2.f32 %x16, %a32, %b32;", 16, {0x80000000, 0x3e715e62}, 0x34},
      {"cvt.rn.satfinite.relu.e4m3x2.f16x2 %x16, %a32;", 16, {0x8000d7e0}, 0},
      {"cvt.rn.relu.f16x2.e4m3x2 %x32, %a16;", 32, {0x8180}, 0},
  });
}

// The last two round to the smallest normal number also with unlimited exponents, and stay.
TEST(Hardware, ResultsAreFlushedAsIfExponentsHadNoLeast) {
  expectRows({
      {"mul.ftz.f32 %x32, %a32, %b32;", 32, {0x3f7fffff, 0x80800000}, 0x80000000},
      {"mul.ftz.f32 %x32, %a32, %b32;", 32, {0x1f000000, 0x20ffffff}, 0},
      {"mul.f32 %x32, %a32, %b32;", 32, {0x1f000000, 0x20ffffff}, 0x800000},
      {"mul.ftz.sat.f32 %x32, %a32, %b32;", 32, {0x1f000000, 0x20ffffff}, 0},
      {"fma.rn.ftz.f32 %x32, %a32, %b32, %c32;",
       32,
       {0x9e000000, 0x21ffffff, 0x80000000},
       0x80000000},
      {"mul.ftz.f16 %x16, %a16, %b16;", 16, {0x3bff, 0x400}, 0},
      {"mul.ftz.f16 %x16, %a16, %b16;", 16, {0x1800, 0xa7ff}, 0x8000},
      {"mul.f16 %x16, %a16, %b16;", 16, {0x3bff, 0x400}, 0x400},
      {"mul.ftz.f16x2 %x32, %a32, %b32;", 32, {0x1c007c01, 0x23ff7bff}, 0x7fff},
      {"fma.rn.ftz.f16 %x16, %a16, %b16, %c16;", 16, {0x2000, 0x1fff, 0}, 0},
      {"fma.rn.ftz.relu.f16 %x16, %a16, %b16, %c16;", 16, {0x9400, 0xabff, 0x8000}, 0},
      {"fma.rn.ftz.f32 %x32, %a32, %b32, %c32;",
       32,
       {0x81000000, 0x80800001, 0x80800000},
       0x80800000},
      {"fma.rn.ftz.f16 %x16, %a16, %b16, %c16;", 16, {0x401, 0x400, 0x8400}, 0x8400},
  });
}

TEST(Hardware, DivisionsByLargeNumbersAndByZero) {
  expectRows({
      {"div.approx.f32 %x32, %a32, %b32;", 32, {0x7f7fffff, 0x7f7fffff}, 0},
      {"div.approx.f32 %x32, %a32, %b32;", 32, {0x7f7ffffe, 0xff7ffffe}, 0x80000000},
      {"div.approx.ftz.f32 %x32, %a32, %b32;", 32, {0xff7fffff, 0xff7ffffe}, 0},
      {"div.approx.f32 %x32, %a32, %b32;", 32, {0x7e800000, 0x7e800000}, 0x3f800000},
      {"div.approx.f32 %x32, %a32, %b32;", 32, {0x3f800000, 0x7f800000}, 0},
      {"rem.u16 %x16, %a16, %b16;", 16, {2, 0}, 0xffff},
      {"rem.s32 %x32, %a32, %b32;", 32, {7, 0}, 0xffffffff},
      {"rem.u64 %x64, %a64, %b64;", 64, {3, 0}, ~uint64_t(0)},
  });
  uint64_t infinity =
      evaluate("div.approx.f32 %x32, %a32, %b32;", 32, {{0x7f800000, 0x7f7fffff}})[0];
  EXPECT_GT(infinity & 0x7fffffff, 0x7f800000u); // NaN
}

TEST(Hardware, NarrowConversionsOfNanAndSubnormals) {
  expectRows({
      {"cvt.rna.tf32.f32 %x32, %a32;", 32, {0x7f800001}, 0x7f800000},
      {"cvt.rna.tf32.f32 %x32, %a32;", 32, {0xff800001}, 0xff800000},
      {"cvt.rna.tf32.f32 %x32, %a32;", 32, {0x7fc00000}, 0x7fc00000},
      {"cvt.rm.ftz.f16.f32 %x16, %a32;", 16, {0x80000001}, 0x8001},
      {"cvt.rp.ftz.f16.f32 %x16, %a32;", 16, {2}, 1},
      {"cvt.rm.ftz.bf16.f32 %x16, %a32;", 16, {0x80000001}, 0x8000},
  });
}

// Additions of f32 flush subnormals in global memory, and there alone; those of bulk copies do not.
TEST(Hardware, AtomicSumsInGlobalMemoryFlush) {
  struct Sum {
    uint32_t start, addend, global, shared;
  };
  for (const Sum &sum :
       {Sum{0, 1, 0, 1}, Sum{0, 0x80000001, 0, 0x80000001}, Sum{1, 0x7fffff, 0, 0x800000},
        Sum{0x200, 0x300, 0, 0x500}, Sum{0x3f800000, 0x3f800000, 0x40000000, 0x40000000}}) {
    std::string body = "mov.b32 %r1, " + std::to_string(sum.start) + ";\nmov.b32 %r2, " +
                       std::to_string(sum.addend) +
                       ";\nmov.b32 %r3, s;\nst.shared.b32 [%r3], %r1;\n"
                       "st.global.v4.b32 [%dout], {%r1, %r1, %r1, %r1};\n"
                       "atom.shared.add.f32 %r4, [%r3], %r2;\nld.shared.b32 %r4, [%r3];\n"
                       "atom.global.add.f32 %r5, [%dout], %r2;\nred.add.f32 [%dout+4], %r2;\n"
                       "red.global.add.f32 [%dout+8], %r2;\nst.global.b32 [%dout+12], %r4;";
    Config config;
    config.block.x = 1;
    config.outBytes = 16;
    Ran ran = runKernel(kernel(body, ".shared .align 4 .b32 s;"), config);
    ASSERT_EQ(ran.error, "");
    EXPECT_EQ(ran.as<uint32_t>(),
              (std::vector<uint32_t>{sum.global, sum.global, sum.global, sum.shared}));
  }
}

TEST(Hardware, BulkSumsInGlobalMemoryDoNotFlush) {
  Config config;
  config.outBytes = 128;
  Ran ran = runKernel(kernel("mov.u32 %r2, s;\nshl.b32 %r3, %tid32, 2;\nadd.u32 %r3, %r3, %r2;\n"
                             "st.shared.b32 [%r3], 0x300;\n"
                             "mul.wide.u32 %d1, %tid32, 4;\nadd.u64 %d1, %d1, %dout;\n"
                             "st.global.b32 [%d1], 0x200;\nfence.proxy.async;\nbar.sync 0;\n"
                             "setp.eq.u32 %p1, %tid32, 0;\n"
                             "@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 "
                             "[%dout], [%r2], 128;\n@%p1 cp.async.bulk.commit_group;\n"
                             "@%p1 cp.async.bulk.wait_group 0;",
                             ".shared .align 128 .b8 s[128];"),
                      config);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.as<uint32_t>(), std::vector<uint32_t>(32, 0x500));
}

} // namespace
} // namespace rho::emulator::test
