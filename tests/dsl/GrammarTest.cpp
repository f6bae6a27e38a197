// docs/GRAMMAR.md: each example in it is executed. Fenced blocks are
//   ```rho             a module: it parses, is laid out as rho fmt does, its formats encode
//   numbers,
//                      and its gemms run (tests/tool/ManualTest.cpp)
//   ```rho NAME.rho    the same, and blocks behind it may import NAME.rho
//   ```rho wrong       wrong.rho, which gives exactly the text of the next block, ```text, which
//                      RHO_BLESS=1 rewrites
#include "dsl/Fmt.h"
#include "dsl/Module.h"
#include "dsl/Quantize.h"
#include "dsl/Words.h"
#include "tests/dsl/Files.h"
#include "tests/dsl/Manual.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>
#include <vector>

namespace rho::dsl {
namespace {

using test::Block, test::blocksOf, test::manualBlocks;

// Encoding loses something, but less than storing zeros would.
void encodeNumbers(const Format &format) {
  constexpr int64_t rows = 3, k = 300;
  std::mt19937_64 random = test::generator(7);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(rows * k);
  for (float &number : numbers)
    number = normal(random);
  MatrixView view{numbers.data(), MatrixView::Type::F32, rows, k, k};
  Result<QuantizedMatrix> codes = quantize(std::make_shared<Format>(format), view, true, 1);
  ASSERT_TRUE(codes.ok()) << codes.error().str();
  double lost = 0, all = 0;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> values = codes->rowValues(row);
    for (int64_t column = 0; column < k; ++column) {
      double x = view.at(row, column), value = values[static_cast<size_t>(column)];
      ASSERT_TRUE(std::isfinite(value)) << format.name;
      lost += (x - value) * (x - value);
      all += x * x;
    }
  }
  EXPECT_LT(lost, all) << format.name;
}

void executeExample(const Block &block, const FileReader &reader) {
  Result<Module> module = parseModule(block.text, "example.rho", reader);
  ASSERT_TRUE(module.ok()) << module.error().str();
  EXPECT_EQ(formatText(block.text, "example.rho").value(), block.text);
  Result<Module> again = parseModule(print(*module), "again.rho", nullptr);
  ASSERT_TRUE(again.ok()) << print(*module) << again.error().str();
  EXPECT_EQ(print(*again), print(*module));
  for (const Format &format : module->formats)
    encodeNumbers(format);
}

// The manual with other texts in its blocks.
void bless(const std::vector<Block> &blocks) {
  std::filesystem::path path = test::sourceDir() / "docs/GRAMMAR.md";
  std::istringstream lines(test::text(path));
  std::string manual;
  size_t next = 0;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    bool fence = line.starts_with("```");
    if (fence || !inside)
      manual += line + "\n";
    if (fence && !inside)
      manual += blocks[next++].text;
    inside ^= fence;
  }
  std::ofstream(path, std::ios::binary) << manual;
}

TEST(Grammar, ExamplesDoWhatTheManualSays) {
  std::vector<Block> blocks = manualBlocks();
  std::map<std::string, std::string> files;
  FileReader reader = [&](const std::string &path) -> std::optional<std::string> {
    auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  };
  int right = 0, wrong = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Block &block = blocks[i];
    SCOPED_TRACE("docs/GRAMMAR.md:" + std::to_string(block.line));
    if (block.info == "rho wrong") {
      Result<Module> module = parseModule(block.text, "wrong.rho", reader);
      ASSERT_LT(i + 1, blocks.size());
      EXPECT_EQ(blocks[i + 1].info, "text");
      std::string printed = module.ok() ? "no error\n" : module.error().str();
      if (test::blessing())
        blocks[i + 1].text = printed;
      EXPECT_EQ(printed, blocks[++i].text);
      ++wrong;
    } else if (block.info == "rho" || block.info.starts_with("rho ")) {
      executeExample(block, reader);
      if (block.info != "rho")
        files[block.info.substr(4)] = block.text;
      ++right;
    } else {
      ADD_FAILURE() << "a block of '" << block.info << "' is executed by nothing";
    }
  }
  if (test::blessing())
    bless(blocks);
  EXPECT_GE(right, 8);
  EXPECT_GE(wrong, 5);
}

// What the manual explains it also shows.
TEST(Grammar, EveryWordStandsInAnExample) {
  std::string examples;
  for (const Block &block : manualBlocks())
    if (block.info.starts_with("rho") && block.info != "rho wrong")
      examples += std::regex_replace(block.text, std::regex("//[^\n]*"), "");
  for (const Word &word : allWords())
    EXPECT_TRUE(std::regex_search(examples, std::regex("\\b" + std::string(word.text) + "\\b")))
        << word.text << " is in no example of docs/GRAMMAR.md";
}

TEST(GrammarBlocks, AreFoundWithTheirInfo) {
  std::vector<Block> blocks = blocksOf("a\n```rho b.rho\nx\n\n```\n```text\n```\n");
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_EQ(blocks[0].info, "rho b.rho");
  EXPECT_EQ(blocks[0].text, "x\n\n");
  EXPECT_EQ(blocks[0].line, 2);
  EXPECT_EQ(blocks[1].info, "text");
}

} // namespace
} // namespace rho::dsl
