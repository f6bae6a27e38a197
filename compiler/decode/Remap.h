// Decodes of elements one of whose codes stands for what a row's selector says.
#pragma once

#include "compiler/decode/Sequences.h"

namespace rho::compiler {

// Decodes such an element to operands of 16 bits, or of 8 bits of which each number that a code may
// stand for is one, times one power of two. None for others.
std::optional<DecodeSequence> remappedDecode(const dsl::Format &format, std::string_view mmaType);

} // namespace rho::compiler
