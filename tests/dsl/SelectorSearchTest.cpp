// Errors of all selectors at once beside those of the search with each of them.
#include "dsl/SelectorSearch.h"
#include "dsl/Evaluate.h"
#include "dsl/Quantize.h"
#include "dsl/ValueSearch.h"
#include "tests/dsl/Formats.h"
#include "tests/dsl/Numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rho::dsl {
namespace {

using test::declared, test::declaredOrShipped, test::FormatPtr, test::randomCodes;

class Selectors : public testing::TestWithParam<const char *> {};

// Numbers on values, between them and beyond all, in runs of any length, some with weights.
TEST_P(Selectors, HaveTheErrorsOfTheirSearches) {
  const FormatPtr of = declaredOrShipped(GetParam());
  ASSERT_TRUE(SelectorSearch::covers(*of));
  const Remap &remap = *of->element().remap;
  std::mt19937_64 random = test::generator(23);
  SelectorSearch all(*of);
  ValueSearch each(*of);
  int found = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<uint32_t> codes = randomCodes(*of, random);
    std::vector<double> table(size_t(1) << of->element().type.bits());
    valueTable(*of, codes.data(), table.data());
    std::vector<double> x{0, -0.0, 1e300}, weights;
    for (int i = 0; i < 7; ++i) {
      const double a = table[random() % table.size()], b = table[random() % table.size()];
      x.insert(x.end(), {a, a / 2 + b / 2, a * 1.01});
    }
    std::shuffle(x.begin(), x.end(), random);
    for (size_t i = 0; i < x.size(); ++i)
      weights.push_back(static_cast<double>(random() % 8));
    const bool weighted = trial % 2 == 0;
    const auto count = static_cast<int64_t>(1 + random() % x.size());
    if (!all.prepare(codes))
      continue; // scales that are not finite
    std::vector<double> errors(all.selectors(), 0.5);
    all.addErrors(x.data(), weighted ? weights.data() : nullptr, count, errors.data());
    for (uint32_t selector = 0; selector < remap.entries.size(); ++selector) {
      codes[static_cast<size_t>(remap.selector)] = selector;
      ASSERT_TRUE(each.prepare(codes));
      double wanted = 0.5;
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        const double difference = x[i] - each.valueOf(each.nearest(x[i]));
        wanted += (weighted ? weights[i] : 1) * (difference * difference);
      }
      ASSERT_TRUE(errors[selector] == wanted ||
                  (std::isnan(wanted) && std::isnan(errors[selector])))
          << errors[selector] << " " << wanted << " with selector " << selector;
    }
    ++found;
  }
  EXPECT_GT(found, 100);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Selectors,
    testing::Values(
        "razer_g16", "razer_g128",
        "format f { element: s4 remap 8 to [7.5, 0.25] by pick pick: u1 per k[32]\n"
        "           scale: f16 per k[32] value = element * scale }",
        "format f { element: e2m3 remap 32 to [8, -8, 9, -9, 10, -10, 11, -11] by pick\n"
        "           pick: u3 per k[32] scale: e5m2 per channel\n"
        "           value = element * scale }",
        "format f { element: u6 remap 63 to [70, 80] by pick pick: u1 per k[16]\n"
        "           zero: u6 per k[16] scale: f32 per channel\n"
        "           value = (element - zero) * scale\n"
        "           encode { zero = 0 scale = absmax(x) / 63 } }"),
    [](const auto &info) { return "Case" + std::to_string(info.index); });

TEST(Selectors, AreNotSearchedWhereTheyAreFactorsToo) {
  const FormatPtr of = declared("format f { element: s4 remap 8 to [9, -9] by pick\n"
                                "           pick: u1 per k[32] scale: f16 per k[32]\n"
                                "           value = element * scale * (pick + 1)\n"
                                "           encode { scale = absmax(x) / 9 pick = best(0, 1) } }");
  std::mt19937_64 random = test::generator(3);
  SelectorSearch search(*of);
  std::vector<uint32_t> codes = randomCodes(*of, random);
  codes[static_cast<size_t>(of->element().remap->selector) == 1 ? 2 : 1] = 0x3c00; // a scale of 1
  EXPECT_FALSE(search.prepare(codes));
}

// What a selector is chosen by, beside trials of each.
TEST(Selectors, AreTheBestOfAll) {
  const FormatPtr of = declared("format f { element: e2m1 remap 8 to [5, -5, 8, -8] by pick\n"
                                "           pick: u2 per k[16] scale: f16 per k[32]\n"
                                "           value = element * scale }");
  constexpr int64_t rows = 3, k = 90;
  std::mt19937_64 random = test::generator(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * k);
  for (float &number : x)
    number = normal(random);
  const MatrixView input{x.data(), MatrixView::Type::F32, rows, k, k};
  Result<QuantizedMatrix> chosen = quantize(of, input, {});
  ASSERT_TRUE(chosen);
  const int pick = of->element().remap->selector;
  ValueSearch search(*of);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t begin = 0; begin < k; begin += 16) {
      std::vector<uint32_t> codes(of->components.size());
      for (int c = 1; c < 3; ++c)
        codes[static_cast<size_t>(c)] = chosen->components[static_cast<size_t>(c)].get(
            codeIndex(of->component(c), k, row, begin));
      const uint32_t got = codes[static_cast<size_t>(pick)];
      uint32_t best = 0;
      double least = std::numeric_limits<double>::infinity();
      for (uint32_t code = 0; code < 4; ++code) {
        codes[static_cast<size_t>(pick)] = code;
        ASSERT_TRUE(search.prepare(codes));
        double error = 0;
        for (int64_t i = begin; i < std::min(k, begin + 16); ++i) {
          const double number = x[static_cast<size_t>(row * k + i)];
          const double difference = number - search.valueOf(search.nearest(number));
          error += difference * difference;
        }
        if (error < least) {
          best = code;
          least = error;
        }
      }
      ASSERT_EQ(got, best) << row << " " << begin;
    }
}

} // namespace
} // namespace rho::dsl
