// Fragment layouts of mma, ldmatrix and stmatrix against the formulas of the PTX ISA, section
// "Warp Level Matrix Multiply-Accumulate Instructions", written here per shape as the ISA does.
#include "tests/dsl/Names.h"
#include "tests/emulator/Harness.h"

#include <bit>
#include <cmath>
#include <functional>

namespace rho::emulator::test {
namespace {

struct Place {
  int row, column;
};
using Layout = std::function<Place(int lane, int element)>;

struct Shape {
  std::string instruction; // between mma.sync.aligned. and ;
  int k;
  int bitsA;
  Layout a, b; // rows of b are k
};

int group(int lane) { return lane >> 2; }
int thread(int lane) { return lane % 4; }

// Accumulators of all shapes: c0,c1 in row groupID, c2,c3 in row groupID + 8.
Place placeC(int lane, int i) {
  return {group(lane) + (i < 2 ? 0 : 8), thread(lane) * 2 + (i & 1)};
}

// Matrix Fragments for mma.m16n8k16 with floating point type: .f16 and .bf16.
Place halfK16A(int l, int i) {
  bool upper = (0 <= i && i < 2) || (4 <= i && i < 6);
  return {upper ? group(l) : group(l) + 8,
          i < 4 ? thread(l) * 2 + (i & 1) : thread(l) * 2 + (i & 1) + 8};
}
Place halfK16B(int l, int i) {
  return {i < 2 ? thread(l) * 2 + (i & 1) : thread(l) * 2 + (i & 1) + 8, group(l)};
}
// m16n8k8.
Place halfK8A(int l, int i) { return {i < 2 ? group(l) : group(l) + 8, thread(l) * 2 + (i & 1)}; }
Place halfK8B(int l, int i) { return {thread(l) * 2 + i, group(l)}; }
// m16n8k4 and m16n8k8 with .tf32.
Place tf32K4A(int l, int i) { return {group(l) + (i == 0 ? 0 : 8), thread(l)}; }
Place tf32K4B(int l, int) { return {thread(l), group(l)}; }
Place tf32K8A(int l, int i) {
  return {i == 0 || i == 2 ? group(l) : group(l) + 8, i < 2 ? thread(l) : thread(l) + 4};
}
Place tf32K8B(int l, int i) { return {i == 0 ? thread(l) : thread(l) + 4, group(l)}; }
// m16n8k16 with 8-bit integers.
Place byteK16A(int l, int i) { return {i < 4 ? group(l) : group(l) + 8, thread(l) * 4 + (i & 3)}; }
Place byteK16B(int l, int i) { return {thread(l) * 4 + i, group(l)}; }
// m16n8k32 with 8-bit types.
Place byteK32A(int l, int i) {
  bool upper = (0 <= i && i < 4) || (8 <= i && i < 12);
  return {upper ? group(l) : group(l) + 8,
          i < 8 ? thread(l) * 4 + (i & 3) : thread(l) * 4 + (i & 3) + 16};
}
Place byteK32B(int l, int i) {
  return {i < 4 ? thread(l) * 4 + (i & 3) : thread(l) * 4 + (i & 3) + 16, group(l)};
}
// m16n8k32 and m16n8k64 with 4-bit integers.
Place nibbleK32A(int l, int i) {
  return {i < 8 ? group(l) : group(l) + 8, thread(l) * 8 + (i & 7)};
}
Place nibbleK32B(int l, int i) { return {thread(l) * 8 + (i & 7), group(l)}; }
Place nibbleK64A(int l, int i) {
  bool upper = (0 <= i && i < 8) || (16 <= i && i < 24);
  return {upper ? group(l) : group(l) + 8,
          i < 16 ? thread(l) * 8 + (i & 7) : thread(l) * 8 + (i & 7) + 32};
}
Place nibbleK64B(int l, int i) {
  return {i < 8 ? thread(l) * 8 + (i & 7) : thread(l) * 8 + (i & 7) + 32, group(l)};
}

// Codes of small numbers that every type holds, and their values.
struct Number {
  uint32_t code;
  int value;
};
Number numberOf(const std::string &type, std::mt19937_64 &random) {
  if (type == "s8" || type == "s4") {
    int limit = type == "s8" ? 128 : 8;
    int value = int(random() % unsigned(2 * limit)) - limit;
    return {uint32_t(value) & (type == "s8" ? 0xffu : 0xfu), value};
  }
  if (type == "u8" || type == "u4") {
    uint32_t value = random() % (type == "u8" ? 256 : 16);
    return {value, int(value)};
  }
  int value = int(random() % 9) - 4; // -4 to 4
  int magnitude = std::abs(value);
  uint32_t sign = value < 0;
  auto encode = [&](int mantissaBits, int bias) {
    if (magnitude == 0)
      return 0u;
    int exponent = std::ilogb(magnitude);
    uint32_t fraction =
        (uint32_t(magnitude) << mantissaBits >> exponent) & ((1u << mantissaBits) - 1);
    return uint32_t(exponent + bias) << mantissaBits | fraction;
  };
  if (type == "f16")
    return {sign << 15 | encode(10, 15), value};
  if (type == "bf16")
    return {sign << 15 | encode(7, 127), value};
  if (type == "tf32")
    return {sign << 31 | encode(23, 127), value};
  if (type == "e4m3")
    return {sign << 7 | encode(3, 7), value};
  return {sign << 7 | encode(2, 15), value}; // e5m2
}

// Position of row and column in a row-major array.
size_t cell(int row, int columns, int column) {
  return size_t(row) * size_t(columns) + size_t(column);
}

std::string list(const std::string &prefix, int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i)
    text += (i ? ", " : "") + prefix + std::to_string(first + i);
  return text + "}";
}

// in: [lane][16] words: A, B, C; out: [lane][4] words.
std::string mmaBody(const std::string &instruction, int registersA, int registersC,
                    int registersD) {
  return "mad.wide.u32 %d8, %tid32, 64, %din;\nmad.wide.u32 %d9, %tid32, 16, %dout;\n"
         "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d8];\n"
         "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d8+16];\n"
         "ld.global.v4.b32 {%r8, %r9, %r10, %r11}, [%d8+32];\n"
         "mov.b32 %r12, 0; mov.b32 %r13, 0; mov.b32 %r14, 0; mov.b32 %r15, 0;\n"
         "mma.sync.aligned." +
         instruction + " " + list("%r", 12, registersD) + ", " + list("%r", 0, registersA) + ", " +
         list("%r", 4, registersA / 2) + ", " + list("%r", 8, registersC) +
         ";\nst.global.v4.b32 [%d9], {%r12, %r13, %r14, %r15};";
}

std::vector<std::string> words(const std::string &instruction) {
  std::vector<std::string> parts(1);
  for (char c : instruction)
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

void checkShape(const Shape &shape) {
  std::vector<std::string> parts = words(shape.instruction);
  size_t n = parts.size();
  const std::string &typeD = parts[n - 4], &typeA = parts[n - 3], &typeB = parts[n - 2],
                    &typeC = parts[n - 1];
  bool integers = typeD == "s32", halfC = typeC == "f16", halfD = typeD == "f16";
  std::mt19937_64 random = repeatable(unsigned(shape.k * shape.bitsA));
  int perRegister = 32 / shape.bitsA, registersA = 16 * shape.k / 32 / perRegister;
  std::vector<int> a(size_t(shape.k) * 16, 1000), b(size_t(shape.k) * 8, 1000), c(128, 1000);
  std::vector<uint32_t> in(size_t(32) * 16);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < registersA * perRegister; ++i) {
      Number number = numberOf(typeA, random);
      Place p = shape.a(lane, i);
      int &there = a[cell(p.row, shape.k, p.column)];
      ASSERT_EQ(there, 1000) << "the formula covers an element twice";
      there = number.value;
      in[cell(lane, 16, i / perRegister)] |= number.code << (i % perRegister * shape.bitsA);
    }
    for (int i = 0; i < registersA * perRegister / 2; ++i) {
      Number number = numberOf(typeB, random);
      Place p = shape.b(lane, i);
      int &there = b[cell(p.row, 8, p.column)];
      ASSERT_EQ(there, 1000);
      there = number.value;
      in[cell(lane, 16, 4 + i / perRegister)] |= number.code << (i % perRegister * shape.bitsA);
    }
    for (int i = 0; i < 4; ++i) {
      Place p = placeC(lane, i);
      int value = int(random() % 9) - 4;
      c[cell(p.row, 8, p.column)] = value;
      if (integers) {
        in[cell(lane, 16, 8 + i)] = uint32_t(value);
      } else if (halfC) {
        uint32_t code =
            value == 0
                ? 0
                : (value < 0 ? 0x8000u : 0u) | uint32_t(std::ilogb(std::abs(value)) + 15) << 10 |
                      ((uint32_t(std::abs(value)) << 10 >> std::ilogb(std::abs(value))) & 0x3ff);
        in[cell(lane, 16, 8 + i / 2)] |= code << (16 * (i % 2));
      } else {
        in[cell(lane, 16, 8 + i)] = std::bit_cast<uint32_t>(float(value));
      }
    }
  }
  Config config;
  config.in = bytesOf(in);
  config.outBytes = 512;
  std::string body = mmaBody(shape.instruction, registersA, halfC ? 2 : 4, halfD ? 2 : 4);
  bool hasKind = shape.instruction.find("kind::") != std::string::npos;
  Ran ran = runKernel(forTarget(kernel(body), hasKind ? "sm_120a" : "sm_90a"), config);
  ASSERT_EQ(ran.error, "");
  auto out = ran.as<uint32_t>();
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      Place p = placeC(lane, i);
      int expected = c[cell(p.row, 8, p.column)];
      for (int k = 0; k < shape.k; ++k)
        expected += a[cell(p.row, shape.k, k)] * b[cell(k, 8, p.column)];
      if (integers) {
        ASSERT_EQ(int32_t(out[cell(lane, 4, i)]), expected) << "lane " << lane << " d" << i;
      } else if (halfD) {
        auto code = out[cell(lane, 4, i / 2)] >> (16 * (i % 2)) & 0xffff;
        float magnitude = code & 0x7fff
                              ? std::ldexp(float((code & 0x3ff) | 0x400), int(code >> 10 & 31) - 25)
                              : 0.0f;
        ASSERT_EQ(code & 0x8000 ? -magnitude : magnitude, float(expected));
      } else {
        ASSERT_EQ(std::bit_cast<float>(out[cell(lane, 4, i)]), float(expected))
            << "lane " << lane << " d" << i;
      }
    }
}

class MmaLayout : public testing::TestWithParam<Shape> {};

TEST_P(MmaLayout, FollowsTheIsa) { checkShape(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Mma, MmaLayout,
    testing::Values(Shape{"m16n8k16.row.col.f32.f16.f16.f32", 16, 16, halfK16A, halfK16B},
                    Shape{"m16n8k16.row.col.f16.f16.f16.f16", 16, 16, halfK16A, halfK16B},
                    Shape{"m16n8k8.row.col.f32.f16.f16.f32", 8, 16, halfK8A, halfK8B},
                    Shape{"m16n8k8.row.col.f16.f16.f16.f16", 8, 16, halfK8A, halfK8B},
                    Shape{"m16n8k16.row.col.f32.bf16.bf16.f32", 16, 16, halfK16A, halfK16B},
                    Shape{"m16n8k8.row.col.f32.bf16.bf16.f32", 8, 16, halfK8A, halfK8B},
                    Shape{"m16n8k4.row.col.f32.tf32.tf32.f32", 4, 32, tf32K4A, tf32K4B},
                    Shape{"m16n8k8.row.col.f32.tf32.tf32.f32", 8, 32, tf32K8A, tf32K8B},
                    Shape{"m16n8k16.row.col.s32.s8.s8.s32", 16, 8, byteK16A, byteK16B},
                    Shape{"m16n8k16.row.col.satfinite.s32.u8.s8.s32", 16, 8, byteK16A, byteK16B},
                    Shape{"m16n8k32.row.col.s32.s8.s8.s32", 32, 8, byteK32A, byteK32B},
                    Shape{"m16n8k32.row.col.s32.u8.u8.s32", 32, 8, byteK32A, byteK32B},
                    Shape{"m16n8k32.row.col.s32.s8.u8.s32", 32, 8, byteK32A, byteK32B},
                    Shape{"m16n8k32.row.col.s32.s4.s4.s32", 32, 4, nibbleK32A, nibbleK32B},
                    Shape{"m16n8k64.row.col.s32.s4.s4.s32", 64, 4, nibbleK64A, nibbleK64B},
                    Shape{"m16n8k64.row.col.s32.u4.s4.s32", 64, 4, nibbleK64A, nibbleK64B},
                    Shape{"m16n8k32.row.col.f32.e4m3.e4m3.f32", 32, 8, byteK32A, byteK32B},
                    Shape{"m16n8k32.row.col.f32.e5m2.e4m3.f32", 32, 8, byteK32A, byteK32B},
                    Shape{"m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e5m2.f32", 32, 8, byteK32A,
                          byteK32B}),
    [](const auto &info) { return rho::test::testName(info.param.instruction); });

// The output in row 0 and column 0 of a product with up to four nonzero terms.
float firstOutput(const std::string &instruction, uint32_t a0, uint32_t a1, uint32_t b0, float c) {
  std::vector<uint32_t> in(size_t(32) * 16);
  in[0] = a0;      // row 0, k 0 and 1
  in[16] = a1;     // row 0, k 2 and 3
  in[4] = b0;      // column 0, k 0 and 1
  in[16 + 4] = b0; // column 0, k 2 and 3
  in[8] = std::bit_cast<uint32_t>(c);
  Config config;
  config.in = bytesOf(in);
  config.outBytes = 512;
  Ran ran = runKernel(kernel(mmaBody(instruction, 4, 4, 4)), config);
  EXPECT_EQ(ran.error, "");
  return std::bit_cast<float>(ran.as<uint32_t>()[0]);
}

TEST(MmaNumerics, ProductsAndAccumulatorAreRoundedOnce) {
  const char *f16 = "m16n8k16.row.col.f32.f16.f16.f32";
  // 1 + 2^-24 + 2^-24: each alone would be lost.
  EXPECT_EQ(firstOutput(f16, 0x00010001, 0, 0x3c003c00, 1.0f), 1.0f + 0x1p-23f);
  // 60000 - 60000 leaves the 2^-24 beside them.
  EXPECT_EQ(firstOutput(f16, 0x7b537b53, 0x00010000, 0x3c00bc00, 0.0f), 0x1p-24f);
}

// An H200 takes all of C before it writes D.
TEST(MmaNumerics, DMayBeCInAnotherOrder) {
  for (const char *instruction :
       {"m16n8k32.row.col.s32.s8.s8.s32", "m16n8k16.row.col.f32.f16.f16.f32"}) {
    std::vector<uint32_t> in(size_t(32) * 16);
    for (size_t i = 0; i < 4; ++i)
      in[8 + i] = 0x3f800000 + uint32_t(i);
    Config config;
    config.in = bytesOf(in);
    config.outBytes = 512;
    Ran ran = runKernel(kernel(withDInReversedC(mmaBody(instruction, 4, 4, 4))), config);
    ASSERT_EQ(ran.error, "");
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(ran.as<uint32_t>()[i], in[11 - i]) << instruction;
  }
}

TEST(MmaNumerics, IntegersWrapOrSaturate) {
  for (bool saturate : {false, true}) {
    std::vector<uint32_t> in(size_t(32) * 16);
    in[0] = 1;
    in[4] = 1;
    in[8] = 0x7fffffff;
    Config config;
    config.in = bytesOf(in);
    config.outBytes = 512;
    std::string instruction =
        std::string("m16n8k32.row.col.") + (saturate ? "satfinite." : "") + "s32.s8.s8.s32";
    Ran ran = runKernel(kernel(mmaBody(instruction, 4, 4, 4)), config);
    ASSERT_EQ(ran.error, "");
    EXPECT_EQ(ran.as<uint32_t>()[0], saturate ? 0x7fffffffu : 0x80000000u);
  }
}

// Shared memory is a 32x8 array of 16-bit values 256 row + column, rows in a scrambled order.
const char *fillShared = R"(
  // lane l writes row l at 16 * ((l * 5) % 32)
  mul.lo.u32 %r50, %tid32, 5;
  and.b32 %r50, %r50, 31;
  shl.b32 %r50, %r50, 4;
  mov.u32 %r51, tile;
  add.u32 %r52, %r51, %r50;
  shl.b32 %r53, %tid32, 8;
  add.u32 %r54, %r53, 0x00010000;
  mad.lo.u32 %r55, %r53, 0x10000, %r54;
  add.u32 %r56, %r55, 0x00020002;
  add.u32 %r57, %r56, 0x00020002;
  add.u32 %r58, %r57, 0x00020002;
  st.shared.v4.b32 [%r52], {%r55, %r56, %r57, %r58};
  mad.wide.u32 %d9, %tid32, 16, %dout;
)";

class LdMatrix : public testing::TestWithParam<std::pair<int, bool>> {};

TEST_P(LdMatrix, FollowsTheIsa) {
  auto [count, transposed] = GetParam();
  // Lane l names row l: matrix l / 8, row l % 8. Lanes beyond count * 8 name nothing valid.
  std::string body = fillShared;
  if (count < 4)
    body += "setp.ge.u32 %p1, %tid32, " + std::to_string(8 * count) +
            "; selp.b32 %r52, 0xfffffff1, %r52, %p1;\n";
  body += "mov.b32 %r0, 0; mov.b32 %r1, 0; mov.b32 %r2, 0; mov.b32 %r3, 0;\n";
  body += "ldmatrix.sync.aligned.m8n8.x" + std::to_string(count) + (transposed ? ".trans" : "") +
          ".shared.b16 " + list("%r", 0, count) + ", [%r52];\n";
  body += "st.global.v4.b32 [%d9], {%r0, %r1, %r2, %r3};";
  Config config;
  config.outBytes = 512;
  Ran ran = runKernel(kernel(body, ".shared .align 16 .b8 tile[512];"), config);
  ASSERT_EQ(ran.error, "");
  auto out = ran.as<uint16_t>();
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < count; ++i)
      for (int j = 0; j < 2; ++j) {
        int row = lane / 4, column = 2 * (lane % 4) + j;
        if (transposed)
          std::swap(row, column);
        ASSERT_EQ(out[cell(lane, 8, 2 * i + j)], 256 * (8 * i + row) + column)
            << "lane " << lane << " register " << i << " half " << j;
      }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LdMatrix,
                         testing::Values(std::pair(1, false), std::pair(2, false),
                                         std::pair(4, false), std::pair(1, true),
                                         std::pair(2, true), std::pair(4, true)),
                         [](const auto &info) {
                           return "x" + std::to_string(info.param.first) +
                                  (info.param.second ? "_trans" : "");
                         });

TEST(StMatrix, IsTheInverseOfLdMatrix) {
  for (const char *trans : {"", ".trans"}) {
    std::string body = std::string(fillShared) + "ldmatrix.sync.aligned.m8n8.x4" + trans +
                       ".shared.b16 {%r0, %r1, %r2, %r3}, [%r52];\n"
                       "bar.sync 0;\n"
                       "add.u32 %r59, %r52, 512;\n"
                       "stmatrix.sync.aligned.m8n8.x4" +
                       trans +
                       ".shared.b16 [%r59], {%r0, %r1, %r2, %r3};\n"
                       "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r52+512];\n"
                       "st.global.v4.b32 [%d9], {%r4, %r5, %r6, %r7};";
    Config config;
    config.outBytes = 512;
    Ran ran = runKernel(kernel(body, ".shared .align 16 .b8 tile[1024];"), config);
    ASSERT_EQ(ran.error, "");
    auto out = ran.as<uint16_t>();
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], 256 * (i / 8) + i % 8) << trans;
  }
}

TEST(MoveMatrix, Transposes) {
  std::string body = "shl.b32 %r1, %tid32, 1;\nadd.u32 %r2, %r1, 1;\nshl.b32 %r2, %r2, 16;\n"
                     "or.b32 %r1, %r1, %r2;\n"
                     "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r1;\n"
                     "mad.wide.u32 %d9, %tid32, 4, %dout;\nst.global.b32 [%d9], %r1;\n";
  Config config;
  config.outBytes = 128;
  Ran ran = runKernel(kernel(body), config);
  ASSERT_EQ(ran.error, "");
  for (size_t row = 0; row < 8; ++row)
    for (size_t column = 0; column < 8; ++column)
      EXPECT_EQ(ran.as<uint16_t>()[row * 8 + column], column * 8 + row);
}

} // namespace
} // namespace rho::emulator::test
