// mma.sync with block scaling against the formulas of the PTX ISA: the fragments of "Matrix
// Fragments for mma.m16n8k64" and "mma.m16n8k32", written per element, and the places of scales as
// "Block Scaling for mma.sync" draws them, written per quad. ptxas 13.0 confirms which selectors
// exist.
#include "tests/emulator/Harness.h"

#include <bit>
#include <cmath>

namespace rho::emulator::test {
namespace {

struct BlockScaledForm {
  std::string kind, element, scale;
  int k, bits, groups;
};
const BlockScaledForm nvfp4{"kind::mxf4nvf4.block_scale.scale_vec::4X", "e2m1", "ue4m3", 64, 4, 4};
const BlockScaledForm mxfp4{"kind::mxf4.block_scale.scale_vec::2X", "e2m1", "ue8m0", 64, 4, 2};
const BlockScaledForm mxfp4In{
    "kind::mxf4nvf4.block_scale.scale_vec::2X", "e2m1", "ue8m0", 64, 4, 2};
const BlockScaledForm mxfp8{"kind::mxf8f6f4.block_scale.scale_vec::1X", "e4m3", "ue8m0", 32, 8, 1};

struct Selectors {
  int byteA, threadA, byteB, threadB;
};

std::string body(const BlockScaledForm &form, const Selectors &s) {
  auto pair = [](int a, int b) { return "{" + std::to_string(a) + ", " + std::to_string(b) + "}"; };
  return "mad.wide.u32 %d8, %tid32, 64, %din;\nmad.wide.u32 %d9, %tid32, 16, %dout;\n"
         "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d8];\n"
         "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d8+16];\n"
         "ld.global.v4.b32 {%r8, %r9, %r10, %r11}, [%d8+32];\n"
         "mma.sync.aligned.m16n8k" +
         std::to_string(form.k) + ".row.col." + form.kind + ".f32." + form.element + "." +
         form.element + ".f32." + form.scale +
         " {%r12, %r13, %r14, %r15}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r8, %r9, %r10, %r11}, "
         "%r6, " +
         pair(s.byteA, s.threadA) + ", %r7, " + pair(s.byteB, s.threadB) +
         ";\nst.global.v4.b32 [%d9], {%r12, %r13, %r14, %r15};";
}

// Values of codes by the definitions of the OCP formats.
double minifloat(uint32_t code, int exponentBits, int mantissaBits, int bias) {
  int mantissa = int(code & ((1u << mantissaBits) - 1));
  int exponent = int(code >> mantissaBits & ((1u << exponentBits) - 1));
  double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissaBits)
                    : std::ldexp(mantissa + (1 << mantissaBits), exponent - bias - mantissaBits);
  return code >> (exponentBits + mantissaBits) & 1 ? -magnitude : magnitude;
}
double elementValue(const BlockScaledForm &form, uint32_t code) {
  return form.bits == 4 ? minifloat(code, 2, 1, 1) : minifloat(code, 4, 3, 7);
}
double scaleValue(const BlockScaledForm &form, uint32_t code) {
  return form.scale == "ue8m0" ? std::ldexp(1.0, int(code) - 127) : minifloat(code, 4, 3, 7);
}

struct Operands {
  std::vector<uint32_t> in = std::vector<uint32_t>(size_t(32) * 16); // [lane][16] words
  double a[16][64], b[64][8], c[16][8], scaleA[16][4], scaleB[8][4];
};

Operands draw(const BlockScaledForm &form, const Selectors &s, uint64_t seed) {
  Operands result;
  std::mt19937_64 random = repeatable(seed);
  auto put = [&](int lane, int word, int element, uint32_t code) {
    result.in[size_t(lane) * 16 + size_t(word)] |= code << (element * form.bits);
  };
  int perRegister = 32 / form.bits;
  uint32_t codes = form.bits == 4 ? 16 : 0x70; // of e4m3 without a sign, far from NaN
  for (int lane = 0; lane < 32; ++lane) {
    int group = lane >> 2, thread = lane % 4;
    for (int i = 0; i < 4 * perRegister; ++i) {
      // Of m16n8k64: rows groupID for i < 8 and 16 <= i < 24; the second half of k from i = 16 on.
      int row = i / perRegister % 2 == 0 ? group : group + 8;
      int column =
          thread * perRegister + i % perRegister + (i < 2 * perRegister ? 0 : 4 * perRegister);
      auto code = uint32_t(random() % codes);
      put(lane, i / perRegister, i % perRegister, code);
      result.a[row][column] = elementValue(form, code);
    }
    for (int i = 0; i < 2 * perRegister; ++i) {
      int row = thread * perRegister + i % perRegister + (i < perRegister ? 0 : 4 * perRegister);
      auto code = uint32_t(random() % codes);
      put(lane, 4 + i / perRegister, i % perRegister, code);
      result.b[row][group] = elementValue(form, code);
    }
    for (int i = 0; i < 4; ++i) {
      float value = float(int(random() % 65) - 32);
      result.in[size_t(lane) * 16 + 8 + size_t(i)] = std::bit_cast<uint32_t>(value);
      result.c[group + (i < 2 ? 0 : 8)][thread * 2 + (i & 1)] = double(value);
    }
    // Every byte that is not selected would spoil the result.
    uint32_t wordA = 0xffffffff, wordB = 0xffffffff;
    for (int j = 0; j < form.groups; ++j) {
      // Near 1, so that sums stay exact.
      uint32_t codeA = (form.scale == "ue8m0" ? 125 : 0x30) + uint32_t(random() % 6);
      uint32_t codeB = (form.scale == "ue8m0" ? 125 : 0x30) + uint32_t(random() % 6);
      // The pair of threads thread-id-a of each quad: its first has row groupID, its second row
      // groupID + 8. Of B thread thread-id-b has column groupID.
      if (thread / 2 == s.threadA) {
        int shift = 8 * (s.byteA + j);
        wordA = (wordA & ~(0xffu << shift)) | codeA << shift;
        result.scaleA[group + 8 * (thread % 2)][j] = scaleValue(form, codeA);
      }
      if (thread == s.threadB) {
        int shift = 8 * (s.byteB + j);
        wordB = (wordB & ~(0xffu << shift)) | codeB << shift;
        result.scaleB[group][j] = scaleValue(form, codeB);
      }
    }
    result.in[size_t(lane) * 16 + 6] = wordA;
    result.in[size_t(lane) * 16 + 7] = wordB;
  }
  return result;
}

void check(const BlockScaledForm &form, const Selectors &s) {
  Operands operands = draw(form, s, unsigned(s.byteA * 8 + s.threadB));
  Config config;
  config.in = bytesOf(operands.in);
  config.outBytes = 512;
  Ran ran = runKernel(forTarget(kernel(body(form, s)), "sm_120a"), config);
  ASSERT_EQ(ran.error, "");
  auto out = ran.as<float>();
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      int row = (lane >> 2) + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
      double expected = operands.c[row][column];
      for (int k = 0; k < form.k; ++k) {
        int group = k / (form.k / form.groups);
        expected += operands.a[row][k] * operands.scaleA[row][group] * operands.b[k][column] *
                    operands.scaleB[column][group];
      }
      ASSERT_EQ(out[size_t(lane) * 4 + size_t(i)], float(expected))
          << form.kind << " lane " << lane << " d" << i;
    }
}

TEST(BlockScaledMma, FollowsTheIsaForEverySelector) {
  for (int threadA : {0, 1})
    for (int threadB : {0, 1, 2, 3}) {
      check(nvfp4, {0, threadA, 0, threadB});
      for (int byte : {0, 2}) {
        check(mxfp4, {byte, threadA, 2 - byte, threadB});
        check(mxfp4In, {byte, threadA, byte, threadB});
      }
      for (int byte : {0, 1, 2, 3})
        check(mxfp8, {byte, threadA, 3 - byte, threadB});
    }
}

std::string failure(const BlockScaledForm &form, const Selectors &s, uint32_t scales = 0x38383838) {
  Config config;
  std::vector<uint32_t> in(size_t(32) * 16);
  for (size_t lane = 0; lane < 32; ++lane)
    in[lane * 16 + 6] = in[lane * 16 + 7] = scales;
  config.in = bytesOf(in);
  config.outBytes = 512;
  std::string error = runKernel(forTarget(kernel(body(form, s)), "sm_120a"), config).error;
  EXPECT_TRUE(error.empty() || error.find("[emulator_block_scale]") != std::string::npos);
  return error.substr(0, error.find(": ptx"));
}

TEST(BlockScaledMma, RefusesSelectorsThatDoNotExist) {
  EXPECT_EQ(failure(nvfp4, {0, 0, 0, 0}), "");
  EXPECT_EQ(failure(nvfp4, {1, 0, 0, 0}),
            "error: block-scaled mma with byte-id 1 of A, scales of 4 "
            "bytes begin at a multiple of that");
  EXPECT_EQ(failure(mxfp4, {0, 0, 3, 0}),
            "error: block-scaled mma with byte-id 3 of B, scales of 2 "
            "bytes begin at a multiple of that");
  EXPECT_EQ(failure(mxfp8, {0, 2, 0, 0}),
            "error: block-scaled mma with thread-id 2 of A, it is less than 2");
  EXPECT_EQ(failure(mxfp8, {0, 0, 0, 4}),
            "error: block-scaled mma with thread-id 4 of B, it is less than 4");
}

TEST(BlockScaledMma, RefusesNegativeScales) {
  EXPECT_EQ(failure(nvfp4, {0, 0, 0, 0}, 0xb8383838),
            "error: block-scaled mma with scale 0xb8, ue4m3 has no sign");
  EXPECT_EQ(failure(mxfp4, {0, 0, 0, 0}, 0xb8383838), "");
}

TEST(BlockScaledMma, NanScalesGiveNan) {
  Selectors s{0, 0, 0, 0};
  Operands operands = draw(mxfp8, s, 1);
  operands.in[4 * 16 * 3 + 6] |= 0xff; // row 3 of A
  Config config;
  config.in = bytesOf(operands.in);
  config.outBytes = 512;
  Ran ran = runKernel(forTarget(kernel(body(mxfp8, s)), "sm_120a"), config);
  ASSERT_EQ(ran.error, "");
  auto out = ran.as<float>();
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(std::isnan(out[lane * 4 + i]), lane / 4 == 3 && i < 2);
}

TEST(BlockScaledMma, DMayBeCInAnotherOrder) {
  std::vector<uint32_t> in(size_t(32) * 16);
  for (size_t i = 0; i < 4; ++i)
    in[8 + i] = 0x3f800000 + uint32_t(i);
  Config config;
  config.in = bytesOf(in);
  config.outBytes = 512;
  const std::string reordered = withDInReversedC(body(mxfp8, {0, 0, 0, 0}));
  Ran ran = runKernel(forTarget(kernel(reordered), "sm_120a"), config);
  ASSERT_EQ(ran.error, "");
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(ran.as<uint32_t>()[i], in[11 - i]);
}

// Kinds, shapes and types that the ISA does not combine.
TEST(BlockScaledMma, RefusesOtherCombinations) {
  for (const BlockScaledForm &form :
       {BlockScaledForm{"kind::mxf4nvf4.block_scale.scale_vec::4X", "e2m1", "ue8m0", 64, 4, 4},
        BlockScaledForm{"kind::mxf4.block_scale.scale_vec::4X", "e2m1", "ue8m0", 64, 4, 4},
        BlockScaledForm{"kind::mxf4nvf4.block_scale.scale_vec::4X", "e2m1", "ue4m3", 32, 4, 4},
        BlockScaledForm{"kind::mxf8f6f4.block_scale.scale_vec::1X", "e4m3", "ue4m3", 32, 8, 1},
        BlockScaledForm{"kind::mxf4.block_scale.scale_vec::2X", "e4m3", "ue8m0", 64, 8, 2}})
    EXPECT_NE(parseError(forTarget(kernel(body(form, {0, 0, 0, 0})), "sm_120a"))
                  .find("emulator_unknown_instruction"),
              std::string::npos)
        << form.kind;
}

} // namespace
} // namespace rho::emulator::test
