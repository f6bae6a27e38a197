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
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

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

// What completes a text at its `|`.
std::vector<std::string> completed(std::string text) {
  const size_t place = text.find('|');
  text.erase(place, 1);
  const View view(text, "/a/b.rho", nullptr);
  std::vector<std::string> labels;
  for (const Completion &completion : completionsAt(view, place))
    labels.push_back(completion.label);
  return labels;
}

TEST(CompletionTest, EntriesOfAScheduleHaveTheirOwnWords) {
  auto words = [](const std::string &entry) {
    return completed("gemm g {\n  schedule {\n    " + entry + ": |\n  }\n}\n");
  };
  EXPECT_THAT(words("roles"), ElementsAre("uniform", "imfp", "excp", "gemv"));
  EXPECT_THAT(words("packing"), ElementsAre("tiles", "panels"));
  EXPECT_THAT(words("balance"), ElementsAre("tiles", "cost"));
  EXPECT_THAT(words("split_k"), ElementsAre("stream"));
  EXPECT_THAT(words("launch"), ElementsAre("serial", "dependent"));
  EXPECT_THAT(words("tile"), IsEmpty());
  EXPECT_THAT(words("unknown"), IsEmpty());
}

TEST(CompletionTest, CopiesAreOfWhatIsDeclared) {
  const std::string declared = "import \"rho:nvfp4\"\nformat f(G: int = 16) {\n  element: s4\n}\n"
                               "gemm g {\n}\n";
  const std::string behind = "gemm k = g\n";
  EXPECT_THAT(completed(declared + "format output = |\n" + behind),
              AllOf(IsSupersetOf({"f", "nvfp4", "f16", "bf16", "f32"}), Not(Contains("output")),
                    Not(Contains("g")), Not(Contains("gemm"))));
  EXPECT_THAT(completed(declared + "gemm h = |\n" + behind), ElementsAre("g", "k"));
  EXPECT_THAT(completed(declared + "format h = f\n|"), Contains("gemm"));
  EXPECT_THAT(completed("format f(base: format = |"), IsEmpty());
  for (const char *word : {"format", "gemm", "device", "import"})
    EXPECT_THAT(completed(std::string(word) + " |"), IsEmpty()) << word;
  EXPECT_THAT(completed("import \"|\"\n"), IsEmpty());
  EXPECT_THAT(completed("import \"a.rho\"\n|"), Contains("format"));
  EXPECT_THAT(completed("form|"), Contains("format"));
  EXPECT_THAT(completed("what |"), Contains("format"));
}

TEST(CompletionTest, DevicesHaveTargetsAndRates) {
  EXPECT_THAT(completed("device tensor {\n  target: |\n}\n"),
              AllOf(IsSupersetOf({"sm_80", "sm_90a"}), Not(Contains("clock"))));
  EXPECT_THAT(completed("device d {\n  sms: |\n}\n"), IsEmpty());
  EXPECT_THAT(completed("device tensor {\n  |\n}\n"), IsSupersetOf({"target", "clock", "mma"}));
  for (const char *block : {"tensor", "mma"})
    EXPECT_THAT(completed("device d {\n  throughput {\n    ffma: 1\n  }\n  " + std::string(block) +
                          " {\n    f16: 3\n    |\n  }\n}\n"),
                ElementsAre("f16", "bf16", "e4m3", "s8", "s4", "e2m1", "e4m3_scaled"));
  EXPECT_THAT(completed("device d {\n  tensor {\n    f16: 3\n  }\n  throughput {\n    |\n  }\n}\n"),
              AllOf(Contains("ffma"), Not(Contains("f16"))));
}

TEST(CompletionTest, PartsAreFormatsOrBitsBelowTheElement) {
  auto residual = [](const std::string &element) {
    return completed("format w {\n  value = element\n}\nformat f {\n  element: " + element +
                     "\n  residual fix: |\n}\n");
  };
  EXPECT_THAT(residual("s4"), AllOf(IsSupersetOf({"w", "f16", "s2", "s3", "s4"}),
                                    Not(Contains("s5")), Not(Contains("u4"))));
  EXPECT_THAT(residual("s6"), AllOf(Contains("s2"), Not(Contains("s3"))));
  EXPECT_THAT(residual("u4"), AllOf(Contains("w"), Not(Contains("s2"))));
  EXPECT_THAT(completed("format w {\n}\nformat p {\n  partition per k[32] {\n    low: |\n  }\n}\n"),
              ElementsAre("f16", "bf16", "f32", "w"));
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
TEST(ViewTest, CodebooksGoWithTheText) {
  for (size_t i = 0; i < dsl::ElementType::maxCodebooks + 100; ++i) {
    const View view("format f { element: codebook [1, 2, 3, " + std::to_string(i + 10) +
                        "] value = element }",
                    "/a/b.rho", nullptr);
    ASSERT_THAT(view.diagnostics(), IsEmpty()) << i;
  }
}

} // namespace
