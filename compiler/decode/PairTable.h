// Decodes that look up two codes at a time in shared memory.
#pragma once

#include "compiler/decode/Sequences.h"

namespace rho::compiler {

// A decode of codes of 4 bits to operands of 16 by a table of all pairs of them, whatever they
// stand for: 8 instructions for 8 codes, of which 4 are loads without bank conflicts. For a
// remapped code, what a selector chooses has a table each. They take shared memory
// (DecodeProgram::lanes), which kernels fill when they start. Lanes hold numbers times
// 2^log2Factor. None of a core that is not the element's alone, nor of selectors of more than 2
// bits.
std::optional<DecodeSequence> pairDecode(const dsl::Format &format, const dsl::Expr &core,
                                         std::string_view mmaType, int log2Factor = 0);

// By tables of these lanes; `number`, of its first parameter, is the one that tables have different
// lanes for, if any.
DecodeSequence pairSequence(std::vector<uint16_t> lanes, const RowNumber &number);

// Of so many words of a chunk all but the last by `pairs`, that by `registers`: of the pipe to
// shared memory and the one of permutations neither has all to do. None where the two want codes in
// other places, or scales times other powers of two.
inline constexpr int mixedWords = 4;
std::optional<DecodeSequence> mixedDecode(const DecodeSequence &pairs,
                                          const DecodeSequence &registers);

// Whether a warp takes fewer cycles for it, per code, and no number is rounded more often.
bool isCheaper(const DecodeSequence &decode, const DecodeSequence &than);

} // namespace rho::compiler
