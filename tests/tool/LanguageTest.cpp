// What the language server knows of texts, right, broken and cut off.
#include "runtime/tool/lsp/Language.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/lsp/Text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

using namespace rho;
using namespace rho::tool::lsp;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  EXPECT_EQ(pathOfUri("file:/a.rho"), "/a.rho");
  EXPECT_EQ(pathOfUri("FILE:///a.rho"), "/a.rho");
  for (const char *other : {"file", "file:a.rho", "filE", "files:/a", ""})
    EXPECT_EQ(pathOfUri(other), std::nullopt) << other;
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
  for (const Symbol &symbol : symbolsOf(view)) {
    EXPECT_LE(symbol.span.begin, symbol.nameSpan.begin);
    EXPECT_LE(symbol.nameSpan.end, symbol.span.end);
  }
}

TEST(LanguageTest, TextsThatAreBeingWrittenAreNoProblem) {
  std::mt19937_64 random(3);
  for (const char *text :
       {"format a(1 b: int", "format a([)b: int = a(", "a(b: c)", "format a(G: int",
        "gemm g(F: format = a(", ")", "format a(b: c]) = d(e = "})
    askEverywhere(text, 1);
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

TEST(HoverTest, UsesAreInstances) {
  const std::string text = "format f(G: int = 16) {\n  element: s4\n  scale: f16 per k[G]\n"
                           "  value = element * scale\n}\n"
                           "format h = f(64)\n"
                           "format usual = f\n"
                           "format p {\n  partition per k[64] {\n    low: f(32)\n"
                           "    high: bf16 where absmax(x) >= 1\n  }\n"
                           "  residual rest: f(8) per k[64]\n}\n";
  const View view(text, "/a/b.rho", nullptr);
  ASSERT_THAT(view.diagnostics(), IsEmpty());
  auto hover = [&](const std::string &before) {
    std::optional<Hover> found = hoverAt(view, text.find(before) + before.size());
    return found ? found->markdown : "";
  };
  EXPECT_THAT(hover("h = "), AllOf(HasSubstr("format f__64 {"), HasSubstr("per k[64]")));
  EXPECT_THAT(hover("usual = "), AllOf(HasSubstr("format f {"), HasSubstr("per k[16]")));
  EXPECT_THAT(hover("low: "), AllOf(HasSubstr("format f__32 {"), HasSubstr("per k[32]")));
  EXPECT_THAT(hover("rest: "), AllOf(HasSubstr("format f__8 {"), HasSubstr("per k[8]")));
  EXPECT_THAT(hover("format "), HasSubstr("per k[16]"));
}

// A process has a limit of codebooks, and a server one at each key that is pressed.
// What a hover says at the end of the first such text; empty: there is none.
std::string hovered(const View &view, const std::string &before) {
  const size_t place = view.sources()->text(0).find(before) + before.size();
  const std::optional<Hover> found = hoverAt(view, place);
  return found ? found->markdown : "";
}

// What is declared at the place that a text's end leads to, with what is behind it up to a space.
std::string defined(const View &view, const std::string &before) {
  const std::string &text = view.sources()->text(0);
  const std::optional<Span> span = definitionAt(view, text.find(before) + before.size());
  return span ? text.substr(span->begin, text.find(' ', span->begin) - span->begin) : "";
}

TEST(HoverTest, UsesInHeadsAndOfGemmsAreFormats) {
  const View view("format int4(G: int = 128) {\n  element: s4\n  scale: f16 per k[G]\n"
                  "  value = element * scale\n}\n"
                  "gemm g(F: format = int4(G = 32)) {\n  weight: F activation: f16 output: f16\n}\n"
                  "gemm h = g(F = int4(G = 64))\n"
                  "format p(F: format = int4(16)) {\n  partition per k[128] {\n"
                  "    low: int4(G = 8)\n    high: F\n  }\n}\n"
                  "format q = p(F = int4(256))\n",
                  "/a/b.rho", nullptr);
  ASSERT_THAT(view.diagnostics(),
              ElementsAre(testing::Field(&Diagnostic::id, DiagId::part_does_not_fit)));
  EXPECT_THAT(hovered(view, "g(F: format = "), HasSubstr("per k[32]"));
  EXPECT_THAT(hovered(view, "g(F = "), AllOf(HasSubstr("format int4__64"), HasSubstr("4.25 bits")));
  EXPECT_THAT(hovered(view, "p(F: format = "), HasSubstr("\n5 bits per element\n"));
  EXPECT_THAT(hovered(view, "low: "), HasSubstr("\n6 bits per element\n"));
  EXPECT_THAT(hovered(view, "p(F = "), HasSubstr("\n4.0625 bits per element\n"));
  EXPECT_THAT(hovered(view, "h = "), HasSubstr("gemm g {"));
  EXPECT_EQ(defined(view, "format = int4("), "G:");
  EXPECT_EQ(defined(view, "g(F = int4("), "G:");
  EXPECT_EQ(defined(view, "low: int4("), "G:");
  EXPECT_EQ(defined(view, "h = g("), "F:");
  EXPECT_EQ(defined(view, "g(F = "), "int4(G:");
  EXPECT_EQ(hovered(view, "g(F: "), "`format`: the kind of a parameter that stands for a format");
}

// Errors elsewhere say nothing about a use, and where nothing is known there are no bits.
TEST(HoverTest, UsesDoNotDependOnWhatIsAround) {
  const View view("format int4(G: int = 128) {\n  element: s4\n  scale: f16 per k[G]\n"
                  "  value = element * scale\n}\n"
                  "gemm g {\n  weight: int4(64)\n  activation: int4(4)\n}\n"
                  "format p(H: int) = int4(H)\nformat q(H: int = 32) = int4(H)\n"
                  "format wrong {\n",
                  "/a/b.rho", nullptr);
  EXPECT_THAT(hovered(view, "weight: "), HasSubstr("\n4.25 bits per element\n"));
  for (const char *unknown : {"activation: ", "p(H: int) = "})
    EXPECT_EQ(hovered(view, unknown), "```rho\nformat int4(G: int = 128) {\n  element: s4\n"
                                      "  scale: f16 per k[G]\n  value = element * scale\n}\n```\n");
  EXPECT_THAT(hovered(view, "q(H: int = 32) = "), HasSubstr("\n4.5 bits per element\n"));
}

TEST(HoverTest, PartsAreListedWithTheirShares) {
  const View view(
      "import \"rho:comet_token\"\nimport \"rho:mosaic_channel\"\nimport \"rho:int4_g128\"\n"
      "format c = comet_token\nformat m = mosaic_channel\n"
      "format w {\n  element: s4\n  scale: f16 per channel\n  value = element * scale\n"
      "  residual rest: s4 / 16 per n[16] k[64] budget 10%\n}\n"
      "format p {\n  partition per k[128] {\n    low: int4_g128\n    high: bf16 budget 5%\n  }\n}\n"
      "format odd {\n  partition per k[128] {\n    low: int3\n    high: bf16\n  }\n}\n",
      "/a/b.rho", nullptr);
  EXPECT_THAT(hovered(view, "c = "),
              AllOf(HasSubstr("\n4.8 bits per element\n"),
                    HasSubstr("\n- `low: int4_token`, 4 bits per element of its blocks\n"),
                    HasSubstr(", 8 bits per element of its blocks, at most 20% of all\n")));
  EXPECT_THAT(hovered(view, "m = "),
              AllOf(HasSubstr("\n4.40024 bits per element\n"),
                    HasSubstr("\n- `residual fix: s4 / 16 per n[64] k[64]`, 0.400244 bits per "
                              "element, of at most 10% of all blocks\n")));
  EXPECT_EQ(
      hovered(view, "residual "),
      "`residual rest: s4 / 16 per n[16] k[64]`, 0.400977 bits per element, of at most 10% of "
      "all blocks");
  EXPECT_EQ(hovered(view, "low: int4_g128\n    "),
            "`high: bf16`, 16 bits per element of its blocks, at most 5% of all");
  EXPECT_EQ(hovered(view, "odd {\n  partition per k[128] {\n    "), "```rho\nlow: int3\n```\n");
  EXPECT_EQ(defined(view, "residual "), "rest:");
  EXPECT_EQ(defined(view, "k[128] {\n    "), "low:");
}

TEST(HoverTest, RatesOfTensorCores) {
  const View view("device d {\n  tensor {\n    e4m3_scaled: 1\n  }\n}\n", "/a/b.rho", nullptr);
  EXPECT_EQ(hovered(view, "    "),
            "`e4m3_scaled`: e4m3 by instructions that take scales of blocks, "
            "where that is another rate");
}

TEST(DefinitionTest, GemmsBelongToTheirFile) {
  const View view("import \"gg.rho\"\ngemm h = g(3)\nformat f = w\n", "/a/b.rho",
                  [](const std::string &) {
                    return "gemm g(G: int) {\n}\nformat w {\n  element: s4\n  value = element\n}\n";
                  });
  EXPECT_EQ(definitionAt(view, view.sources()->text(0).find("g(3)")), std::nullopt);
  EXPECT_EQ(definitionAt(view, view.sources()->text(0).find("w\n")).value_or(Span{}).file, 1U);
}

// Under whichever name a file is read, it is the one that an import names.
TEST(DefinitionTest, ImportsOfLinks) {
  const std::string folder = std::filesystem::path(testing::TempDir()) / "rho-definition-links";
  std::filesystem::create_directories(folder);
  const std::string link = folder + "/link.rho";
  std::filesystem::remove(link);
  std::filesystem::create_symlink("real.rho", link);
  ASSERT_TRUE(tool::writeText(folder + "/real.rho", "").ok());
  ASSERT_TRUE(tool::writeText(folder + "/b.rho", "import \"link.rho\"\n").ok());
  const View view("import \"b.rho\"\nimport \"real.rho\"\n", folder + "/m.rho", dsl::readSource);
  ASSERT_THAT(view.diagnostics(), IsEmpty());
  const std::optional<Span> found = definitionAt(view, view.sources()->text(0).find("real"));
  ASSERT_TRUE(found);
  EXPECT_EQ(view.sources()->name(found->file), link);
  std::filesystem::remove_all(folder);
}

TEST(ViewTest, CodebooksGoWithTheText) {
  for (size_t i = 0; i < dsl::ElementType::maxCodebooks + 100; ++i) {
    const View view("format f { element: codebook [1, 2, 3, " + std::to_string(i + 10) +
                        "] value = element }",
                    "/a/b.rho", nullptr);
    ASSERT_THAT(view.diagnostics(), IsEmpty()) << i;
  }
}

} // namespace
