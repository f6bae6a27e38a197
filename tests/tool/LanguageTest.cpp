// What the language server knows of texts, right, broken and cut off.
#include "runtime/tool/lsp/Language.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/lsp/Text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

using namespace rho;
using namespace rho::tool::lsp;

namespace {

bool same(Position a, Position b) { return a.line == b.line && a.character == b.character; }

TEST(LineIndexTest, CountsUtf16AndThreeEndsOfLines) {
  std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\r\nb\rc\n\n";
  LineIndex lines(text);
  struct Case {
    size_t offset;
    Position position;
  };
  for (const Case &one : {Case{0, {0, 0}},
                          {1, {0, 1}},
                          {3, {0, 2}},
                          {6, {0, 3}},
                          {10, {0, 5}},
                          {11, {0, 6}},
                          {13, {1, 0}},
                          {14, {1, 1}},
                          {15, {2, 0}},
                          {16, {2, 1}},
                          {17, {3, 0}},
                          {18, {4, 0}}}) {
    EXPECT_TRUE(same(lines.position(one.offset), one.position)) << one.offset;
    EXPECT_EQ(lines.offset(one.position), one.offset);
  }
  EXPECT_EQ(lines.offset({0, 4}), 6U); // inside of a surrogate pair
  EXPECT_EQ(lines.offset({0, 100}), 11U);
  EXPECT_EQ(lines.offset({1, 2}), 14U);
  EXPECT_EQ(lines.offset({99, 0}), text.size());
  EXPECT_TRUE(same(lines.position(1000), {4, 0}));
}

TEST(UriTest, PathsAndBack) {
  EXPECT_EQ(pathOfUri("file:///a%20b/%C3%A9.rho"), "/a b/\xc3\xa9.rho");
  EXPECT_EQ(pathOfUri("file://host/a.rho"), "/a.rho");
  EXPECT_EQ(pathOfUri("file:///a%2"), "/a%2");
  EXPECT_EQ(pathOfUri("file:///a%zz"), "/a%zz");
  EXPECT_EQ(pathOfUri("untitled:a"), std::nullopt);
  EXPECT_EQ(pathOfUri("file://"), std::nullopt);
  EXPECT_EQ(uriOfPath("/a b/\xc3\xa9+.rho"), "file:///a%20b/%C3%A9%2B.rho");
  EXPECT_EQ(pathOfUri(uriOfPath("/%41 #?")), "/%41 #?");
}

// Every place of a text is asked; what is found lies in the texts.
void askEverywhere(const std::string &text, size_t step) {
  View view(text, "/a/b.rho", nullptr);
  for (size_t offset = 0; offset <= text.size(); offset += step) {
    if (std::optional<Hover> hover = hoverAt(view, offset)) {
      EXPECT_FALSE(hover->markdown.empty());
      EXPECT_LE(hover->span.begin, offset);
      EXPECT_GE(hover->span.end, offset);
    }
    if (std::optional<Span> span = definitionAt(view, offset)) {
      ASSERT_LT(span->file, view.sources()->size());
      EXPECT_LE(span->end, view.sources()->text(span->file).size());
    }
    for (const Completion &completion : completionsAt(view, offset))
      EXPECT_FALSE(completion.label.empty());
  }
}

TEST(LanguageTest, TextsThatAreBeingWrittenAreNoProblem) {
  std::mt19937_64 random(3);
  for (const char *file : {"kernels/formats/liquidquant.rho", "kernels/gemms/int4_g128_int8.rho",
                           "tests/dsl/fail/parser.rho", "tests/dsl/fail/gemms.rho"}) {
    std::string text = tool::readText(std::string(RHO_SOURCE_DIR) + "/" + file).value();
    askEverywhere(text, 1);
    for (int i = 0; i < 60; ++i) {
      std::string cut = text.substr(0, random() % text.size());
      if (i % 2) { // a hole, or a second copy of some part
        size_t from = random() % (cut.size() + 1), length = random() % 40;
        if (i % 4 == 1)
          cut.erase(from, length);
        else
          cut.insert(from, text.substr(random() % text.size(), length));
      }
      askEverywhere(cut, 7);
    }
  }
}

} // namespace
