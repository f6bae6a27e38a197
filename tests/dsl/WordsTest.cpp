// The table of words against the parser's own text and against the manual.
#include "dsl/Words.h"
#include "dsl/DeviceFields.h"
#include "dsl/ElementType.h"
#include "dsl/Module.h"
#include "dsl/Operators.h"
#include "tests/dsl/Files.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>

namespace rho::dsl {
namespace {

std::set<std::string> tabled() {
  std::set<std::string> words;
  for (const Word &word : allWords())
    words.emplace(word.text);
  return words;
}

// What the parser and the checks compare names with: word("per"), key == "tile",
// {"tensor", Extent::Tensor}.
TEST(Words, TheParserKnowsNoOther) {
  static const std::regex compared(
      R"re((?:\bword\(|\btakeWord\(|\b(?:key|text|name) == )"(\w+)"|\{"(\w+)", Extent)re");
  std::set<std::string> words = tabled(), found;
  for (const auto &entry : std::filesystem::directory_iterator(test::sourceDir() / "dsl")) {
    std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".cpp" ||
        !(name.starts_with("Parser") || name.starts_with("Sema")))
      continue;
    std::string source = test::text(entry.path());
    for (std::sregex_iterator it(source.begin(), source.end(), compared), end; it != end; ++it)
      found.insert((*it)[1].matched ? (*it)[1] : (*it)[2]);
  }
  for (const FunctionName &function : functionNames)
    found.emplace(function.name);
  for (const ReductionName &reduction : reductionNames)
    found.emplace(reduction.name);
  for (const DeviceField &field : deviceFields())
    found.emplace(field.name);
  for (size_t i = 0; i < instructionClasses; ++i)
    found.emplace(name(static_cast<InstructionClass>(i)));
  EXPECT_GT(found.size(), 40U) << "the pattern misses how words are compared";
  for (const std::string &word : found)
    EXPECT_TRUE(words.contains(word) || ElementType::fromName(word))
        << word << " is missing in dsl/Words.def";
}

TEST(Words, TheManualHasThemAll) {
  std::string manual = test::text(test::sourceDir() / "docs/GRAMMAR.md");
  for (const std::string &word : tabled())
    EXPECT_TRUE(std::regex_search(manual, std::regex("\\b" + word + "\\b"))) << word;
}

TEST(Words, EntriesOfAScheduleTakeTheirOwn) {
  std::set<std::string> taken, values;
  for (const Word &word : allWords())
    if (word.place == WordPlace::ScheduleValue)
      values.emplace(word.text);
    else if (word.place == WordPlace::ScheduleEntry)
      for (const std::string &value : scheduleWords(word.text)) {
        taken.insert(value);
        const Checked checked =
            checkModule("gemm g { weight: f16 activation: f16 output: f16 schedule { " +
                            std::string(word.text) + ": " + value + " } }",
                        "a.rho", nullptr);
        EXPECT_TRUE(checked.diagnostics.empty()) << word.text << ": " << value;
      }
  EXPECT_EQ(taken, values);
}

TEST(Words, MeaningsAreShort) {
  for (const Word &word : allWords()) {
    EXPECT_GE(word.meaning.size(), 5U) << word.text;
    EXPECT_LT(word.meaning.size(), 120U) << word.text;
    EXPECT_NE(word.meaning.back(), '.') << word.text;
  }
}

} // namespace
} // namespace rho::dsl
