// What comes out of every format of kernels/formats goes back in unchanged, but for those in a
// table of docs/GRAMMAR.md, which RHO_BLESS=1 rewrites.
#include "dsl/Quantize.h"
#include "tests/dsl/Formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace rho::dsl {
namespace {

using test::FormatPtr;

// Rows and k of numbers to encode: k is no multiple of a group; of formats with parts there are
// blocks enough for a tenth of them to be some.
struct Size {
  int64_t rows, k;
};
Size sizeFor(const Format &format) { return format.hasParts() ? Size{70, 1300} : Size{5, 333}; }

// Numbers of several kinds, of a seed: normal ones, log-normal, positive, sparse, and some of them
// large.
std::vector<std::vector<float>> kindsOfNumbers(const Size &size, uint32_t seed) {
  std::mt19937_64 random = test::generator(seed);
  std::normal_distribution<double> normal;
  std::vector<std::vector<float>> kinds(5);
  for (int64_t i = 0; i < size.rows * size.k; ++i) {
    const double x = normal(random), sign = random() % 2 == 0 ? 1 : -1;
    kinds[0].push_back(static_cast<float>(x * 0.02));
    kinds[1].push_back(static_cast<float>(sign * std::exp(x) * 0.02));
    kinds[2].push_back(static_cast<float>(std::fabs(x) * 0.02 + 0.01));
    kinds[3].push_back(random() % 10 == 0 ? static_cast<float>(x) : 0.0F);
    kinds[4].push_back(static_cast<float>(x * (random() % 50 == 0 ? 20 : 1) * 0.1));
  }
  return kinds;
}

std::vector<float> encodedAndDecoded(const FormatPtr &format, const Size &size,
                                     const std::vector<float> &x) {
  Result<QuantizedMatrix> q =
      quantize(format, {x.data(), MatrixView::Type::F32, size.rows, size.k, size.k}, true);
  EXPECT_TRUE(q.ok()) << (q.ok() ? "" : q.error().str());
  std::vector<float> values;
  for (int64_t row = 0; row < size.rows; ++row)
    for (double value : q->rowValues(row))
      values.push_back(static_cast<float>(value));
  return values;
}

double squaredDistance(const std::vector<float> &a, const std::vector<float> &b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return sum;
}

// The most of all numbers that are encoded: the squared error of encoding what came out, over that
// of the first time, and the share of numbers that move by more than the rounding of f32.
struct SecondPass {
  double error = 0, moved = 0;
};

SecondPass secondPassOf(const FormatPtr &format) {
  const Size size = sizeFor(*format);
  const uint32_t seeds = format->hasParts() ? 1 : 5;
  SecondPass most;
  for (uint32_t seed = 1; seed <= seeds; ++seed)
    for (const std::vector<float> &x : kindsOfNumbers(size, seed)) {
      const std::vector<float> once = encodedAndDecoded(format, size, x);
      const std::vector<float> twice = encodedAndDecoded(format, size, once);
      double moved = 0;
      for (size_t i = 0; i < once.size(); ++i)
        moved += std::fabs(once[i] - twice[i]) > 1e-6F * std::fabs(once[i]) ? 1 : 0;
      most.error = std::max(most.error, squaredDistance(twice, once) / squaredDistance(once, x));
      most.moved = std::max(most.moved, moved / static_cast<double>(once.size()));
    }
  return most;
}

constexpr const char *head =
    "| format | error of the second time over the first | numbers moved |\n"
    "|---|--:|--:|\n";

std::string secondPasses() {
  std::vector<std::string> names;
  for (const auto &entry :
       std::filesystem::directory_iterator(test::sourceDir() / "kernels/formats"))
    if (entry.path().extension() == ".rho")
      names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  std::string rows = head;
  for (const std::string &name : names) {
    const SecondPass most = secondPassOf(test::shipped(name));
    std::array<char, 128> row;
    std::snprintf(row.data(), row.size(), "| %s | %.2g | %.1f%% |\n", name.c_str(), most.error,
                  100 * most.moved);
    if (most.error > 1e-9)
      rows += row.data();
  }
  return rows;
}

TEST(Idempotence, IsThatOfAllFormatsButThoseInTheManual) {
  const std::filesystem::path path = test::sourceDir() / "docs/GRAMMAR.md";
  const std::string now = secondPasses();
  std::string manual = test::text(path);
  const size_t begin = manual.find(head);
  ASSERT_NE(begin, std::string::npos);
  if (test::blessing())
    std::ofstream(path, std::ios::binary)
        << manual.replace(begin, manual.find("\n\n", begin) + 1 - begin, now);
  EXPECT_EQ(now, test::text(path).substr(begin, now.size())) << "RHO_BLESS=1 rewrites it";
}

} // namespace
} // namespace rho::dsl
