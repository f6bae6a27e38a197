// The main job on the emulator: every shipped gemm is run and checked.
#include "kernels/TensorFile.h"
#include "runtime/Rho.h"
#include "tests/tool/RunTool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

using namespace rho;
using namespace rho::test;
using testing::HasSubstr;

namespace {

std::vector<std::string> shippedGemms() {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(shipped("kernels/gemms")))
    names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

class ShippedGemmTest : public testing::TestWithParam<std::string> {};

TEST_P(ShippedGemmTest, runsWithinItsBound) {
  // sm_80 has no FP8 instructions; only sm_120a multiplies e2m1 and applies block scales of e8m0.
  const std::string &name = GetParam();
  bool scaled =
      name.starts_with("mxfp") || name.ends_with("nvfp4") || name.ends_with("razer_token");
  const char *device = scaled ? "sm_120a" : name.ends_with("fp8") ? "sm_89" : "sm_80";
  // Whole tiles; then sizes that no tile divides.
  for (const auto &[m, n, k] : {std::array{"16", "128", "256"}, std::array{"3", "70", "192"}}) {
    ToolResult result =
        runTool({"run", gemmFile(name), "--gemm", name, "--m", m, "--n", n, "--k", k, "--device",
                 device, "--verify", "full", "--cache-dir", scratchFolder() + "shipped"});
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, HasSubstr("result      PASS: "));
    EXPECT_THAT(result.out, HasSubstr("cache       miss, compiled"));
  }
}

TEST_P(ShippedGemmTest, isDescribedByCheck) {
  ToolResult result = runTool({"check", gemmFile(GetParam())});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(": gemm " + GetParam() + ": weight "));
}

INSTANTIATE_TEST_SUITE_P(all, ShippedGemmTest, testing::ValuesIn(shippedGemms()),
                         [](const auto &info) { return info.param; });

TEST(RunTest, saysWhatHappened) {
  ToolResult result = runTool({"run", gemmFile("int4_g128_f16"), "--m", "2", "--n", "64", "--k",
                               "256", "--device", "sm_80", "--no-cache"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  for (const char *label :
       {"gemm        int4_g128_f16, m = 2, n = 64, k = 256, output f16\n",
        "value = element * scale, 4.125 bits per element, ",
        "activation  f16: element f16, value = element, 16 bits per element\n", "device      ",
        "plan        m 2\n", "            pipeline ", "            tile ", "place weight.scale in ",
        "kernel      ", "registers not known, no driver was asked", "compile     plan ",
        "cache       miss, compiled, key ", "inputs      weight synthetic, seed 1; ",
        "emulated    ", " thread-instructions in ", " MIPS\n", "largest     y[", "worst       y[",
        "error / bound "})
    EXPECT_THAT(result.out, HasSubstr(label));
}

TEST(RunTest, theSecondTimeComesFromDisk) {
  std::vector<std::string> arguments = {"run",         gemmFile("int4_g64_f16"),
                                        "--m",         "1",
                                        "--n",         "64",
                                        "--k",         "128",
                                        "--device",    "sm_80",
                                        "--cache-dir", scratchFolder() + "twice"};
  EXPECT_THAT(runTool(arguments).out, HasSubstr("cache       miss, compiled"));
  ToolResult second = runTool(arguments);
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("cache       hit, from disk"));
}

TEST(RunTest, readsOperandsAndWritesTheOutput) {
  // Powers of two survive every rounding: y[m,n] = sum over k of x * w is known.
  const int64_t n = 64;
  const int64_t k = 128;
  std::vector<float> w(n * k);
  std::vector<float> x(2 * k);
  for (int64_t i = 0; i < n * k; ++i)
    w[i] = i % k == i / k ? 7.0F : 0.0F; // scale 1, the code 7 on a diagonal
  for (int64_t i = 0; i < 2 * k; ++i)
    x[i] = static_cast<float>(i % 16);
  using Type = dsl::MatrixView::Type;
  std::string weights = scratchFolder() + "w.safetensors";
  std::string activations = scratchFolder() + "x.npy";
  std::string output = scratchFolder() + "y.npy";
  ASSERT_TRUE(kernels::writeTensor(weights, "layer.weight", {w.data(), Type::F32, n, k, k}).ok());
  ASSERT_TRUE(kernels::writeTensor(activations, "", {x.data(), Type::F32, 2, k, k}).ok());
  ToolResult result =
      runTool({"run", gemmFile("int4_g128_f16"), "--weights", weights + ":layer.weight",
               "--activations", activations, "--output", output, "--device", "sm_80"});
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  Result<kernels::Tensor> y = kernels::readTensor(output);
  ASSERT_TRUE(y.ok()) << y.error().str();
  ASSERT_EQ(y->view.rows, 2);
  ASSERT_EQ(y->view.k, n);
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t column = 0; column < n; ++column)
      EXPECT_EQ(y->view.at(row, column), 7.0 * static_cast<double>(column % 16));
}

TEST(RunTest, mistakesAreErrorsBeforeAnyWork) {
  auto error = [](std::vector<std::string> arguments, int code) {
    arguments.insert(arguments.begin(), {"run", gemmFile("int4_g128_f16")});
    ToolResult result = runTool(arguments);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_EQ(error({"--m", "1", "--n", "64"}, 1),
            "error: --k is missing, it can also come from --weights or --activations "
            "[option_missing]\n");
  EXPECT_EQ(error({"--m=1", "--n=1", "--k=1", "--output", "y.txt"}, 1),
            "error: 'y.txt' ends in neither .npy nor .safetensors, only these files hold matrices "
            "[tensor_file_kind]\n");
  EXPECT_EQ(error({"--m=1", "--n=1", "--k=1", "--no-cache", "--cache-dir=x"}, 1),
            "error: --cache-dir and --no-cache do not go together: one asks for a cache "
            "[option_conflict]\n");
  EXPECT_EQ(error({"--m=1", "--n=1", "--k=1", "--gemm=other", "--device=sm_80"}, 1),
            "error: no gemm 'other', the module declares int4_g128_f16 [unknown_gemm]\n");
  EXPECT_THAT(error({"--m=0"}, 2), HasSubstr("[bad_option_value]"));
}

TEST(RunTest, hugeSizesAreErrors) {
  for (const char *size : {"1000000000", "9223372036854775807"}) {
    ToolResult result = runTool({"run", gemmFile("int4_g128_f16"), "--m", size, "--n", size, "--k",
                                 size, "--device", "sm_80", "--no-cache"});
    EXPECT_EQ(result.code, 1) << result.out;
    EXPECT_THAT(result.err, HasSubstr("error: "));
  }
}

TEST(CheckTest, printsAllDiagnosticsOfAllFiles) {
  std::string bad = scratchFolder() + "bad.rho";
  std::ofstream(bad) << "format a { element: s9 value = element }\n"
                        "format b { element: s4 value = elemant }\n";
  ToolResult result = runTool({"check", bad, gemmFile("int4_g128_f16"), bad});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("gemm int4_g128_f16"));
  size_t carets = static_cast<size_t>(std::count(result.err.begin(), result.err.end(), '^'));
  EXPECT_EQ(carets, 4U) << result.err;
  EXPECT_EQ(runTool({"check"}).code, 1);
  EXPECT_EQ(runTool({"check", scratchFolder() + "none.rho"}).code, 1);
}

TEST(BenchTest, writesOneRowAShape) {
  std::string csv = scratchFolder() + "bench.csv", svg = scratchFolder() + "bench.svg";
  ToolResult result =
      runTool({"bench", gemmFile("int4_g128_f16"), gemmFile("liquidquant_int8"), "--m", "1,3",
               "--n", "64", "--k", "128", "--device", "sm_80", "--csv", csv, "--plot", svg});
  EXPECT_EQ(result.code, 0) << result.err;
  std::ifstream drawing(svg);
  std::string drawn((std::istreambuf_iterator<char>(drawing)), std::istreambuf_iterator<char>());
  EXPECT_EQ(drawn.substr(0, 4), "<svg");
  EXPECT_NE(drawn.find(", m = "), std::string::npos) << drawn;
  EXPECT_NE(drawn.find("million thread-instructions a second"), std::string::npos);
  std::ifstream file(csv);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(line);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_TRUE(lines[0].starts_with("file,gemm,device,target,m,n,k,parse_ms,plan_ms,rho_ms,"));
  auto cells = [](const std::string &line) { return std::count(line.begin(), line.end(), ','); };
  for (const std::string &line : lines)
    EXPECT_EQ(cells(line), cells(lines[0])) << line;
  EXPECT_THAT(lines[4], HasSubstr("liquidquant_int8"));
  EXPECT_THAT(lines[4], HasSubstr(",3,64,128,"));
}

// The folder of its kernels, wherever a signal ends the process: before it has a file, while
// kernels are written, after.
TEST(BenchTest, leavesNothingInTheTemporaryFolder) {
  const std::string temporary = scratchFolder() + "temporary";
  std::filesystem::create_directory(temporary);
  for (const int milliseconds : {0, 10, 60, 110, 160, 260}) {
    setenv("TMPDIR", temporary.c_str(), 1);
    ToolProcess process = startTool({"bench", gemmFile("int4_g128_f16"), "--m", "1,2,3,4,5,6,7,8",
                                     "--n", "512,1024", "--k", "512,1024", "--device", "sm_80"});
    unsetenv("TMPDIR");
    while (std::filesystem::is_empty(temporary))
      ASSERT_EQ(usleep(50), 0);
    usleep(static_cast<useconds_t>(milliseconds) * 1000);
    kill(process.child, SIGINT);
    EXPECT_EQ(process.wait().code, -1);
    EXPECT_TRUE(std::filesystem::is_empty(temporary)) << "after " << milliseconds << " ms";
  }
}

TEST(BenchTest, refusesATemporaryFolderThatCannotBeWritten) {
  scratchFolder(); // is in the other
  setenv("TMPDIR", "/none", 1);
  const ToolResult lost = runTool({"bench", gemmFile("int4_g128_f16"), "--device", "sm_80"});
  unsetenv("TMPDIR");
  EXPECT_EQ(lost.code, 1);
  EXPECT_EQ(lost.err, "error: '/none/rho-bench-XXXXXX' cannot be written: No such file or "
                      "directory, its folder is that of $TMPDIR [file_not_writable]\n");
}

TEST(BenchTest, suitesAreForGpus) {
  std::string file = gemmFile("int4_g128_int8");
  EXPECT_EQ(runTool({"bench", file, "--suite", "llama", "--device", "sm_80"}).err,
            "error: sm_80 is emulated, a suite is timed on a GPU [suite_needs_gpu]\n");
  EXPECT_EQ(runTool({"bench", file, "--suite", "llama", "--n", "64"}).err,
            "error: --suite and --n do not go together: a suite has shapes of its own, --n-k "
            "replaces them [option_conflict]\n");
  EXPECT_EQ(runTool({"bench", file, "--suite", "llama", "--batch", "4"}).err,
            "error: --suite and --batch do not go together: it is for caches only "
            "[option_conflict]\n");
  EXPECT_EQ(runTool({"bench", file, "--rotate", "1"}).err,
            "error: --suite is missing, --rotate is for suites only [option_missing]\n");
  EXPECT_EQ(runTool({"bench", file, "--n-k", "64x128"}).err,
            "error: --suite is missing, --n-k is for suites only [option_missing]\n");
  EXPECT_EQ(runTool({"bench", file, "--launch", "both"}).err,
            "error: --suite is missing, --launch is for suites only [option_missing]\n");
}

TEST(VerifyCommandTest, filesHaveGemmsAndProblemsFitMemory) {
  const std::string file = shipped("kernels/formats/int4_g128.rho");
  for (const std::vector<std::string> &command : {std::vector<std::string>{"verify", file},
                                                  {"bench", file},
                                                  {"cache", "warm", file, "--n-k", "64x64"}}) {
    const ToolResult result = runTool(command);
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.err, "error: '" + file + "' declares no gemm [no_gemm]\n");
  }
  const std::string open = scratchFolder() + "open.rho";
  std::ofstream(open)
      << "format a(G: int) { element: s4 scale: f16 per k[G] value = element * scale "
         "}\ngemm g(G: int) { weight: a(G) activation: f16 output: f16 }\n";
  EXPECT_THAT(runTool({"verify", open}).err, HasSubstr("gemm NAME = g(G = ...) gives it one"));
  EXPECT_EQ(runTool({"check", open}).out,
            open + ": format a: of any G\n" + open + ": gemm g: of any G\n");
  for (const char *name : {"", ":a"})
    EXPECT_THAT(runTool({"error", "w.safetensors", "--format", open + name}).err,
                HasSubstr("format NAME = a(G = ...) gives it one"));
  EXPECT_EQ(runTool({"verify", gemmFile("int4_g128_int8"), "--m", "9223372036854775807"}).err,
            "error: --m is '9223372036854775807', at most 524288 [bad_option_value]\n");
  EXPECT_THAT(runTool({"verify", gemmFile("int4_g128_int8"), "--count", "1000001"}).err,
              HasSubstr("--count is '1000001', at most 1000000 [bad_option_value]"));
}

TEST(VerifyCommandTest, aNamedGemmIsThatOfTheFilesThatHaveIt) {
  const std::vector<std::string> files = {gemmFile("int4_channel_f16"), gemmFile("int4_g128_int8")};
  const std::vector<std::string> small = {"--count", "2",   "--m", "2",        "--n",
                                          "64",      "--k", "128", "--device", "sm_80"};
  auto verify = [&](const std::string &gemm) {
    std::vector<std::string> line = {"verify", files[0], shipped("kernels/formats/int4_g128.rho"),
                                     files[1], "--gemm", gemm};
    line.insert(line.end(), small.begin(), small.end());
    return runTool(line);
  };
  const ToolResult one = verify("int4_g128_int8");
  EXPECT_EQ(one.code, 0) << one.out << one.err;
  EXPECT_THAT(one.out, HasSubstr("checked     2 of 2, 0 failed\n"));
  const ToolResult none = verify("int4_g128_int4");
  EXPECT_EQ(none.code, 1);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(none.err, "error: no gemm 'int4_g128_int4', the module declares int4_channel_f16, "
                      "int4_g128_int8, did you mean 'int4_g128_int8' [unknown_gemm]\n");
  const std::string open = put(
      "open2.rho", "format a(G: int) { element: s4 scale: f16 per k[G] value = element * scale }\n"
                   "gemm g(G: int) { weight: a(G) activation: f16 output: f16 }\n");
  EXPECT_THAT(runTool({"verify", files[0], open, "--gemm", "g"}).err,
              HasSubstr("gemm NAME = g(G = ...) gives it one"));
  EXPECT_EQ(runTool({"verify", shipped("kernels/formats/int4_g128.rho"), "--gemm", "g"}).err,
            "error: no gemm 'g', the module declares none [unknown_gemm]\n");
}

TEST(VerifyCommandTest, checksRandomShapesOfEveryGemm) {
  std::string csv = scratchFolder() + "verify.csv";
  ToolResult result = runTool({"verify", gemmFile("int4_g128_int8"), gemmFile("int4_channel_f16"),
                               "--launch", "both", "--count", "21", "--m", "5", "--n", "70", "--k",
                               "200", "--device", "sm_90a", "--csv", csv});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("checked     20 of 21, 0 failed\n"
                                    "checked     21 of 21, 0 failed\n"));
  std::ifstream file(csv);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(line);
  ASSERT_EQ(lines.size(), 22U);
  EXPECT_EQ(lines[0], "device,gemm,launch,m,n,k,outputs,largest_error,its_bound,"
                      "worst_error_over_bound,loose,exact_outputs,exact_over_bound,result");
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_TRUE(lines[i].ends_with(",PASS")) << lines[i];
    EXPECT_THAT(lines[i], HasSubstr(i % 4 == 1 || i % 4 == 2 ? "int4_g128_int8" : "int4_channel"));
    EXPECT_THAT(lines[i], HasSubstr(i % 2 == 1 ? ",serial," : ",dependent,"));
  }
}

TEST(VerifyCommandTest, aProblemThatFailsIsNamedAndTheOthersAreChecked) {
  std::string roles = scratchFolder() + "my roles.rho";
  std::ofstream(roles)
      << "format w { element: s4 scale: f16 per channel value = element * scale }\n"
         "gemm roles { weight: w activation: f16 output: f16 "
         "schedule { roles: imfp } }\n";
  ToolResult result = runTool({"verify", roles, gemmFile("int4_channel_f16"), "--count", "4", "--m",
                               "1", "--n", "1", "--k", "64", "--device", "sm_80"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("failed      roles: "));
  EXPECT_THAT(result.out, HasSubstr("rho run '" + roles + "' --gemm roles --m 1 --n 1 --k "));
  EXPECT_THAT(result.out, HasSubstr("checked     4 of 4, 2 failed\n"));
}

// e4m3 where no instruction multiplies it.
TEST(VerifyCommandTest, activationsThatATargetDoesNotMultiplyAreNumbers) {
  ToolResult result = runTool({"verify", gemmFile("int4_channel_fp8"), "--count", "2", "--m", "9",
                               "--n", "40", "--k", "64", "--device", "sm_80"});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("checked     2 of 2, 0 failed\n"));
  result = runTool({"run", gemmFile("int4_channel_fp8"), "--m", "9", "--n", "40", "--k", "64",
                    "--device", "sm_80"});
  EXPECT_EQ(result.code, 0) << result.out;
  const std::string line = "stored as   f16, exact: activation 'fp8_token' has operands of e4m3, "
                           "sm_80 has no matrix instruction for them";
  EXPECT_THAT(result.out, HasSubstr(line));
  result = runTool({"explain", gemmFile("int4_channel_fp8"), "--m", "9", "--n", "40", "--k", "64",
                    "--device", "a100_40g"});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr(line));
}

TEST(TuneTest, isForGpusAndNeedsShapes) {
  std::string file = gemmFile("int4_g128_int8");
  ToolResult result = runTool({"tune", file, "--n-k", "64x128", "--device", "sm_80"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "error: sm_80 is emulated, kernels are tuned on a GPU [tuner_needs_gpu]\n");
  EXPECT_EQ(runTool({"tune", file}).err, "error: --n-k is missing, it or --suite says what shapes "
                                         "to tune for [option_missing]\n");
  EXPECT_EQ(runTool({"tune", file, "--suite", "gpt"}).code, 2);
  EXPECT_THAT(runTool({"tune", "none.rho", "--suite", "llama"}).err, HasSubstr("none.rho"));
}

// What rho tune keeps reaches rho run and rho bench.
TEST(TuneTest, runAndBenchUseWhatIsKept) {
  std::string file = gemmFile("int4_g128_f16");
  std::vector<std::string> shape = {"--m", "3", "--n", "64", "--k", "128", "--device", "sm_80"};
  auto tool = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, file);
    arguments.insert(arguments.end(), shape.begin(), shape.end());
    return runTool(arguments);
  };
  EXPECT_THAT(tool({"run"}).out, HasSubstr("chosen by   the planner\n"));
  Device device = Device::emulated("sm_80").value();
  EngineOptions options;
  options.cacheDirectory = scratchFolder() + "cache";
  Engine engine = Engine::create(device, options).value();
  TuneOptions one;
  one.candidates = 1;
  Result<TuneReport> report = engine.tune(
      Module::load(file).value(), "", {3, 64, 128},
      [](const Gemm &) -> Result<double> { return 12.5; }, one);
  ASSERT_TRUE(report) << report.error().str();
  ASSERT_TRUE(report->kept);
  EXPECT_THAT(tool({"run"}).out, HasSubstr("chosen by   rho tune, which measured 12.5 us\n"));
  EXPECT_THAT(tool({"run"}).out, HasSubstr("PASS"));
  EXPECT_THAT(tool({"run", "--untuned"}).out, HasSubstr("chosen by   the planner\n"));
  EXPECT_THAT(tool({"bench"}).out, HasSubstr(", tuned\n"));
  EXPECT_THAT(tool({"bench", "--untuned"}).out, HasSubstr(", planned\n"));
}

TEST(ToolTest, helpAndVersionGoToStandardOutput) {
  EXPECT_THAT(runTool({}).out, HasSubstr("rho run FILE.rho"));
  EXPECT_EQ(runTool({}).code, 0);
  EXPECT_THAT(runTool({"help", "run"}).out, HasSubstr("--verify full|sample|none"));
  EXPECT_THAT(runTool({"run", "--help"}).out, HasSubstr("--verify full|sample|none"));
  EXPECT_EQ(runTool({"run", "--m", "3", "x.rho", "--help"}).out, runTool({"help", "run"}).out);
  EXPECT_TRUE(runTool({"--version"}).out.starts_with("rho "));
  EXPECT_EQ(runTool({"--version", "x"}).code, 1);
  EXPECT_EQ(runTool({"nonsense"}).code, 2);
  EXPECT_EQ(runTool({"help", "nonsense"}).code, 1);
}

} // namespace
