// rho plan as a user meets it.
#include "tests/tool/RunTool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

using namespace rho::test;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

TEST(PlanCommandTest, plansAModelByItsPolicy) {
  std::string csv = scratchFolder() + "plan.csv", plot = scratchFolder() + "plan.svg";
  ToolResult result = runTool({"plan", shipped("examples/models/llama3_8b.json"), "--device",
                               "a100_40g", "--m", "16,1024", "--csv", csv, "--plot", plot});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("model       LLaMA-3-8B\n"));
  EXPECT_THAT(result.out, HasSubstr("rule 2: layer down_proj"));
  EXPECT_THAT(result.out, HasSubstr("rule 3: all others"));
  EXPECT_THAT(result.out, HasSubstr("over f16"));
  std::string rows = contentOf(csv);
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 1 + 7 * 2 * 3);
  EXPECT_THAT(rows, StartsWith("model,device,layer,n,k,count,m,gemm,chosen,decided_by,"));
  EXPECT_THAT(contentOf(plot), HasSubstr("down_proj: w4a4_g32"));
}

TEST(PlanCommandTest, takesGemmsOfTheCommandLine) {
  ToolResult result = runTool({"plan", shipped("examples/models/llama3_8b.json"),
                               shipped("kernels/gemms/int4_g128_int8.rho"),
                               shipped("kernels/gemms/w4a4.rho") + ":w4a4_g64", "--device", "h200",
                               "--m", "16", "--gemm", "w4a4_g64"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("w4a4_g64  --gemm: all others"));
  EXPECT_THAT(result.out, HasSubstr("all int4_g128_int8"));
}

TEST(PlanCommandTest, saysWhatIsWrong) {
  std::string path = scratchFolder() + "model.json";
  std::ofstream(path) << R"({"name": "x", "m": [1], "layers": [{"name": "a", "n": 64, "k": 64}]})";
  ToolResult result = runTool({"plan", path, "--device", "a40"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err,
            "error: no gemm to plan with, they are those of FILE.rho arguments, of --policy or "
            "of the model's 'policy' [plan_without_gemms]\n");
  result = runTool({"plan", "--device", "a40"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "error: MODEL.json is missing, 'rho plan' needs layers [option_missing]\n");
  result = runTool({"plan", scratchFolder() + "none.json"});
  EXPECT_THAT(result.err, HasSubstr("[file_not_readable]"));
  result = runTool({"plan", path, shipped("kernels/gemms/w4a4.rho") + ":w4a5", "--device", "a40"});
  EXPECT_THAT(result.err, HasSubstr("[unknown_gemm]"));
}

} // namespace
