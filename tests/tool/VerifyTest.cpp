#include "runtime/tool/Verify.h"

#include "compiler/ErrorBound.h"
#include "dsl/Module.h"
#include "kernels/Reference.h"
#include "kernels/Synthetic.h"
#include "runtime/Handles.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace rho;
using namespace rho::tool;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan = std::nan("");

TEST(JudgeTest, theBoundIsTheLimit) {
  dsl::ElementType f16 = dsl::ElementType::get("f16");
  EXPECT_EQ(judge(1.5, 1.25, 0.5, f16).ratio, 0.5);
  EXPECT_EQ(judge(1.5, 1.25, 0.5, f16).error, 0.25);
  EXPECT_EQ(judge(1.5, 1.25, 0.25, f16).ratio, 1);
  EXPECT_GT(judge(1.5, 1.25, 0.125, f16).ratio, 1);
  EXPECT_EQ(judge(1.5, 1.5, 0, f16).ratio, 0);
  EXPECT_EQ(judge(1.5, 1.25, 0, f16).ratio, infinity);
}

TEST(JudgeTest, notANumberMatchesNoNumber) {
  dsl::ElementType f16 = dsl::ElementType::get("f16");
  EXPECT_EQ(judge(nan, nan, 0, f16).ratio, 0);
  EXPECT_EQ(judge(nan, 1, 100, f16).ratio, infinity);
  EXPECT_EQ(judge(1, nan, nan, f16).ratio, infinity);
  EXPECT_EQ(judge(-infinity, nan, 0, f16).ratio, 0); // of which one infinity was scaled alone
}

TEST(JudgeTest, overflowIsRightOnlyWhereTheTypeEnds) {
  dsl::ElementType f16 = dsl::ElementType::get("f16");
  EXPECT_EQ(judge(infinity, 70000, 40, f16).ratio, 0);
  EXPECT_EQ(judge(-infinity, -70000, 40, f16).ratio, 0);
  // Sums that cancel, so that the bound has both ends of the range.
  EXPECT_EQ(judge(infinity, -70000, 4e5, f16).ratio, 0);
  EXPECT_EQ(judge(infinity, 65500, 40, f16).ratio, 0);
  EXPECT_EQ(judge(infinity, 65000, 40, f16).ratio, infinity);
  EXPECT_EQ(judge(infinity, -70000, 40, f16).ratio, infinity);
  EXPECT_GT(judge(65504, 70000, 40, f16).ratio, 1);
  EXPECT_EQ(judge(infinity, infinity, nan, f16).ratio, 0);
  EXPECT_EQ(judge(1, infinity, infinity, f16).ratio, infinity);
}

TEST(VerifyModeTest, largeProblemsAreSampledUnlessAsked) {
  EXPECT_EQ(verifyMode("", {16, 256, 512}), VerifyMode::Full);
  EXPECT_EQ(verifyMode("", {4096, 8192, 8192}), VerifyMode::Sample);
  EXPECT_EQ(verifyMode("full", {4096, 8192, 8192}), VerifyMode::Full);
  EXPECT_EQ(verifyMode("sample", {1, 1, 1}), VerifyMode::Sample);
  EXPECT_EQ(verifyMode("none", {1, 1, 1}), VerifyMode::None);
}

// A gemm, its operands and the output that a right kernel gives.
class VerifyTest : public testing::Test {
protected:
  static constexpr int64_t m = 5, n = 70, k = 128;

  void SetUp() override {
    std::string text = "format w { element: s4 scale: f16 per k[64] value = element * scale }\n"
                       "format x { element: f16 value = element }\n"
                       "gemm g { weight: w activation: x output: f32 }\n";
    Result<dsl::Module> module = dsl::parseModule(text, "test.rho", nullptr);
    ASSERT_TRUE(module.ok()) << module.error().str();
    gemm = module->gemms[0];
    Result<compiler::Plan> made =
        compiler::plan(gemm, {m, n, k}, compiler::modelOfTarget("sm_80").value(), nullptr);
    ASSERT_TRUE(made.ok()) << made.error().str();
    plan = *made;
    weight = encode(gemm.weight, kernels::syntheticWeight(n, k, 1), n);
    activation = encode(gemm.activation, kernels::syntheticActivation(m, k, 1), m);
    for (double value : kernels::reference(activation, weight).y)
      output.push_back(static_cast<float>(value));
  }

  static dsl::QuantizedMatrix encode(const dsl::Format &format, const std::vector<float> &values,
                                     int64_t rows) {
    return dsl::quantize(std::make_shared<dsl::Format>(format),
                         {values.data(), dsl::MatrixView::Type::F32, rows, k, k}, true)
        .value();
  }
  Comparison compare(VerifyMode mode) const {
    return verify(gemm, plan, activation, weight,
                  {output.data(), dsl::MatrixView::Type::F32, m, n, n}, mode,
                  compiler::Summing::Emulator);
  }

  dsl::Gemm gemm;
  compiler::Plan plan;
  dsl::QuantizedMatrix weight, activation;
  std::vector<float> output;
};

TEST_F(VerifyTest, theExactOutputPasses) {
  Comparison full = compare(VerifyMode::Full);
  EXPECT_TRUE(full.passed());
  EXPECT_EQ(full.checked, m * n);
  EXPECT_LE(full.worstRatio.judgement.ratio, 1);
  EXPECT_TRUE(compare(VerifyMode::Sample).passed());
  EXPECT_EQ(compare(VerifyMode::None).checked, 0);
}

TEST_F(VerifyTest, oneWrongOutputFailsAndIsNamed) {
  output[3 * n + 41] += 1.0F;
  Comparison full = compare(VerifyMode::Full);
  EXPECT_FALSE(full.passed());
  EXPECT_EQ(full.outside, 1);
  EXPECT_EQ(full.worstRatio.m, 3);
  EXPECT_EQ(full.worstRatio.n, 41);
  EXPECT_EQ(full.largestError.m, 3);
  EXPECT_EQ(full.largestError.n, 41);
  EXPECT_NEAR(full.largestError.judgement.error, 1, 1e-5);
}

TEST_F(VerifyTest, aNumberThatIsNoneFails) {
  output[0] = std::nanf("");
  EXPECT_EQ(compare(VerifyMode::Full).outside, 1);
  EXPECT_EQ(compare(VerifyMode::Full).worstRatio.judgement.ratio, infinity);
  EXPECT_FALSE(compare(VerifyMode::Sample).passed()); // corners are always among the samples
}

// NaN beside NaN is right, but said.
TEST_F(VerifyTest, exactValuesThatAreNoneAreCounted) {
  EXPECT_EQ(compare(VerifyMode::Full).notFinite, 0);
  weight.components[1].set(5 * 2, 0x7e00); // the first group of row 5
  for (int64_t row = 0; row < m; ++row)
    output[row * n + 5] = std::nanf("");
  Comparison full = compare(VerifyMode::Full);
  EXPECT_TRUE(full.passed());
  EXPECT_EQ(full.notFinite, m);
}

TEST_F(VerifyTest, samplesFindAWrongColumn) {
  for (int64_t row = 0; row < m; ++row)
    output[row * n + 13] = 0;
  EXPECT_FALSE(compare(VerifyMode::Sample).passed());
}

TEST_F(VerifyTest, differingCodesAreCounted) {
  dsl::QuantizedMatrix other = weight;
  EXPECT_EQ(differingCodes(weight, other), 0);
  other.components[0].set(7, other.components[0].get(7) ^ 1);
  other.components[1].set(3, other.components[1].get(3) ^ 1);
  EXPECT_EQ(differingCodes(weight, other), 2);
}

// Of a partition those count whose block is stored in the part.
TEST_F(VerifyTest, differingNumbersOfPartsAreCounted) {
  Module module = *Module::load(std::string(RHO_SOURCE_DIR) + "/kernels/gemms/comet_w4ax.rho");
  auto format = std::make_shared<const dsl::Format>(module.impl().module.gemms[0].activation);
  constexpr int64_t rows = 2, columns = 512;
  std::vector<float> x = kernels::syntheticActivation(rows, columns, 1);
  dsl::MatrixView view{x.data(), dsl::MatrixView::Type::F32, rows, columns, columns};
  const dsl::QuantizedMatrix codes = dsl::quantize(format, view, false).value();
  dsl::QuantizedMatrix other = codes;
  EXPECT_EQ(differingCodes(codes, other), 0);
  const size_t chosen = codes.choice.get(0), unused = 1 - chosen;
  for (size_t part : {chosen, unused}) {
    dsl::CodeArray &elements = other.parts[part].components[0];
    elements.set(columns + 7, elements.get(columns + 7) ^ 1);
    EXPECT_EQ(differingCodes(codes, other), 1);
  }
}

} // namespace
