#include "runtime/tool/RandomProblems.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace rho;
using namespace rho::tool;

namespace {

constexpr GemmShape most = {300, 2000, 4000};

int64_t countIf(const std::vector<RandomProblem> &problems, auto condition) {
  return std::count_if(problems.begin(), problems.end(), condition);
}

TEST(RandomProblemsTest, shapesAreWithinTheirLimitsAndReachThem) {
  for (const GemmShape &limit : {most, GemmShape{1, 1, 1}, GemmShape{7, 63, 64}}) {
    std::vector<RandomProblem> problems = randomProblems(2000, 3, limit, 1);
    ASSERT_EQ(problems.size(), 2000U);
    for (const RandomProblem &problem : problems) {
      EXPECT_LT(problem.gemm, 3U);
      for (auto extent : {&GemmShape::m, &GemmShape::n, &GemmShape::k}) {
        ASSERT_GE(problem.shape.*extent, 1);
        ASSERT_LE(problem.shape.*extent, limit.*extent);
      }
    }
    auto largest = [&](auto extent) {
      int64_t found = 0;
      for (const RandomProblem &problem : problems)
        found = std::max(found, problem.shape.*extent);
      return static_cast<double>(found);
    };
    for (auto extent : {&GemmShape::m, &GemmShape::n, &GemmShape::k})
      EXPECT_GE(largest(extent), 0.98 * static_cast<double>(limit.*extent));
  }
}

TEST(RandomProblemsTest, mostShapesAreRaggedAndSomeAreWhole) {
  std::vector<RandomProblem> problems = randomProblems(800, 1, most, 1);
  int64_t whole = countIf(problems, [](const RandomProblem &p) { return p.shape.n % 64 == 0; });
  EXPECT_GT(whole, 50);
  EXPECT_LT(whole, 200);
  // 9 numbers of bits up to 300, the last one's numbers only in part.
  int64_t single = countIf(problems, [](const RandomProblem &p) { return p.shape.m == 1; });
  EXPECT_GT(single, 40);
  EXPECT_GT(countIf(problems, [](const RandomProblem &p) { return p.shape.m > 128; }), 80);
}

TEST(RandomProblemsTest, theSeedDecidesAndEveryGemmHasItsTurn) {
  auto shapes = [](uint64_t seed) {
    std::vector<int64_t> numbers;
    for (const RandomProblem &problem : randomProblems(20, 7, most, seed))
      numbers.insert(numbers.end(), {static_cast<int64_t>(problem.gemm), problem.shape.m,
                                     problem.shape.n, problem.shape.k});
    return numbers;
  };
  EXPECT_EQ(shapes(1), shapes(1));
  EXPECT_NE(shapes(1), shapes(2));
  std::vector<RandomProblem> problems = randomProblems(21, 7, most, 1);
  for (size_t gemm = 0; gemm < 7; ++gemm)
    EXPECT_EQ(countIf(problems, [&](const RandomProblem &p) { return p.gemm == gemm; }), 3);
}

} // namespace
