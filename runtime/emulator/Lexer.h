// PTX text to tokens (PTX ISA, "Syntax").
#pragma once

#include "dsl/Error.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace rho::emulator {

struct Token {
  enum class Kind : uint8_t {
    Word,    // ld, %r1, $L__BB0_1
    DotWord, // .global, .L1::no_allocate
    Number,  // 12, 0x1F, 0f3F800000, 1.5
    String,  // "..."
    Punct,   // one character
    End,
  } kind = Kind::End;
  bool spaceBefore = false; // an opcode and its modifiers stand together
  uint32_t line = 0;        // 1-based
  uint32_t begin = 0;       // byte offset in the text
  std::string_view text;

  bool is(char c) const { return kind == Kind::Punct && text[0] == c; }
};

// The tokens of `ptx`, ending in one End token. They point into `ptx`.
Result<std::vector<Token>> lex(std::string_view ptx);

} // namespace rho::emulator
