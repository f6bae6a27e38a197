// Text -> tokens.
#pragma once

#include "dsl/Findings.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rho::dsl {

enum class TokenKind : uint8_t {
#define RHO_TOKEN(kind, spelling) kind,
#include "dsl/Tokens.def"
#undef RHO_TOKEN
};

// How messages name a kind: "name", "integer", "'{'".
std::string describe(TokenKind kind);

struct Token {
  TokenKind kind = TokenKind::EndOfFile;
  Span span;
  std::string_view text; // of the source; of a string without its quotes
  int64_t integer = 0;
  double real = 0;
};

// How messages name a token that was found: "'scale'", "end of file".
std::string describe(const Token &token);

// Bytes of a source file.
inline constexpr size_t maxFileBytes = size_t(1) << 20;
inline constexpr size_t maxNameLength = 64;
// With which some editors begin a text.
inline constexpr std::string_view byteOrderMark = "\xef\xbb\xbf";

// The tokens of a file, the last of which is EndOfFile. What is no token is reported and skipped.
// The tokens point into the text that `sources` holds.
std::vector<Token> lex(const SourceMap &sources, uint32_t file, Findings &findings);

} // namespace rho::dsl
