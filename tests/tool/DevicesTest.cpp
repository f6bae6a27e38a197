// Described devices as a user meets them: rho devices, explain, probe and --device.
#include "tests/tool/RunTool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>

using namespace rho::test;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

using Table = std::map<std::string, std::map<std::string, std::string>>;

// Rows by their first cell, cells by the head of their column; columns are two spaces apart.
Table tableOf(const std::string &text) {
  auto cells = [](const std::string &line) {
    std::vector<std::string> found;
    for (size_t at = 0; at < line.size();) {
      size_t begin = line.find_first_not_of(' ', at);
      if (begin == std::string::npos)
        break;
      size_t end = std::min(line.find("  ", begin), line.size());
      found.push_back(line.substr(begin, end - begin));
      at = end;
    }
    return found;
  };
  Table table;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  std::vector<std::string> head = cells(line);
  while (std::getline(lines, line) && !line.empty()) {
    std::vector<std::string> row = cells(line);
    for (size_t i = 0; i < std::min(row.size(), head.size()); ++i)
      table[row[0]][head[i]] = row[i];
  }
  return table;
}

// A device of sm_80 with few SMs.
std::string described(const std::string &name) {
  return "device " + name +
         " {\n  product: \"A described GPU\"\n  target: sm_80\n  sms: 3\n  clock: 1 GHz\n"
         "  bandwidth: 100 GB/s\n  l2: 4 MiB\n  shared_per_sm: 164 KiB\n  shared_per_cta: 163 KiB\n"
         "  registers: 65536\n  threads: 2048\n  tensor { f16: 1024 s8: 2048 s4: 640 }\n"
         "  throughput { ffma: 64 hfma2: 128 bfma2: 64 iadd: 64 imad: 64 lop3: 64 prmt: 64 shf: 64 "
         "dp4a: 64 i2f: 16 f2f: 16 lds: 32 }\n}\n";
}

// APEX4, table 1, and the other devices that the library describes.
TEST(DevicesTest, rhoOfTheDescribedDevices) {
  ToolResult result = runTool({"devices"});
  EXPECT_EQ(result.code, 0) << result.err;
  Table table = tableOf(result.out);
  EXPECT_EQ(table["a100_40g"]["rho s4"], "64");
  EXPECT_EQ(table["rtx_3090"]["rho s4"], "16");
  EXPECT_EQ(table["a40"]["rho s4"], "16");
  EXPECT_EQ(table["l40s"]["rho s4"], "8");
  EXPECT_EQ(table["a100_40g"]["rho s8"], "32"); // COMET, section 4.3
  EXPECT_EQ(table["h100"]["rho s4"], "-");
  for (const char *name : {"a100_80g", "rtx_4090", "h100", "h800", "h200", "b200", "rtx_5090",
                           "rtx_pro_6000", "dgx_spark"})
    EXPECT_EQ(table.count(name), 1U) << name;
}

TEST(DevicesTest, filesAreDescribedToo) {
  ToolResult result = runTool({"devices", put("mine.rho", described("mine"))});
  EXPECT_EQ(result.code, 0) << result.err;
  Table table = tableOf(result.out);
  EXPECT_EQ(table["mine"]["rho s4"], "10");
  EXPECT_EQ(table.size(), 1U);
  EXPECT_THAT(runTool({"devices", put("bad.rho", "device x {}")}).err,
              HasSubstr("[device_entry_missing]"));
  std::string none = put("no_device.rho", "gemm g { weight: f16 activation: f16 output: f16 }");
  EXPECT_EQ(runTool({"devices", none}).err,
            "error: '" + none + "' declares no device [no_device]\n");
}

TEST(DevicesTest, planningAndRunningTakeADescribedDevice) {
  std::string path = put("run.rho", described("mine"));
  for (const std::string &device : {path, std::string("rtx_4090")}) {
    ToolResult result = runTool({"run", gemmFile("int4_g128_f16"), "--m", "3", "--n", "128", "--k",
                                 "256", "--device", device});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(device == path ? "A described GPU (emulated), sm_80"
                                                     : "RTX 4090 (emulated), sm_89"));
    EXPECT_THAT(result.out, HasSubstr("PASS"));
  }
  ToolResult plan = runTool({"compile", gemmFile("int4_g128_f16"), "--m", "16", "--n", "8192",
                             "--k", "8192", "--emit=plan", "--device", "l40s"});
  EXPECT_THAT(plan.out, HasSubstr("target sm_89"));
  EXPECT_THAT(runTool({"compile", gemmFile("int4_g128_f16"), "--device", "l40s", "--target",
                       "sm_80", "--m", "1", "--n", "64", "--k", "64"})
                  .err,
              HasSubstr("[option_conflict]"));
}

TEST(DevicesTest, AProductMovesNoCursor) {
  std::string text = described("mine");
  text.replace(text.find("described"), 9, "\x1b[31mred");
  const std::string device = put("red.rho", text);
  for (const char *command : {"run", "bench"}) {
    const ToolResult result = runTool({command, gemmFile("int4_g128_f16"), "--m", "1", "--n", "64",
                                       "--k", "128", "--device", device});
    EXPECT_THAT(result.out, HasSubstr("A \\x1b[31mred GPU (emulated)")) << command;
    EXPECT_THAT(result.out, testing::Not(HasSubstr("\x1b"))) << command;
  }
}

// A file that standard output goes to is not replaced by an output of that name.
TEST(DevicesTest, OutputsMayGoWhereStandardOutputGoes) {
  const std::string log = put("log", "");
  ToolResult result = runTool({"explain", gemmFile("int4_g128_f16"), "--m=16", "--n=512", "--k=512",
                               "--device", "a40", "--plot", "/dev/stdout"},
                              "/dev/null", log);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(contentOf(log), HasSubstr("device      NVIDIA A40"));
  EXPECT_THAT(contentOf(log), HasSubstr("</svg>"));
}

ToolResult explained(const std::string &device, std::vector<std::string> more) {
  std::vector<std::string> arguments = {
      "explain", gemmFile("int4_g128_f16"), "--m=16", "--n=8192", "--k=8192", "--device", device};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return runTool(arguments);
}

// That of the winner.
double microseconds(const ToolResult &result) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(result.out, found, std::regex(R"((\d+\.\d+)  \d+ x )")))
      << result.err;
  return found.empty() ? 0 : std::stod(found[1]);
}

// A kernel that may start before its predecessor ends hides its own start, where there is such a
// launch.
TEST(DevicesTest, aDependentLaunchIsFaster) {
  double declared = microseconds(explained("h200", {}));
  EXPECT_EQ(microseconds(explained("h200", {"--launch=serial"})), declared);
  EXPECT_LT(microseconds(explained("h200", {"--launch=dependent"})), declared);
  EXPECT_EQ(microseconds(explained("a100_80g", {"--launch=dependent"})),
            microseconds(explained("a100_80g", {})));
}

// Of a launch that is repeated, an L40S has all weights in its L2.
TEST(DevicesTest, aWarmL2IsFaster) {
  EXPECT_GT(microseconds(explained("l40s", {})), 2 * microseconds(explained("l40s", {"--warm"})));
  EXPECT_EQ(explained("b200", {"--warm"}).err,
            "error: device 'NVIDIA B200 (emulated)' declares no l2_bandwidth, --warm needs that "
            "figure [warm_without_l2]\n");
}

// A schedule for few rows has no plan at the others that the plot asks for.
TEST(DevicesTest, aPlotHasTheRowsThatTheScheduleTakes) {
  const char *text = "import \"rho:int4_g128\"\ngemm g { weight: int4_g128 activation: f16 "
                     "output: f16 schedule { roles: gemv } }\n";
  const std::string plot = scratchFolder() + "gemv.svg";
  const ToolResult result = runTool({"explain", put("gemv.rho", text), "--m=1", "--n=256",
                                     "--k=512", "--device", "h200", "--plot", plot});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(contentOf(plot), HasSubstr("gemv"));
}

// Its kernels are those of another GPU, which has less shared memory.
TEST(DevicesTest, plansOfADeviceCompile) {
  const ToolResult result =
      runTool({"compile", gemmFile("int4_g128_f16"), "--m=16", "--n=4096", "--k=4096", "--device",
               "b200", "--emit", "tile", "-o", scratchFolder() + "b200.mlir"});
  EXPECT_EQ(result.code, 0) << result.err;
}

// What is generated, not what the GPU is.
TEST(DevicesTest, aCheckNamesTheKernels) {
  EXPECT_THAT(runTool({"check", shipped("kernels/devices/b200.rho")}).out,
              HasSubstr("device b200: NVIDIA B200, kernels for sm_90\n"));
}

TEST(DevicesTest, mistakesAreErrors) {
  auto error = [](const std::string &device) {
    return runTool({"explain", gemmFile("int4_g128_f16"), "--m=1", "--n=64", "--k=64", "--device",
                    device})
        .err;
  };
  std::string two = put("two.rho", described("one") + described("two"));
  EXPECT_EQ(error(two), "error: '" + two + "' declares 2 devices, one is needed [device_count]\n");
  EXPECT_THAT(error("a1000"), HasSubstr("the described devices a100_80g, a100_40g, "));
  EXPECT_THAT(error("/none.rho"), HasSubstr("[module_not_found]"));
  EXPECT_EQ(runTool({"probe", "--device", "sm_80"}).err,
            "error: 'NVIDIA A100-SXM4-80GB (emulated)' is no GPU, its figures are declared and "
            "there is nothing to measure [probe_needs_gpu]\n");
  EXPECT_THAT(runTool({"probe", "file"}).err, HasSubstr("[option_conflict]"));
  EXPECT_THAT(runTool({"explain", gemmFile("int4_g128_f16"), "--m=1"}).err,
              HasSubstr("[option_missing]"));
}

TEST(ExplainTest, everyAlternativeHasItsReason) {
  std::string plot = scratchFolder() + "explain.svg";
  ToolResult result = runTool({"explain", gemmFile("int4_g128_int4_g128"), "--m=8192", "--n=8192",
                               "--k=8192", "--device=a100_40g", "--plot", plot});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rho of s4 64"));
  EXPECT_THAT(result.out, HasSubstr("accumulator  uniform"));
  EXPECT_THAT(result.out, HasSubstr("the winner; bound by "));
  EXPECT_THAT(result.out, HasSubstr("not legal: "));
  EXPECT_THAT(result.out, HasSubstr("; activation stored as f16"));
  EXPECT_THAT(result.out, HasSubstr("they need sm_90a"));
  std::ifstream file(plot);
  std::string svg((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(svg, StartsWith("<svg"));
  EXPECT_THAT(svg, HasSubstr("uniform, scales accumulator"));
  EXPECT_THAT(svg, HasSubstr("f16 of a library"));
}

// A device may leave out what its tensor cores do not have.
TEST(ExplainTest, withoutF16NothingIsSaidOfIt) {
  std::string text = described("mine");
  text.replace(text.find("f16: 1024 "), 10, "");
  const std::string device = put("integers.rho", text), plot = scratchFolder() + "integers.svg",
                    csv = scratchFolder() + "integers.csv",
                    model = put("model.json", R"({"name": "two\u0000names", "m": [4], "layers": [
      {"name": "a\u0000b", "n": 256, "k": 256}, {"name": "c", "n": 256, "k": 512}]})");
  ToolResult result = runTool({"explain", gemmFile("int8_channel_int8"), "--m=4096", "--n=4096",
                               "--k=4096", "--device", device, "--plot", plot});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, testing::Not(HasSubstr("a library's plain product")));
  result =
      runTool({"plan", model, gemmFile("int8_channel_int8"), "--device", device, "--csv", csv});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("two\\x00names"));
  EXPECT_THAT(result.out, testing::ContainsRegex("4  a\\\\x00b +\\*[0-9.]+ +- +-\n"));
  EXPECT_THAT(result.out, testing::ContainsRegex("4 +[0-9.]+ +- +- +[0-9.]+\n"));
  std::ifstream file(csv);
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(file), {}), HasSubstr(",,,,s8,"));
}

TEST(ExplainTest, losersSayByHowMuch) {
  ToolResult result = runTool(
      {"explain", gemmFile("int4_g128_bf16"), "--m=64", "--n=8192", "--k=8192", "--device=h200"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(" times the winner's; bound by "));
  for (const char *roles : {"uniform", "imfp", "excp", "gemv"})
    for (const char *scales : {"accumulator  ", "operand      "})
      EXPECT_THAT(result.out, HasSubstr(std::string(scales) + roles));
}

} // namespace
