// Decodes of elements one of whose codes stands for what a row's selector says.
#pragma once

#include "compiler/decode/Sequences.h"

namespace rho::compiler {

// Decodes such an element to operands of 16 bits, or of 8 bits of which each number that a code may
// stand for is one, times one power of two. None for others.
std::optional<DecodeSequence> remappedDecode(const dsl::Format &format, std::string_view mmaType);

// By a table of pairs for each code of the selector (PairTable.h). Lanes of the remapped code are 0
// where they are numbers of the tensor, which the kernel knows.
std::optional<DecodeSequence> remappedPairs(const dsl::Format &format, std::string_view mmaType,
                                            int log2Factor);

// To operands of 8 bits where only literals of one sign are left of what the code stands for once a
// scale of groups, as below, has their signs: fewer instructions than remappedDecode().
std::optional<DecodeSequence> remappedOfOneSign(const dsl::Format &format, std::string_view mmaType,
                                                int scale);

// Of four tables of pairs of which two have the negative numbers of the others, leaves these two to
// the sign of a scale of groups that stands once in the value and holds the selector in spare bits
// (DecodeSequence::scaleSign).
void leaveSignsToScale(DecodeSequence &sequence, const dsl::Format &format, int scale);

} // namespace rho::compiler
