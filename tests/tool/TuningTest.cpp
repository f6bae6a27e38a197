#include "runtime/tool/Tuning.h"

#include "runtime/Kernel.h"
#include "runtime/tool/Report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace rho;
using namespace rho::tool;
using testing::EndsWith;
using testing::HasSubstr;

namespace {

class ExpectedRowsTest : public testing::Test {
protected:
  Gemm compiled(const std::string &name, const GemmShape &shape) const {
    Module module =
        Module::load(std::string(RHO_SOURCE_DIR) + "/kernels/gemms/" + name + ".rho").value();
    EngineOptions options;
    options.diskCache = false;
    return Engine::create(device, options).value().compile(module, "", shape).value();
  }
  // Whether one launch gives what is expected.
  Status check(const Gemm &gemm, uint64_t seed, int64_t brokenRow = -1) {
    TimingOperands operands(device, 1), others(device, seed);
    TimingOperands::Input x = operands.input(gemm).value();
    ReadyGemm ready = std::move(makeReady(device, gemm, x.x, x.type).value());
    const WeightCopies &weight = *operands.weight(gemm).value();
    const dsl::QuantizedMatrix &codes = *others.codes(gemm).value();
    ExpectedRows expected = ExpectedRows::create(device, gemm, codes, x).value();
    EXPECT_EQ(expected.period(), std::min<int64_t>(gemm.shape().n, 256));
    if (Status launched = ready.launch(weight[0], nullptr); !launched)
      return launched;
    const uint8_t wrong[] = {0xff, 0x7b}; // the largest f16
    if (brokenRow >= 0)
      EXPECT_TRUE(ready.output.write(wrong, 2, (brokenRow * gemm.shape().n + 299) * 2));
    return expected.check(ready);
  }
  const Device device = Device::emulated("sm_80").value();
};

TEST_F(ExpectedRowsTest, rightResultsPass) {
  for (const char *name : {"int4_g128_int8", "nvfp4_f16", "liquidquant_int8"})
    for (int64_t m : {1, 40}) {
      SCOPED_TRACE(name);
      Status status = check(compiled(name, {m, 300, 256}), 1);
      EXPECT_TRUE(status) << status.error().str();
    }
}

// Which part stores a block, and a scale of the tensor, depend on rows that are not compared.
TEST_F(ExpectedRowsTest, codesThatDependOnAllRowsAreThoseOfAllRows) {
  for (const char *name : {"comet_w4ax", "fp8_tensor_fp8_tensor"}) {
    SCOPED_TRACE(name);
    Status status = check(compiled(name, {40, 300, 1280}), 1);
    EXPECT_TRUE(status) << status.error().str();
  }
}

TEST_F(ExpectedRowsTest, anotherWeightFails) {
  Status status = check(compiled("int4_g128_int8", {1, 300, 256}), 2);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().str(), HasSubstr(" of 300 checked outputs lie outside their bounds"));
  EXPECT_THAT(status.error().str(), EndsWith(" [candidate_wrong]\n"));
}

TEST_F(ExpectedRowsTest, aWrongOutputInTheLastTilesFails) {
  Gemm gemm = compiled("int4_g128_f16", {40, 300, 256});
  for (int64_t row : {0, 39}) {
    Status status = check(gemm, 1, row);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().str(), HasSubstr("error: 1 of 4800 checked outputs lie outside"));
    EXPECT_THAT(status.error().str(),
                HasSubstr("the worst is y[" + std::to_string(row) + ",299] = 65504 in place of "));
  }
}

TuneReport report() {
  const std::string plan = "m 3\nshape n=64 k=128\ntarget sm_80\nmma s8\ntile 8 x 64 x 128\n"
                           "warps 1 x 4 x 1\npipeline 3\n";
  const std::string deeper = plan.substr(0, plan.find("pipeline")) + "pipeline 4\n";
  TuneReport report;
  report.candidates.push_back({plan, 10.0, 12.0});
  report.candidates.push_back({plan, 10.0, makeError(DiagId::null_pointer, {"x"})});
  report.candidates.push_back({deeper, 9.0, 8.0});
  report.best = 2;
  return report;
}

TEST(TunedRowTest, saysHowThePlannersChoiceStands) {
  Device device = Device::emulated("sm_80").value();
  TunedRow row = tunedRow("g", device, {3, 64, 128}, report());
  EXPECT_EQ(row.ratio(), 1.5);
  EXPECT_EQ(row.rank, 3);
  EXPECT_EQ(row.failed, 1);
  EXPECT_EQ(
      row.plannedSchedule,
      "mma s8, scales accumulator, tile 8 x 64 x 128, warps 1 x 4 x 1, pipeline 3, "
      "split_k 1, sums converted, roles uniform, cluster 1 x 1, launch serial, resident 0 at 1");
  EXPECT_THAT(row.bestSchedule, HasSubstr("pipeline 4"));
  TuneReport failed = report();
  failed.candidates[0].microseconds = makeError(DiagId::null_pointer, {"x"});
  EXPECT_EQ(tunedRow("g", device, {3, 64, 128}, failed).ratio(), std::nullopt);
}

TEST(TunedRowTest, tablesAndSummary) {
  Device device = Device::emulated("sm_80").value();
  TunedRow row = tunedRow("g", device, {3, 64, 128}, report());
  TunedRow even = row, none = row;
  even.planned = even.best * 1.5 / 2.25 * 1.5; // 1
  none.planned.reset();
  std::string csv = tunedCsv({row, none});
  EXPECT_THAT(csv, HasSubstr("gemm,device,n,k,m,candidates,failed,planned_us,best_us,"
                             "planned_over_best,best_rank,planned_schedule,best_schedule\n"
                             "g," +
                             device.name() + ",64,128,3,3,1,12.000,8.000,1.500,3,\"mma s8, "));
  EXPECT_THAT(csv, HasSubstr(",3,3,1,,8.000,,3,"));
  EXPECT_EQ(plannerSummary({even, row, none}),
            "planned / best 1.225, geometric mean of 2; worst 1.500 of g, m = 3, n = 64, k = 128");
  EXPECT_EQ(plannerSummary({none}), "");
}

TEST(TunedRowTest, everyMeasuredCandidateHasItsPrediction) {
  Device device = Device::emulated("sm_80").value();
  TuneReport predicted = report();
  predicted.candidates[2].predictedMicroseconds = 7.25;
  std::vector<MeasuredRow> rows = measuredRows("g", device, {3, 64, 128}, predicted);
  ASSERT_EQ(rows.size(), 2u); // one failed
  EXPECT_EQ(rows[1].predicted, 7.25);
  EXPECT_THAT(measuredCsv(rows),
              HasSubstr("g," + device.name() + ",64,128,3,7.250,8.000,\"mma s8"));
}

TEST(ProgressBarTest, fillsUp) {
  EXPECT_EQ(progressBar(0, 3), "[                        ] 0 of 3");
  EXPECT_EQ(progressBar(2, 3), "[################        ] 2 of 3");
  EXPECT_EQ(progressBar(3, 3), "[########################] 3 of 3");
}

} // namespace
