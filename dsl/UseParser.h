// What every part of the parser does with tokens, and uses of declarations: `int4(64, f16)`.
#pragma once

#include "dsl/Ast.h"
#include "dsl/Findings.h"
#include "dsl/Lexer.h"
#include "dsl/Parser.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace rho::dsl {

// Functions return false after they reported an error; the caller that owns a block then skips to
// the next entry of the block.
class UseParser {
public:
  // The last token is EndOfFile.
  UseParser(const std::vector<Token> &tokens, Findings &findings)
      : tokens(tokens), findings(findings) {}

protected:
  // --- tokens
  const Token &token(size_t ahead = 0) const {
    return tokens[std::min(at + ahead, tokens.size() - 1)];
  }
  bool is(TokenKind kind, size_t ahead = 0) const { return token(ahead).kind == kind; }
  bool word(std::string_view text, size_t ahead = 0) const {
    return is(TokenKind::Name, ahead) && token(ahead).text == text;
  }
  const Token &advance() { return is(TokenKind::EndOfFile) ? token() : tokens[at++]; }
  Span from(const Token &first) const {
    return Span{first.span.file, first.span.begin, tokens[at == 0 ? 0 : at - 1].span.end};
  }

  bool expected(const std::string &what) {
    findings.add(DiagId::unexpected_token, {describe(token()), what}, token().span);
    return false;
  }
  // A word that is none of `words`, where one of them was to come.
  bool expectedWord(const std::string &what, const std::vector<std::string> &words) {
    return expected(what + (is(TokenKind::Name) ? suggestion(token().text, words) : ""));
  }
  bool take(TokenKind kind) {
    if (!is(kind))
      return expected(describe(kind));
    advance();
    return true;
  }
  bool takeName(ast::Name &name, const std::string &what) {
    if (!is(TokenKind::Name))
      return expected(what);
    name = ast::Name{std::string(token().text), token().span};
    advance();
    return true;
  }
  bool takeNumber(ast::Number &number, const std::string &what) {
    if (!is(TokenKind::Integer))
      return expected(what);
    number = ast::Number{token().integer, token().span};
    advance();
    return true;
  }

  bool takeWord(const char *text) {
    if (!word(text))
      return expected("'" + std::string(text) + "'");
    advance();
    return true;
  }
  // Whether signs make what follows negative. One may be written; behind it a negative parameter,
  // whose tokens have one span, brings its own.
  bool takeSigns() {
    bool negative = false;
    for (; is(TokenKind::Minus) && (!negative || token().span == token(1).span); advance())
      negative = !negative;
    return negative;
  }
  bool takeReal(double &number) {
    const bool negative = takeSigns();
    if (!is(TokenKind::Integer) && !is(TokenKind::Real))
      return expected("a number");
    const Token &token = advance();
    number = token.kind == TokenKind::Real ? token.real : static_cast<double>(token.integer);
    number = negative ? -number : number;
    return true;
  }

  // --- recovery
  bool declarationStart() const {
    return (word("import") && is(TokenKind::String, 1)) ||
           (word("device") && is(TokenKind::Name, 1) && is(TokenKind::BraceOpen, 2)) ||
           ((word("format") || word("gemm")) && is(TokenKind::Name, 1) &&
            (is(TokenKind::BraceOpen, 2) || is(TokenKind::ParenOpen, 2) ||
             is(TokenKind::Equal, 2)));
  }
  bool entryStart() const {
    return is(TokenKind::Name) &&
           (residualStart() || partitionStart() || is(TokenKind::Colon, 1) ||
            is(TokenKind::Equal, 1) || is(TokenKind::BraceOpen, 1) || word("require"));
  }
  bool residualStart() const {
    return word("residual") && is(TokenKind::Name, 1) && is(TokenKind::Colon, 2);
  }
  bool partitionStart() const { return word("partition") && word("per", 1); }
  // Skips to the next entry of the block whose entry began at `begin`, over whole { } inside.
  void recover(size_t begin) {
    if (at == begin && !is(TokenKind::BraceOpen))
      advance();
    int depth = 0;
    while (!is(TokenKind::EndOfFile) && !declarationStart()) {
      if (depth == 0 && (is(TokenKind::BraceClose) || entryStart()))
        return;
      depth += is(TokenKind::BraceOpen) - is(TokenKind::BraceClose);
      advance();
    }
  }

  // `{` entries `}`. `entry` parses one entry. False: a syntax error somewhere inside.
  template <class Entry> bool block(Entry entry) {
    if (!take(TokenKind::BraceOpen))
      return false;
    bool good = true;
    while (!is(TokenKind::BraceClose)) {
      if (is(TokenKind::EndOfFile) || declarationStart())
        return expected("'}'");
      size_t begin = at;
      entries.push_back(token().span.begin);
      if (!entry()) {
        good = false;
        recover(begin);
      }
    }
    advance();
    return good;
  }

  // --- uses and parameters

  // `(` items with commas between them `)`.
  template <class Item> bool list(Item item) {
    advance();
    while (!is(TokenKind::ParenClose)) {
      if (!item())
        return false;
      if (!is(TokenKind::Comma) && !is(TokenKind::ParenClose))
        return expected("',' or ')'");
      if (is(TokenKind::Comma))
        advance();
    }
    advance();
    return true;
  }

  // `codebook [-1, 0.5]`, its values.
  bool takeCodebook(std::vector<double> &values);

  // Not the word that the next declaration begins with.
  bool takeUsedName(ast::Name &name) {
    constexpr const char *expectation = "the name of a format or a type";
    return declarationStart() ? expected(expectation) : takeName(name, expectation);
  }

  bool parameter(std::vector<ast::Parameter> &parameters);
  // `nesting` counts instances around it.
  bool use(ast::Use &use, int nesting = 0);

private:
  bool argument(std::vector<ast::Argument> &arguments, int nesting);
  bool argumentValue(ast::Argument &argument, int nesting);

protected:
  const std::vector<Token> &tokens;
  Findings &findings;
  size_t at = 0;
  std::vector<uint32_t> entries, prefixes; // of ast::File
};

} // namespace rho::dsl
