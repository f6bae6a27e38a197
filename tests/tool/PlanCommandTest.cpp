// rho plan as a user meets it.
#include "tests/tool/RunTool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

using namespace rho::test;
using testing::HasSubstr;
using testing::Not;
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
  const std::string groups = shipped("kernels/gemms/w4a4.rho") + ":int4_group__32";
  EXPECT_THAT(result.out, HasSubstr("\n\nrho quantize IN.safetensors --format int4_channel "
                                    "--format-of '*v_proj*=" +
                                    groups + "' --format-of '*down_proj*=" + groups +
                                    "' -o OUT.safetensors\n"));
  std::string rows = contentOf(csv);
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 1 + 7 * 2 * 3);
  EXPECT_THAT(rows, StartsWith("model,device,layer,n,k,count,m,gemm,chosen,decided_by,"));
  EXPECT_THAT(contentOf(plot), HasSubstr("down_proj: w4a4_g32"));
}

// A format of a file of the user's is named by the file; a layer that no pattern names has no line.
TEST(PlanCommandTest, saysHowToQuantize) {
  const std::string gemms = scratchFolder() + "mine.rho", path = scratchFolder() + "named.json";
  std::ofstream(gemms)
      << "format mine(G: int = 64) { element: s4 scale: f16 per k[G] value = element "
         "* scale }\ngemm wide { weight: mine activation: f16 output: f16 }\n"
         "gemm fine { weight: mine(32) activation: f16 output: f16 }\n";
  const std::string policy = scratchFolder() + "policy.json";
  auto planned = [&](const std::string &name) {
    std::ofstream(path) << R"({"name": "x", "m": [1], "policy": "policy.json", "layers": [)"
                        << R"({"name": "a", "n": 64, "k": 64}, {"name": ")" << name
                        << R"(", "n": 64, "k": 64}, {"name": "c", "n": 64, "k": 64}]})";
    std::ofstream(policy) << R"({"gemms": ["mine.rho"], "rules": [)"
                          << R"({"layers": [")" << name << R"("], "gemm": "fine"},)"
                          << R"({"gemm": "wide"}]})";
    ToolResult result = runTool({"plan", path, "--device", "a40"});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  EXPECT_THAT(planned("b"),
              HasSubstr("rho quantize IN.safetensors --format " + gemms +
                        ":mine --format-of '*b*=" + gemms + ":mine__32' -o OUT.safetensors\n"));
  EXPECT_THAT(planned("b=b"), Not(HasSubstr("rho quantize")));
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
