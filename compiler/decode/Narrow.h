// Operands of 8 bits by way of f16, for numbers that no shorter decode makes.
#pragma once

#include "compiler/decode/Sequences.h"

namespace rho::compiler {

// To e4m3 what `halves`, a decode to f16, makes; numbers that e4m3 holds. None where registers are
// not whole fours, of which r and r + 2 are one.
std::optional<DecodeSequence> narrowedToE4M3(DecodeSequence halves);

// To s8, times 2^log2: integers from -128 to 127 then.
std::optional<DecodeSequence> narrowedToS8(DecodeSequence halves, int log2);

} // namespace rho::compiler
