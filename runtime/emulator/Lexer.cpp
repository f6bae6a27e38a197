#include "runtime/emulator/Lexer.h"

namespace rho::emulator {

namespace {
bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isFollow(char c) { return isLetter(c) || isDigit(c) || c == '_' || c == '$'; }
bool isStart(char c) { return isLetter(c) || c == '_' || c == '$' || c == '%'; }

class Lexer {
public:
  explicit Lexer(std::string_view text) : text(text) {}

  Result<std::vector<Token>> run() {
    std::vector<Token> tokens;
    while (true) {
      size_t before = at;
      if (!skipBlank())
        return makeError(DiagId::emulator_syntax,
                         {std::to_string(line), "a comment without its end", "`*/`"});
      Token token;
      token.spaceBefore = at != before;
      token.line = line;
      token.begin = uint32_t(at);
      if (at == text.size()) {
        token.text = "end of text";
        tokens.push_back(token);
        return tokens;
      }
      if (!scan(token))
        return makeError(DiagId::emulator_syntax,
                         {std::to_string(line), "a string without its end", "`\"`"});
      token.text = text.substr(token.begin, at - token.begin);
      tokens.push_back(token);
    }
  }

private:
  char peek(size_t ahead = 0) const { return at + ahead < text.size() ? text[at + ahead] : '\0'; }

  bool skipBlank() {
    while (at < text.size()) {
      char c = text[at];
      if (c == '\n')
        ++line;
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        ++at;
      } else if (c == '/' && peek(1) == '/') {
        while (at < text.size() && text[at] != '\n')
          ++at;
      } else if (c == '/' && peek(1) == '*') {
        size_t end = text.find("*/", at + 2);
        if (end == std::string_view::npos)
          return false;
        for (; at < end + 2; ++at)
          line += text[at] == '\n';
      } else {
        break;
      }
    }
    return true;
  }

  bool scan(Token &token) {
    char c = text[at++];
    if (isStart(c)) {
      token.kind = Token::Kind::Word;
      while (isFollow(peek()))
        ++at;
    } else if (c == '.' && isFollow(peek())) {
      token.kind = Token::Kind::DotWord;
      while (isFollow(peek()) || (peek() == ':' && peek(1) == ':' && isFollow(peek(2))))
        at += peek() == ':' ? 2 : 1;
    } else if (isDigit(c)) {
      token.kind = Token::Kind::Number;
      while (isFollow(peek()) || (peek() == '.' && isDigit(peek(1))))
        ++at;
    } else if (c == '"') {
      token.kind = Token::Kind::String;
      while (at < text.size() && text[at] != '"' && text[at] != '\n')
        ++at;
      if (peek() != '"')
        return false;
      ++at;
    } else {
      token.kind = Token::Kind::Punct;
    }
    return true;
  }

  std::string_view text;
  size_t at = 0;
  uint32_t line = 1;
};
} // namespace

Result<std::vector<Token>> lex(std::string_view ptx) { return Lexer(ptx).run(); }

} // namespace rho::emulator
