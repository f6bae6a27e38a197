// Characters of UTF-8 texts.
#pragma once

namespace rho::dsl {

// Whether a byte is the second or a later one of a character.
constexpr bool continuesCharacter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

} // namespace rho::dsl
