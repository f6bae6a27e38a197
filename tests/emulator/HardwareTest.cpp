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

} // namespace
} // namespace rho::emulator::test
