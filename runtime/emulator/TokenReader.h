// A position in the tokens of a PTX text, with the first error that was met. After an error every
// request still answers something harmless.
#pragma once

#include "runtime/emulator/Parser.h"

#include <algorithm>
#include <optional>

namespace rho::emulator {

class TokenReader {
protected:
  using Kind = Token::Kind;

  explicit TokenReader(std::vector<Token> tokens) : tokens(std::move(tokens)) {}

  const Token &peek(size_t ahead = 0) const {
    return tokens[std::min(at + ahead, tokens.size() - 1)];
  }
  const Token &next() { // stays at the end of the text
    const Token &token = peek();
    if (at + 1 < tokens.size())
      ++at;
    return token;
  }

  bool accept(char c);
  bool accept(std::string_view dotWord);
  bool expect(char c);
  std::string_view word(const char *what);

  // Integer, Single or Double.
  bool signedNumber(Operand &out);
  // An integer from 0 to limit.
  uint64_t count(const char *what, uint64_t limit);
  // All of `s` as digits of the base.
  static bool digits(std::string_view s, int base, uint64_t &value);

  static std::string quoted(const Token &token);
  void fail(const std::string &expected) { fail(peek().line, quoted(peek()), expected); }
  void fail(uint32_t line, const std::string &found, const std::string &expected);

  std::optional<Error> failed;

private:
  bool number(Operand &out);

  std::vector<Token> tokens;
  size_t at = 0;
};

} // namespace rho::emulator
