// Decodes of any element of up to 8 bits, without a search: the ones in use where none is found.
#pragma once

#include "compiler/decode/Sequences.h"

namespace rho::compiler {

// Codes of `type` to operands of `mmaType`: all numbers exact, or rounded for operands of 16 bits.
// None where that is not possible. NaN and infinity of a table become 0: packing refuses them.
std::optional<DecodeSequence> extractElement(dsl::ElementType type, std::string_view mmaType);

// Signed integers of which not all blocks have the `sparseBits` low bits. Operands of 16 bits may
// hold them times 2^-sparseBits.
std::optional<DecodeSequence> extractRefined(dsl::ElementType type, std::string_view mmaType,
                                             int sparseBits);

// Codes of an integer type of up to 8 bits, signed ones in offset binary, in bytes.
DecodeSequence extractBytes(dsl::ElementType type);

} // namespace rho::compiler
