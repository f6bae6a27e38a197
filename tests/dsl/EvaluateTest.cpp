#include "dsl/Evaluate.h"
#include "tests/dsl/Formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace rho::dsl {
namespace {

using test::formatOf;

Format shippedFormat(const std::string &name) { return *test::shipped(name); }

// LiquidGEMM, eq. 8 ff.: wherever the byte does not overflow, flipping its top bit and reading it
// as s8 is subtracting 128.
TEST(Evaluate, LiquidQuantIsThePapersFormula) {
  Format format = shippedFormat("liquidquant");
  uint32_t channel = ElementType::get("f32").encode(0.25);
  for (uint32_t step = 0; step < 256; ++step)
    for (uint32_t origin = 0; origin < 256; origin += 5)
      for (uint32_t element = 0; element < 16; ++element) {
        uint32_t codes[] = {element, step, origin, channel};
        int sum = static_cast<int>(element * step + origin);
        ASSERT_EQ(fulfils(format, codes), sum <= 255);
        if (sum <= 255)
          ASSERT_EQ(evaluate(format, codes), (sum - 128) * 0.25);
      }
}

TEST(Evaluate, NvFp4MultipliesThreeFactors) {
  Format format = shippedFormat("nvfp4");
  uint32_t codes[] = {0xf, 0x7e, ElementType::get("f32").encode(0.5)};
  EXPECT_EQ(evaluate(format, codes), -6.0 * 448 * 0.5);
  EXPECT_EQ(format.bitsPerElement(), 4.5);
  EXPECT_EQ(shippedFormat("int4_g128").bitsPerElement(), 4.125);
  EXPECT_EQ(shippedFormat("int8_token").bitsPerElement(), 8);
}

TEST(Evaluate, OperatorsHaveTheirMeaningAndPrecedence) {
  struct Row {
    const char *value;
    double expected; // at element = -3 (s4), b = 200 (u8)
  };
  for (Row row : {Row{"element + b * 2", 397},         Row{"(element + b) * 2", 394},
                  Row{"element - b - 1", -204},        Row{"element - (b - 1)", -202},
                  Row{"b / 8 / 5 + element", 2},       Row{"-element + b", 203},
                  Row{"--element + b", 197},           Row{"element & 6 | b", 204},
                  Row{"element ^ b & 0xf", -11},       Row{"b ^ 0x80 | element & 1", 73},
                  Row{"1 << 4 - 3 | b", 202},          Row{"element >> 1 | b & 0", -2},
                  Row{"s8(b) + element", -59},         Row{"u8(element) + b", 453},
                  Row{"u4(b) + s2(element)", 9},       Row{"f16(b + 0.03125) + element", 197},
                  Row{"e4m3(b) + element", 189},       Row{"e2m1(element * 0.9) + b", 197},
                  Row{"0x10 + b + element", 213},      Row{"1.5e1 + b + element", 212},
                  Row{"element * 3 << 2 | b & 0", -36}}) {
    // Both are read, so that neither is an unused component.
    Format format = formatOf("format f { element: s4 b: u8 per k[64] value = (" +
                             std::string(row.value) + ") + 0 * (element + b) encode { b = 1 } }");
    uint32_t codes[] = {13, 200};
    EXPECT_EQ(evaluate(format, codes), row.expected) << row.value;
  }
}

TEST(Evaluate, TableIsTheValueOfEveryElement) {
  Format format = shippedFormat("liquidquant");
  uint32_t codes[] = {99, 7, 40, ElementType::get("f32").encode(1.5)};
  double table[16];
  valueTable(format, codes, table);
  for (uint32_t element = 0; element < 16; ++element) {
    codes[0] = element;
    EXPECT_EQ(table[element], evaluate(format, codes));
  }
}

TEST(Evaluate, RangesHoldEveryValueAndAreTightForIntegers) {
  struct Row {
    const char *value;
    double min, max;
    bool integer;
  };
  for (Row row :
       {Row{"element * b", -2040, 1785, true}, Row{"element - b", -263, 7, true},
        Row{"element ^ b", -256, 255, true}, Row{"b & 0x1f | element & 1", 0, 31, true},
        Row{"element << 3 | b & 0", -64, 63, true}, Row{"s8(b) + element", -136, 134, true},
        Row{"f16(element) * b", -2040, 1785, true}, Row{"element / 2 + b", -4, 258.5, false},
        Row{"-element * b", -1785, 2040, true}, Row{"(element & 3) + (b >> 4)", 0, 18, true},
        Row{"e4m3(b) + element", -8, 263, false}}) {
    Format format =
        formatOf("format f { element: s4 b: u8 per k[64] value = " + std::string(row.value) +
                 " encode { b = 1 } }");
    Range range = rangeOf(*format.value, format);
    EXPECT_EQ(range.integer, row.integer) << row.value;
    EXPECT_EQ(range.min, row.min) << row.value;
    EXPECT_EQ(range.max, row.max) << row.value;
    for (uint32_t element = 0; element < 16; ++element)
      for (uint32_t b = 0; b < 256; ++b) {
        uint32_t codes[] = {element, b};
        double value = evaluate(format, codes);
        ASSERT_LE(range.min, value) << row.value;
        ASSERT_GE(range.max, value) << row.value;
        if (range.integer)
          ASSERT_EQ(value, std::floor(value)) << row.value;
      }
  }
}

} // namespace
} // namespace rho::dsl
