#include "runtime/tool/Inputs.h"

#include <gtest/gtest.h>

#include <filesystem>

using namespace rho;
using namespace rho::tool;

namespace {

class InputsTest : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "rho-inputs-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern + "/";
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string matrix(const std::string &name, int64_t rows, int64_t k) {
    std::vector<float> values(static_cast<size_t>(rows * k), 1.5F);
    Status written = kernels::writeTensor(folder + name, "t",
                                          {values.data(), dsl::MatrixView::Type::F32, rows, k, k});
    EXPECT_TRUE(written.ok());
    return folder + name;
  }
  static Result<Sources> open(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "run");
    return openSources(Options::parse(arguments).value());
  }

  std::string folder;
};

TEST_F(InputsTest, shapesComeFromOptionsAndFiles) {
  std::string w = matrix("w.npy", 6, 8);
  std::string x = matrix("x.safetensors", 3, 8);
  for (const std::vector<std::string> &arguments :
       {std::vector<std::string>{"--weights", w, "--activations", x},
        std::vector<std::string>{"--weights", w, "--m", "3"},
        std::vector<std::string>{"--activations", x, "--n", "6", "--k", "8"},
        std::vector<std::string>{"--m=3", "--n=6", "--k=8"}}) {
    Result<Sources> sources = open(arguments);
    ASSERT_TRUE(sources.ok()) << sources.error().str();
    EXPECT_EQ(sources->shape.m, 3);
    EXPECT_EQ(sources->shape.n, 6);
    EXPECT_EQ(sources->shape.k, 8);
    EXPECT_EQ(weightOf(*sources).view.rows, 6);
    EXPECT_EQ(activationOf(*sources)->view.rows, 3);
    EXPECT_EQ(activationOf(*sources)->view.k, 8);
  }
  EXPECT_EQ(weightOf(*open({"--weights", w, "--m", "3"})).view.at(5, 7), 1.5);
}

TEST_F(InputsTest, shapesMustAgree) {
  std::string w = matrix("w.npy", 6, 8);
  std::string x = matrix("x.npy", 3, 9);
  EXPECT_EQ(open({"--weights", w, "--n", "7", "--m", "1"}).error().str(),
            "error: n is 7 in --n and 6 in " + w + ", both must agree [shape_conflict]\n");
  EXPECT_EQ(open({"--weights", w, "--activations", x}).error().str(),
            "error: k is 8 in " + w + " and 9 in " + x + ", both must agree [shape_conflict]\n");
  EXPECT_EQ(open({"--weights", w}).error().str(),
            "error: --m is missing, it can also come from --activations [option_missing]\n");
  EXPECT_EQ(open({"--m", "1", "--n", "2"}).error().str(),
            "error: --k is missing, it can also come from --weights or --activations "
            "[option_missing]\n");
}

TEST_F(InputsTest, whatTheHostCannotHoldIsRefused) {
  EXPECT_TRUE(checkHostMemory({16, 256, 512}).ok());
  std::string error = checkHostMemory({int64_t(1) << 20, int64_t(1) << 40, 1}).error().str();
  std::string begin =
      "error: the problem needs about 27670129304716 MB on the host, the machine has ";
  EXPECT_TRUE(error.starts_with(begin)) << error;
  EXPECT_TRUE(error.ends_with(" MB [problem_too_large]\n")) << error;
  EXPECT_FALSE(checkHostMemory({INT64_MAX, INT64_MAX, INT64_MAX}).ok());
}

} // namespace
