// Whole texts: every .rho file in fail/ with all that is reported about it, every one in pass/ with
// its syntax tree, layout and canonical text. RHO_BLESS=1 rewrites them.
#include "dsl/Fmt.h"
#include "dsl/Module.h"
#include "tests/dsl/Files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace rho::dsl {
namespace {

using test::readText;

std::vector<std::string> stems(const std::string &folder) {
  std::vector<std::string> found;
  for (const auto &entry :
       std::filesystem::directory_iterator(test::sourceDir() / "tests/dsl" / folder))
    if (entry.path().extension() == ".rho")
      found.push_back(entry.path().stem().string());
  std::sort(found.begin(), found.end());
  return found;
}

void compare(const std::filesystem::path &golden, const std::string &actual) {
  if (test::blessing())
    std::ofstream(golden, std::ios::binary) << actual;
  std::optional<std::string> expected = readText(golden);
  ASSERT_TRUE(expected) << golden << " is missing; RHO_BLESS=1 writes it";
  EXPECT_EQ(actual, expected.value_or("")) << golden;
}

class Fail : public testing::TestWithParam<std::string> {};

TEST_P(Fail, ReportsExactly) {
  std::filesystem::path folder = test::sourceDir() / "tests/dsl/fail";
  std::string name = GetParam() + ".rho";
  auto reader = [&](const std::string &path) { return readText(folder / path); };
  Result<Module> module = parseModule(test::text(folder / name), name, reader);
  ASSERT_FALSE(module.ok());
  compare(folder / (GetParam() + ".txt"), module.error().str());
}

INSTANTIATE_TEST_SUITE_P(Files, Fail, testing::ValuesIn(stems("fail")),
                         [](const auto &info) { return info.param; });

class Pass : public testing::TestWithParam<std::string> {};

TEST_P(Pass, PrintsExactly) {
  std::filesystem::path folder = test::sourceDir() / "tests/dsl/pass";
  std::string name = GetParam() + ".rho";
  std::string text = test::text(folder / name);
  Result<std::string> tree = printAst(text, name);
  ASSERT_TRUE(tree.ok()) << tree.error().str();
  compare(folder / (GetParam() + ".ast.txt"), *tree);
  Result<std::string> formatted = formatText(text, name);
  ASSERT_TRUE(formatted.ok()) << formatted.error().str();
  compare(folder / (GetParam() + ".fmt.txt"), *formatted);
  Result<Module> module = parseModule(text, name, nullptr);
  ASSERT_TRUE(module.ok()) << module.error().str();
  std::string printed = print(*module);
  for (const Format &format : module->formats)
    for (const Component &component : format.components)
      if (component.encode && !component.encodeDeclared)
        printed += "// derived: " + format.name + "." + component.name + " = " +
                   print(*component.encode, format) + "\n";
  compare(folder / (GetParam() + ".txt"), printed);

  Result<Module> again = parseModule(print(*module), "again.rho", nullptr);
  ASSERT_TRUE(again.ok()) << again.error().str();
  EXPECT_EQ(print(*again), print(*module));
  EXPECT_TRUE(again->formats == module->formats);
}

INSTANTIATE_TEST_SUITE_P(Files, Pass, testing::ValuesIn(stems("pass")),
                         [](const auto &info) { return info.param; });

} // namespace
} // namespace rho::dsl
