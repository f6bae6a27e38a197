// The library in Rho's own language: every file loads, prints and parses back.
#include "dsl/Module.h"
#include "tests/dsl/Formats.h"
#include "tests/dsl/Names.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace rho::dsl {
namespace {

std::vector<std::string> shippedFiles() {
  std::vector<std::string> files;
  for (const char *folder : {"kernels/formats", "kernels/gemms", "kernels/devices"})
    for (const auto &entry : std::filesystem::directory_iterator(test::sourceDir() / folder))
      if (entry.path().extension() == ".rho")
        files.push_back(std::string(folder) + "/" + entry.path().filename().string());
  std::sort(files.begin(), files.end());
  return files;
}

class Shipped : public testing::TestWithParam<std::string> {};

TEST_P(Shipped, LoadsPrintsAndParsesBack) {
  std::filesystem::path path = test::sourceDir() / GetParam();
  Result<Module> module = loadModule(path.string());
  ASSERT_TRUE(module.ok()) << module.error().str();
  // A file declares what it is named after.
  std::string stem = path.stem().string();
  EXPECT_TRUE(module->findFormat(stem) || module->findGemm(stem) ||
              (!module->devices.empty() && module->devices[0].name == stem));
  Result<Module> again = parseModule(print(*module), "again.rho", nullptr);
  ASSERT_TRUE(again.ok()) << again.error().str();
  EXPECT_EQ(print(*again), print(*module));
  EXPECT_TRUE(again->formats == module->formats);
  EXPECT_TRUE(again->devices == module->devices);
  ASSERT_EQ(again->gemms.size(), module->gemms.size());
  for (size_t i = 0; i < module->gemms.size(); ++i) {
    EXPECT_EQ(again->gemms[i].weight, module->gemms[i].weight);
    EXPECT_EQ(again->gemms[i].activation, module->gemms[i].activation);
    EXPECT_EQ(again->gemms[i].schedule, module->gemms[i].schedule);
  }
  EXPECT_TRUE(test::text(path).starts_with("// ")) << "says what it is";
}

INSTANTIATE_TEST_SUITE_P(Files, Shipped, testing::ValuesIn(shippedFiles()),
                         [](const auto &info) { return test::testName(info.param); });

TEST(ShippedFormats, DerivedRulesUseTheWholeRange) {
  auto ruleOf = [](const std::string &format, size_t component) {
    test::FormatPtr f = test::shipped(format);
    return print(*f->components.at(component).encode, *f);
  };
  EXPECT_EQ(ruleOf("int4_g128", 1), "absmax(x) / 7");
  EXPECT_EQ(ruleOf("int8_token", 1), "absmax(x) / 127");
  EXPECT_EQ(ruleOf("nvfp4", 1), "absmax(x / tensor) / 6");
  EXPECT_EQ(ruleOf("nvfp4", 2), "absmax(x) / 6 / 448");
}

} // namespace
} // namespace rho::dsl
