#include "runtime/tool/Report.h"
#include "runtime/tool/Timing.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace rho::tool;

namespace {

TEST(ReportTest, numbersHaveThreeDigitsThatCount) {
  EXPECT_EQ(shortNumber(0), "0.00");
  EXPECT_EQ(shortNumber(1.23456), "1.23");
  EXPECT_EQ(shortNumber(-12.3456), "-12.3");
  EXPECT_EQ(shortNumber(123.456), "123");
  EXPECT_EQ(shortNumber(123456), "123456");
  EXPECT_EQ(shortNumber(0.00123456), "0.00123");
  EXPECT_EQ(shortNumber(0.000000123456), "1.23e-07");
  EXPECT_EQ(shortNumber(1e30), "1e+30");
  EXPECT_EQ(shortNumber(INFINITY), "inf");
  EXPECT_EQ(byteCount(0), "0 bytes");
  EXPECT_EQ(byteCount(999), "999 bytes");
  EXPECT_EQ(byteCount(69632), "69.6 KB");
  EXPECT_EQ(byteCount(int64_t(1) << 62), "4611686 TB");
}

TEST(ReportTest, ratesAreOfTheRightSize) {
  // 8192 x 8192 at 4 bits in 10 us: 33.6 MB, 268 M operations at m = 2.
  EXPECT_DOUBLE_EQ(gigabytesPerSecond(33554432, 10), 3355.4432);
  EXPECT_DOUBLE_EQ(teraOperations({2, 8192, 8192}, 10), 26.8435456);
}

TEST(ReportTest, medianOfOddEvenAndNone) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({}), 0);
}

} // namespace
