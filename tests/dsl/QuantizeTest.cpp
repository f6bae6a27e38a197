#include "dsl/Quantize.h"
#include "dsl/DeriveEncode.h"
#include "dsl/Evaluate.h"
#include "tests/dsl/Formats.h"
#include "tests/dsl/Numbers.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace rho::dsl {
namespace {

using test::declared, test::shipped, test::FormatPtr;
using test::numbers, test::Numbers;

const float nan = std::numeric_limits<float>::quiet_NaN();
const float infinity = std::numeric_limits<float>::infinity();

FormatPtr plain(const char *type) {
  return std::make_shared<Format>(plainFormat(ElementType::get(type)));
}

MatrixView view(const Numbers &x, int64_t rows, int64_t k) {
  return {x.data(), MatrixView::Type::F32, rows, k, k};
}

QuantizedMatrix quantized(const FormatPtr &format, const Numbers &x, int64_t rows, int64_t k,
                          unsigned threads = 0) {
  Result<QuantizedMatrix> result = quantize(format, view(x, rows, k), false, threads);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().str());
  return std::move(*result);
}

void expectSame(const QuantizedMatrix &a, const QuantizedMatrix &b) {
  ASSERT_EQ(a.components.size(), b.components.size());
  for (size_t c = 0; c < a.components.size(); ++c) {
    ASSERT_EQ(a.components[c].size(), b.components[c].size());
    for (int64_t i = 0; i < a.components[c].size(); ++i)
      ASSERT_EQ(a.components[c].get(i), b.components[c].get(i)) << c << " at " << i;
  }
}

std::vector<std::string> shippedNames() {
  return {"int4_g64", "int4_g128", "int4_channel", "int8_token", "nvfp4", "liquidquant"};
}

class EveryFormat : public testing::TestWithParam<std::string> {};

// k is no multiple of any group.
constexpr int64_t trialRows = 9, trialK = 333;

TEST_P(EveryFormat, ElementsAreNearestAmongAllowedCodes) {
  FormatPtr format = shipped(GetParam());
  Numbers x = numbers(trialRows * trialK, 3);
  QuantizedMatrix q = quantized(format, x, trialRows, trialK);
  int bits = format->element().type.bits();
  for (int64_t row = 0; row < trialRows; ++row) {
    std::vector<double> values = q.rowValues(row);
    for (int64_t column = 0; column < trialK; ++column) {
      std::vector<uint32_t> codes;
      for (size_t c = 0; c < q.components.size(); ++c) {
        const Component &component = format->components[c];
        int64_t groups = (trialK + component.group - 1) / std::max<int64_t>(component.group, 1);
        int64_t at = component.extent == Extent::Element ? row * trialK + column
                     : component.extent == Extent::Group
                         ? row * groups + column / std::max<int64_t>(component.group, 1)
                     : component.extent == Extent::Row ? row
                                                       : 0;
        codes.push_back(q.components[c].get(at));
      }
      double chosen = values[static_cast<size_t>(column)];
      ASSERT_EQ(chosen, evaluate(*format, codes.data()));
      ASSERT_EQ(chosen, q.value(row, column));
      ASSERT_TRUE(fulfils(*format, codes.data()));
      double number = x[static_cast<size_t>(row * trialK + column)];
      for (codes[0] = 0; codes[0] < (1u << bits); ++codes[0])
        if (fulfils(*format, codes.data()))
          ASSERT_LE(std::fabs(number - chosen),
                    std::fabs(number - evaluate(*format, codes.data())) * (1 + 1e-12));
    }
  }
}

TEST_P(EveryFormat, IsTheSameForAnyNumberOfThreads) {
  FormatPtr format = shipped(GetParam());
  Numbers x = numbers(16384, 5);
  QuantizedMatrix one = quantized(format, x, 64, 256, 1);
  for (unsigned threads : {2u, 3u, 16u})
    expectSame(one, quantized(format, x, 64, 256, threads));
}

TEST_P(EveryFormat, ZerosStayZeros) {
  FormatPtr format = shipped(GetParam());
  Numbers x = numbers(768, 6);
  std::fill_n(x.begin(), 256, 0.0f);       // a row
  std::fill_n(x.begin() + 256, 128, 0.0f); // groups of another
  QuantizedMatrix q = quantized(format, x, 3, 256);
  for (int64_t column = 0; column < 384; ++column)
    ASSERT_EQ(q.value(column / 256, column % 256), 0);
  QuantizedMatrix zeros = quantized(format, Numbers(256, 0.0f), 1, 256);
  for (double value : zeros.rowValues(0))
    ASSERT_EQ(value, 0);
  // Numbers too small for the scale's type: still numbers.
  QuantizedMatrix tiny = quantized(format, Numbers(256, 1e-44f), 1, 256);
  for (double value : tiny.rowValues(0))
    ASSERT_LE(std::fabs(value), 1e-6);
}

// What came out of a format goes back in unchanged. The coarsest scale is made a power of two, so
// that all values are f32 numbers.
TEST_P(EveryFormat, QuantizingItsOwnValuesChangesNothing) {
  FormatPtr format = shipped(GetParam());
  Numbers x = numbers(trialRows * trialK, 8);
  if (GetParam() == "liquidquant") {
    // Groups that use both ends of their steps, a channel that reaches -119.
    std::mt19937_64 random = test::generator(4);
    for (int64_t row = 0; row < trialRows; ++row)
      for (int64_t group = 0; group * 64 < trialK; ++group) {
        int step = 1 + static_cast<int>(random() % 13);
        int origin =
            group == 0 ? 9
                       : 9 + static_cast<int>(random() % (static_cast<unsigned>(239 - 15 * step)));
        for (int64_t i = 0; i < 64 && group * 64 + i < trialK; ++i) {
          int element = i == 0 ? 0 : i == 1 ? 15 : static_cast<int>(random() % 16);
          x[static_cast<size_t>(row * trialK + group * 64 + i)] =
              static_cast<float>(element * step + origin - 128) / 8;
        }
      }
  } else {
    float top = GetParam() == "nvfp4" ? 6 * 448 : GetParam() == "int8_token" ? 127 : 7;
    for (float &value : x)
      value = std::fmin(std::fmax(value, -80.0f), 80.0f) / 100 * top / 64;
    for (int64_t row = 0; row < trialRows; ++row)
      x[static_cast<size_t>(row * trialK)] = top / 64;
  }
  QuantizedMatrix first = quantized(format, x, trialRows, trialK);
  Numbers values;
  for (int64_t row = 0; row < trialRows; ++row)
    for (double value : first.rowValues(row)) {
      ASSERT_EQ(static_cast<float>(value), value);
      values.push_back(static_cast<float>(value));
    }
  QuantizedMatrix second = quantized(format, values, trialRows, trialK);
  for (int64_t row = 0; row < trialRows; ++row)
    ASSERT_EQ(first.rowValues(row), second.rowValues(row));
  if (GetParam() == "liquidquant")
    EXPECT_EQ(values, x);
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryFormat, testing::ValuesIn(shippedNames()),
                         [](const auto &info) { return info.param; });

// Rows of views are read as codes are decoded, whatever their stride.
TEST(MatrixView, ReadsEveryCodeOfItsTypes) {
  for (auto [name, type] :
       {std::pair{"f16", MatrixView::Type::F16}, {"bf16", MatrixView::Type::BF16}}) {
    constexpr int64_t columns = 256, stride = 259;
    std::vector<uint16_t> codes(static_cast<size_t>(columns * stride));
    for (uint32_t code = 0; code < columns * columns; ++code)
      codes[code / columns * stride + code % columns] = static_cast<uint16_t>(code);
    const MatrixView view{codes.data(), type, columns, columns, stride};
    std::vector<double> row(columns);
    for (uint32_t code = 0; code < columns * columns; ++code) {
      if (code % columns == 0)
        view.readRow(code / columns, row.data());
      const double expected = ElementType::get(name).decode(code), read = row[code % columns];
      ASSERT_EQ(std::bit_cast<uint64_t>(view.at(code / columns, code % columns)),
                std::bit_cast<uint64_t>(read));
      if (std::isnan(expected))
        ASSERT_TRUE(std::isnan(read)) << name << " " << code;
      else
        ASSERT_EQ(std::bit_cast<uint64_t>(read), std::bit_cast<uint64_t>(expected)) << name << code;
    }
  }
}

TEST(Quantize, ScalesFollowTheRules) {
  Numbers x = numbers(800, 11);
  auto absmax = [&](int64_t row, int64_t begin, int64_t end) {
    double most = 0;
    for (int64_t i = begin; i < end; ++i)
      most = std::fmax(most, std::fabs(x[static_cast<size_t>(row * 200 + i)]));
    return most;
  };
  ElementType f16 = ElementType::get("f16"), f32 = ElementType::get("f32"),
              e4m3 = ElementType::get("e4m3");
  QuantizedMatrix int4 = quantized(shipped("int4_g128"), x, 4, 200);
  ASSERT_EQ(int4.components[1].size(), 8);
  EXPECT_EQ(int4.components[1].width(), 2);
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(int4.components[1].get(row * 2), f16.encode(absmax(row, 0, 128) / 7));
    EXPECT_EQ(int4.components[1].get(row * 2 + 1), f16.encode(absmax(row, 128, 200) / 7));
  }
  QuantizedMatrix int8 = quantized(shipped("int8_token"), x, 4, 200);
  for (int64_t row = 0; row < 4; ++row) {
    double scale = f32.decode(f32.encode(absmax(row, 0, 200) / 127));
    EXPECT_EQ(int8.components[1].get(row), f32.encode(scale));
    for (int64_t i = 0; i < 200; ++i)
      ASSERT_EQ(ElementType::get("s8").decode(int8.components[0].get(row * 200 + i)),
                std::nearbyint(x[static_cast<size_t>(row * 200 + i)] / scale));
  }
  QuantizedMatrix fp4 = quantized(shipped("nvfp4"), x, 4, 200);
  double most = 0;
  for (int64_t row = 0; row < 4; ++row)
    most = std::fmax(most, absmax(row, 0, 200));
  double tensor = f32.decode(f32.encode(most / 6 / 448));
  ASSERT_EQ(fp4.components[2].size(), 1);
  EXPECT_EQ(fp4.components[2].get(0), f32.encode(tensor));
  ASSERT_EQ(fp4.components[1].size(), 4 * 13);
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t block = 0; block < 13; ++block) {
      double largest = 0;
      for (int64_t i = block * 16; i < std::min<int64_t>(200, block * 16 + 16); ++i)
        largest = std::fmax(largest, std::fabs(x[static_cast<size_t>(row * 200 + i)] / tensor));
      EXPECT_EQ(fp4.components[1].get(row * 13 + block), e4m3.encode(largest / 6));
    }
}

TEST(Quantize, LiquidQuantFollowsItsEncodeBlock) {
  Numbers x = numbers(64, 12);
  QuantizedMatrix q = quantized(shipped("liquidquant"), x, 1, 64);
  ElementType f32 = ElementType::get("f32"), u8 = ElementType::get("u8");
  double most = 0, low = infinity, high = -infinity;
  for (float value : x)
    most = std::fmax(most, std::fabs(value));
  double channel = f32.decode(f32.encode(most / 119));
  for (float value : x) {
    low = std::fmin(low, value / channel);
    high = std::fmax(high, value / channel);
  }
  EXPECT_EQ(q.components[3].get(0), f32.encode(channel));
  EXPECT_EQ(q.components[1].get(0), u8.encode((high - low) / 15));
  EXPECT_EQ(q.components[2].get(0), u8.encode(128 + low));
}

// LiquidGEMM, equations 7 to 11, for every least and largest number of a group that the protective
// range admits: the encoder's step times code, and the sum with the origin, stay inside of a byte,
// and so does every other code's up to the largest of the group. Then equation 12, the flipped top
// bit, is the subtraction of 128.
TEST(Quantize, LiquidQuantNeverLeavesAByte) {
  constexpr int limit = 119, group = 64;
  Numbers x;
  std::vector<std::pair<int, int>> ranges{{-limit, limit}}; // the first sets the channel's scale
  for (int low = -limit; low <= limit; ++low)
    for (int high = low; high <= limit; ++high)
      ranges.emplace_back(low, high);
  for (auto [low, high] : ranges)
    for (int i = 0; i < group; ++i) {
      int number = low + i * (high - low) / (group - 1);
      x.push_back(static_cast<float>(number));
    }
  auto k = static_cast<int64_t>(x.size());
  QuantizedMatrix q = quantized(shipped("liquidquant"), x, 1, k);
  ASSERT_EQ(q.components[3].get(0), ElementType::get("f32").encode(1));
  for (size_t g = 0; g < ranges.size(); ++g) {
    auto at = static_cast<int64_t>(g);
    auto step = static_cast<int>(q.components[1].get(at)),
         origin = static_cast<int>(q.components[2].get(at));
    ASSERT_LE(step, 16);
    ASSERT_LE(15 * step, 240);
    for (int i = 0; i < group; ++i) {
      auto code = static_cast<int>(q.components[0].get(at * group + i));
      int byte = code * step + origin;
      ASSERT_LE(byte, 255) << ranges[g].first << " to " << ranges[g].second;
      ASSERT_EQ(static_cast<int8_t>(byte ^ 0x80), byte - 128);
      // Rounded to the nearest code; the range may end half a step (15 codes of 1/2) early.
      ASSERT_LE(std::abs(byte - 128 - x[g * group + static_cast<size_t>(i)]), step / 2.0 + 7.5);
    }
  }
}

TEST(Quantize, ActivationsCarryNanAndInfinityInTheirScales) {
  for (float bad : {nan, infinity, -infinity}) {
    for (const char *name : {"int8_token", "int4_g128"}) {
      FormatPtr format = shipped(name);
      Numbers x = numbers(512, 13);
      x[256 + 7] = bad;
      QuantizedMatrix q = quantized(format, x, 2, 256);
      bool perToken = std::string(name) == "int8_token";
      for (int64_t column = 0; column < 256; ++column) {
        EXPECT_TRUE(std::isfinite(q.value(0, column)));
        EXPECT_EQ(std::isnan(q.value(1, column)), perToken || column < 128) << name << column;
      }
      EXPECT_EQ(q.components[0].get(256 + 7), 0u);
    }
    Numbers x = {1.5f, bad, -2};
    QuantizedMatrix q = quantized(plain("f16"), x, 1, 3);
    EXPECT_EQ(q.value(0, 0), 1.5);
    EXPECT_EQ(q.value(0, 2), -2);
    if (std::isnan(bad))
      EXPECT_TRUE(std::isnan(q.value(0, 1)));
    else
      EXPECT_EQ(q.value(0, 1), bad);
  }
  QuantizedMatrix block = quantized(shipped("nvfp4"), {1, nan, 3}, 1, 3);
  EXPECT_TRUE(std::isnan(block.value(0, 0)));
  QuantizedMatrix searched = quantized(shipped("liquidquant"), {1, infinity, 3}, 1, 3);
  EXPECT_FALSE(std::isfinite(searched.value(0, 2)));
}

TEST(Quantize, WeightsRefuseNanAndInfinityByPlace) {
  FormatPtr format = shipped("nvfp4");
  Numbers x = numbers(2560, 14);
  x[1285] = infinity;
  x[1283] = nan;
  x[1920] = nan;
  for (unsigned threads : {1u, 2u, 8u}) {
    Result<QuantizedMatrix> result = quantize(format, view(x, 40, 64), true, threads);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().str(),
              "error: NaN at row 20, column 3, a weight is finite [non_finite_input]\n");
  }
}

TEST(Quantize, MatricesWithoutNumbersAreRefused) {
  FormatPtr format = shipped("int4_g64");
  Numbers x(8);
  EXPECT_EQ(quantize(format, {x.data(), MatrixView::Type::F32, 2, 4, 3}, true).error().str(),
            "error: matrix of 2 x 4 with stride 3, rows and columns are 1 to 2147483647 and the "
            "stride is no less than the columns [bad_matrix]\n");
  EXPECT_EQ(quantize(format, {nullptr, MatrixView::Type::F32, 2, 4, 4}, true).error().str(),
            "error: matrix of 2 x 4 with stride 4 and without data, rows and columns are 1 to "
            "2147483647 and the stride is no less than the columns [bad_matrix]\n");
  for (int64_t bad : {int64_t(0), int64_t(-1), INT64_MAX}) {
    EXPECT_FALSE(quantize(format, {x.data(), MatrixView::Type::F32, bad, 4, 4}, true).ok());
    EXPECT_FALSE(quantize(format, {x.data(), MatrixView::Type::F32, 1, bad, bad}, true).ok());
  }
}

TEST(Quantize, ColumnWeightsAreOneForEachColumnAndNotNegative) {
  FormatPtr format = shipped("int4_g64");
  Numbers x(8, 1.0f);
  auto error = [&](const std::vector<double> &weights) {
    Result<QuantizedMatrix> result = quantize(format, {x.data(), MatrixView::Type::F32, 2, 4, 4},
                                              QuantizeOptions{.columnWeights = weights});
    return result.ok() ? "" : result.error().str();
  };
  const std::string rule =
      ", each column has one and they are finite and not below 0 [bad_column_weights]\n";
  EXPECT_EQ(error({0, 1, 2, 3}), "");
  EXPECT_EQ(error({0, 1, 2}), "error: 3 weights for 4 columns" + rule);
  EXPECT_EQ(error({0, 1, -2, 3}), "error: weight -2 of column 2" + rule);
  EXPECT_EQ(error({-1e-20, 1, 2, 3}), "error: weight -1e-20 of column 0" + rule);
  EXPECT_EQ(error({0, NAN, 2, 3}), "error: weight nan of column 1" + rule);
  EXPECT_EQ(error({0, 1, 2, INFINITY}), "error: weight inf of column 3" + rule);
}

TEST(Quantize, RequirementsThatNoCodeFulfilsAreNamed) {
  FormatPtr format =
      declared("format f { element: u4  origin: u8 per k[8]  value = element + origin\n"
               "require element >= 1 require element + origin <= 200\n"
               "encode { origin = max(x) } }");
  Numbers x(32, 10);
  x[2 * 8 + 3] = 230;
  Result<QuantizedMatrix> result = quantize(format, view(x, 2, 16), true);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().str(),
            "error: no code of 'f' fulfils 'element + origin <= 200' at row 1, "
            "column 0 [requirement_unfulfilled]\n");
  x[2 * 8 + 3] = 200; // each can be fulfilled, but not both
  EXPECT_EQ(quantize(format, view(x, 2, 16), true).error().str(),
            "error: no code of 'f' fulfils 'element >= 1 and element + origin <= 200' at row 1, "
            "column 0 [requirement_unfulfilled]\n");
}

// As the nearest of the codes that are allowed, though found by division.
TEST(Quantize, RequirementsOfTheElementSaturate) {
  for (auto [element, bounds, low, high] :
       {std::tuple{"s4", "require element >= -7", -7.0, 7.0},
        {"s4", "require element >= -7 require element <= 5", -7.0, 5.0},
        {"u4", "require element + 1 <= 12", 0.0, 11.0},
        {"s6", "require 2 * element >= 3", 2.0, 31.0}}) {
    FormatPtr format = declared(std::string("format f { element: ") + element +
                                " scale: f16 per k[8] value = element * scale " + bounds +
                                " encode { scale = absmax(x) / 3 } }");
    Numbers x;
    for (int i = 0; i < 64; ++i)
      x.push_back(static_cast<float>(i * 37 % 64 - 32) / 4.0f);
    x[3] = 0;
    x[5] = std::nanf("");
    Result<QuantizedMatrix> result = quantize(format, view(x, 4, 16), false);
    ASSERT_TRUE(result.ok()) << result.error().str();
    ElementType type = format->element().type, f16 = ElementType::get("f16");
    for (size_t i = 0; i < x.size(); ++i) {
      double scale = f16.decode(result->components[1].get(static_cast<int64_t>(i / 8)));
      double quotient = static_cast<double>(x[i]) / scale;
      double nearest = std::isnan(quotient) || scale == 0 ? 0 : std::nearbyint(quotient);
      EXPECT_EQ(type.decode(result->components[0].get(static_cast<int64_t>(i))),
                std::clamp(nearest, low, high))
          << element << " " << bounds << " " << i;
    }
  }
}

TEST(Quantize, SearchChoosesTheEvenCodeOfTwoEquallyNear) {
  // Values 0, 1, 2, 3, 0, 1, 2, 3 for codes 0..7: codes 4..7 are never needed.
  FormatPtr format = declared("format f { element: u3  value = element & 3 }");
  QuantizedMatrix q = quantized(format, {0, 0.5f, 1.5f, 2.5f, 3, 9, -9, 1.25f}, 1, 8);
  const uint32_t expected[] = {0, 0, 2, 2, 3, 3, 0, 1};
  for (int64_t i = 0; i < 8; ++i)
    EXPECT_EQ(q.components[0].get(i), expected[i]) << i;
}

TEST(Quantize, InputTypesAndStridesAgree) {
  FormatPtr format = shipped("int4_g64");
  std::mt19937_64 random = test::generator(15);
  for (auto [name, type] :
       {std::pair{"f16", MatrixView::Type::F16}, {"bf16", MatrixView::Type::BF16}}) {
    ElementType element = ElementType::get(name);
    std::vector<uint16_t> narrow(500, 0x7fff); // NaN between the rows
    Numbers wide;
    for (int64_t row = 0; row < 5; ++row)
      for (int64_t column = 0; column < 80; ++column) {
        uint32_t code = element.encode(std::normal_distribution<double>()(random));
        narrow[static_cast<size_t>(row * 100 + column)] = static_cast<uint16_t>(code);
        wide.push_back(static_cast<float>(element.decode(code)));
      }
    MatrixView input{narrow.data(), type, 5, 80, 100};
    EXPECT_EQ(input.at(4, 79), wide.back());
    Result<QuantizedMatrix> result = quantize(format, input, true);
    ASSERT_TRUE(result.ok()) << result.error().str();
    expectSame(*result, quantized(format, wide, 5, 80));
  }
}

TEST(Quantize, ProductsAreRecognised) {
  auto is = [](const std::string &value) {
    return isProduct(
        *declared("format f { element: s4  a: f16 per k[64]  b: f32 per channel  value = " + value +
                  " encode { a = 1 b = 1 } }"));
  };
  EXPECT_TRUE(is("b * element * a"));
  EXPECT_TRUE(is("b * (a * element)"));
  EXPECT_FALSE(is("element * a * b * b"));
  EXPECT_FALSE(is("element * a + b"));
  EXPECT_FALSE(is("element * a / b"));
  EXPECT_FALSE(is("-element * a * b"));
  EXPECT_FALSE(is("element * a * b * 2"));
  EXPECT_TRUE(isProduct(*plain("bf16")));
}

// Every half, finite or not, comes through a format that keeps it.
TEST(QuantizeTest, ReadsEveryHalf) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i)
    halves[i] = static_cast<uint16_t>(i);
  Result<QuantizedMatrix> q =
      quantize(plain("f32"), {halves.data(), MatrixView::Type::F16, 256, 256, 256}, false);
  ASSERT_TRUE(q.ok()) << q.error().str();
  ElementType f16 = ElementType::get("f16");
  for (uint32_t code = 0; code < 65536; ++code) {
    double value = q->value(code / 256, code % 256), expected = f16.decode(code);
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(value)) << code;
    else
      ASSERT_EQ(std::bit_cast<uint64_t>(value), std::bit_cast<uint64_t>(expected)) << code;
  }
}

} // namespace
} // namespace rho::dsl
