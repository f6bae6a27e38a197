// Decodes that look up two codes at a time in shared memory.
#pragma once

#include "compiler/decode/Sequences.h"

namespace rho::compiler {

// A decode of codes of 4 bits to operands of 16 by a table of all pairs of them, whatever they
// stand for: 12 instructions for 8 codes, of which 4 are loads without bank conflicts. It takes 32
// KiB of shared memory (DecodeProgram::lanes), which kernels fill when they start. Lanes hold
// numbers times 2^log2Factor. None of a core that is not the element's alone.
std::optional<DecodeSequence> pairDecode(const dsl::Format &format, const dsl::Expr &core,
                                         std::string_view mmaType, int log2Factor = 0);

// Whether a warp takes fewer cycles for it, per code, and no number is rounded more often.
bool isCheaper(const DecodeSequence &decode, const DecodeSequence &than);

} // namespace rho::compiler
