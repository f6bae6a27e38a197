#include "runtime/tool/ErrorReport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace rho;
using namespace rho::tool;
using testing::HasSubstr;

namespace {

// 4 numbers of which each is off by `error`, of sum of squares 40.
ErrorRow row(const std::string &tensor, const std::string &format, double error) {
  ErrorRow result{tensor, format, "", 2, 2, {}, {}, {}};
  result.error = {.numbers = 4,
                  .storedBits = 18,
                  .squares = 40,
                  .valueSquares = 40,
                  .products = 40,
                  .squaredErrors = 4 * error * error,
                  .largest = error};
  return result;
}

TEST(ErrorReportTest, totalsFollowSeveralTensors) {
  EXPECT_EQ(withTotals({row("a", "f", 1), row("a", "g", 2)}).size(), 2U);
  ErrorRow first = row("a", "f", 1), second = row("b", "f", 3);
  first.output = {100, 4};
  std::vector<ErrorRow> rows = withTotals({first, row("a", "g", 2), second, row("b", "g", 2)});
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_EQ(rows[4].tensor, "all");
  EXPECT_EQ(rows[4].format, "f");
  EXPECT_EQ(rows[4].error.meanSquaredError(), 5);
  EXPECT_EQ(rows[4].error.bitsPerWeight(), 4.5);
  EXPECT_EQ(rows[4].error.largest, 3);
  ASSERT_TRUE(rows[4].output.has_value());
  EXPECT_EQ(rows[4].output->relative(), 0.2);
  EXPECT_FALSE(rows[5].output.has_value());
}

TEST(ErrorReportTest, filesOfSeveralFormatsHaveTotals) {
  std::vector<ErrorRow> mixed = {row("a", "f of m", 1), row("b", "g of m", 3),
                                 row("b", "g of n", 2)};
  mixed[0].file = mixed[1].file = "m";
  mixed[2].file = "n";
  const std::vector<ErrorRow> rows = withTotals(mixed);
  ASSERT_EQ(rows.size(), 7U);
  EXPECT_EQ(rows[6].tensor, "all");
  EXPECT_EQ(rows[6].format, "m");
  EXPECT_EQ(rows[6].error.numbers, 8);
  EXPECT_EQ(rows[6].error.meanSquaredError(), 5);
}

TEST(ErrorReportTest, tableCsvAndPlotSayTheSame) {
  std::vector<ErrorRow> rows = {row("a", "f", 1), row("a", "exact", 0)};
  rows[0].output = {100, 4};
  rows[0].lost = {8, 7};
  EXPECT_EQ(
      errorTable(rows),
      "tensor  format  bits/weight  mse  sqnr dB  max error  lost groups    cosine  output error\n"
      "a       f               4.5    1    10.00          1            7  1.000000           0.2\n"
      "a       exact           4.5    0      inf          0            0  1.000000             "
      "-\n");
  EXPECT_EQ(errorCsv(rows),
            "tensor,format,n,k,bits_per_weight,mse,sqnr_db,max_error,lost_groups,cosine,"
            "output_error\n"
            "a,f,2,2,4.5,1,10,1,7,1.000000000,0.2\n"
            "a,exact,2,2,4.5,0,inf,0,0,1.000000000,\n");
  EXPECT_THAT(errorPlot(rows), HasSubstr(">a f<"));
  EXPECT_THAT(errorPlot(rows), HasSubstr(">a exact<"));
  EXPECT_THAT(errorPlot(rows), HasSubstr(">no error<"));
}

// Names of tensors are any text: a reader of CSV or XML gets it back, or a character that says that
// there was one.
TEST(ErrorReportTest, namesMayHoldAnything) {
  std::vector<ErrorRow> rows = {row("a\rb,\"", "f", 1)};
  EXPECT_THAT(errorCsv(rows), HasSubstr("\n\"a\rb,\"\"\",f,"));
  rows[0].tensor = "a]]>\x01<&\xff\xc3\xa9\xEF\xBF\xBE";
  EXPECT_THAT(errorPlot(rows),
              HasSubstr(">a]]&gt;\xEF\xBF\xBD&lt;&amp;\xEF\xBF\xBD\xc3\xa9\xEF\xBF\xBD f<"));
}

TEST(ErrorReportTest, namesKeepTheTableInShape) {
  kernels::EncodingError exact{.numbers = 4, .storedBits = 128, .squares = 4, .valueSquares = 4};
  std::vector<ErrorRow> rows = {{"a\n\x1b[31m", "f32", "", 1, 4, exact, {}, {}},
                                {"\xe5\x90\x8d", "f32", "", 1, 4, exact, {}, {}}};
  const std::string text = errorTable(rows);
  EXPECT_NE(text.find("\na\\x0a\\x1b[31m  f32"), std::string::npos) << text;
  EXPECT_NE(text.find("\n\xe5\x90\x8d" + std::string(14, ' ') + "f32"), std::string::npos) << text;
}

} // namespace
