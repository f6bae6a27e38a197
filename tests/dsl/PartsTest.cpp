// Partitions and residuals against their definition, computed here in the plainest way.
#include "dsl/Division.h"
#include "dsl/Evaluate.h"
#include "dsl/Module.h"
#include "dsl/Quantize.h"
#include "tests/dsl/Formats.h"
#include "tests/dsl/Numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

namespace rho::dsl {
namespace {

using test::FormatPtr, test::Numbers;

constexpr const char *library = R"(
format int4_token { element: s4  scale: f16 per token  value = element * scale }
format int8_token { element: s8  scale: f16 per token  value = element * scale }
format int4_channel { element: s4  scale: f16 per channel  value = element * scale }
format int4_g64 { element: s4  scale: f16 per k[64]  value = element * scale }
format int8_g64 { element: s8  scale: f16 per k[64]  value = element * scale }
)";

FormatPtr declaredWithLibrary(const std::string &text) { return test::declared(text + library); }

// Bell-shaped, some columns 30 times as large: activations of a language model.
Numbers activations(int64_t rows, int64_t k, uint32_t seed) {
  std::mt19937_64 random = test::generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> large;
  for (int64_t column = 0; column < k; ++column)
    large.push_back(random() % 60 == 0 ? 30.0f : 1.0f);
  Numbers x;
  for (int64_t i = 0; i < rows * k; ++i)
    x.push_back(normal(random) * large[static_cast<size_t>(i % k)]);
  return x;
}

QuantizedMatrix partitioned(const FormatPtr &format, const Numbers &x, int64_t rows,
                            const QuantizeOptions &options) {
  auto k = static_cast<int64_t>(x.size()) / rows;
  Result<QuantizedMatrix> result =
      quantize(format, {x.data(), MatrixView::Type::F32, rows, k, k}, options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().str());
  return std::move(*result);
}

QuantizedMatrix partitioned(const FormatPtr &format, const Numbers &x, int64_t rows,
                            unsigned threads = 0) {
  return partitioned(format, x, rows, QuantizeOptions{.threads = threads});
}

// The block of each number, and how many there are.
struct Grid {
  int64_t rows, k, blockRows, blockK;
  int64_t across() const { return divideUp(k, blockK); }
  int64_t count() const { return across() * divideUp(rows, blockRows); }
  int64_t at(int64_t row, int64_t column) const {
    return row / blockRows * across() + column / blockK;
  }
  // Calls visit(index into the matrix) for the numbers of a block.
  template <class Visit> void numbersOf(int64_t block, const Visit &visit) const {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < k; ++column)
        if (at(row, column) == block)
          visit(static_cast<size_t>(row * k + column), row, column);
  }
};

double errorOf(const Grid &grid, int64_t block, const Numbers &x, const QuantizedMatrix &q) {
  double sum = 0;
  grid.numbersOf(block, [&](size_t i, int64_t row, int64_t column) {
    double error = x[i] - q.value(row, column);
    sum += error * error;
  });
  return sum;
}

Numbers masked(const Grid &grid, const Numbers &x, const QuantizedMatrix &q, uint32_t part) {
  Numbers kept(x.size(), 0.0f);
  for (int64_t block = 0; block < grid.count(); ++block)
    if (q.choice.get(block) == part)
      grid.numbersOf(block, [&](size_t i, int64_t, int64_t) { kept[i] = x[i]; });
  return kept;
}

void expectSameCodes(const QuantizedMatrix &a, const QuantizedMatrix &b) {
  ASSERT_EQ(a.components.size(), b.components.size());
  for (size_t c = 0; c < a.components.size(); ++c) {
    ASSERT_EQ(a.components[c].size(), b.components[c].size());
    for (int64_t i = 0; i < a.components[c].size(); ++i)
      ASSERT_EQ(a.components[c].get(i), b.components[c].get(i)) << c << " at " << i;
  }
  ASSERT_EQ(a.choice.size(), b.choice.size());
  for (int64_t i = 0; i < a.choice.size(); ++i)
    ASSERT_EQ(a.choice.get(i), b.choice.get(i)) << "block " << i;
  ASSERT_EQ(a.parts.size(), b.parts.size());
  for (size_t p = 0; p < a.parts.size(); ++p)
    expectSameCodes(a.parts[p], b.parts[p]);
}

constexpr int64_t partRows = 21, partK = 1000; // no multiple of any block

// FMPQ of COMET, section 3.2: blocks of 128 along k of the whole tensor, s4, the worst fifth s8.
TEST(Partition, StoresTheBlocksThatGainMostInTheWiderPart) {
  FormatPtr format = declaredWithLibrary("format comet { partition per tensor k[128] {\n"
                                         "low: int4_token  high: int8_token budget 40% } }");
  Numbers x = activations(partRows, partK, 1);
  QuantizedMatrix q = partitioned(format, x, partRows);
  Grid grid{partRows, partK, partRows, 128};
  ASSERT_EQ(q.choice.size(), grid.count());
  QuantizedMatrix low = partitioned(
      declaredWithLibrary("format f { element: s4 scale: f16 per k[128] value = element * scale }"),
      x, partRows);
  QuantizedMatrix high = partitioned(declaredWithLibrary("format f = int8_token"), x, partRows);
  std::vector<std::pair<double, int64_t>> gains;
  for (int64_t block = 0; block < grid.count(); ++block)
    gains.emplace_back(errorOf(grid, block, x, low) - errorOf(grid, block, x, high), block);
  std::sort(gains.begin(), gains.end(), std::greater<>());
  for (size_t i = 0; i < gains.size(); ++i)
    EXPECT_EQ(q.choice.get(gains[i].second), i < 3u) << "40% of 8 blocks are 3";
  // Each part is what the format makes of its own blocks.
  expectSameCodes(q.parts[0], partitioned(declaredWithLibrary("format f = int4_token"),
                                          masked(grid, x, q, 0), partRows));
  expectSameCodes(q.parts[1], partitioned(declaredWithLibrary("format f = int8_token"),
                                          masked(grid, x, q, 1), partRows));
  for (int64_t row = 0; row < partRows; ++row) {
    std::vector<double> values = q.rowValues(row);
    for (int64_t column = 0; column < partK; ++column) {
      uint32_t part = q.choice.get(grid.at(row, column));
      ASSERT_EQ(values[static_cast<size_t>(column)], q.parts[part].value(row, column));
      ASSERT_EQ(values[static_cast<size_t>(column)], q.value(row, column));
    }
  }
}

// A channel that is large makes the token's scale too large for all blocks: which one has to go
// does not show in errors by that scale.
TEST(Partition, ABlockWithAnOutlierGoesToTheWiderPart) {
  FormatPtr format = declaredWithLibrary("format comet { partition per tensor k[128] {\n"
                                         "low: int4_token  high: int8_token budget 20% } }");
  constexpr int64_t rows = 8, k = 2048;
  for (float factor : {5.0f, 10.0f, 30.0f, 100.0f, 1000.0f}) {
    std::mt19937_64 random = test::generator(7);
    std::normal_distribution<float> normal;
    Numbers x;
    for (int64_t i = 0; i < rows * k; ++i) {
      const bool isLarge = i % k == 2 * 128 + 5 || i % k == 2 * 128 + 77;
      x.push_back(normal(random) * (isLarge ? factor : 1));
    }
    QuantizedMatrix q = partitioned(format, x, rows);
    EXPECT_EQ(q.choice.get(2), 1U) << factor;
    double error = 0;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < k; ++column)
        if (column / 128 != 2)
          error += std::pow(x[static_cast<size_t>(row * k + column)] - q.value(row, column), 2);
    EXPECT_LT(error / (rows * (k - 128)), 0.05) << factor; // 1 where all become 0
  }
}

TEST(Partition, RulesSeeTheNumbersOfABlock) {
  FormatPtr format = declaredWithLibrary("format f { partition per m[4] k[64] {\n"
                                         "low: int4_g64\n"
                                         "middle: int8_g64 where max(x) - min(x) >= 8\n"
                                         "high: f16 where absmax(x) >= 60 } }");
  Numbers x = activations(partRows, partK, 2);
  QuantizedMatrix q = partitioned(format, x, partRows);
  Grid grid{partRows, partK, 4, 64};
  std::array<int, 3> seen = {};
  for (int64_t block = 0; block < grid.count(); ++block) {
    double low = HUGE_VAL, high = -HUGE_VAL;
    grid.numbersOf(block, [&](size_t i, int64_t, int64_t) {
      low = std::min<double>(low, x[i]);
      high = std::max<double>(high, x[i]);
    });
    uint32_t expected = std::max(-low, high) >= 60 ? 2 : high - low >= 8 ? 1 : 0;
    ++seen[expected];
    ASSERT_EQ(q.choice.get(block), expected) << block;
  }
  for (int count : seen)
    EXPECT_GT(count, 3);
}

TEST(Partition, WithoutRuleOrBudgetEachBlockIsStoredWhereItsErrorIsLeast) {
  FormatPtr format = declaredWithLibrary(
      "format f { partition per k[64] { even: even  fine: fine } }\n"
      "format even { element: s4 scale: f16 per k[64] value = element * scale }\n"
      "format fine { element: e2m1 scale: f16 per k[64] value = element * scale }");
  Numbers x = activations(partRows, partK, 3);
  QuantizedMatrix q = partitioned(format, x, partRows);
  Grid grid{partRows, partK, 1, 64};
  int changed = 0;
  for (int64_t block = 0; block < grid.count(); ++block) {
    double even =
        errorOf(grid, block, x, partitioned(format->partition->parts[0].format, x, partRows, 1));
    double fine =
        errorOf(grid, block, x, partitioned(format->partition->parts[1].format, x, partRows, 1));
    ASSERT_EQ(q.choice.get(block), fine < even) << block;
    changed += fine < even;
    if (block > 40)
      break; // the definition is slow
  }
  EXPECT_GT(changed, 3);
  EXPECT_LT(changed, 38);
}

constexpr const char *mosaic = "format mosaic {\n"
                               "element: s4  scale: f16 per channel  value = element * scale\n"
                               "residual fix: int4_channel per n[16] k[64] budget 10% }";

// What the base leaves over of each number.
Numbers leftBy(const QuantizedMatrix &base, const Numbers &x) {
  Numbers left(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    left[i] = static_cast<float>(
        x[i] - base.value(static_cast<int64_t>(i) / base.k, static_cast<int64_t>(i) % base.k));
  return left;
}

// MosaicQuant, section 4.1: the H-score of each block, and which blocks it chooses.
void expectChosenByGain(const QuantizedMatrix &q, const Numbers &x, const Grid &grid,
                        const std::vector<double> &weights) {
  FormatPtr int4 = declaredWithLibrary("format f = int4_channel");
  QuantizedMatrix base = partitioned(int4, x, grid.rows);
  Numbers left = leftBy(base, x);
  QuantizedMatrix fix = partitioned(int4, left, grid.rows);
  std::vector<std::pair<double, int64_t>> scores;
  for (int64_t block = 0; block < grid.count(); ++block) {
    double score = 0;
    grid.numbersOf(block, [&](size_t i, int64_t row, int64_t column) {
      double after = left[i] - fix.value(row, column);
      score += weights[static_cast<size_t>(column)] * (double(left[i]) * left[i] - after * after);
    });
    scores.emplace_back(score, block);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  for (size_t i = 0; i < scores.size(); ++i)
    EXPECT_EQ(q.choice.get(scores[i].second), i < 3u) << "10% of 32 blocks are 3";
}

TEST(Residual, IsStoredWhereItLowersTheWeightedErrorMost) {
  FormatPtr format = declaredWithLibrary(mosaic);
  Numbers x = activations(partRows, partK, 4);
  Grid grid{partRows, partK, 16, 64};
  expectChosenByGain(partitioned(format, x, partRows), x, grid, std::vector<double>(partK, 1.0));
  std::vector<double> weights;
  for (int64_t column = 0; column < partK; ++column)
    weights.push_back(column / 64 % 5 == 2 ? 400 : 1 + column % 3);
  QuantizedMatrix weighted = partitioned(format, x, partRows, {.columnWeights = weights});
  expectChosenByGain(weighted, x, grid, weights);
  int moved = 0;
  for (int64_t block = 0; block < grid.count(); ++block)
    moved += weighted.choice.get(block) != partitioned(format, x, partRows).choice.get(block);
  EXPECT_GT(moved, 0);
}

TEST(Residual, GivenScoresChooseTheBlocks) {
  FormatPtr format = declaredWithLibrary(mosaic);
  Numbers x = activations(partRows, partK, 4);
  std::vector<double> scores(32, 0);
  scores[7] = 2;
  scores[20] = 1;
  scores[31] = -1;
  QuantizedMatrix q = partitioned(format, x, partRows, {.residualScores = scores});
  for (int64_t block = 0; block < 32; ++block)
    EXPECT_EQ(q.choice.get(block), block == 7 || block == 20) << block;
  auto error = [&](const FormatPtr &of, std::span<const double> given) {
    Result<QuantizedMatrix> result =
        quantize(of, {x.data(), MatrixView::Type::F32, partRows, partK, partK},
                 QuantizeOptions{.residualScores = given});
    return result.ok() ? "" : result.error().str();
  };
  EXPECT_EQ(error(declaredWithLibrary("format f = int4_channel"), scores),
            "error: 32 scores, format 'f' has no residual [bad_block_scores]\n");
  EXPECT_EQ(error(format, std::span(scores).first(31)),
            "error: 31 scores, there are 32 blocks [bad_block_scores]\n");
  scores[3] = NAN;
  EXPECT_EQ(error(format, scores),
            "error: NaN for block 3, scores are numbers [bad_block_scores]\n");
}

TEST(Partition, AGivenChoiceTakesThePlaceOfRulesAndBudgets) {
  FormatPtr format = declaredWithLibrary(
      "format f { partition per tensor k[64] { low: int4_token high: int8_token budget 10% } }");
  Numbers x = activations(partRows, partK, 9);
  std::vector<uint8_t> choice((partK + 63) / 64, 1);
  choice[2] = 0;
  QuantizedMatrix q = partitioned(format, x, partRows, QuantizeOptions{.choice = choice});
  for (size_t part : {0, 1}) {
    Numbers own = x;
    for (size_t i = 0; i < own.size(); ++i)
      own[i] *= choice[i % static_cast<size_t>(partK) / 64] == part ? 1.0f : 0.0f;
    QuantizedMatrix alone = partitioned(format->partition->parts[part].format, own, partRows);
    for (int64_t row = 0; row < partRows; ++row)
      for (int64_t column = 0; column < partK; ++column)
        if (choice[static_cast<size_t>(column / 64)] == part)
          ASSERT_EQ(q.value(row, column), alone.value(row, column)) << row << " " << column;
  }
  auto error = [&](const FormatPtr &of, std::span<const uint8_t> given) {
    Result<QuantizedMatrix> result =
        quantize(of, {x.data(), MatrixView::Type::F32, partRows, partK, partK},
                 QuantizeOptions{.choice = given});
    return result.ok() ? "" : result.error().str();
  };
  EXPECT_EQ(error(declaredWithLibrary("format f = int4_channel"), choice),
            "error: parts of 16 blocks, format 'f' has no partition [bad_block_choice]\n");
  choice[1] = 2;
  EXPECT_EQ(error(format, choice),
            "error: part 2 for block 1, format 'f' has 2 [bad_block_choice]\n");
  choice.pop_back();
  EXPECT_EQ(error(format, choice), "error: parts of 15 blocks, there are 16 [bad_block_choice]\n");
}

TEST(Partition, ColumnWeightsSayWhichErrorsCount) {
  FormatPtr format = declaredWithLibrary("format comet { partition per tensor k[128] {\n"
                                         "low: int4_token  high: int8_token budget 15% } }");
  std::mt19937_64 random = test::generator(1);
  std::normal_distribution<float> normal;
  Numbers x(static_cast<size_t>(partRows * partK));
  for (float &number : x)
    number = normal(random);
  for (int64_t block = 0; block < 8; ++block) {
    std::vector<double> weights(partK, 0.0);
    for (int64_t column = block * 128; column < std::min(partK, block * 128 + 128); ++column)
      weights[static_cast<size_t>(column)] = 0.5;
    QuantizedMatrix q = partitioned(format, x, partRows, {.columnWeights = weights});
    for (int64_t other = 0; other < 8; ++other)
      EXPECT_EQ(q.choice.get(other), other == block);
  }
}

TEST(Partition, BudgetsAreTheDecimalsThatWereWritten) {
  Part part;
  for (int64_t tenths = 1; tenths <= 1000; ++tenths) {
    part.budget = std::strtod(
        (std::to_string(tenths / 10) + "." + std::to_string(tenths % 10)).c_str(), nullptr);
    for (int64_t blocks : {7, 10, 360, 1000, 5500, 20000, 123457})
      ASSERT_EQ(mostBlocks(part, blocks), tenths * blocks / 1000) << tenths << " " << blocks;
  }
}

// 4 bits, and 4 bits of what is left on a tenth of the blocks.
TEST(Residual, CorrectsTheChosenBlocksOnly) {
  FormatPtr format = declaredWithLibrary(mosaic);
  Numbers x = activations(partRows, partK, 4);
  QuantizedMatrix q = partitioned(format, x, partRows);
  Grid grid{partRows, partK, 16, 64};
  QuantizedMatrix base = partitioned(declaredWithLibrary("format f = int4_channel"), x, partRows);
  expectSameCodes(q.parts[0], base);
  Numbers left = leftBy(base, x);
  expectSameCodes(q.parts[1], partitioned(declaredWithLibrary("format f = int4_channel"),
                                          masked(grid, left, q, 1), partRows));
  double before = 0, after = 0;
  for (int64_t block = 0; block < grid.count(); ++block) {
    before += errorOf(grid, block, x, base);
    after += errorOf(grid, block, x, q);
    if (!q.choice.get(block))
      ASSERT_EQ(errorOf(grid, block, x, q), errorOf(grid, block, x, base));
  }
  EXPECT_LT(after, before);
  for (int64_t column = 0; column < partK; ++column) {
    double expected = q.parts[0].value(3, column) +
                      (q.choice.get(grid.at(3, column)) ? q.parts[1].value(3, column) : 0);
    ASSERT_EQ(q.value(3, column), expected);
    ASSERT_EQ(q.rowValues(3)[static_cast<size_t>(column)], expected);
  }
}

// r / 16 of the scales of the rest, and with the lowest code of the rest no less than nothing.
TEST(Residual, OfSharedScalesIsTheSixteenthsThatAreLeft) {
  FormatPtr format = declaredWithLibrary(
      "format f { element: s4 scale: f16 per k[64] value = element * scale\n"
      "encode { scale = absmax(x) / 10 } residual fix: s4 / 16 per n[16] k[64] budget 30% }");
  Numbers x = activations(partRows, partK, 4);
  QuantizedMatrix q = partitioned(format, x, partRows);
  ASSERT_EQ(q.parts.size(), 2U);
  const QuantizedMatrix &base = q.parts[0], &fix = q.parts[1];
  Grid grid{partRows, partK, 16, 64};
  int lowest = 0, stored = 0;
  for (int64_t row = 0; row < partRows; ++row)
    for (int64_t column = 0; column < partK; ++column) {
      int64_t i = row * partK + column, group = row * ((partK + 63) / 64) + column / 64;
      ASSERT_EQ(fix.components[1].get(group), base.components[1].get(group));
      double scale = ElementType::get("f16").decode(base.components[1].get(group));
      double q4 = ElementType::get("s4").decode(base.components[0].get(i));
      double r = 0;
      if (q.choice.get(grid.at(row, column)) != 0) {
        auto left = static_cast<double>(
            static_cast<float>(static_cast<double>(x[static_cast<size_t>(i)]) - q4 * scale));
        r = std::clamp(std::nearbyint(left / (scale / 16)), q4 == -8 ? 0.0 : -8.0, 7.0);
        lowest += q4 == -8 && left < 0;
        ++stored;
      }
      ASSERT_EQ(ElementType::get("s4").decode(fix.components[0].get(i)), r) << row << " " << column;
      ASSERT_EQ(q.value(row, column), (q4 + r / 16) * scale);
    }
  EXPECT_GT(lowest, 0);
  EXPECT_GT(stored, 0);
  EXPECT_NEAR(format->bitsPerElement(), 4 + 0.25 + 0.3 * 4 + 1.0 / 1024, 1e-9);
}

constexpr const char *nested =
    "format f { partition per tensor k[256] { low: inner  high: f16 budget 25% }\n"
    "residual rest: int4_g64 per n[2] k[256] where absmax(x) >= 10 }\n"
    "format inner { element: s4 scale: f16 per k[64] value = element * scale\n"
    "residual fix: int4_g64 per k[64] budget 50% }";

TEST(Parts, NestAndAreTheSameForAnyNumberOfThreads) {
  FormatPtr format = declaredWithLibrary(nested);
  Numbers x = activations(partRows, partK, 5);
  QuantizedMatrix one = partitioned(format, x, partRows, 1);
  for (unsigned threads : {2u, 7u})
    expectSameCodes(one, partitioned(format, x, partRows, threads));
  double flat = 0, parts = 0;
  Grid whole{partRows, partK, partRows, partK};
  flat = errorOf(whole, 0, x, partitioned(declaredWithLibrary("format f = int4_g64"), x, partRows));
  parts = errorOf(whole, 0, x, one);
  EXPECT_LT(parts, flat * 0.7);
}

TEST(Parts, PrintAndParseBack) {
  Result<Module> module = parseModule(std::string(nested) + library, "a.rho", nullptr);
  ASSERT_TRUE(module.ok()) << module.error().str();
  Result<Module> again = parseModule(print(*module), "b.rho", nullptr);
  ASSERT_TRUE(again.ok()) << again.error().str();
  EXPECT_TRUE(again->formats == module->formats);
  // What a format is made of is part of what it is.
  std::string other = print(*module);
  other.replace(other.find("k[64]"), 5, "k[32]");
  Result<Module> changed = parseModule(other, "c.rho", nullptr);
  ASSERT_TRUE(changed.ok()) << changed.error().str();
  EXPECT_FALSE(changed->formats[0] == module->formats[0] &&
               changed->formats[1] == module->formats[1]);
}

TEST(Parts, CountTheBitsThatBudgetsAllow) {
  auto bits = [](const std::string &text) { return declaredWithLibrary(text)->bitsPerElement(); };
  EXPECT_DOUBLE_EQ(bits("format f { partition per tensor k[128] { low: int4_token high: int8_token "
                        "budget 20% } }"),
                   4 * 0.8 + 8 * 0.2);
  EXPECT_DOUBLE_EQ(
      bits("format f { partition per k[64] { low: int4_g64 high: int8_g64 budget 25% } }"),
      4.25 * 0.75 + 8.25 * 0.25 + 1.0 / 64);
  EXPECT_DOUBLE_EQ(
      bits("format f { partition per k[64] { a: int8_g64 b: int4_g64 c: f16 budget 50% } }"),
      8.25 * 0.5 + 16 * 0.5 + 2.0 / 64);
  EXPECT_DOUBLE_EQ(bits("format f { element: s4 scale: f16 per channel value = element * scale\n"
                        "residual fix: int4_channel per n[16] k[64] budget 10% }"),
                   4 + 0.1 * 4 + 1.0 / 1024);
}

TEST(Parts, NonFiniteNumbersAreRefusedOrGoThrough) {
  FormatPtr format =
      declaredWithLibrary("format f { partition per k[64] { low: int4_g64 high: int8_g64 } }");
  Numbers x = activations(2, 128, 6);
  x[130] = std::numeric_limits<float>::quiet_NaN();
  Result<QuantizedMatrix> refused =
      quantize(format, {x.data(), MatrixView::Type::F32, 2, 128, 128}, true, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().str(),
            "error: NaN at row 1, column 2, a weight is finite [non_finite_input]\n");
  QuantizedMatrix q = partitioned(format, x, 2);
  EXPECT_TRUE(std::isnan(q.value(1, 2)));
  EXPECT_TRUE(std::isfinite(q.value(0, 2)));
}

} // namespace
} // namespace rho::dsl
