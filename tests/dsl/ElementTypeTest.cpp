#include "dsl/ElementType.h"
#include "tests/dsl/Files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace rho::dsl {
namespace {

std::vector<ElementType> narrowTypes() {
  std::vector<ElementType> types;
  for (std::string_view name : ElementType::allNames())
    if (ElementType type = ElementType::get(name); type.bits() <= 16)
      types.push_back(type);
  return types;
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

// Brute force over all finite values: nearest, ties to the even code, saturating.
TEST_P(Narrow, RoundsToNearestEven) {
  struct Entry {
    double value;
    uint32_t code;
  };
  std::vector<Entry> finite;
  for (uint32_t code = 0; code < codes(); ++code)
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
    EXPECT_EQ(type.decode(type.encode(below)), low) << middle;
    EXPECT_EQ(type.decode(type.encode(above)), high) << middle;
    EXPECT_EQ(type.decode(type.encode(middle)), even) << middle;
  }
}

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
  EXPECT_EQ(ElementType::allNames().size(), 19u);
  for (std::string_view name : ElementType::allNames())
    EXPECT_EQ(ElementType::fromName(name), ElementType::get(name));
  for (const char *name : {"", "s1", "s9", "u16", "f64", "S4", "e2m1 "})
    EXPECT_FALSE(ElementType::fromName(name)) << name;
}

} // namespace
} // namespace rho::dsl
