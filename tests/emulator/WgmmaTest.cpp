// wgmma against plain loops over all operand forms, and the rules of its asynchrony.
#include "tests/dsl/Names.h"
#include "tests/emulator/Harness.h"

#include <gmock/gmock.h>

#include <cmath>

namespace rho::emulator::test {
namespace {

using testing::HasSubstr;

struct WgmmaForm {
  std::string types; // "f32.f16.f16"
  int columns;
  Swizzle swizzle = Swizzle::Span128;
  bool registersA = false;
  int advance = 0; // bytes of K before the operands, within their rows
  std::string scales = "1, 1";

  bool integer() const { return types.starts_with("s32"); }
  bool half() const { return types.ends_with("16"); }
  int k() const { return half() ? 16 : 32; }
  std::string instruction() const {
    return "wgmma.mma_async.sync.aligned.m64n" + std::to_string(columns) + "k" +
           std::to_string(k()) + "." + types;
  }
};

// A value's code; the values are small, so that every sum is exact.
uint32_t encode(const std::string &type, int value) {
  if (type == "s8" || type == "u8")
    return uint8_t(value);
  uint32_t sign = value < 0;
  auto magnitude = uint32_t(std::abs(value));
  auto encodeFloat = [&](int mantissa, int exponentBits) -> uint32_t {
    if (magnitude == 0)
      return 0;
    int exponent = std::ilogb(double(magnitude));
    int bias = (1 << (exponentBits - 1)) - 1;
    uint32_t fraction = (magnitude << mantissa >> exponent) & ((1u << mantissa) - 1);
    return sign << (mantissa + exponentBits) | uint32_t(exponent + bias) << mantissa | fraction;
  };
  return type == "f16"    ? encodeFloat(10, 5)
         : type == "bf16" ? encodeFloat(7, 8)
         : type == "e4m3" ? encodeFloat(3, 4)
                          : encodeFloat(2, 5);
}

std::string typeOf(const std::string &types, int which) {
  for (; which > 0; --which)
    return typeOf(types.substr(types.find('.') + 1), which - 1);
  return types.substr(0, types.find('.'));
}

struct Matrix {
  int rows, k;
  std::vector<int> values;
  int at(int row, int column) const { return values[size_t(row) * size_t(k) + size_t(column)]; }
};
Matrix randomMatrix(const std::string &type, int rows, int k, std::mt19937_64 &random) {
  Matrix matrix{rows, k, {}};
  for (int i = 0; i < rows * k; ++i)
    matrix.values.push_back(type == "u8"   ? int(random() % 256)
                            : type == "s8" ? int(random() % 256) - 128
                                           : int(random() % 9) - 4);
  return matrix;
}

int spanOf(Swizzle swizzle) { return 16 << swizzleBits(swizzle); }

// Offset of a byte of a row in the tile as a tensor map with this swizzle leaves it; without one,
// core matrices of 8 rows and 16 bytes, those of the rows' second halves behind all of the first.
size_t tileOffset(Swizzle swizzle, size_t rows, size_t row, size_t byte) {
  if (swizzle == Swizzle::None)
    return byte / 16 * rows * 16 + row * 16 + byte % 16;
  auto span = size_t(spanOf(swizzle));
  size_t linear = row * span + byte;
  return linear ^ ((linear / 128) % (span / 16)) * 16;
}

std::vector<uint8_t> tileOf(const Matrix &matrix, const std::string &type, Swizzle swizzle,
                            int advance) {
  int elementBytes = type.ends_with("16") ? 2 : 1;
  int rowBytes = swizzle == Swizzle::None ? 32 : spanOf(swizzle);
  std::vector<uint8_t> tile(size_t(matrix.rows) * size_t(rowBytes));
  for (int row = 0; row < matrix.rows; ++row)
    for (int column = 0; column < matrix.k; ++column) {
      uint32_t code = encode(type, matrix.at(row, column));
      for (int byte = 0; byte < elementBytes; ++byte)
        tile[tileOffset(swizzle, size_t(matrix.rows), size_t(row),
                        size_t(advance) + size_t(column) * size_t(elementBytes) + size_t(byte))] =
            uint8_t(code >> 8 * byte);
    }
  return tile;
}

// The descriptor behind its start address.
uint64_t descriptorBase(Swizzle swizzle, int rows) {
  constexpr uint64_t layouts[] = {0, 3, 2, 1};
  uint64_t leading = swizzle == Swizzle::None ? uint64_t(rows) : 1;
  uint64_t stride = swizzle == Swizzle::None ? 8 : uint64_t(spanOf(swizzle)) * 8 / 16;
  return layouts[size_t(swizzle)] << 62 | stride << 32 | leading << 16;
}

std::string registers(const std::string &prefix, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += (i ? ", " : "{") + prefix + std::to_string(i);
  return text + "}";
}

constexpr int tileBytes = 32768; // of A, then of B

// Loads both tiles with bulk copies, sets %d20 and %d21 to the descriptors, zeroes %acc, fences.
std::string prologue(const WgmmaForm &form) {
  std::string body = "mov.b32 %r10, tiles; // named first, it lies at 0\n"
                     "setp.eq.u32 %p1, %tid32, 0;\n@%p1 mbarrier.init.shared.b64 [full], 1;\n"
                     "fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
                     "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [full], 65536;\n"
                     "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     " [tiles], [%din], 65536, [full];\n"
                     "W: mbarrier.try_wait.parity.shared.b64 %p7, [full], 0;\n@!%p7 bra W;\n"
                     "add.u64 %d19, %din, 65536;\nmad.wide.u32 %d19, %tid32, 16, %d19;\n"
                     "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d19];\n";
  auto descriptor = [&](const std::string &reg, int start, int rows) {
    body +=
        "mov.b64 " + reg + ", " +
        std::to_string(descriptorBase(form.swizzle, rows) | uint64_t(start + form.advance) >> 4) +
        ";\n";
  };
  descriptor("%d20", 0, 64);
  descriptor("%d21", tileBytes, form.columns);
  for (int i = 0; i < form.columns / 2; ++i)
    body += "mov.b32 %acc" + std::to_string(i) + ", 0;\n";
  return body + "wgmma.fence.sync.aligned;\n";
}

std::string product(const WgmmaForm &form, const std::string &keep) {
  std::string text = form.instruction() + " " + registers("%acc", form.columns / 2) + ", " +
                     (form.registersA ? "{%r0, %r1, %r2, %r3}" : "%d20") + ", %d21, " + keep;
  if (!form.integer())
    text += ", " + form.scales;
  if (form.half())
    text += form.registersA ? ", 0" : ", 0, 0";
  return text + ";\n";
}
const std::string commit = "wgmma.commit_group.sync.aligned;\n";
const std::string wait = "wgmma.wait_group.sync.aligned 0;\n";

// Thread t stores its accumulators behind one another.
std::string epilogue(const WgmmaForm &form) {
  std::string body =
      "mad.wide.u32 %d18, %tid32, " + std::to_string(2 * form.columns) + ", %dout;\n";
  for (int i = 0; i < form.columns / 2; ++i)
    body += "st.global.b32 [%d18+" + std::to_string(4 * i) + "], %acc" + std::to_string(i) + ";\n";
  return body;
}

std::string wrap(const std::string &body) {
  return kernel("{ .reg .b32 %acc<128>;\n" + body + "}\n",
                ".shared .align 1024 .b8 tiles[65536]; .shared .align 8 .b64 full;");
}

struct Problem {
  Matrix a, b;
  Config config;
};
Problem problemOf(const WgmmaForm &form) {
  std::string typeA = typeOf(form.types, 1), typeB = typeOf(form.types, 2);
  std::mt19937_64 random = repeatable(uint64_t(form.columns));
  Problem problem{randomMatrix(typeA, 64, form.k(), random),
                  randomMatrix(typeB, form.columns, form.k(), random),
                  {}};
  Config &config = problem.config;
  config.block.x = 128;
  config.in.resize(2 * tileBytes + 128 * 16, 0);
  std::vector<uint8_t> a = tileOf(problem.a, typeA, form.swizzle, form.advance);
  std::vector<uint8_t> b = tileOf(problem.b, typeB, form.swizzle, form.advance);
  std::copy(a.begin(), a.end(), config.in.begin());
  std::copy(b.begin(), b.end(), config.in.begin() + tileBytes);
  // Fragments of A (PTX ISA, "Register Fragments for wgmma.mma_async").
  int perRegister = form.half() ? 2 : 4, elementBytes = 4 / perRegister;
  for (int thread = 0; thread < 128; ++thread)
    for (int e = 0; e < 4 * perRegister; ++e) {
      int lane = thread % 32, r = e / perRegister;
      int row = 16 * (thread / 32) + lane / 4 + (r % 2 ? 8 : 0);
      int column = lane % 4 * perRegister + e % perRegister + (r >= 2 ? 4 * perRegister : 0);
      uint32_t code = encode(typeA, problem.a.at(row, column));
      for (int byte = 0; byte < elementBytes; ++byte)
        config.in[2 * tileBytes + size_t(thread) * 16 + size_t(e * elementBytes + byte)] =
            uint8_t(code >> 8 * byte);
    }
  config.outBytes = int64_t(128) * 2 * form.columns;
  return problem;
}

std::string errorOf(const WgmmaForm &form, const std::string &body) {
  return runKernel(wrap(prologue(form) + body), problemOf(form).config).error;
}

class WgmmaForms : public testing::TestWithParam<WgmmaForm> {};

TEST_P(WgmmaForms, MultiplyAndAccumulate) {
  const WgmmaForm &form = GetParam();
  Problem problem = problemOf(form);
  // 0 + AB, then twice more onto it.
  Ran ran =
      runKernel(wrap(prologue(form) + "setp.ne.u32 %p3, 0, 0;\n" + product(form, "%p3") +
                     product(form, "!%p3") + product(form, "1") + commit + wait + epilogue(form)),
                problem.config);
  ASSERT_EQ(ran.error, "");
  int sign = form.scales == "1, -1" || form.scales == "-1, 1" ? -1 : 1;
  for (int thread = 0; thread < 128; ++thread)
    for (int i = 0; i < form.columns / 2; ++i) {
      int lane = thread % 32;
      int row = 16 * (thread / 32) + lane / 4 + (i % 4 >= 2 ? 8 : 0);
      int column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
      int sum = 0;
      for (int k = 0; k < form.k(); ++k)
        sum += problem.a.at(row, k) * problem.b.at(column, k);
      size_t at = size_t(thread) * size_t(form.columns / 2) + size_t(i);
      ASSERT_EQ(form.integer() ? double(ran.as<int32_t>()[at]) : double(ran.as<float>()[at]),
                double(3 * sign * sum))
          << row << ", " << column;
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, WgmmaForms,
    testing::Values(WgmmaForm{"f32.f16.f16", 128}, WgmmaForm{"f32.bf16.bf16", 256},
                    WgmmaForm{"f32.e4m3.e4m3", 64}, WgmmaForm{"f32.e5m2.e4m3", 8},
                    WgmmaForm{"s32.s8.s8", 32}, WgmmaForm{"s32.u8.s8", 48},
                    WgmmaForm{"f32.f16.f16", 24, Swizzle::None},
                    WgmmaForm{"s32.s8.u8", 64, Swizzle::None},
                    WgmmaForm{"f32.f16.f16", 40, Swizzle::Span32},
                    WgmmaForm{"f32.bf16.bf16", 16, Swizzle::Span64, false, 32},
                    WgmmaForm{"f32.f16.f16", 64, Swizzle::Span128, false, 32},
                    WgmmaForm{"f32.f16.f16", 64, Swizzle::Span128, false, 64},
                    WgmmaForm{"f32.e4m3.e4m3", 64, Swizzle::Span128, false, 96},
                    WgmmaForm{"f32.f16.f16", 64, Swizzle::Span128, true},
                    WgmmaForm{"f32.e4m3.e4m3", 64, Swizzle::Span128, true},
                    WgmmaForm{"s32.s8.s8", 64, Swizzle::Span128, true},
                    WgmmaForm{"f32.f16.f16", 8, Swizzle::Span128, false, 0, "1, -1"},
                    WgmmaForm{"f32.f16.f16", 8, Swizzle::Span128, false, 0, "-1, -1"}),
    [](const auto &info) {
      const WgmmaForm &form = info.param;
      std::string name = form.types + "_" + std::to_string(form.columns);
      name += form.swizzle == Swizzle::None     ? "_unswizzled"
              : form.swizzle == Swizzle::Span32 ? "_span32"
              : form.swizzle == Swizzle::Span64 ? "_span64"
                                                : "";
      if (form.registersA)
        name += "_registers";
      if (form.advance != 0)
        name += "_advance" + std::to_string(form.advance);
      if (form.scales != "1, 1")
        name += form.scales == "1, -1" ? "_minus_b" : "_minus_a_minus_b";
      return rho::test::testName(name);
    });

const WgmmaForm plain{"f32.f16.f16", 16};
const WgmmaForm fragments{"f32.f16.f16", 16, Swizzle::Span128, true};

TEST(Wgmma, RegistersAreUntouchableUntilWaitedFor) {
  std::string issued = product(plain, "1") + commit;
  EXPECT_EQ(errorOf(plain, issued + wait + "mov.b32 %r9, %acc3;"), "");
  for (const char *touch : {"mov.b32 %r9, %acc3;", "mov.b32 %acc3, 0;",
                            "wgmma.wait_group.sync.aligned 1;\nadd.f32 %r9, %acc0, %acc1;"})
    EXPECT_THAT(errorOf(plain, issued + touch), HasSubstr("[emulator_wgmma_pending]")) << touch;
  // Not committed: no wait covers it.
  EXPECT_EQ(errorOf(plain, product(plain, "1") + wait + "mov.b32 %r9, %acc3;"),
            "error: a register of the wgmma on ptx line 45 is accessed, its group must be waited "
            "for first: ptx line 47 `mov.b32 %r9, %acc3` in cta (0,0,0), thread (96,0,0) "
            "[emulator_wgmma_pending]\n");
  // The older of two groups.
  WgmmaForm other{"f32.f16.f16", 8};
  std::string otherProduct = product(other, "1");
  EXPECT_THAT(errorOf(plain, issued + otherProduct), HasSubstr("[emulator_wgmma_pending]"));
  // Fragments of A may be read, not overwritten.
  std::string issuedFragments = product(fragments, "1") + commit;
  EXPECT_EQ(errorOf(fragments, issuedFragments + "mov.b32 %r9, %r2;"), "");
  EXPECT_THAT(errorOf(fragments, issuedFragments + "mov.b32 %r2, 0;"),
              HasSubstr("[emulator_wgmma_pending]"));
}

TEST(Wgmma, FencesStandBehindAccessesToRegisters) {
  std::string again = product(plain, "1") + commit + wait;
  EXPECT_EQ(errorOf(plain, again + "mov.b32 %acc1, 0;\n" + again),
            "error: registers of a wgmma are accessed with no wgmma.fence before it: ptx line 49 "
            "`wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%acc0, %acc1, %acc2, %acc3, "
            "%acc4, %acc5, %acc6, %acc7}, %d20, %d21, 1, 1, 1, 0, 0` in cta (0,0,0), thread "
            "(0,0,0) [emulator_wgmma_fence]\n");
  EXPECT_EQ(errorOf(plain, again + "mov.b32 %acc1, 0;\nwgmma.fence.sync.aligned;\n" + again), "");
  EXPECT_THAT(errorOf(fragments, "mov.b32 %r1, 0;\n" + product(fragments, "1")),
              HasSubstr("[emulator_wgmma_fence]"));
  // Before the first.
  std::string all = wrap(prologue(plain) + product(plain, "1"));
  std::string fence = "wgmma.fence.sync.aligned;\n";
  all.erase(all.find(fence), fence.size());
  EXPECT_THAT(runKernel(all, problemOf(plain).config).error, HasSubstr("[emulator_wgmma_fence]"));
}

TEST(Wgmma, OperandsInSharedMemory) {
  std::string own = "shl.b32 %r9, %tid32, 4;\nmov.b32 %r10, tiles;\nadd.u32 %r9, %r9, %r10;\n";
  std::string store = "st.shared.b32 [%r9], 0;\n";
  std::string barrier = "bar.sync 0;\n", proxy = "fence.proxy.async;\n";
  EXPECT_THAT(errorOf(plain, own + store + barrier + product(plain, "1")),
              HasSubstr("[emulator_proxy_fence]"));
  EXPECT_THAT(errorOf(plain, own + store + barrier + proxy + product(plain, "1")),
              HasSubstr("[emulator_proxy_fence]")); // only the writer's own fence counts
  EXPECT_EQ(errorOf(plain, own + store + proxy + barrier + product(plain, "1")), "");
  EXPECT_THAT(errorOf(plain, own + store + proxy + product(plain, "1")),
              HasSubstr("[emulator_race_read]"));
  EXPECT_THAT(errorOf(plain, own + product(plain, "1") + commit + store),
              HasSubstr("[emulator_async_read]"));
  EXPECT_EQ(errorOf(plain, own + product(plain, "1") + commit + wait + barrier + store), "");
  // A bulk copy lands in what is being multiplied.
  EXPECT_THAT(errorOf(plain, product(plain, "1") + commit + barrier +
                                 "@%p1 cp.async.bulk.shared::cluster.global"
                                 ".mbarrier::complete_tx::bytes [tiles], [%din], 128, [full];\n"),
              HasSubstr("[emulator_async_read]"));
}

TEST(Wgmma, Descriptors) {
  auto expect = [](uint64_t descriptor, const std::string &id) {
    std::string body = prologue(plain) + "mov.b64 %d21, " + std::to_string(descriptor) + ";\n" +
                       product(plain, "1");
    EXPECT_THAT(runKernel(wrap(body), problemOf(plain).config).error, HasSubstr(id));
  };
  uint64_t good = descriptorBase(Swizzle::Span128, 16);
  expect(good | uint64_t(1) << 49, "[emulator_wgmma_operand]");
  expect(good | 128 >> 4,
         "error: wgmma with start 0x80 of a layout with rows of 128 bytes, its 32 bytes lie in the "
         "first of 8 aligned rows: ptx line 46 `wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
         "{%acc0, %acc1, %acc2, %acc3, %acc4, %acc5, %acc6, %acc7}, %d20, %d21, 1, 1, 1, 0, 0` in "
         "cta (0,0,0), thread (96,0,0) [emulator_wgmma_operand]\n");
  expect(good | 112 >> 4, "[emulator_wgmma_operand]");
  expect(good + (uint64_t(1) << 32), "[emulator_wgmma_operand]");
  expect(good | 0x3fff, "[emulator_wgmma_operand]");
  expect(good | 65536 >> 4, "[emulator_shared_bounds]");
  EXPECT_THAT(
      errorOf(plain, "cvt.u64.u32 %d1, %tid32;\nadd.u64 %d21, %d21, %d1;\n" + product(plain, "1")),
      HasSubstr("[emulator_wgmma_operand]"));
}

TEST(Wgmma, FourWarpsTogether) {
  Config config = problemOf(plain).config;
  config.block.x = 96;
  EXPECT_EQ(runKernel(wrap(prologue(plain) + product(plain, "1")), config).error,
            "error: warp 0 of 3, the four warps of a warpgroup execute the instruction together: "
            "ptx line 45 `wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%acc0, %acc1, %acc2, "
            "%acc3, %acc4, %acc5, %acc6, %acc7}, %d20, %d21, 1, 1, 1, 0, 0` in cta (0,0,0), thread "
            "(0,0,0) [emulator_warpgroup]\n");
  EXPECT_THAT(errorOf(plain, "setp.lt.u32 %p2, %tid32, 32;\n@%p2 bra B;\n" + product(plain, "1") +
                                 "B:\n" + product(plain, "1")),
              HasSubstr("[emulator_warpgroup]"));
  EXPECT_THAT(
      errorOf(plain, "setp.lt.u32 %p2, %tid32, 32;\n@%p2 bra B;\n" + product(plain, "1") + "B:\n"),
      HasSubstr("[emulator_deadlock]"));
  EXPECT_THAT(errorOf(plain, "setp.lt.u32 %p2, %tid32, 16;\n@%p2 bra B;\n" + commit + "B:\n"),
              HasSubstr("[emulator_divergent_instruction]"));
  EXPECT_EQ(errorOf(plain, "setmaxnreg.inc.sync.aligned.u32 240;\n"
                           "setmaxnreg.dec.sync.aligned.u32 24;\n"),
            "");
  EXPECT_THAT(errorOf(plain, "setmaxnreg.inc.sync.aligned.u32 20;\n"),
              HasSubstr("[emulator_operand]"));
}

TEST(Wgmma, UnknownForms) {
  auto refused = [](const std::string &instruction) {
    EXPECT_THAT(parseError(wrap(instruction)), HasSubstr("[emulator_unknown_instruction]"))
        << instruction;
  };
  std::string operands = " {%acc0, %acc1, %acc2, %acc3}, %d1, %d2, 1, 1, 1";
  refused("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16" + operands + ", 0, 1;");
  refused("wgmma.mma_async.sync.aligned.m64n8k32.f32.f16.f16" + operands + ", 0, 0;");
  refused("wgmma.mma_async.sync.aligned.m64n9k16.f32.f16.f16" + operands + ", 0, 0;");
  refused("wgmma.mma_async.sync.aligned.m64n264k16.f32.f16.f16" + operands + ", 0, 0;");
  refused("wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8" + operands + ";");
  refused("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16" + operands + ", 0, 0;");
}

} // namespace
} // namespace rho::emulator::test
