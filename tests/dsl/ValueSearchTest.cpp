// Codes beside what Quantize.h, step 3, says of them, found by looking at every code.
#include "dsl/ValueSearch.h"
#include "dsl/Evaluate.h"
#include "tests/dsl/Formats.h"
#include "tests/dsl/Numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace rho::dsl {
namespace {

using test::declaredOrShipped, test::FormatPtr, test::randomCodes;

constexpr double endless = std::numeric_limits<double>::infinity();

uint32_t nearestOfAll(const Format &format, std::vector<uint32_t> codes, double x) {
  std::vector<uint32_t> allowed;
  std::vector<CodedValue> finite;
  for (codes[0] = 0; codes[0] < 1U << format.element().type.bits(); ++codes[0]) {
    if (!fulfils(format, codes.data()))
      continue;
    allowed.push_back(codes[0]);
    if (const double value = evaluate(format, codes.data()); std::isfinite(value))
      finite.push_back({value, codes[0]});
  }
  if (finite.empty() || std::isnan(x))
    return allowed.at(0);
  auto lower = [](const CodedValue &a, const CodedValue &b) { return a.value < b.value; };
  const auto [least, most] = std::minmax_element(finite.begin(), finite.end(), lower);
  const double inside = std::clamp(x, least->value, most->value);
  return std::min_element(finite.begin(), finite.end(),
                          [&](const CodedValue &a, const CodedValue &b) {
                            const double toA = std::fabs(inside - a.value);
                            const double toB = std::fabs(inside - b.value);
                            return toA != toB ? toA < toB : isPreferred(a.code, b.code);
                          })
      ->code;
}

class Search : public testing::TestWithParam<const char *> {};

// Numbers between all values, halfway between two, on one, beyond all, in runs of any length; other
// codes in turns, more of them than tables are kept of, some of them again and again.
TEST_P(Search, FindsTheNearest) {
  const FormatPtr of = declaredOrShipped(GetParam());
  std::mt19937_64 random = test::generator(11);
  auto codesOf = [&] { return randomCodes(*of, random); };
  const std::vector<uint32_t> again = codesOf();
  ValueSearch search(*of);
  int found = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<uint32_t> codes = trial % 8 == 0 ? again : codesOf();
    if (!search.prepare(codes))
      continue;
    std::vector<double> table(size_t(1) << of->element().type.bits());
    valueTable(*of, codes.data(), table.data());
    std::vector<double> x{0, -0.0, endless, -endless, std::nan(""), 1e300, -1e300};
    for (int i = 0; i < 6; ++i) {
      const double a = table[random() % table.size()], b = table[random() % table.size()];
      x.insert(x.end(), {a, a / 2 + b / 2, a * 1.01});
    }
    std::shuffle(x.begin(), x.end(), random);
    const auto count = static_cast<int64_t>(1 + random() % x.size());
    std::vector<uint8_t> got(x.size(), 0xcd);
    search.nearest(x.data(), count, got.data());
    for (int64_t i = 0; i < count; ++i) {
      const double number = x[static_cast<size_t>(i)];
      const uint32_t code = got[static_cast<size_t>(i)];
      ASSERT_EQ(code, nearestOfAll(*of, codes, number)) << number;
      ASSERT_EQ(code, search.nearest(number));
      const double value = table[code];
      ASSERT_TRUE(search.valueOf(code) == value || std::isnan(value));
    }
    for (size_t i = static_cast<size_t>(count); i < got.size(); ++i)
      ASSERT_EQ(got[i], 0xcd);
    ++found;
  }
  EXPECT_GT(found, 100);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Search,
    testing::Values("razer_g16", "razer_g128", "int6_asym_g128", "int8_asym_g128", "liquidquant",
                    "nf4_g64", "mxfp8_e5m2",
                    "format f { element: s4 value = s8(element ^ 0x5) * 3 }",
                    "format f { element: u3 low: u3 per k[8] value = element + low\n"
                    "           require element + low <= 9 require element + low >= 2\n"
                    "           encode { low = absmax(x) } }"),
    [](const auto &info) { return "Case" + std::to_string(info.index); });

} // namespace
} // namespace rho::dsl
