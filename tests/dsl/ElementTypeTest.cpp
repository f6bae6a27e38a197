#include "dsl/ElementType.h"
#include "dsl/Codebook.h"
#include "dsl/Module.h"
#include "tests/dsl/Files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <thread>

namespace rho::dsl {
namespace {

std::vector<ElementType> narrowTypes() {
  std::vector<ElementType> types;
  for (std::string_view name : ElementType::allNames())
    if (ElementType type = ElementType::get(name); type.bits() <= 16)
      types.push_back(type);
  for (const char *name : {"e3m3", "ue4m10", "e3m2i", "e4m3f", "ue3m0", "e1m6", "ue6m2i"})
    types.push_back(ElementType::get(name));
  return types;
}

// The value of a code of eXmY or ueXmY from the words of the standards, by other means than the
// code under test: text of the name, ldexp.
double valueByDefinition(const std::string &name, uint32_t code) {
  bool isUnsigned = name[0] == 'u';
  int exponentBits = 0, mantissaBits = 0;
  char suffix = 0;
  // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion): names of the test's own
  std::sscanf(name.c_str() + (isUnsigned ? 1 : 0), "e%dm%d%c", &exponentBits, &mantissaBits,
              &suffix);
  if (name == "e8m0")
    return code == 255 ? std::nan("") : std::ldexp(1, static_cast<int>(code) - 127);
  int magnitudes = 1 << (exponentBits + mantissaBits), quanta = 1 << mantissaBits;
  int magnitude = static_cast<int>(code) % magnitudes;
  double sign = static_cast<int>(code) / magnitudes ? -1 : 1;
  int field = magnitude / quanta, mantissa = magnitude % quanta;
  int bias = (1 << (exponentBits - 1)) - 1;
  bool ieee = suffix == 'i' || name == "e5m2";
  if (ieee && field == (1 << exponentBits) - 1)
    return mantissa ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if ((name == "e4m3" || name == "ue4m3") && magnitude == magnitudes - 1)
    return std::nan("");
  double significand = static_cast<double>(mantissa) / quanta + (field ? 1 : 0);
  return sign * std::ldexp(significand, std::max(field, 1) - bias);
}

// Brute force over all finite values: nearest, ties to the even code, saturating.
void expectNearestEven(ElementType type) {
  struct Entry {
    double value;
    uint32_t code;
  };
  std::vector<Entry> finite;
  for (uint32_t code = 0; code < 1u << type.bits(); ++code)
    if (std::isfinite(type.decode(code)))
      finite.push_back({type.decode(code), code});
  std::sort(finite.begin(), finite.end(), [](const Entry &a, const Entry &b) {
    return a.value != b.value ? a.value < b.value : std::signbit(a.value) > std::signbit(b.value);
  });
  EXPECT_EQ(finite.front().value, type.minFinite());
  EXPECT_EQ(finite.back().value, type.maxFinite());
  EXPECT_EQ(type.encode(type.maxFinite() * 1.001), finite.back().code);
  EXPECT_EQ(type.encode(type.maxFinite() * 1e30), finite.back().code);
  EXPECT_EQ(type.encode(-1e300), finite.front().code);
  for (size_t i = 1; i < finite.size(); ++i) {
    double low = finite[i - 1].value, high = finite[i].value;
    if (low == high) // -0 and 0
      continue;
    double middle = (low + high) / 2; // exact: the types have few bits
    double below = std::nextafter(middle, low), above = std::nextafter(middle, high);
    double even = finite[i].code % 2 == 0 ? high : low;
    EXPECT_EQ(type.decode(type.encode(below)), low) << type.name() << " at " << middle;
    EXPECT_EQ(type.decode(type.encode(above)), high) << type.name() << " at " << middle;
    EXPECT_EQ(type.decode(type.encode(middle)), even) << type.name() << " at " << middle;
  }
}

class Narrow : public testing::TestWithParam<ElementType> {
protected:
  ElementType type = GetParam();
  uint32_t codes() const { return 1u << type.bits(); }
};

TEST_P(Narrow, EveryCodeRoundTrips) {
  for (uint32_t code = 0; code < codes(); ++code) {
    double value = type.decode(code);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(type.decode(type.encode(value)))) << code;
    else
      EXPECT_EQ(type.encode(value), code) << value;
  }
}

TEST_P(Narrow, SignificantBitsAreThoseOfTheLongestNumber) {
  int longest = 0;
  for (uint32_t code = 0; code < codes(); ++code) {
    int exponent = 0, bits = 0;
    double value = type.decode(code);
    for (double rest = std::fabs(std::frexp(value, &exponent)); rest != 0 && std::isfinite(rest);
         ++bits)
      rest = 2 * rest - std::floor(2 * rest);
    longest = std::max(longest, bits);
  }
  EXPECT_EQ(type.significantBits(), longest);
}

TEST_P(Narrow, RoundsToNearestEven) { expectNearestEven(type); }

TEST_P(Narrow, OnlyTheLowBitsOfACodeAreRead) {
  for (uint32_t code = 0; code < codes(); code += 3) {
    double value = type.decode(code), masked = type.decode(code | 0xffffffffu << type.bits());
    EXPECT_TRUE(value == masked || std::isnan(value)) << code;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Narrow, testing::ValuesIn(narrowTypes()),
                         [](const auto &info) { return std::string(info.param.name()); });

TEST(ElementType, F32AgreesWithTheProcessor) {
  ElementType f32 = ElementType::get("f32");
  std::mt19937_64 random = test::generator(7);
  for (int i = 0; i < 1000000; ++i) {
    double value = std::bit_cast<double>(random());
    // Half of the numbers near f32's range, subnormals included.
    if (i % 2)
      value = std::ldexp(1 + static_cast<double>(random() >> 12) * 0x1p-52,
                         static_cast<int>(random() % 300) - 160);
    if (std::isnan(value))
      continue;
    float expected = static_cast<float>(value);
    if (std::isinf(expected) && !std::isinf(value)) // saturated here
      expected = std::copysign(std::numeric_limits<float>::max(), expected);
    ASSERT_EQ(f32.encode(value), std::bit_cast<uint32_t>(expected)) << value;
    ASSERT_EQ(f32.decode(std::bit_cast<uint32_t>(expected)), static_cast<double>(expected));
  }
}

TEST(ElementType, NanAndInfinity) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  struct Row {
    const char *name;
    uint32_t nan, plus, minus;
  };
  for (Row row :
       {Row{"s4", 0, 7, 8}, Row{"u4", 0, 15, 0}, Row{"s8", 0, 0x7f, 0x80}, Row{"e2m1", 0, 7, 15},
        Row{"e4m3", 0x7f, 0x7e, 0xfe}, Row{"f16", 0x7e00, 0x7c00, 0xfc00},
        Row{"bf16", 0x7fc0, 0x7f80, 0xff80}, Row{"f32", 0x7fc00000, 0x7f800000, 0xff800000}}) {
    ElementType type = ElementType::get(row.name);
    EXPECT_EQ(type.encode(nan), row.nan) << row.name;
    EXPECT_EQ(type.encode(infinity), row.plus) << row.name;
    EXPECT_EQ(type.encode(-infinity), row.minus) << row.name;
  }
  EXPECT_TRUE(std::isnan(ElementType::get("e4m3").decode(0xff)));
  EXPECT_TRUE(std::isinf(ElementType::get("f16").decode(0x7c00)));
}

TEST(ElementType, PublishedValues) {
  const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (uint32_t code = 0; code < 8; ++code) {
    EXPECT_EQ(ElementType::get("e2m1").decode(code), e2m1[code]);
    EXPECT_EQ(ElementType::get("e2m1").decode(code | 8), -e2m1[code]);
  }
  EXPECT_EQ(ElementType::get("e4m3").decode(0x7e), 448);
  EXPECT_EQ(ElementType::get("e4m3").decode(0x01), 0x1p-9);
  EXPECT_EQ(ElementType::get("e4m3").decode(0x38), 1);
  EXPECT_EQ(ElementType::get("f16").maxFinite(), 65504);
  EXPECT_EQ(ElementType::get("s2").minFinite(), -2);
  EXPECT_EQ(ElementType::get("u7").maxFinite(), 127);
}

TEST(ElementType, NamesFindTheirTypes) {
  EXPECT_EQ(ElementType::allNames().size(), 25u);
  for (std::string_view name : ElementType::allNames())
    EXPECT_EQ(ElementType::get(name).name(), name);
  for (const char *name : {"",
                           "s1",
                           "s9",
                           "u16",
                           "f64",
                           "S4",
                           "e2m1 ",
                           "e",
                           "em",
                           "e2",
                           "e2m",
                           "e0m3",
                           "e9m2",
                           "e1m0",
                           "e2m01",
                           "e2m1g",
                           "e2m1ff",
                           "e8m8",
                           "ue8m9",
                           "e1m3i",
                           "e4m0i",
                           "e8m0i",
                           "ue8m0f",
                           "ee2m1",
                           "e-2m1",
                           "codebook",
                           "codebook []",
                           "codebook [1]",
                           "codebook [1, 2, 3]",
                           "codebook [1, 2",
                           "codebook [1,2]",
                           "codebook [1, nan]",
                           "codebook [1, inf]"})
    EXPECT_FALSE(ElementType::fromName(name)) << name;
}

TEST(ElementType, OneTypeHasOneNameOfItsOwn) {
  for (auto [alias, name] : {std::pair{"e5m2i", "e5m2"},
                             {"e2m1f", "e2m1"},
                             {"ue8m0", "e8m0"},
                             {"e5m10i", "f16"},
                             {"e8m7i", "bf16"},
                             {"ue5m2f", "ue5m2"},
                             {"e4m3f", "e4m3f"},
                             {"e5m2f", "e5m2f"},
                             {"ue4m3", "ue4m3"}})
    EXPECT_EQ(ElementType::get(alias).name(), name);
  std::vector<std::string_view> names = ElementType::everyName();
  for (std::string_view name : names)
    EXPECT_EQ(ElementType::get(name).name(), name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

// Every code of every float of 3 to 16 bits.
TEST(ElementType, FloatsAreWhatTheStandardsSay) {
  int types = 0;
  for (std::string_view each : ElementType::everyName()) {
    std::string name(each);
    if (!name.starts_with("e") && !name.starts_with("ue"))
      continue;
    ElementType type = ElementType::get(name);
    ++types;
    for (uint32_t code = 0; code < 1u << type.bits(); ++code) {
      double expected = valueByDefinition(name, code), value = type.decode(code);
      ASSERT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected)))
          << name << " " << code << ": " << value << " is not " << expected;
      if (!std::isnan(value))
        ASSERT_EQ(type.encode(value), code) << name;
    }
  }
  EXPECT_GT(types, 300);
}

TEST(ElementType, EveryNarrowFloatRoundsToNearestEven) {
  for (std::string_view name : ElementType::everyName())
    if (ElementType type = ElementType::get(name); type.bits() <= 8)
      expectNearestEven(type);
}

// 1.5 is as near to 1 as to 2: the even code, whichever that is.
TEST(ElementType, PowersOfTwoTieToTheEvenCode) {
  ElementType e8m0 = ElementType::get("e8m0");
  EXPECT_EQ(e8m0.encode(1.5), 128u); // 127 is 1
  EXPECT_EQ(e8m0.encode(3), 128u);   // 128 is 2
  EXPECT_EQ(e8m0.encode(0), 0u);
  EXPECT_EQ(e8m0.encode(-5), 0u);
  EXPECT_EQ(e8m0.minFinite(), 0x1p-127);
  EXPECT_EQ(e8m0.maxFinite(), 0x1p127);
  ElementType e3m0 = ElementType::get("e3m0"); // 0, 0.25, 0.5, 1, ...
  EXPECT_EQ(e3m0.decode(e3m0.encode(0.75 * 0.25)), 0.25);
  EXPECT_EQ(e3m0.decode(e3m0.encode(0.5 * 0.25)), 0);
}

TEST(Codebook, CodesAreNearestValues) {
  std::mt19937_64 random = test::generator(11);
  for (int bits = 1; bits <= 8; ++bits) {
    std::vector<double> values;
    while (values.size() < size_t(1) << bits)
      values.push_back(static_cast<double>(random() % 41) / 4 - 5); // some twice
    std::optional<ElementType> made = ElementType::codebook(values);
    ASSERT_TRUE(made);
    ElementType type = *made;
    EXPECT_EQ(type.bits(), bits);
    EXPECT_TRUE(type.isCodebook());
    EXPECT_FALSE(type.isInteger() || type.isFloat());
    EXPECT_EQ(type.minFinite(), *std::min_element(values.begin(), values.end()));
    EXPECT_EQ(type.maxFinite(), *std::max_element(values.begin(), values.end()));
    for (uint32_t code = 0; code < values.size(); ++code)
      EXPECT_EQ(type.decode(code | ~0u << bits), values[code]);
    for (int sixteenths = -96; sixteenths <= 96; ++sixteenths) { // ties among them
      double x = sixteenths / 16.0;
      uint32_t best = 0;
      for (uint32_t code = 1; code < values.size(); ++code) {
        double there = std::fabs(values[best] - x), here = std::fabs(values[code] - x);
        bool evener = best % 2 != code % 2 ? code % 2 == 0 : code < best;
        if (here < there || (here == there && evener))
          best = code;
      }
      EXPECT_EQ(type.encode(x), best) << x << " of " << type.name();
    }
    EXPECT_EQ(type.encode(std::nan("")), type.encode(0));
    EXPECT_EQ(type.encode(1e300), type.encode(type.maxFinite()));
    EXPECT_EQ(type.encode(-std::numeric_limits<double>::infinity()), type.encode(type.minFinite()));
  }
}

TEST(Codebook, OneListOfValuesIsOneTypeInAnyThread) {
  std::vector<std::thread> threads;
  std::vector<std::vector<ElementType>> made(8);
  for (std::vector<ElementType> &own : made)
    threads.emplace_back([&mine = own] {
      for (int i = 0; i < 100; ++i) {
        mine.push_back(*ElementType::codebook({-1.0 * i, 0.1 * i, 0.5, 1e30}));
        EXPECT_EQ(mine.back().decode(1), 0.1 * i);
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::vector<ElementType> &each : made)
    EXPECT_EQ(each, made[0]);
  EXPECT_EQ(made[0][3].name(), "codebook [-3, 0.30000000000000004, 0.5, 1e+30]");
  EXPECT_EQ(ElementType::fromName(made[0][3].name()), made[0][3]);
  EXPECT_NE(*ElementType::codebook({0, 1}), *ElementType::codebook({-0.0, 1}));
  EXPECT_FALSE(ElementType::codebook({1, 2, 3}));
  EXPECT_FALSE(ElementType::codebook({1, std::nan("")}));
}

TEST(Codebook, PoolsFreeWhatNobodyElseHas) {
  auto in = [](CodebookPool &pool, double first) {
    const CodebookPool::Scope scope(pool);
    return *ElementType::codebook({first, 7.25});
  };
  const ElementType before = *ElementType::codebook({100, 7.25});
  CodebookPool pool;
  const ElementType shared = in(pool, 101), stays = in(pool, 102);
  {
    CodebookPool other;
    EXPECT_EQ(in(other, 100), before);
    EXPECT_EQ(in(other, 101), shared);
    EXPECT_EQ(in(other, 101), shared);
    EXPECT_EQ(*ElementType::codebook({102, 7.25}), stays);
    EXPECT_EQ(*ElementType::codebook({103, 7.25}), in(other, 103));
    in(other, 104);
  }
  EXPECT_EQ(before.decode(0), 100);
  EXPECT_EQ(shared.decode(0), 101);
  EXPECT_EQ(*ElementType::codebook({103, 7.25}), ElementType::fromName("codebook [103, 7.25]"));
  EXPECT_EQ(in(pool, 105).decode(0), 105); // where 104 was
  EXPECT_EQ(in(pool, 106).decode(0), 106);
  EXPECT_EQ(stays.name(), "codebook [102, 7.25]");
}

// In a process of its own, whose codebooks are used up by it.
TEST(CodebookDeathTest, MoreThanTheLimitAreRefused) {
  EXPECT_EXIT(
      {
        for (size_t i = 0; i < ElementType::maxCodebooks; ++i)
          if (!ElementType::codebook({0.5, static_cast<double>(i)}))
            std::exit(1);
        auto error = parseModule("format f { element: codebook [1, 2, 3, 4.5] value = element }",
                                 "a.rho", nullptr)
                         .error();
        std::fputs(error.str().c_str(), stderr);
        std::exit(ElementType::codebook({0.5, 1}) ? 0 : 1); // a known one stays
      },
      testing::ExitedWithCode(0),
      "more than 4096 different codebooks in one process, the limit .too_many_codebooks.");
  // [too_many_codebooks]
}

} // namespace
} // namespace rho::dsl
