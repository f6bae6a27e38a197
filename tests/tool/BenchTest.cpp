#include "runtime/tool/Bench.h"

#include "runtime/Handles.h"
#include "runtime/tool/Tool.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

using namespace rho;
using namespace rho::tool;

namespace {

// Titles of what a command line chooses of a file with one gemm.
std::vector<std::string> titles(std::vector<std::string> options) {
  options.insert(options.begin(),
                 {"bench", std::string(RHO_SOURCE_DIR) + "/kernels/gemms/int4_g128_int8.rho"});
  std::vector<BenchGemm> gemms = chooseGemms(Options::parse(options).value()).value();
  std::vector<std::string> found;
  for (const BenchGemm &gemm : gemms)
    found.push_back(gemm.title());
  return found;
}

TEST(BenchGemmsTest, launchesAreAsDeclaredOrAsAskedFor) {
  using Titles = std::vector<std::string>;
  const std::string serial = "int4_g128_int8", dependent = serial + ", dependent";
  EXPECT_EQ(titles({}), Titles{serial});
  EXPECT_EQ(titles({"--launch", "serial"}), Titles{serial});
  EXPECT_EQ(titles({"--launch", "dependent"}), Titles{dependent});
  EXPECT_EQ(titles({"--launch", "both"}), (Titles{serial, dependent}));
}

// All but the launch stays, and the kernel is launched as asked.
TEST(BenchGemmsTest, aLaunchLeavesTheRestOfTheDeclaration) {
  std::vector<std::string> line = {"bench", "--launch", "both",
                                   std::string(RHO_SOURCE_DIR) +
                                       "/kernels/gemms/int4_g128_int8.rho"};
  std::vector<BenchGemm> gemms = chooseGemms(Options::parse(line).value()).value();
  ASSERT_EQ(gemms.size(), 2U);
  dsl::Gemm serial = gemms[0].module.impl().module.gemms[0];
  dsl::Gemm dependent = gemms[1].module.impl().module.gemms[0];
  EXPECT_EQ(serial.schedule.dependent, std::nullopt) << "not said, not needed";
  ASSERT_TRUE(dependent.schedule.dependent);
  EXPECT_TRUE(*dependent.schedule.dependent);
  dependent.schedule.dependent = serial.schedule.dependent;
  EXPECT_EQ(print(serial), print(dependent));
  EXPECT_EQ(serial.weight, dependent.weight);
  // Errors of both are at the places of the file.
  EXPECT_TRUE(dependent.outputSpan == serial.outputSpan);
  EXPECT_TRUE(dependent.schedule.spans.schedule.file == serial.schedule.spans.schedule.file);
  EXPECT_EQ(gemms[1].module.impl().module.sources, gemms[0].module.impl().module.sources);
  EXPECT_EQ(serial.activation, dependent.activation);
}

TEST(BenchGemmsTest, suitesAndTheTunerNeedAGpu) {
  std::vector<std::string> line = {
      "tune", "--device=sm_90a", std::string(RHO_SOURCE_DIR) + "/kernels/gemms/int4_g128_int8.rho"};
  Result<GpuTask> task = openGpuTask(Options::parse(line).value(), DiagId::tuner_needs_gpu);
  EXPECT_EQ(task.error().str(),
            "error: sm_90a is emulated, kernels are tuned on a GPU [tuner_needs_gpu]\n");
}

// What a launch has to move: a page of codes and components, a tail of 32 tokens, queries and
// outputs.
TEST(BenchKvTest, countsTheBytesOfPagesAndTails) {
  const int token = 128 * 2 * 2, others = 2 * 2 * 128 * 2; // of a sequence
  const int plainPage = 128 * token, page = 2 * (128 * 128 / 2 + 128 * 3);
  struct Lengths {
    std::vector<std::string> options;
    std::string columns;
    int pages, tails, sequences;
  };
  for (const Lengths &lengths :
       {Lengths{{}, "1,160,160", 1, 32, 1},
        // Of 100, 200 and 300 tokens.
        Lengths{
            {"--batch", "3", "--length", "300", "--shortest", "100"}, "3,300,100", 3, 216, 3}}) {
    std::string file = testing::TempDir() + "/rho_bench_kv.csv";
    std::vector<std::string> line = {"bench",
                                     "--kv",
                                     "int4_asym_g128",
                                     "--device=sm_80",
                                     "--csv",
                                     file,
                                     std::string(RHO_SOURCE_DIR) +
                                         "/kernels/formats/int4_asym_g128.rho"};
    line.insert(line.end(), lengths.options.begin(), lengths.options.end());
    Result<int> code = kvCommand(Options::parse(line).value());
    ASSERT_TRUE(code.ok()) << code.error().str();
    std::ifstream table(file);
    std::string head, plain, kv4;
    ASSERT_TRUE(std::getline(table, head) && std::getline(table, plain) &&
                std::getline(table, kv4));
    EXPECT_TRUE(head.starts_with("keys,values,device,target,batch,length,shortest,"));
    auto bytes = [&](int ofPage) {
      return "," +
             std::to_string(lengths.pages * ofPage + lengths.tails * token +
                            lengths.sequences * others) +
             ",";
    };
    for (const std::string *row : {&plain, &kv4})
      EXPECT_NE(row->find("," + lengths.columns + ",2,1,128,128,"), std::string::npos) << *row;
    EXPECT_NE(plain.find(",16.0" + bytes(plainPage)), std::string::npos) << plain;
    EXPECT_NE(kv4.find(",4.19" + bytes(page)), std::string::npos) << kv4;
    std::filesystem::remove(file);
  }
}

TEST(BenchKvTest, shortestSequencesAreNoLongerThanTheLongest) {
  std::vector<std::string> line = {
      "bench",
      "--kv",
      "int4_asym_g128",
      "--device=sm_80",
      "--length",
      "64",
      "--shortest",
      "65",
      std::string(RHO_SOURCE_DIR) + "/kernels/formats/int4_asym_g128.rho"};
  Result<int> code = kvCommand(Options::parse(line).value());
  ASSERT_FALSE(code.ok());
  EXPECT_EQ(code.error().str(),
            "error: --shortest is '65', it is at most --length, 64 [bad_option_value]\n");
}

TEST(BenchKvTest, formatsAreOneOrTwo) {
  const std::vector<std::string> line = {"bench", "--kv", "f16,f16,f16", "--device=sm_80",
                                         std::string(RHO_SOURCE_DIR) +
                                             "/kernels/formats/int4_asym_g128.rho"};
  EXPECT_EQ(kvCommand(Options::parse(line).value()).error().str(),
            "error: --kv is 'f16,f16,f16', one format or two, of keys and of values "
            "[bad_option_value]\n");
}

TEST(BenchKvTest, optionsOfGemmsBelongToGemms) {
  for (const std::vector<std::string> &own : {std::vector<std::string>{"--gemm", "g"},
                                              {"--m", "1"},
                                              {"--plot", "/tmp/p.svg"},
                                              {"--untuned"},
                                              {"--n-k", "64x64"}}) {
    std::vector<std::string> line = {"bench", "--kv", "f16", "a.rho"};
    line.insert(line.end(), own.begin(), own.end());
    EXPECT_EQ(benchCommand(*Options::parse(line)).error().str(),
              "error: --kv and " + own[0] +
                  " do not go together: caches have no gemm, and no plan or plot of one "
                  "[option_conflict]\n");
  }
}

TEST(BenchKvTest, optionsOfCachesBelongToCaches) {
  std::vector<std::string> line = {"bench", "--batch", "4"};
  Result<int> code = benchCommand(Options::parse(line).value());
  ASSERT_FALSE(code.ok());
  EXPECT_EQ(code.error().str(),
            "error: --kv is missing, --batch is for caches only [option_missing]\n");
}

} // namespace
