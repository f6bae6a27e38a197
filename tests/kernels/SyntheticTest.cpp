#include "kernels/Synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

using namespace rho::kernels;

namespace {

double deviationOf(const std::vector<float> &values) {
  double sum = 0;
  for (float value : values)
    sum += static_cast<double>(value) * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// One of 1000 columns.
std::vector<float> columnOf(const std::vector<float> &values, int64_t channel) {
  std::vector<float> column(values.size() / 1000);
  for (size_t row = 0; row < column.size(); ++row)
    column[row] = values[row * 1000 + static_cast<size_t>(channel)];
  return column;
}

TEST(SyntheticTest, sameSeedSameValuesOtherSeedOthers) {
  EXPECT_EQ(syntheticWeight(30, 70, 5), syntheticWeight(30, 70, 5));
  EXPECT_NE(syntheticWeight(30, 70, 5), syntheticWeight(30, 70, 6));
  EXPECT_NE(syntheticActivation(3, 70, 5), syntheticActivation(3, 70, 6));
  EXPECT_NE(syntheticActivation(3, 70, 5), syntheticWeight(3, 70, 5));
}

// Each row comes from its own generator, so neither threads nor the number of rows change it.
TEST(SyntheticTest, aRowDoesNotDependOnTheOtherRows) {
  std::vector<float> few = syntheticActivation(3, 129, 1);
  std::vector<float> many = syntheticActivation(200, 129, 1);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_FALSE(std::equal(many.begin(), many.begin() + 129, many.begin() + 129));
}

// As tensor cores of few digits may add them: of the codes, times 7 and 448 at most, of each output
// all sums have 13 bits.
TEST(SyntheticTest, exactNumbersHaveExactSums) {
  constexpr int64_t rows = 9, k = 1000;
  const std::vector<float> w = exactWeight(rows, k, 5), x = exactActivation(rows, k, 5);
  EXPECT_NE(w, exactWeight(rows, k, 6));
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t n = 0; n < rows; ++n) {
      double magnitude = 0, unit = HUGE_VAL, sum = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double product = static_cast<double>(x[static_cast<size_t>(m * k + i)]) *
                               w[static_cast<size_t>(n * k + i)];
        magnitude += std::fabs(product);
        sum += product;
        if (product != 0)
          unit = std::min(unit, std::fabs(product));
      }
      EXPECT_GT(magnitude, 20 * unit);
      EXPECT_LE(magnitude * 7 * 7, 0x1p13 * unit);
      EXPECT_NE(std::fabs(sum), magnitude); // of both signs
    }
  // Whole numbers of one unit in a row, and of both sizes.
  for (int64_t n = 0; n < rows; ++n) {
    std::set<double> sizes;
    for (int64_t i = 0; i < k; ++i)
      sizes.insert(std::fabs(w[static_cast<size_t>(n * k + i)]));
    EXPECT_LE(sizes.size(), 2U);
    EXPECT_LE(*sizes.rbegin(), 2 * *sizes.begin());
  }
}

TEST(SyntheticTest, weightsHaveTheirDeviationAndHeavyTails) {
  std::vector<float> values = syntheticWeight(256, 1024, 3);
  // Bulk 0.02 and 1% four times wider: variance 0.0004 * (0.99 + 0.01 * 16).
  EXPECT_NEAR(deviationOf(values), 0.02 * std::sqrt(0.99 + 0.16), 0.0003);
  auto beyond = [&](double limit) {
    return std::count_if(values.begin(), values.end(),
                         [&](float value) { return std::fabs(value) > limit; });
  };
  // A normal distribution has 0.006% beyond four deviations; the tails bring 0.3%.
  EXPECT_GT(beyond(0.08), 500);
  EXPECT_LT(beyond(0.08), 1200);
  for (float value : values)
    ASSERT_TRUE(std::isfinite(value));
}

TEST(SyntheticTest, activationsHaveOutlierChannelsInEveryToken) {
  ActivationModel model;
  model.outlierFraction = 0.01;
  std::vector<int64_t> channels = outlierChannels(1000, 9, model);
  ASSERT_EQ(channels.size(), 10U);
  EXPECT_TRUE(std::is_sorted(channels.begin(), channels.end()));
  EXPECT_EQ(std::adjacent_find(channels.begin(), channels.end()), channels.end());
  std::vector<float> values = syntheticActivation(500, 1000, 9, model);
  for (int64_t channel : {channels.front(), channels.back()}) {
    EXPECT_NEAR(deviationOf(columnOf(values, channel)), 30, 4);
  }
  int64_t other = 0;
  while (std::find(channels.begin(), channels.end(), other) != channels.end())
    ++other;
  EXPECT_NEAR(deviationOf(columnOf(values, other)), 1, 0.15);
}

TEST(SyntheticTest, smallAndSwitchedOff) {
  EXPECT_TRUE(outlierChannels(63, 1).empty());
  EXPECT_EQ(outlierChannels(64, 1).size(), 1U);
  ActivationModel none;
  none.outlierFraction = 0;
  EXPECT_TRUE(outlierChannels(4096, 1, none).empty());
  EXPECT_EQ(syntheticWeight(1, 1, 1).size(), 1U);
}

} // namespace
