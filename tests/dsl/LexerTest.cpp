#include "dsl/Lexer.h"

#include <gtest/gtest.h>

namespace rho::dsl {
namespace {

struct Lexed {
  SourceMap sources;
  std::vector<Token> tokens;
  size_t errors = 0;
};

std::unique_ptr<Lexed> run(const std::string &text) {
  auto lexed = std::make_unique<Lexed>();
  uint32_t file = lexed->sources.add("a.rho", text);
  Findings findings(lexed->sources);
  lexed->tokens = lex(lexed->sources, file, findings);
  lexed->errors = findings.takeSorted().diagnostics.size();
  return lexed;
}

TEST(Lexer, NumbersHaveTheirExactValues) {
  auto lexed = run("0 9223372036854775807 0x7fffffffffffffff 0XfF 1.5 1e3 2.5e-1 7E+2");
  ASSERT_EQ(lexed->errors, 0u);
  ASSERT_EQ(lexed->tokens.size(), 9u);
  EXPECT_EQ(lexed->tokens[0].integer, 0);
  EXPECT_EQ(lexed->tokens[1].integer, INT64_MAX);
  EXPECT_EQ(lexed->tokens[2].integer, INT64_MAX);
  EXPECT_EQ(lexed->tokens[3].integer, 255);
  EXPECT_EQ(lexed->tokens[4].real, 1.5);
  EXPECT_EQ(lexed->tokens[5].real, 1000);
  EXPECT_EQ(lexed->tokens[6].real, 0.25);
  EXPECT_EQ(lexed->tokens[7].real, 700);
  EXPECT_EQ(lexed->tokens[3].kind, TokenKind::Integer);
  EXPECT_EQ(lexed->tokens[5].kind, TokenKind::Real);
}

TEST(Lexer, AByteOrderMarkMayBeFirst) {
  auto lexed = run("\xef\xbb\xbfgemm");
  EXPECT_EQ(lexed->errors, 0u);
  ASSERT_EQ(lexed->tokens.size(), 2u);
  EXPECT_EQ(lexed->tokens[0].text, "gemm");
  EXPECT_EQ(run("gemm \xef\xbb\xbf")->errors, 1u);
}

TEST(Lexer, LongestPunctuationWins) {
  auto lexed = run("<<>><=>==");
  ASSERT_EQ(lexed->tokens.size(), 6u);
  EXPECT_EQ(lexed->tokens[0].kind, TokenKind::ShiftLeft);
  EXPECT_EQ(lexed->tokens[1].kind, TokenKind::ShiftRight);
  EXPECT_EQ(lexed->tokens[2].kind, TokenKind::LessEqual);
  EXPECT_EQ(lexed->tokens[3].kind, TokenKind::GreaterEqual);
  EXPECT_EQ(lexed->tokens[4].kind, TokenKind::Equal);
}

TEST(Lexer, CommentsEndWithTheirLine) {
  auto lexed = run("a // b \"c $\nd//");
  ASSERT_EQ(lexed->tokens.size(), 3u);
  EXPECT_EQ(lexed->tokens[1].text, "d");
  EXPECT_EQ(lexed->tokens[1].span.begin, 12u);
  EXPECT_EQ(lexed->tokens[2].kind, TokenKind::EndOfFile);
}

TEST(Lexer, OpenStringsEndWithTheirLine) {
  for (const char *end : {"\n", "\r\n", ""}) {
    auto lexed = run(std::string("import \"a.rho") + end);
    EXPECT_EQ(lexed->errors, 1u);
    ASSERT_EQ(lexed->tokens.size(), 3u);
    EXPECT_EQ(lexed->tokens[1].kind, TokenKind::String);
    EXPECT_EQ(lexed->tokens[1].text, "a.rho");
    EXPECT_EQ(lexed->tokens[1].span.end, 13u);
  }
}

TEST(Lexer, NumbersThatRunIntoLettersAreErrors) {
  for (const char *text :
       {"16x128", "0x", "0xg", "1.", "1.e3", "1..2", "12_3", "1e", "1e+", "3.4.5"})
    EXPECT_EQ(run(text)->errors, 1u) << text;
}

TEST(Lexer, EveryByteIsATokenOrAnError) {
  for (int byte = 0; byte < 256; ++byte) {
    auto lexed = run(std::string(1, static_cast<char>(byte)));
    bool blank = byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
    EXPECT_EQ(lexed->tokens.size() > 1 || lexed->errors > 0, !blank) << byte;
  }
}

} // namespace
} // namespace rho::dsl
