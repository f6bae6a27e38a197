// Floating point arithmetic and conversions against independent roundings: integers for f16 and
// bf16, the host's long double for f32.
#include "tests/emulator/Harness.h"

#include <bit>
#include <cmath>
#include <limits>

namespace rho::emulator::test {
namespace {

using Wide = __int128;

// A small format by its definition: value = significand * 2^exponent.
struct Small {
  int mantissaBits, bias, maxBiased;
};
constexpr Small half{10, 15, 31}, brain{7, 127, 255};

struct Parts {
  bool negative;
  int64_t significand;
  int exponent;
};
Parts partsOf(uint16_t code, const Small &f) {
  int biased = code >> f.mantissaBits & f.maxBiased;
  int64_t fraction = code & ((1 << f.mantissaBits) - 1);
  if (biased == 0)
    return {(code & 0x8000) != 0, fraction, 1 - f.bias - f.mantissaBits};
  return {(code & 0x8000) != 0, fraction | 1 << f.mantissaBits, biased - f.bias - f.mantissaBits};
}

// Nearest code of sign * magnitude * 2^scale, ties to even: walks the exponent up from the least.
uint16_t roundInteger(Wide value, int scale, const Small &f) {
  bool negative = value < 0;
  Wide magnitude = negative ? -value : value;
  int exponent = 1 - f.bias - f.mantissaBits;
  // Bring to the least exponent or above, keeping a sticky bit.
  bool sticky = false;
  int at = scale;
  auto halveWhile = [&](auto condition, bool &halfBit) {
    while (condition()) {
      sticky |= halfBit;
      halfBit = magnitude & 1;
      magnitude >>= 1;
      ++at;
    }
  };
  bool halfBit = false;
  while (at > exponent && magnitude < (Wide(1) << 100)) {
    magnitude <<= 1;
    --at;
  }
  halveWhile([&] { return at < exponent || magnitude >= Wide(2) << f.mantissaBits; }, halfBit);
  if (halfBit && (sticky || (magnitude & 1)))
    ++magnitude;
  if (magnitude == Wide(2) << f.mantissaBits) {
    magnitude >>= 1;
    ++at;
  }
  int biased = magnitude < Wide(1) << f.mantissaBits ? 0 : at + f.bias + f.mantissaBits;
  uint16_t sign = negative ? 0x8000 : 0;
  if (biased >= f.maxBiased)
    return uint16_t(sign | f.maxBiased << f.mantissaBits);
  return uint16_t(sign | biased << f.mantissaBits |
                  int(magnitude & ((Wide(1) << f.mantissaBits) - 1)));
}

Wide scaled(const Parts &p, int toExponent) {
  Wide value = Wide(p.significand) << (p.exponent - toExponent);
  return p.negative ? -value : value;
}

// Random finite f16 codes of all magnitudes; bf16 codes within 2^-20 .. 2^20.
std::vector<Case> halfCases(const Small &f, int count) {
  std::mt19937_64 random = repeatable(f.bias);
  std::vector<Case> cases;
  auto code = [&]() -> uint64_t {
    uint64_t sign = random() & 0x8000, fraction = random() & ((1u << f.mantissaBits) - 1);
    uint64_t biased = f.bias == 15 ? random() % 31 : 107 + random() % 40;
    return sign | biased << f.mantissaBits | fraction;
  };
  cases.reserve(size_t(count));
  for (int i = 0; i < count; ++i)
    cases.push_back({code(), code(), code()});
  return cases;
}

void expectHalf(const std::string &code, const std::vector<Case> &cases,
                const std::function<uint16_t(uint16_t, uint16_t, uint16_t)> &formula) {
  std::vector<uint64_t> results = evaluate(code, 16, cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    uint16_t expected =
        formula(uint16_t(cases[i][0]), uint16_t(cases[i][1]), uint16_t(cases[i][2]));
    if ((expected & 0x7fff) == 0) // the sign of zero has a test of its own
      ASSERT_EQ(results[i] & 0x7fff, 0u) << code;
    else
      ASSERT_EQ(results[i], expected) << code << std::hex << " of " << cases[i][0] << ", "
                                      << cases[i][1] << ", " << cases[i][2];
  }
}

// Everything is a multiple of 2^-60 in these cases (f16 products: 2^-48).
constexpr int unit = -60;

TEST(Half, ArithmeticRoundsOnce) {
  for (const Small &f : {half, brain}) {
    std::string type = f.bias == 15 ? "f16" : "bf16";
    auto cases = halfCases(f, 4000);
    auto product = [f](uint16_t a, uint16_t b) {
      Parts x = partsOf(a, f), y = partsOf(b, f);
      return scaled(
          {x.negative != y.negative, x.significand * y.significand, x.exponent + y.exponent}, unit);
    };
    expectHalf("add." + type + " %x16, %a16, %b16;", cases, [&](auto a, auto b, auto) {
      return roundInteger(scaled(partsOf(a, f), unit) + scaled(partsOf(b, f), unit), unit, f);
    });
    expectHalf("sub." + type + " %x16, %a16, %b16;", cases, [&](auto a, auto b, auto) {
      return roundInteger(scaled(partsOf(a, f), unit) - scaled(partsOf(b, f), unit), unit, f);
    });
    expectHalf("mul." + type + " %x16, %a16, %b16;", cases,
               [&](auto a, auto b, auto) { return roundInteger(product(a, b), unit, f); });
    expectHalf("fma.rn." + type + " %x16, %a16, %b16, %c16;", cases, [&](auto a, auto b, auto c) {
      return roundInteger(product(a, b) + scaled(partsOf(c, f), unit), unit, f);
    });
  }
}

TEST(Half, FmaSeesATinyAddendBesideATie) {
  // 1.0078125 * 1.5 = 1.51171875 lies between two bf16 numbers; a tiny addend decides.
  uint64_t a = 0x3f81, b = 0x3fc0;
  auto of = [&](uint64_t c) {
    return evaluate("fma.rn.bf16 %x16, %a16, %b16, %c16;", 16, {{a, b, c}})[0];
  };
  EXPECT_EQ(of(0x0000), 0x3fc2u); // tie: even
  EXPECT_EQ(of(0x8001), 0x3fc1u); // -2^-133
  EXPECT_EQ(of(0x0001), 0x3fc2u);
}

TEST(Half, PairsAreTwoLanesOfTheSame) {
  auto cases = halfCases(half, 400);
  std::vector<Case> pairs;
  for (size_t i = 0; i + 1 < cases.size(); i += 2)
    pairs.push_back({cases[i][0] | cases[i + 1][0] << 16, cases[i][1] | cases[i + 1][1] << 16,
                     cases[i][2] | cases[i + 1][2] << 16});
  for (const char *operation : {"add.rn.f16", "mul.f16", "min.f16", "fma.rn.f16"}) {
    bool three = std::string(operation).starts_with("fma");
    std::string tail = three ? ", %c" : "";
    auto low = evaluate(std::string(operation) + " %x16, %a16, %b16" + tail + (three ? "16;" : ";"),
                        16, cases);
    auto both = evaluate(
        std::string(operation) + "x2 %x32, %a32, %b32" + tail + (three ? "32;" : ";"), 32, pairs);
    for (size_t i = 0; i < pairs.size(); ++i)
      ASSERT_EQ(both[i], low[2 * i] | low[2 * i + 1] << 16) << operation;
  }
}

TEST(Half, MinMaxTreatNanAndZeroAsTheIsaSays) {
  auto one = [](const std::string &code, uint64_t a, uint64_t b) {
    return evaluate(code + " %x16, %a16, %b16;", 16, {{a, b, 0}})[0];
  };
  EXPECT_EQ(one("min.f16", 0x7e00, 0x3c00), 0x3c00u);
  EXPECT_EQ(one("max.f16", 0x3c00, 0xfe00), 0x3c00u);
  EXPECT_EQ(one("min.f16", 0x7e00, 0x7c01), 0x7fffu);
  EXPECT_EQ(one("min.NaN.f16", 0x7e00, 0x3c00), 0x7fffu);
  EXPECT_EQ(one("min.f16", 0x0000, 0x8000), 0x8000u);
  EXPECT_EQ(one("max.bf16", 0x8000, 0x0000), 0x0000u);
  EXPECT_EQ(one("fma.rn.relu.f16 %x16, %a16, %b16, %c16; max.f16", 0xbc00, 0x3c00), 0x3c00u);
  EXPECT_EQ(evaluate("fma.rn.relu.f16 %x16, %a16, %b16, %c16;", 16, {{0xbc00, 0x3c00, 0}})[0], 0u);
  EXPECT_EQ(evaluate("add.sat.f16 %x16, %a16, %b16;", 16, {{0x3c00, 0x3c00, 0}})[0], 0x3c00u);
  EXPECT_EQ(evaluate("neg.f16x2 %x32, %a32;", 32, {{0x3c00bc00, 0, 0}})[0], 0xbc003c00u);
}

uint64_t bitsOf(float x) { return std::bit_cast<uint32_t>(x); }
float floatOf(uint64_t x) { return std::bit_cast<float>(uint32_t(x)); }

std::vector<Case> floatCases() {
  std::vector<Case> cases;
  std::mt19937_64 random = repeatable(9);
  auto any = [&] { return uint64_t((random() & 0x807fffff) | (64 + random() % 128) << 23); };
  cases.reserve(4000);
  for (int i = 0; i < 3000; ++i)
    cases.push_back({any(), any(), any()});
  // Products that nearly cancel the addend.
  for (int i = 0; i < 1000; ++i) {
    uint64_t a = any(), b = any();
    cases.push_back({a, b, bitsOf(-floatOf(a) * floatOf(b))});
  }
  return cases;
}

TEST(Float, FmaRoundsOnce) {
  auto cases = floatCases();
  auto results = evaluate("fma.rn.f32 %x32, %a32, %b32, %c32;", 32, cases);
  for (size_t i = 0; i < cases.size(); ++i)
    ASSERT_EQ(results[i],
              bitsOf(std::fma(floatOf(cases[i][0]), floatOf(cases[i][1]), floatOf(cases[i][2]))));
}

// Mixed precision of sm_100 and later: halves are exact in f32, their products in double.
TEST(Float, SumsOfHalvesAreOfF32) {
  for (const Small &f : {half, brain}) {
    const std::string type = f.bias == 15 ? "f16" : "bf16";
    auto cases = halfCases(f, 2000);
    std::mt19937_64 random = repeatable(9);
    for (Case &each : cases)
      each[2] =
          bitsOf(static_cast<float>(static_cast<int64_t>(random() % 2000000) - 1000000) / 512);
    auto number = [&](uint64_t code) {
      Parts parts = partsOf(uint16_t(code), f);
      double magnitude = std::ldexp(double(parts.significand), parts.exponent);
      return parts.negative ? -magnitude : magnitude;
    };
    auto products =
        evaluate("fma.rn.f32." + type + " %x32, %a16, %b16, %c32;", 32, cases, "sm_100");
    auto sums = evaluate("add.rn.f32." + type + " %x32, %a16, %c32;", 32, cases, "sm_100");
    auto differences = evaluate("sub.rn.f32." + type + " %x32, %b16, %c32;", 32, cases, "sm_100");
    for (size_t i = 0; i < cases.size(); ++i) {
      float a = float(number(cases[i][0])), b = float(number(cases[i][1])),
            c = floatOf(cases[i][2]);
      ASSERT_EQ(products[i], bitsOf(std::fma(a, b, c))) << type;
      ASSERT_EQ(sums[i], bitsOf(a + c)) << type;
      ASSERT_EQ(differences[i], bitsOf(b - c)) << type;
    }
  }
}

// f32x2 of sm_100 and later: the same operation on each half of a 64-bit register.
TEST(Float, PairsAreTwoOperations) {
  auto cases = floatCases();
  std::vector<Case> pairs;
  for (size_t i = 0; i + 1 < cases.size(); i += 2) {
    Case pair{};
    for (size_t operand = 0; operand < 3; ++operand)
      pair[operand] = (cases[i][operand] & 0xffffffff) | cases[i + 1][operand] << 32;
    pairs.push_back(pair);
  }
  auto expect = [&](const std::string &code, auto formula) {
    auto results = evaluate(code, 64, pairs, "sm_100");
    for (size_t i = 0; i < pairs.size(); ++i)
      for (size_t half : {0, 1}) {
        const Case &own = cases[2 * i + half];
        ASSERT_EQ(results[i] >> (32 * half) & 0xffffffff,
                  bitsOf(formula(floatOf(own[0]), floatOf(own[1]), floatOf(own[2]))))
            << code;
      }
  };
  expect("add.rn.f32x2 %x64, %a64, %b64;", [](float a, float b, float) { return a + b; });
  expect("sub.rn.f32x2 %x64, %a64, %b64;", [](float a, float b, float) { return a - b; });
  expect("mul.rn.f32x2 %x64, %a64, %b64;", [](float a, float b, float) { return a * b; });
  expect("fma.rn.f32x2 %x64, %a64, %b64, %c64;",
         [](float a, float b, float c) { return std::fma(a, b, c); });
}

TEST(Float, BasicOperations) {
  auto cases = floatCases();
  auto expect = [&](const std::string &code, auto formula) {
    auto results = evaluate(code, 32, cases);
    for (size_t i = 0; i < cases.size(); ++i)
      ASSERT_EQ(results[i], bitsOf(formula(floatOf(cases[i][0]), floatOf(cases[i][1])))) << code;
  };
  expect("add.f32 %x32, %a32, %b32;", [](float a, float b) { return a + b; });
  expect("sub.rn.f32 %x32, %a32, %b32;", [](float a, float b) { return a - b; });
  expect("mul.f32 %x32, %a32, %b32;", [](float a, float b) { return a * b; });
  expect("div.rn.f32 %x32, %a32, %b32;", [](float a, float b) { return a / b; });
  expect("max.f32 %x32, %a32, %b32;", [](float a, float b) { return std::fmax(a, b); });
  expect("min.f32 %x32, %a32, %b32;", [](float a, float b) { return std::fmin(a, b); });
  expect("abs.f32 %x32, %a32;", [](float a, float) { return std::fabs(a); });
  expect("copysign.f32 %x32, %a32, %b32;", [](float a, float b) { return std::copysign(b, a); });
  expect("abs.f32 %r1, %a32; sqrt.rn.f32 %x32, %r1;",
         [](float a, float) { return std::sqrt(std::fabs(a)); });
}

TEST(Float, SubnormalsNanAndSaturation) {
  auto one = [](const std::string &code, float a, float b = 0) {
    return floatOf(evaluate(code, 32, {{bitsOf(a), bitsOf(b), 0}})[0]);
  };
  float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(one("add.f32 %x32, %a32, %b32;", 0x1p-140f, 0x1p-140f), 0x1p-139f);
  EXPECT_EQ(one("add.ftz.f32 %x32, %a32, %b32;", 0x1p-140f, 0x1p-140f), 0.0f);
  EXPECT_EQ(one("mul.ftz.f32 %x32, %a32, %b32;", 0x1p-70f, 0x1p-70f), 0.0f);
  EXPECT_EQ(one("add.sat.f32 %x32, %a32, %b32;", 3, 4), 1.0f);
  EXPECT_EQ(one("add.sat.f32 %x32, %a32, %b32;", nan, 4), 0.0f);
  EXPECT_EQ(one("max.f32 %x32, %a32, %b32;", nan, 4), 4.0f);
  EXPECT_TRUE(std::isnan(one("max.NaN.f32 %x32, %a32, %b32;", nan, 4)));
  EXPECT_TRUE(std::signbit(one("min.f32 %x32, %a32, %b32;", 0.0f, -0.0f)));
  EXPECT_EQ(one("ex2.approx.f32 %x32, %a32;", 3.0f), 8.0f);
  EXPECT_EQ(one("lg2.approx.f32 %x32, %a32;", 0.125f), -3.0f);
  EXPECT_EQ(one("rcp.approx.ftz.f32 %x32, %a32;", 4.0f), 0.25f);
  EXPECT_EQ(one("rsqrt.approx.f32 %x32, %a32;", 4.0f), 0.5f);
}

TEST(Float, ComparisonsWithNan) {
  auto holds = [](const std::string &compare, float a, float b) {
    return evaluate("setp." + compare + ".f32 %q, %a32, %b32;", 1,
                    {{bitsOf(a), bitsOf(b), 0}})[0] != 0;
  };
  float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char *ordered : {"eq", "ne", "lt", "le", "gt", "ge", "num"})
    EXPECT_FALSE(holds(ordered, nan, 1)) << ordered;
  for (const char *unordered : {"equ", "neu", "ltu", "leu", "gtu", "geu", "nan"})
    EXPECT_TRUE(holds(unordered, 1, nan)) << unordered;
  for (const char *compare : {"lt", "le", "ne", "ltu", "leu", "neu", "num"})
    EXPECT_TRUE(holds(compare, 1, 2)) << compare;
  for (const char *compare : {"gt", "ge", "eq", "gtu", "geu", "equ", "nan"})
    EXPECT_FALSE(holds(compare, 1, 2)) << compare;
  EXPECT_EQ(evaluate("setp.lt.f16 %q, %a16, %b16;", 1, {{0xc000, 0x3c00, 0}})[0], 1u);
  EXPECT_EQ(evaluate("setp.gt.bf16 %q, %a16, %b16;", 1, {{0x4000, 0x3f80, 0}})[0], 1u);
}

TEST(Convert, SmallFormatsOfEveryCode) {
  std::vector<Case> cases;
  for (uint64_t code = 0; code < 0x10000; code += 7)
    cases.push_back({code, 0, 0});
  auto halves = evaluate("cvt.f32.f16 %x32, %a16;", 32, cases);
  auto brains = evaluate("cvt.f32.bf16 %x32, %a16;", 32, cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    auto code = uint16_t(cases[i][0]);
    if ((code & 0x7c00) != 0x7c00) {
      Parts p = partsOf(code, half);
      float value = std::ldexp(float(p.significand), p.exponent);
      ASSERT_EQ(floatOf(halves[i]), p.negative ? -value : value);
    }
    ASSERT_EQ(brains[i], uint64_t(code) << 16);
  }
  EXPECT_TRUE(std::isinf(floatOf(evaluate("cvt.f32.f16 %x32, %a16;", 32, {{0x7c00, 0, 0}})[0])));
  EXPECT_TRUE(std::isnan(floatOf(evaluate("cvt.f32.f16 %x32, %a16;", 32, {{0x7c01, 0, 0}})[0])));
}

TEST(Convert, NarrowingRoundsToEvenOrAsAsked) {
  std::vector<Case> cases;
  std::mt19937_64 random = repeatable(4);
  for (int i = 0; i < 4000; ++i) {
    // Around ties: 24-bit significands whose low bits are near one half.
    uint64_t sign = random() & 1, exponent = 100 + random() % 44;
    uint64_t mantissa = (random() & 0x7fe000) | (0x1000 + random() % 3 - 1);
    cases.push_back({sign << 31 | exponent << 23 | mantissa, 0, 0});
  }
  auto halves = evaluate("cvt.rn.f16.f32 %x16, %a32;", 16, cases);
  auto brains = evaluate("cvt.rn.bf16.f32 %x16, %a32;", 16, cases);
  auto zeros = evaluate("cvt.rz.f16.f32 %x16, %a32;", 16, cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    uint64_t c = cases[i][0];
    Wide value = Wide((c & 0x7fffff) | 0x800000);
    int scale = int(c >> 23 & 255) - 150;
    value = c >> 31 ? -value : value;
    ASSERT_EQ(halves[i], roundInteger(value, scale, half)) << std::hex << c;
    ASSERT_EQ(brains[i], roundInteger(value, scale, brain)) << std::hex << c;
    // Toward zero is never above nearest, and at most one code below.
    ASSERT_LE(zeros[i] & 0x7fff, halves[i] & 0x7fff);
    ASSERT_GE((zeros[i] & 0x7fff) + 1, halves[i] & 0x7fff);
  }
  EXPECT_EQ(evaluate("cvt.rn.f16.f32 %x16, %a32;", 16, {{bitsOf(65520), 0, 0}})[0], 0x7c00u);
  EXPECT_EQ(evaluate("cvt.rn.f16.f32 %x16, %a32;", 16, {{bitsOf(65519), 0, 0}})[0], 0x7bffu);
  EXPECT_EQ(evaluate("cvt.rz.f16.f32 %x16, %a32;", 16, {{bitsOf(70000), 0, 0}})[0], 0x7bffu);
  EXPECT_EQ(evaluate("cvt.rp.f16.f32 %x16, %a32;", 16, {{bitsOf(1.0001f), 0, 0}})[0], 0x3c01u);
  EXPECT_EQ(evaluate("cvt.rm.f16.f32 %x16, %a32;", 16, {{bitsOf(-1.0001f), 0, 0}})[0], 0xbc01u);
}

TEST(Convert, FloatToIntegerRoundsAndClamps) {
  auto of = [](const std::string &code, float x) {
    return evaluate(code, 32, {{bitsOf(x), 0, 0}})[0];
  };
  EXPECT_EQ(of("cvt.rni.s32.f32 %x32, %a32;", 2.5f), 2u);
  EXPECT_EQ(of("cvt.rni.s32.f32 %x32, %a32;", 3.5f), 4u);
  EXPECT_EQ(of("cvt.rzi.s32.f32 %x32, %a32;", -2.9f), uint32_t(-2));
  EXPECT_EQ(of("cvt.rmi.s32.f32 %x32, %a32;", -2.1f), uint32_t(-3));
  EXPECT_EQ(of("cvt.rpi.s32.f32 %x32, %a32;", 2.1f), 3u);
  EXPECT_EQ(of("cvt.rni.s32.f32 %x32, %a32;", 3e9f), 0x7fffffffu);
  EXPECT_EQ(of("cvt.rzi.s32.f32 %x32, %a32;", -3e9f), 0x80000000u);
  EXPECT_EQ(of("cvt.rzi.u32.f32 %x32, %a32;", -1.0f), 0u);
  EXPECT_EQ(of("cvt.rzi.s32.f32 %x32, %a32;", std::nanf("")), 0u);
  EXPECT_EQ(of("cvt.rni.sat.s8.f32 %x32, %a32;", 300.0f), 127u);
  EXPECT_EQ(of("cvt.rni.sat.s8.f32 %x32, %a32;", -300.0f), uint32_t(-128));
  EXPECT_EQ(of("cvt.rni.f32.f32 %x32, %a32;", 2.5f), bitsOf(2.0f));
  EXPECT_EQ(of("cvt.sat.f32.f32 %x32, %a32;", 2.5f), bitsOf(1.0f));
  EXPECT_EQ(evaluate("cvt.rzi.s64.f32 %x64, %a32;", 64, {{bitsOf(-1e30f), 0, 0}})[0], uint64_t(1)
                                                                                          << 63);
  EXPECT_EQ(
      evaluate("cvt.rzi.u64.f64 %x64, %a64;", 64, {{std::bit_cast<uint64_t>(1e300), 0, 0}})[0],
      ~uint64_t(0));
}

TEST(Convert, IntegersExtendSaturateAndBecomeFloats) {
  auto of = [](const std::string &code, int width, uint64_t a) {
    return evaluate(code, width, {{a, 0, 0}})[0];
  };
  EXPECT_EQ(of("cvt.s32.s8 %x32, %a32;", 32, 0x180), 0xffffff80u);
  EXPECT_EQ(of("cvt.u32.u8 %x32, %a16;", 32, 0x180), 0x80u);
  EXPECT_EQ(of("cvt.s64.s32 %x64, %a32;", 64, 0x80000000), 0xffffffff80000000u);
  EXPECT_EQ(of("cvt.u64.u32 %x64, %a32;", 64, 0x80000000), 0x80000000u);
  EXPECT_EQ(of("cvt.s16.s32 %x16, %a32;", 16, 0x12345), 0x2345u);
  EXPECT_EQ(of("cvt.sat.s8.s32 %x32, %a32;", 32, 1000), 127u);
  EXPECT_EQ(of("cvt.sat.u8.s32 %x32, %a32;", 32, 0xffffffff), 0u);
  EXPECT_EQ(of("cvt.rn.f32.s32 %x32, %a32;", 32, 0xffffffff), bitsOf(-1.0f));
  EXPECT_EQ(of("cvt.rn.f32.u32 %x32, %a32;", 32, 0xffffffff), bitsOf(4294967296.0f));
  EXPECT_EQ(of("cvt.rz.f32.u32 %x32, %a32;", 32, 0xffffffff), bitsOf(4294967040.0f));
  EXPECT_EQ(of("cvt.rn.f16.s32 %x16, %a32;", 16, 2049), 0x6800u); // a tie: 2048
  EXPECT_EQ(of("cvt.rn.f32.u64 %x32, %a64;", 32, (uint64_t(1) << 63) + 1), bitsOf(0x1p63f));
  EXPECT_EQ(of("cvt.rn.f64.s64 %x64, %a64;", 64, uint64_t(-5)), std::bit_cast<uint64_t>(-5.0));
  // 2^60 + 2^51 + 1 is above the tie of bf16's neighbours; dropping the last bit would lose that.
  EXPECT_EQ(of("cvt.rn.bf16.u64 %x16, %a64;", 16, (uint64_t(1) << 60) + (uint64_t(1) << 52) + 1),
            0x5d81u);
}

TEST(Convert, PairsPutTheFirstSourceHigh) {
  Case c{bitsOf(1.0f), bitsOf(-2.0f), 0};
  EXPECT_EQ(evaluate("cvt.rn.f16x2.f32 %x32, %a32, %b32;", 32, {c})[0], 0x3c00c000u);
  EXPECT_EQ(evaluate("cvt.rn.bf16x2.f32 %x32, %a32, %b32;", 32, {c})[0], 0x3f80c000u);
  EXPECT_EQ(evaluate("cvt.rn.relu.bf16x2.f32 %x32, %a32, %b32;", 32, {c})[0], 0x3f800000u);
  EXPECT_EQ(evaluate("cvt.rn.satfinite.e4m3x2.f32 %x16, %a32, %b32;", 16, {c})[0], 0x38c0u);
  EXPECT_EQ(evaluate("cvt.rn.satfinite.e5m2x2.f32 %x16, %a32, %b32;", 16, {c})[0], 0x3cc0u);
  EXPECT_EQ(evaluate("cvt.rna.tf32.f32 %x32, %a32;", 32, {{0x3f801000, 0, 0}})[0], 0x3f802000u);
}

// Every fp8 code by its definition (OCP OFP8): widened through f16 and narrowed back.
TEST(Convert, Fp8CodesMakeTheRoundTrip) {
  for (bool e4m3 : {true, false}) {
    std::string name = e4m3 ? "e4m3x2" : "e5m2x2";
    int mantissaBits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
    std::vector<Case> cases;
    cases.reserve(256);
    for (uint64_t code = 0; code < 256; ++code)
      cases.push_back({code | (255 - code) << 8, 0, 0});
    auto wide = evaluate("cvt.rn.f16x2." + name + " %x32, %a16;", 32, cases);
    auto back = evaluate("cvt.rn.f16x2." + name + " %r1, %a16; cvt.rn.satfinite." + name +
                             ".f16x2 %x16, %r1;",
                         16, cases);
    for (int code = 0; code < 256; ++code) {
      int exponent = (code & 127) >> mantissaBits, fraction = code & ((1 << mantissaBits) - 1);
      bool special = e4m3 ? (code & 127) == 127 : exponent == 31;
      auto other = size_t(255 - code);
      if (special || (e4m3 ? (other & 127) == 127 : (other & 127) >> 2 == 31))
        continue;
      double value = exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissaBits)
                                   : std::ldexp(fraction + (1 << mantissaBits),
                                                exponent - bias - mantissaBits);
      Parts p = partsOf(uint16_t(wide[size_t(code)]), half);
      ASSERT_EQ(std::ldexp(double(p.significand), p.exponent), value) << name << " " << code;
      ASSERT_EQ(p.negative, code >= 128);
      ASSERT_EQ(back[size_t(code)], cases[size_t(code)][0]) << name;
    }
  }
  EXPECT_EQ(evaluate("cvt.rn.satfinite.e4m3x2.f32 %x16, %a32, %b32;", 16,
                     {{bitsOf(1e9f), bitsOf(std::nanf("")), 0}})[0],
            0x7e7fu);
}

} // namespace
} // namespace rho::emulator::test
