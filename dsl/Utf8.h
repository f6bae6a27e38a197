// Characters of UTF-8 texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace rho::dsl {

// Whether a byte is the second or a later one of a character.
constexpr bool continuesCharacter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

// The first character of a text that is not empty, and how many bytes it has; 0: they are no UTF-8,
// such as an overlong form or half of a surrogate pair. Source: RFC 3629, section 4.
struct Character {
  uint32_t code;
  size_t bytes;
};
inline Character firstCharacter(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t bytes = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (bytes == 0 || lead > 0xf4 || bytes > text.size())
    return {};
  uint32_t code = bytes == 1 ? lead : lead & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if (!continuesCharacter(text[i]))
      return {};
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fU);
  }
  constexpr uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < least[bytes] || surrogate || code > 0x10ffff ? Character{} : Character{code, bytes};
}

// Where a text stops to be UTF-8; none: it is to its end.
inline std::optional<size_t> firstByteOfNoCharacter(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = firstCharacter(text.substr(at)).bytes;
    if (bytes == 0)
      return at;
    at += bytes;
  }
  return std::nullopt;
}

} // namespace rho::dsl
