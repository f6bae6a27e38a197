#include "dsl/Lexer.h"

#include <charconv>
#include <system_error>

namespace rho::dsl {

namespace {

constexpr std::string_view tokenSpellings[] = {
#define RHO_TOKEN(kind, spelling) spelling,
#include "dsl/Tokens.def"
#undef RHO_TOKEN
};
constexpr size_t firstPunctuation = static_cast<size_t>(TokenKind::ShiftLeft);

// Locale-free, and defined for every byte.
bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool isNamePart(char c) { return isLetter(c) || isDigit(c); }
bool isHexDigit(char c) { return isDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool isSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

class Lexer {
public:
  Lexer(std::string_view text, uint32_t file, Findings &findings)
      : text(text), file(file), findings(findings) {}

  std::vector<Token> run() {
    if (text.starts_with(byteOrderMark))
      at = byteOrderMark.size();
    while (skipBlank())
      token();
    tokens.push_back(Token{.kind = TokenKind::EndOfFile, .span = span(at), .text = {}});
    return std::move(tokens);
  }

private:
  char peek(size_t ahead = 0) const { return at + ahead < text.size() ? text[at + ahead] : '\0'; }
  Span span(size_t begin) const {
    return Span{file, static_cast<uint32_t>(begin), static_cast<uint32_t>(at)};
  }
  Token &push(TokenKind kind, size_t begin) {
    tokens.push_back(
        Token{.kind = kind, .span = span(begin), .text = text.substr(begin, at - begin)});
    return tokens.back();
  }

  // Skips spaces and comments; false at the end of the text.
  bool skipBlank() {
    while (at < text.size()) {
      if (isSpace(text[at])) {
        ++at;
      } else if (peek() == '/' && peek(1) == '/') {
        while (at < text.size() && text[at] != '\n')
          ++at;
      } else {
        return true;
      }
    }
    return false;
  }

  void token() {
    if (isLetter(peek()))
      return name();
    if (isDigit(peek()))
      return number();
    if (peek() == '"')
      return string();
    for (size_t i = firstPunctuation; i < std::size(tokenSpellings); ++i) {
      if (text.substr(at, tokenSpellings[i].size()) == tokenSpellings[i]) {
        size_t begin = at;
        at += tokenSpellings[i].size();
        push(static_cast<TokenKind>(i), begin);
        return;
      }
    }
    unexpected();
  }

  void name() {
    size_t begin = at;
    while (isNamePart(peek()))
      ++at;
    if (at - begin > maxNameLength)
      findings.add(DiagId::name_too_long,
                   {std::to_string(at - begin), std::to_string(maxNameLength)}, span(begin));
    Token &token = push(TokenKind::Name, begin);
    token.text = token.text.substr(0, maxNameLength); // later messages stay readable
  }

  void digits() {
    while (isDigit(peek()))
      ++at;
  }

  void number() {
    size_t begin = at;
    bool hexadecimal = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X');
    bool real = false;
    if (hexadecimal) {
      at += 2;
      while (isHexDigit(peek()))
        ++at;
    } else {
      digits();
      if (peek() == '.' && isDigit(peek(1))) {
        real = true;
        ++at;
        digits();
      }
      size_t sign = peek(1) == '+' || peek(1) == '-' ? 2 : 1;
      if ((peek() == 'e' || peek() == 'E') && isDigit(peek(sign))) {
        real = true;
        at += sign;
        digits();
      }
    }
    if (isNamePart(peek()) || peek() == '.' || (hexadecimal && at - begin == 2)) {
      while (isNamePart(peek()) || peek() == '.')
        ++at;
      findings.add(DiagId::malformed_number, {shown(text.substr(begin, at - begin))}, span(begin));
      // The digits before the fault keep later phases from a second complaint.
      Token &token = push(TokenKind::Integer, begin);
      std::from_chars(text.data() + begin, text.data() + at, token.integer);
      return;
    }
    Token &token = push(real ? TokenKind::Real : TokenKind::Integer, begin);
    const char *end = text.data() + at;
    std::errc error = real ? std::from_chars(text.data() + begin, end, token.real).ec
                           : std::from_chars(text.data() + begin + (hexadecimal ? 2 : 0), end,
                                             token.integer, hexadecimal ? 16 : 10)
                                 .ec;
    if (error == std::errc())
      return;
    token.integer = 1;
    token.real = 1;
    findings.add(DiagId::number_out_of_range,
                 {shown(token.text), real ? "a real number lies between 5e-324 and 1.79e308"
                                          : "an integer is at most 9223372036854775807"},
                 token.span);
  }

  bool atLineEnd() const { return peek() == '\n' || (peek() == '\r' && peek(1) == '\n'); }

  void string() {
    size_t begin = at++;
    while (at < text.size() && peek() != '"' && !atLineEnd())
      ++at;
    bool closed = peek() == '"';
    std::string_view inside = text.substr(begin + 1, at - begin - 1);
    if (closed)
      ++at;
    push(TokenKind::String, begin).text = inside;
    if (!closed)
      findings.add(DiagId::unterminated_string, {}, span(begin));
  }

  // Reports a run of bytes that begin no token once.
  void unexpected() {
    size_t begin = at;
    auto byte = static_cast<unsigned char>(peek());
    if (byte < 0x80) {
      ++at;
    } else {
      while (static_cast<unsigned char>(peek()) >= 0x80)
        ++at;
    }
    findings.add(DiagId::unexpected_character, {"'" + shown(text.substr(begin, at - begin)) + "'"},
                 span(begin));
    while (at < text.size() && text[at] == text[begin] && byte < 0x80)
      ++at;
  }

  std::string_view text;
  uint32_t file;
  Findings &findings;
  size_t at = 0;
  std::vector<Token> tokens;
};

} // namespace

std::string describe(TokenKind kind) {
  auto index = static_cast<size_t>(kind);
  std::string spelling(tokenSpellings[index]);
  return index >= firstPunctuation ? "'" + spelling + "'" : spelling;
}

std::string describe(const Token &token) {
  if (token.kind == TokenKind::EndOfFile)
    return describe(token.kind);
  if (token.kind == TokenKind::String)
    return "string \"" + shown(token.text) + "\"";
  return "'" + shown(token.text) + "'";
}

std::vector<Token> lex(const SourceMap &sources, uint32_t file, Findings &findings) {
  return Lexer(sources.text(file), file, findings).run();
}

} // namespace rho::dsl
