// The editors' grammar against the language: docs/editors/rho.tmLanguage.json.
#include "dsl/ElementType.h"
#include "dsl/Lexer.h"
#include "dsl/Words.h"
#include "tests/tool/RunTool.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <regex>

using namespace rho;
using nlohmann::json;

namespace {

// Applies the patterns as editors do: of all, the one that matches first, of those the first in the
// list. Only flat lists of `match` are known, and expressions that mean the same to std::regex.
class TextMate {
public:
  TextMate() {
    json grammar = json::parse(test::contentOf(test::shipped("docs/editors/rho.tmLanguage.json")));
    for (const json &pattern : grammar["patterns"])
      patterns.push_back({std::regex(pattern["match"].get<std::string>()), pattern});
  }

  // The scope of each byte of a text; empty where there is none.
  std::vector<std::string> scopes(const std::string &text) const {
    std::vector<std::string> all(text.size());
    size_t begin = 0;
    for (size_t end = 0; begin < text.size(); begin = end + 1) {
      end = std::min(text.find('\n', begin), text.size());
      line(text.substr(begin, end - begin), begin, all);
    }
    return all;
  }

private:
  struct Pattern {
    std::regex regex;
    json rule;
  };

  void line(const std::string &text, size_t offset, std::vector<std::string> &all) const {
    for (size_t at = 0; at < text.size();) {
      const Pattern *first = nullptr;
      std::smatch best;
      for (const Pattern &pattern : patterns) {
        std::smatch match;
        auto flags =
            at > 0 ? std::regex_constants::match_prev_avail : std::regex_constants::match_default;
        if (std::regex_search(text.begin() + static_cast<long>(at), text.end(), match,
                              pattern.regex, flags) &&
            !match.str().empty() && (!first || match.position() < best.position())) {
          first = &pattern;
          best = match;
        }
      }
      if (!first)
        return;
      if (first->rule.contains("name"))
        paint(best, 0, offset + at, first->rule["name"], all);
      if (first->rule.contains("captures"))
        for (const auto &[index, capture] : first->rule["captures"].items())
          paint(best, std::stoul(index), offset + at, capture["name"], all);
      at += static_cast<size_t>(best.position() + best.length());
    }
  }

  static void paint(const std::smatch &match, size_t group, size_t offset, const std::string &scope,
                    std::vector<std::string> &all) {
    for (long i = 0; i < match.length(group); ++i)
      all[offset + static_cast<size_t>(match.position(group) + i)] = scope;
  }

  std::vector<Pattern> patterns;
};

const TextMate &grammar() {
  static const TextMate one;
  return one;
}

// The scope of `word` in a text; "mixed" where it has several.
std::string scopeIn(const std::string &text, const std::string &word) {
  std::vector<std::string> scopes = grammar().scopes(text);
  size_t at = text.find(word);
  for (size_t i = 0; i < word.size(); ++i)
    if (scopes[at + i] != scopes[at])
      return "mixed";
  return scopes[at];
}

// What an entry of a schedule or a device may have.
std::string valueOf(const std::string &entry) {
  const std::vector<std::string> words = dsl::scheduleWords(entry);
  return !words.empty() && entry != "split_k" ? words[0]
         : entry == "product"                 ? "\"GPU\""
         : entry == "target"                  ? "sm_90a"
                                              : "4";
}

std::string entryThatTakes(const std::string &value) {
  for (const dsl::Word &word : dsl::allWords())
    for (const std::string &taken : dsl::scheduleWords(word.text))
      if (taken == value)
        return std::string(word.text);
  return {};
}

// How a word is written in its place.
std::string exampleOf(const dsl::Word &word) {
  std::string text(word.text);
  bool block = text == "encode" || text == "schedule" || text == "mma" || text == "throughput" ||
               (text == "tensor" && word.place == dsl::WordPlace::DeviceEntry);
  switch (word.place) {
  case dsl::WordPlace::Declaration:
    return text + (text == "import" ? " \"a.rho\"" : " a {");
  case dsl::WordPlace::Entry:
  case dsl::WordPlace::GemmEntry:
  case dsl::WordPlace::ScheduleEntry:
  case dsl::WordPlace::DeviceEntry:
  case dsl::WordPlace::TensorRate:
  case dsl::WordPlace::DeviceRate:
    if (block)
      return "  " + text + " {";
    if (text == "value")
      return "  value = element";
    if (text == "partition")
      return "  partition per k[128] {";
    if (text == "residual")
      return "  residual fix: int4";
    if (word.place == dsl::WordPlace::Entry)
      return "  " + text + " element";
    return "  " + text + ": " + valueOf(text);
  case dsl::WordPlace::Part:
    return "    : int4 " + text + (text == "where" ? " absmax(x) > 3" : " 10%");
  case dsl::WordPlace::Parameter:
    return "gemm a(b: " + text + " = 3) {";
  case dsl::WordPlace::Type:
    if (text == "codebook")
      return "  element: codebook [0, 1]";
    if (text == "per")
      return "  scale: f16 per channel";
    return text == "in" ? "  selector: u2 in block"
                        : "  element: e2m1 remap 8 to [5, -5] by selector";
  case dsl::WordPlace::Extent:
    return "  : f16 per " + text + (text.size() == 1 ? "[64]" : "");
  case dsl::WordPlace::Function:
    return "    = 1 / " + text + "(y)";
  case dsl::WordPlace::Input:
    return "    = 7 / " + text;
  case dsl::WordPlace::ScheduleValue:
    return "    " + entryThatTakes(text) + ": " + text;
  }
  return text;
}

std::string expectedScope(dsl::WordPlace place) {
  switch (place) {
  case dsl::WordPlace::Declaration:
    return "keyword.|storage.";
  case dsl::WordPlace::Entry:
  case dsl::WordPlace::GemmEntry:
  case dsl::WordPlace::ScheduleEntry:
  case dsl::WordPlace::DeviceEntry:
  case dsl::WordPlace::TensorRate:
  case dsl::WordPlace::DeviceRate:
  case dsl::WordPlace::Part:
    return "keyword.";
  case dsl::WordPlace::Parameter:
    return "storage.type.parameter.";
  case dsl::WordPlace::Type:
    return "storage.type.element.|keyword.";
  case dsl::WordPlace::Extent:
  case dsl::WordPlace::Function:
  case dsl::WordPlace::ScheduleValue:
    return "support.";
  case dsl::WordPlace::Input:
    return "variable.language.";
  }
  return {};
}

TEST(TextMate, EveryWordOfTheLanguageHasAColour) {
  for (const dsl::Word &word : dsl::allWords()) {
    std::string example = exampleOf(word), scope = scopeIn(example, std::string(word.text));
    EXPECT_TRUE(std::regex_search(scope, std::regex("^(" + expectedScope(word.place) + ")")))
        << word.text << " in '" << example << "' has the scope '" << scope << "'";
  }
}

TEST(TextMate, EveryTypeHasAColourAndOtherNamesHaveNone) {
  for (std::string_view type : dsl::ElementType::everyName()) {
    std::string name(type);
    EXPECT_EQ(scopeIn("  element: " + name, name), "storage.type.element.rho") << name;
    EXPECT_EQ(scopeIn("value = " + name + "(element)", name), "storage.type.element.rho") << name;
    EXPECT_EQ(scopeIn("= scale_" + name, name), "") << name;
  }
  // Words are no keywords where they are names.
  for (const char *word : {"channel", "tensor", "min", "operand", "k", "tile", "value", "where",
                           "budget", "remap", "to", "by", "in"})
    for (const char *behind : {"", " - 1", " * (2)"})
      EXPECT_EQ(scopeIn(std::string("    = 1 + ") + word + behind, word), "") << word << behind;
  for (const char *word : {"scales", "registers", "tables", "tile", "target", "product"})
    EXPECT_EQ(scopeIn(std::string("  ") + word + ": f16 per channel", word),
              "variable.other.member.rho")
        << word;
  EXPECT_EQ(scopeIn("  weight: shared", "shared"), "");
  EXPECT_EQ(scopeIn("  scale: f16", "scale"), "variable.other.member.rho");
}

// Where lines are broken, as rho fmt does or by hand.
TEST(TextMate, ClausesHaveTheirColoursAtTheEndsOfLines) {
  for (const auto &[text, word, scope] :
       {std::array{"      by selector", "by", "keyword.other.type.rho"},
        {"  selector: u2\n      in block", "in", "keyword.other.type.rho"},
        {"      in block", "in", "keyword.other.type.rho"},
        {"  high: bf16 where\n", "where", "keyword.other.part.rho"},
        {"      where absmax(x) >= 4", "where", "keyword.other.part.rho"},
        {"  high: bf16 budget\n", "budget", "keyword.other.part.rho"},
        {"  element: e2m1 remap\n", "remap", "keyword.other.type.rho"},
        {"  element: e2m1 remap 8\n", "remap", "keyword.other.type.rho"},
        {"      remap CODE to [1, 2] by", "remap", "keyword.other.type.rho"},
        {"      to [5, -5]", "to", "keyword.other.type.rho"},
        {"  element: e2m1 remap 8 to [5, -5] by\n", "by", "keyword.other.type.rho"}})
    EXPECT_EQ(scopeIn(text, word), scope) << text;
}

TEST(TextMate, UnitsPercentAndTargets) {
  EXPECT_EQ(scopeIn("  high: bf16 budget 2.5%", "%"), "keyword.operator.rho");
  EXPECT_EQ(scopeIn("  high: bf16 budget 2.5%", "2.5"), "constant.numeric.rho");
  for (const char *unit : {"GHz", "GB/s", "MiB", "KiB"}) {
    const std::string text = std::string("  clock: 1.41 ") + unit;
    EXPECT_EQ(scopeIn(text, unit), "keyword.other.unit.rho");
    EXPECT_EQ(scopeIn(text, "1.41"), "constant.numeric.rho");
  }
  EXPECT_EQ(scopeIn("  target: sm_90a", "sm_90a"), "support.constant.target.rho");
}

// What the lexer calls a number, a string or a comment is one for editors too.
TEST(TextMate, AgreesWithTheLexerOnShippedFiles) {
  int files = 0;
  for (const auto &entry :
       std::filesystem::recursive_directory_iterator(test::shipped("kernels"))) {
    if (entry.path().extension() != ".rho")
      continue;
    ++files;
    std::string text = test::contentOf(entry.path());
    std::vector<std::string> scopes = grammar().scopes(text);
    SourceMap sources;
    uint32_t file = sources.add(entry.path().string(), text);
    dsl::Findings findings(sources);
    std::vector<bool> inToken(text.size(), false);
    for (const dsl::Token &token : dsl::lex(sources, file, findings)) {
      for (uint32_t i = token.span.begin; i < token.span.end; ++i) {
        inToken[i] = true;
        bool number = token.kind == dsl::TokenKind::Integer || token.kind == dsl::TokenKind::Real;
        EXPECT_EQ(scopes[i].starts_with("constant.numeric"), number) << entry << i;
        EXPECT_EQ(scopes[i].starts_with("string"), token.kind == dsl::TokenKind::String)
            << entry << i;
      }
    }
    for (size_t i = 0; i < text.size(); ++i)
      if (text[i] != ' ' && text[i] != '\n')
        EXPECT_EQ(scopes[i].starts_with("comment"), !inToken[i]) << entry << i;
  }
  EXPECT_GT(files, 25);
}

} // namespace
