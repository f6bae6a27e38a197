// Canonical layout: the whole text of examples, and what holds for every text.
#include "dsl/Fmt.h"
#include "dsl/Lexer.h"
#include "dsl/Module.h"
#include "tests/dsl/Files.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace rho::dsl {
namespace {

std::string formatted(const std::string &text) {
  Result<std::string> result = formatText(text, "a.rho");
  return result ? *result : result.error().str();
}

TEST(Fmt, OneEntryALineWithAlignedTypes) {
  EXPECT_EQ(formatted("format a{element:s4 longer :u8   per k [ 64 ]\n\n\n scale:bf16 per channel "
                      "x:f32\tper tensor value=element*longer\n*scale encode{longer=1 x=absmax(x)/"
                      "7}}gemm g{weight:a activation:f16 output:f16 schedule{tile:16 x 64 x 32 "
                      "split_k:stream}}"),
            "format a {\n"
            "  element: s4\n"
            "  longer:  u8 per k[64]\n"
            "\n"
            "  scale: bf16 per channel\n"
            "  x:     f32  per tensor\n"
            "  value = element * longer * scale\n"
            "  encode {\n"
            "    longer = 1\n"
            "    x      = absmax(x) / 7\n"
            "  }\n"
            "}\n"
            "\n"
            "gemm g {\n"
            "  weight: a\n"
            "  activation: f16\n"
            "  output: f16\n"
            "  schedule {\n"
            "    tile: 16 x 64 x 32\n"
            "    split_k: stream\n"
            "  }\n"
            "}\n");
}

TEST(Fmt, SignsAndParenthesesOfOperands) {
  EXPECT_EQ(formatted("format a{element:s4 require-element>=-  3 require(element+1)*2<=9 "
                      "value=-(-element- -1)-s8 (-element)/(2-1)}"),
            "format a {\n"
            "  element: s4\n"
            "  require -element >= -3\n"
            "  require (element + 1) * 2 <= 9\n"
            "  value = -(-element - -1) - s8(-element) / (2 - 1)\n"
            "}\n");
}

TEST(Fmt, CommentsStayWhereTheyStand) {
  EXPECT_EQ(
      formatted("//head  \r\n\r\n// about a\nformat a { // opens\n  // the codes\nelement:s4 "
                "// one\n\n\n// two\n\n scale: f16 per channel// three\n"
                "value = element // four\n // five\n* scale\n\n// before the end\n\n} // six\n"
                "// about b\nformat b{element:s4 value=element}\n\n\n// last"),
      "//head\n"
      "\n"
      "// about a\n"
      "format a { // opens\n"
      "  // the codes\n"
      "  element: s4 // one\n"
      "\n"
      "  // two\n"
      "\n"
      "  scale: f16 per channel // three\n"
      "  value = element        // four\n"
      "      // five\n"
      "      * scale\n"
      "\n"
      "  // before the end\n"
      "} // six\n"
      "\n"
      "// about b\n"
      "format b {\n"
      "  element: s4\n"
      "  value = element\n"
      "}\n"
      "\n"
      "// last\n");
}

TEST(Fmt, CommentsBehindLinesAreAligned) {
  EXPECT_EQ(formatted("format a{ element:s4//a\nscale:f16 per channel//b\n\n value=element*scale//c"
                      "\nencode{scale=1}//d\n}"),
            "format a {\n"
            "  element: s4              //a\n"
            "  scale:   f16 per channel //b\n"
            "\n"
            "  value = element * scale //c\n"
            "  encode {\n"
            "    scale = 1\n"
            "  } //d\n"
            "}\n");
}

TEST(Fmt, ImportsStandTogether) {
  EXPECT_EQ(formatted("import \"a.rho\" import\n\"b.rho\" gemm g{}\ngemm h{schedule{}}"),
            "import \"a.rho\"\n"
            "import \"b.rho\"\n"
            "\n"
            "gemm g {}\n"
            "\n"
            "gemm h {\n"
            "  schedule {}\n"
            "}\n");
  EXPECT_EQ(
      formatted("import \"a\"\n//b\nimport \"b\"\n\nimport \"c\"\n//g\ngemm g{\n\n//empty\n}"),
      "import \"a\"\n"
      "//b\n"
      "import \"b\"\n"
      "\n"
      "import \"c\"\n"
      "\n"
      "//g\n"
      "gemm g {\n"
      "  //empty\n"
      "}\n");
}

TEST(Fmt, LongEntriesAreBroken) {
  std::string sum = "element";
  for (int i = 0; i < 12; ++i)
    sum += " + element * 0.5 - f16(element)";
  std::string text = formatted("format a {\n  element: s4\n  value = " + sum + "\n}\n");
  EXPECT_TRUE(text.find("\n      + element") != std::string::npos ||
              text.find("\n      - f16(") != std::string::npos)
      << text;
  std::istringstream lines(text);
  size_t longest = 0;
  for (std::string line; std::getline(lines, line);)
    longest = std::max(longest, line.size());
  EXPECT_LE(longest, 100U);
  EXPECT_GT(longest, 80U);
  EXPECT_EQ(formatted(text), text);
}

// What a clause names stands behind its word.
TEST(Fmt, ClausesAreBrokenBeforeTheirWords) {
  const std::string name(50, 's'),
      wide = std::string(57, 'a') + ": codebook [1, 2, 3, 4, 5, 6, 7, 8]";
  EXPECT_EQ(formatted("format f { element: e2m1 remap 8 to [5, -5, 6, -6, 7, -7, 8, -8] by " +
                      name + " " + wide + " per tensor " + wide +
                      " in block residual fix_of_outlier: " + name +
                      " per k[64] where absmax(x) >= 4 }"),
            "format f {\n"
            "  element: e2m1 remap 8 to [5, -5, 6, -6, 7, -7, 8, -8]\n"
            "      by " +
                name +
                "\n"
                "  " +
                wide +
                "\n"
                "      per tensor\n"
                "  " +
                wide +
                "\n"
                "      in block\n"
                "  residual fix_of_outlier: " +
                name +
                " per k[64]\n"
                "      where absmax(x) >= 4\n"
                "}\n");
}

TEST(Fmt, ColumnsAreCountedInCharacters) {
  EXPECT_EQ(formatted("import \"\xc3\xbc.rho\" // a\nimport \"long.rho\" // b\n"),
            "import \"\xc3\xbc.rho\"    // a\nimport \"long.rho\" // b\n");
}

// As editors on other systems wrote them.
TEST(Fmt, LineEndsAndByteOrderMarksStay) {
  const std::string mark(byteOrderMark);
  EXPECT_EQ(formatted(mark + "gemm  g{} // a\r\n\r\n// b\r\n"),
            mark + "gemm g {} // a\r\n\r\n// b\r\n");
  EXPECT_EQ(formatted("gemm g {}\r\n"), "gemm g {}\r\n");
  EXPECT_EQ(formatted("gemm g {} // a\r\n\r\n// b\n"), "gemm g {} // a\n\n// b\n");
  EXPECT_EQ(formatted(mark), mark);
}

// Columns that would make a line too long are left out.
TEST(Fmt, AlignmentKeepsToTheWidth) {
  const std::string name(60, 'a');
  std::string text = formatted("format f {\n  " + name +
                               ": f16 per k[64]\n  z: u2 remap 1 to [1.5, 2.5, 3.5, 4.5] by sel\n"
                               "  value = z\n}\n");
  EXPECT_NE(text.find("\n  z: u2 remap 1 to [1.5, 2.5, 3.5, 4.5] by sel\n"), std::string::npos);
  EXPECT_EQ(formatted(text), text);
}

TEST(Fmt, NothingAndOnlyComments) {
  EXPECT_EQ(formatted(""), "");
  EXPECT_EQ(formatted(" \n\n"), "");
  EXPECT_EQ(formatted("\n\n  // a\n\n\n//b"), "// a\n\n//b\n");
}

TEST(Fmt, WhatDoesNotParseIsReported) {
  EXPECT_EQ(formatted("format a { element }"),
            "a.rho:1:20: error: found '}', expected ':' after the name of a component, or 'value "
            "=', 'require' or 'encode {' [unexpected_token]\n"
            "format a { element }\n"
            "                   ^\n");
  EXPECT_EQ(formatted("format a { element: s4 $ }").substr(0, 60),
            "a.rho:1:24: error: unexpected character '$' [unexpected_char");
  EXPECT_EQ(formatted(std::string(maxFileBytes + 1, ' ')),
            "error: 'a.rho' has more than 1048576 bytes, the limit of a source file "
            "[file_too_large]\n");
  // What grows beyond the limit could not be read back.
  std::string many;
  while (many.size() + 8 < maxFileBytes)
    many += "gemm g{}";
  EXPECT_EQ(formatted(many), "error: 'a.rho, formatted,' has more than 1048576 bytes, the limit of "
                             "a source file [file_too_large]\n");
}

TEST(Fmt, AnotherTokenOrCommentIsNoticed) {
  const char *text = "format a { // b\n  element: s4\n}";
  EXPECT_TRUE(checkSameContent(text, "format  a{// b\nelement : s4}", "a.rho").ok());
  for (const char *other :
       {"format a { // c\n  element: s4\n}", "format a {\n  element: s4\n}",
        "format a { // b\n  element: s5\n}", "format a { // b\n  element: s4\n} }"})
    EXPECT_EQ(checkSameContent(text, other, "a.rho").error().str(),
              "error: 'a.rho' is not formatted, its tokens or comments would change; this is a "
              "defect of rho [format_changes_text]\n");
}

// --- every .rho file of the tree

std::vector<std::string> allFiles() {
  std::vector<std::string> files;
  for (const char *folder : {"kernels", "examples", "tests"})
    for (const auto &entry :
         std::filesystem::recursive_directory_iterator(test::sourceDir() / folder))
      if (entry.path().extension() == ".rho")
        files.push_back(std::filesystem::relative(entry.path(), test::sourceDir()).string());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Fmt, ShippedFilesAreFormatted) {
  size_t checked = 0;
  for (const std::string &file : allFiles()) {
    if (file.starts_with("tests/")) // odd, wrong or narrow on purpose
      continue;
    std::string text = test::text(test::sourceDir() / file);
    EXPECT_EQ(formatted(text), text) << file;
    ++checked;
  }
  EXPECT_GT(checked, 30U);
}

// The text with other spaces, line breaks and comments between its tokens, whatever `random` says.
std::string scrambled(const std::string &text, std::mt19937_64 &random) {
  SourceMap sources;
  uint32_t file = sources.add("a.rho", text);
  Findings findings(sources);
  std::string out;
  for (const Token &token : lex(sources, file, findings)) {
    switch (random() % 12) {
    case 0:
      out += " // " + std::to_string(random() % 100) + "\n";
      break;
    case 1:
      out += "\n\n\t";
      break;
    case 2:
      out += "\r\n // a { b: c = 1\n\n\n//\n";
      break;
    default:
      out += " ";
    }
    out += text.substr(token.span.begin, token.span.end - token.span.begin);
  }
  return out;
}

TEST(Fmt, AnyLayoutOfAFileKeepsItsMeaningAndIsFinalAfterOnce) {
  std::mt19937_64 random = test::generator(1);
  for (const std::string &file : allFiles()) {
    std::string text = test::text(test::sourceDir() / file);
    Result<std::string> tree = printAst(text, "a.rho");
    for (int i = 0; tree && i < 20; ++i) {
      std::string odd = scrambled(text, random);
      Result<std::string> once = formatText(odd, "a.rho");
      ASSERT_TRUE(once.ok()) << file << "\n" << odd << once.error().str();
      EXPECT_EQ(*tree, printAst(*once, "a.rho").value()) << file << "\n" << odd;
      EXPECT_EQ(formatted(*once), *once) << file << "\n" << odd;
    }
  }
}

// Without its comments and blank lines a file's layout is a function of its tokens alone.
TEST(Fmt, LayoutFollowsFromTheTokens) {
  for (const std::string &file : allFiles()) {
    std::string text = test::text(test::sourceDir() / file);
    SourceMap sources;
    uint32_t index = sources.add("a.rho", text);
    Findings findings(sources);
    std::string spaces, lines;
    for (const Token &token : lex(sources, index, findings)) {
      std::string piece = text.substr(token.span.begin, token.span.end - token.span.begin);
      spaces += piece + " ";
      lines += piece + "\n";
    }
    if (formatText(text, "a.rho").ok())
      EXPECT_EQ(formatted(spaces), formatted(lines)) << file;
  }
}

} // namespace
} // namespace rho::dsl
