// Characters of UTF-8 texts.
#pragma once

#include <optional>
#include <string_view>

namespace rho::dsl {

// Whether a byte is the second or a later one of a character.
constexpr bool continuesCharacter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

// Where a text stops to be UTF-8: overlong forms and halves of surrogate pairs are none. None: it
// is. Source: RFC 3629, section 4.
inline std::optional<size_t> firstByteOfNoCharacter(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    auto byte = [&](size_t i) {
      return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
    };
    const unsigned lead = byte(at), second = byte(at + 1);
    const size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4 || (lead == 0xe0 && second < 0xa0) ||
        (lead == 0xed && second > 0x9f) || (lead == 0xf0 && second < 0x90) ||
        (lead == 0xf4 && second > 0x8f))
      return at;
    for (size_t i = 1; i < length; ++i)
      if (at + i >= text.size() || !continuesCharacter(text[at + i]))
        return at;
    at += length;
  }
  return std::nullopt;
}

} // namespace rho::dsl
