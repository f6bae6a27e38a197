// Encoding of blocks of rows, zero points, offsets and candidates, against what the rules say.
#include "dsl/DeriveEncode.h"
#include "dsl/Evaluate.h"
#include "dsl/Quantize.h"
#include "tests/dsl/Formats.h"
#include "tests/dsl/Numbers.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rho::dsl {
namespace {

using test::declared, test::FormatPtr;
using test::numbers, test::Numbers;

QuantizedMatrix encoded(const FormatPtr &format, const Numbers &x, int64_t rows, int64_t k,
                        unsigned threads = 0, const std::vector<double> &weights = {}) {
  Result<QuantizedMatrix> result =
      quantize(format, {x.data(), MatrixView::Type::F32, rows, k, k},
               {.rejectNonFinite = true, .threads = threads, .columnWeights = weights});
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().str());
  return std::move(*result);
}

constexpr int64_t encodedRows = 11, encodedK = 150; // no multiple of a block

double squaredError(const QuantizedMatrix &q, const Numbers &x, int64_t row, int64_t rowEnd,
                    int64_t begin, int64_t end, const std::vector<double> &weights = {}) {
  double sum = 0;
  for (; row < rowEnd; ++row)
    for (int64_t column = begin; column < end; ++column)
      sum += std::pow(x[static_cast<size_t>(row * encodedK + column)] - q.value(row, column), 2) *
             (weights.empty() ? 1 : weights[static_cast<size_t>(column)]);
  return sum;
}

TEST(Blocks, AScaleIsThatOfItsRowsAndColumns) {
  FormatPtr format = declared("format f { element: e4m3  scale: f32 per n[4] k[64]  "
                              "fine: e5m2 per n[2] k[16]  value = element * scale * fine "
                              "encode { fine = absmax(x / scale) scale = absmax(x) / 448 } }");
  EXPECT_EQ(format->bitsPerElement(), 8 + 32.0 / 256 + 8.0 / 32);
  Numbers x = numbers(encodedRows * encodedK, 1);
  QuantizedMatrix q = encoded(format, x, encodedRows, encodedK);
  ASSERT_EQ(q.components[1].size(), 3 * 3);
  ASSERT_EQ(q.components[2].size(), 6 * 10);
  ElementType f32 = ElementType::get("f32"), e5m2 = ElementType::get("e5m2");
  auto absmax = [&](int64_t row, int64_t high, int64_t begin, int64_t wide) {
    double most = 0;
    for (int64_t r = row; r < std::min(encodedRows, row + high); ++r)
      for (int64_t c = begin; c < std::min(encodedK, begin + wide); ++c)
        most = std::fmax(most, std::fabs(x[static_cast<size_t>(r * encodedK + c)]));
    return most;
  };
  for (int64_t row = 0; row < encodedRows; ++row)
    for (int64_t column = 0; column < encodedK; ++column) {
      uint32_t coarse = q.components[1].get(row / 4 * 3 + column / 64);
      uint32_t fine = q.components[2].get(row / 2 * 10 + column / 16);
      ASSERT_EQ(coarse, f32.encode(absmax(row / 4 * 4, 4, column / 64 * 64, 64) / 448));
      ASSERT_EQ(fine,
                e5m2.encode(absmax(row / 2 * 2, 2, column / 16 * 16, 16) / f32.decode(coarse)));
      ASSERT_EQ(q.value(row, column),
                ElementType::get("e4m3").decode(q.components[0].get(row * encodedK + column)) *
                    f32.decode(coarse) * e5m2.decode(fine));
      ASSERT_EQ(q.rowValues(row)[static_cast<size_t>(column)], q.value(row, column));
    }
}

TEST(Blocks, AreTheSameForAnyNumberOfThreads) {
  FormatPtr format =
      declared("format f { element: u4  scale: f16 per n[4] k[32]  zero: u4 per n[4] k[32]  t: f16 "
               "per tensor  value = (element - zero) * scale * t "
               "encode { t = best(absmax(x) / 3, 0.25, 0.5) scale = best(absmax(x / t) / 15, "
               "(max(x / t) - min(x / t)) / 15) zero = -min(x / t / scale) } }");
  Numbers x = numbers(encodedRows * encodedK, 2);
  QuantizedMatrix one = encoded(format, x, encodedRows, encodedK, 1);
  for (unsigned threads : {2u, 3u, 16u}) {
    QuantizedMatrix many = encoded(format, x, encodedRows, encodedK, threads);
    for (size_t c = 0; c < one.components.size(); ++c)
      for (int64_t i = 0; i < one.components[c].size(); ++i)
        ASSERT_EQ(one.components[c].get(i), many.components[c].get(i)) << c << " at " << i;
  }
}

// A literal beside element and scales changes what the scale is, not what the numbers become.
TEST(Derived, LiteralsOfAProductAreTheScales) {
  const std::string elements[] = {"s4", "e2m1", "e4m3", "e2m1 remap 8 to [5, -5] by s"};
  Numbers x = numbers(encodedRows * encodedK, 4);
  for (const std::string &element : elements) {
    const std::string selector =
        element.find("remap") == std::string::npos ? "" : " s: u1 per k[32]";
    auto of = [&](const std::string &value) {
      return encoded(declared("format f { element: " + element + " scale: f32 per k[32]" +
                              selector + " value = " + value + " }"),
                     x, encodedRows, encodedK);
    };
    const QuantizedMatrix plain = of("element * scale");
    for (const std::string value : {"element * scale * 0.25", "-4 * (scale * element)"}) {
      const QuantizedMatrix scaled = of(value);
      for (int64_t i = 0; i < encodedRows * encodedK; ++i) {
        const double expected = plain.value(i / encodedK, i % encodedK);
        // Two codes may be as near, which the sign decides.
        if (value[0] != '-' || element != "s4")
          ASSERT_EQ(scaled.value(i / encodedK, i % encodedK), expected) << element << " " << value;
      }
    }
  }
  EXPECT_FALSE(
      deriveEncode(*declared("format f { element: s4 scale: f16 per k[32] value = element * "
                             "scale * 0 encode { scale = absmax(x) } }"),
                   1));
}

// The derived rules reach both ends of a range, and 0 is exact.
TEST(Asymmetric, ZeroPointsCoverTheRange) {
  FormatPtr format = declared(
      "format f { element: u4 scale: f32 per k[32] zero: u4 per k[32] value = (element - zero) * "
      "scale }");
  for (float shift : {0.0f, 3.0f, -3.0f, 100.0f}) {
    Numbers x = numbers(encodedRows * encodedK, 3, shift);
    x[40] = 0;
    QuantizedMatrix q = encoded(format, x, encodedRows, encodedK);
    EXPECT_EQ(q.value(0, 40), 0);
    for (int64_t row = 0; row < encodedRows; ++row)
      for (int64_t group = 0; group * 32 < encodedK; ++group) {
        double low = 0, high = 0;
        for (int64_t c = group * 32; c < std::min(encodedK, group * 32 + 32); ++c) {
          low = std::fmin(low, x[static_cast<size_t>(row * encodedK + c)]);
          high = std::fmax(high, x[static_cast<size_t>(row * encodedK + c)]);
        }
        double step = (high - low) / 15;
        for (int64_t c = group * 32; c < std::min(encodedK, group * 32 + 32); ++c)
          // Half a step for the element, half a step for the zero point.
          ASSERT_LE(std::fabs(x[static_cast<size_t>(row * encodedK + c)] - q.value(row, c)),
                    step * 1.0001);
      }
  }
}

TEST(Asymmetric, OffsetsReachBothEnds) {
  for (const char *sign : {"+", "-"}) {
    FormatPtr format = declared(
        std::string("format f { element: u5 offset: f32 per k[32] scale: f32 per k[32] value = "
                    "element * scale ") +
        sign + " offset }");
    Numbers x = numbers(encodedRows * encodedK, 4, 0.5f);
    QuantizedMatrix q = encoded(format, x, encodedRows, encodedK);
    for (int64_t row = 0; row < encodedRows; ++row)
      for (int64_t c = 0; c < encodedK; ++c) {
        double low = *sign == '+' ? 1e9 : 0, high = *sign == '+' ? -1e9 : 0;
        for (int64_t i = c / 32 * 32; i < std::min(encodedK, c / 32 * 32 + 32); ++i) {
          low = std::fmin(low, x[static_cast<size_t>(row * encodedK + i)]);
          high = std::fmax(high, x[static_cast<size_t>(row * encodedK + i)]);
        }
        ASSERT_LE(std::fabs(x[static_cast<size_t>(row * encodedK + c)] - q.value(row, c)),
                  (high - low) / 62 * 1.0001);
      }
  }
}

TEST(Rules, FunctionsOfOneAndTwoNumbers) {
  FormatPtr format = declared(
      "format f { element: s8 a: f32 per k[8] b: f32 per k[8] c: f32 per k[8] d: f32 per k[8] "
      "e: f32 per k[8] value = element * a * b * c * d * e encode { a = bit_floor(absmax(x)) "
      "b = bit_floor(-0.75) c = min(max(x), 2) d = max(min(x, -3)) e = bit_floor(min(x) - min(x)) "
      "} }");
  QuantizedMatrix q = encoded(format, {1, 2, 3, -4, 5, 6, 7.5f, 0}, 1, 8);
  const double expected[] = {4, 0.5, 2, -3, 0};
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(ElementType::get("f32").decode(q.components[i + 1].get(0)), expected[i]) << i;
}

// A scale that is rounded to 0 leaves zeros, not infinities and NaN.
TEST(Rules, ANumberOverZeroIsZero) {
  FormatPtr format = declared(
      "format f { element: s4 coarse: u4 per channel fine: e5m2 per k[8] value = element * coarse "
      "* fine encode { coarse = absmax(x) / 1000 fine = absmax(x / coarse) / 7 } }");
  QuantizedMatrix q = encoded(format, {1, 2, 3, -4, 5, 6, 7.5f, 0}, 1, 8);
  EXPECT_EQ(q.components[2].get(0), 0u);
  for (int64_t c = 0; c < 8; ++c)
    EXPECT_EQ(q.value(0, c), 0);
}

// Derived rules of two scales, whichever of them is narrow: no scale is lost.
TEST(Rules, DerivedOnesShareAScaleByWhatItsPartsHold) {
  for (const char *scales :
       {"a: f16 per k[64] b: e5m2 per k[32]", "a: f32 per channel b: e4m3 per k[32]",
        "a: s5 per channel b: bf16 per k[32]", "a: u4 per k[64] b: f16 per k[64]",
        "a: bf16 per channel b: u6 per k[32]", "a: e5m2 per k[64] b: e5m2 per k[32]"}) {
    FormatPtr format =
        declared(std::string("format f { element: s6 ") + scales + " value = element * a * b }");
    Numbers x = numbers(encodedRows * encodedK, 6);
    for (float &number : x)
      number *= 0.01f;
    QuantizedMatrix q = encoded(format, x, encodedRows, encodedK);
    double error = squaredError(q, x, 0, encodedRows, 0, encodedK), all = 0;
    for (float number : x)
      all += double(number) * number;
    EXPECT_LT(error, all * 0.01) << scales;
  }
}

// Of weights of about 0.02, some number of each group of 32 is not 0.
TEST(DerivedRules, LoseNoGroupOfOrdinaryWeights) {
  std::vector<std::string> elements = {"s4", "u8", "s8", "e2m1", "ue3m2", "e4m3", "f16", "bf16"};
  for (const char *exponentBits : {"5", "6", "7", "8"})
    for (const char *rest : {"m0", "m1", "m2", "m1f", "m1i"})
      elements.push_back(std::string("e") + exponentBits + rest);
  Numbers x = numbers(encodedRows * encodedK, 11);
  for (float &number : x)
    number *= 0.02f;
  for (const std::string &element : elements)
    for (const char *scales :
         {"a: f16 per k[32]", "a: bf16 per k[32]", "a: f32 per k[32]", "a: e6m3 per k[32]",
          "a: e5m2 per k[32] b: f16 per channel", "a: e4m3 per k[32] b: f16 per channel",
          "a: ue4m3 per k[32] b: f32 per tensor", "a: u4 per k[32] b: f16 per channel",
          "a: f16 per k[32] b: f16 per channel", "a: bf16 per k[32] b: f16 per channel"}) {
      const std::string value = std::string(scales).find("b:") == std::string::npos ? "a" : "a * b";
      FormatPtr format = declared("format f { element: " + element + " " + scales +
                                  " value = element * " + value + " }");
      QuantizedMatrix q = encoded(format, x, encodedRows, encodedK);
      for (int64_t row = 0; row < encodedRows; ++row)
        for (int64_t column = 0; column < encodedK; column += 32) {
          double most = 0;
          for (int64_t c = column; c < std::min(encodedK, column + 32); ++c)
            most = std::fmax(most, std::fabs(q.value(row, c)));
          ASSERT_GT(most, 0) << element << " " << scales;
        }
    }
}

// Each candidate alone is encoded by a format with that rule; the least error must be chosen.
void expectLeastErrorWins(const std::vector<double> &weights) {
  auto with = [](const std::string &rule) {
    return declared("format f { element: e2m1  scale: e4m3 per n[2] k[16]  value = element * scale "
                    "encode { scale = " +
                    rule + " } }");
  };
  const std::string rules[] = {"absmax(x) / 6", "absmax(x) / 4", "absmax(x) / 7"};
  Numbers x = numbers(encodedRows * encodedK, 5);
  QuantizedMatrix best = encoded(with("best(" + rules[0] + ", " + rules[1] + ", " + rules[2] + ")"),
                                 x, encodedRows, encodedK, 0, weights);
  std::vector<QuantizedMatrix> each;
  for (const std::string &rule : rules)
    each.push_back(encoded(with(rule), x, encodedRows, encodedK));
  int chosen[3] = {};
  for (int64_t row = 0; row < encodedRows; row += 2)
    for (int64_t column = 0; column < encodedK; column += 16) {
      int64_t rowEnd = std::min(encodedRows, row + 2), end = std::min(encodedK, column + 16);
      size_t expected = 0;
      double least = squaredError(each[0], x, row, rowEnd, column, end, weights);
      for (size_t i = 1; i < 3; ++i)
        if (double error = squaredError(each[i], x, row, rowEnd, column, end, weights);
            error < least) {
          expected = i;
          least = error;
        }
      ++chosen[expected];
      int64_t at = row / 2 * 10 + column / 16;
      ASSERT_EQ(best.components[1].get(at), each[expected].components[1].get(at));
      for (int64_t r = row; r < rowEnd; ++r)
        for (int64_t c = column; c < end; ++c)
          ASSERT_EQ(best.components[0].get(r * encodedK + c),
                    each[expected].components[0].get(r * encodedK + c));
    }
  for (int count : chosen)
    EXPECT_GT(count, 0) << chosen[0] << " " << chosen[1] << " "
                        << chosen[2]; // the numbers tell the candidates apart
}

TEST(Best, TheLeastSquaredErrorWins) { expectLeastErrorWins({}); }

TEST(Best, TheLeastWeightedErrorWins) {
  std::vector<double> weights;
  for (int64_t column = 0; column < encodedK; ++column)
    weights.push_back(column % 7 == 0 ? 1000 : column % 3);
  expectLeastErrorWins(weights);
}

// A candidate of a coarse component is judged with the finer choices that follow from it.
TEST(Best, CoarseCandidatesAreJudgedAfterTheFinerOnes) {
  auto with = [](const std::string &tensor) {
    return declared("format f { element: s3  block: ue3m1 per k[16]  tensor: f32 per tensor  value "
                    "= element * block * tensor encode { tensor = " +
                    tensor + " block = best(absmax(x / tensor) / 3, absmax(x / tensor) / 2) } }");
  };
  Numbers x = numbers(encodedRows * encodedK, 6);
  QuantizedMatrix best = encoded(with("best(0.01, 0.1, 0.2, 3)"), x, encodedRows, encodedK);
  double least = 1e300;
  float expected = 0;
  for (const char *tensor : {"0.01", "0.1", "0.2", "3"}) {
    QuantizedMatrix q = encoded(with(tensor), x, encodedRows, encodedK);
    double error = squaredError(q, x, 0, encodedRows, 0, encodedK);
    if (error < least) {
      least = error;
      expected = std::strtof(tensor, nullptr);
    }
  }
  EXPECT_EQ(best.components[2].get(0), ElementType::get("f32").encode(expected));
  EXPECT_EQ(squaredError(best, x, 0, encodedRows, 0, encodedK), least);
}

// With an infinite scale zeros decode to NaN, which is no small error.
TEST(Best, ACandidateWithoutAnErrorIsTheLast) {
  FormatPtr format =
      declared("format f { element: s4 scale: f16 per k[16] value = element * scale "
               "encode { scale = best(absmax(x) * 1e300 * 1e300, absmax(x) / 7) } }");
  Numbers x = numbers(64, 8);
  QuantizedMatrix q = encoded(format, x, 2, 32);
  FormatPtr second = declared("format f { element: s4 scale: f16 per k[16] value = element * scale "
                              "encode { scale = absmax(x) / 7 } }");
  QuantizedMatrix expected = encoded(second, x, 2, 32);
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(q.components[1].get(i), expected.components[1].get(i));
}

TEST(Best, TheFirstOfEqualCandidatesAndThoseThatFulfil) {
  FormatPtr equal = declared("format f { element: s4 scale: f16 per k[16] other: f16 per k[16] "
                             "value = element * scale * other encode { scale = best(2, 1, 4) "
                             "other = best(0.5, 1, 0.25) } }");
  QuantizedMatrix zeros = encoded(equal, Numbers(16, 0.0f), 1, 16);
  EXPECT_EQ(zeros.components[1].get(0), ElementType::get("f16").encode(2));
  EXPECT_EQ(zeros.components[2].get(0), ElementType::get("f16").encode(0.5));
  // Only step 1 leaves codes that fulfil; the other candidates are no error.
  FormatPtr required = declared(
      "format f { element: u4 step: u8 per k[16] value = element * step + step require element + "
      "step >= 1 require step <= 1 encode { step = best(20, 1, 10) } }");
  QuantizedMatrix q =
      encoded(required, numbers(encodedRows * encodedK, 7, 3), encodedRows, encodedK);
  for (int64_t i = 0; i < q.components[1].size(); ++i)
    EXPECT_EQ(q.components[1].get(i), 1u);
  FormatPtr none = declared("format f { element: u4 step: u8 per k[16] value = element * step "
                            "require step <= 1 encode { step = best(20, 10) } }");
  Numbers x(16, 1.0f);
  EXPECT_EQ(quantize(none, {x.data(), MatrixView::Type::F32, 1, 16, 16}, true).error().str(),
            "error: no code of 'f' fulfils 'step <= 1' at row 0, column 0 "
            "[requirement_unfulfilled]\n");
}

TEST(Rules, AreNeverNegativeWhereTheirFormShowsIt) {
  auto shown = [](const std::string &type, const std::string &rule) {
    FormatPtr format = declared("format f { element: e2m1 block: " + type +
                                " per k[16] all: f32 per tensor value = element * block * all " +
                                (rule.empty() ? "" : "encode { block = " + rule + " }") + " }");
    return isNeverNegative(*format, format->components[1]);
  };
  EXPECT_TRUE(shown("e4m3", ""));
  EXPECT_TRUE(shown("e4m3", "absmax(x / all) / 6"));
  EXPECT_TRUE(shown("e4m3", "best(absmax(x / all) / 6, absmax(x / all) / 4)"));
  EXPECT_TRUE(shown("ue4m3", "max(x) / 6"));
  EXPECT_FALSE(shown("e4m3", "max(x) / 6"));
  EXPECT_FALSE(shown("e4m3", "best(absmax(x / all) / 6, -1)"));
  EXPECT_FALSE(shown("e4m3", "absmax(x) - 1"));
}

TEST(Codebook, ElementsAreNearestAfterTheScale) {
  FormatPtr format = declared("format f { element: codebook [-1, -0.4, 0.1, 0.6, 1, -2, 3, 0]  "
                              "scale: f16 per k[16]  value = element * scale }");
  Numbers x = numbers(encodedRows * encodedK, 8);
  std::fill_n(x.begin(), 16, 0.0f);
  QuantizedMatrix q = encoded(format, x, encodedRows, encodedK);
  const double book[] = {-1, -0.4, 0.1, 0.6, 1, -2, 3, 0};
  for (int64_t row = 0; row < encodedRows; ++row)
    for (int64_t c = 0; c < encodedK; ++c) {
      double scale = ElementType::get("f16").decode(q.components[1].get(row * 10 + c / 16));
      double nearest = 1e300;
      for (double value : book)
        nearest = std::fmin(nearest,
                            std::fabs(value * scale - x[static_cast<size_t>(row * encodedK + c)]));
      ASSERT_NEAR(std::fabs(q.value(row, c) - x[static_cast<size_t>(row * encodedK + c)]), nearest,
                  1e-12);
    }
  EXPECT_EQ(q.value(0, 3), 0);
}

} // namespace
} // namespace rho::dsl
