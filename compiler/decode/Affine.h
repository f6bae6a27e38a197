// Cores of value expressions that are linear in the element: zero points, steps and origins, group
// offsets.
#pragma once

#include "compiler/decode/Sequences.h"

#include <limits>

namespace rho::compiler {

// A number is slope * element + offset.
struct Affine {
  RowNumber slope, offset;
};

// The core as such a number; none where it is not linear. Of integer types, sN(e ^ 2^(N-1)) of a
// number of N bits is e - 2^(N-1), and requirements bound what would not fit otherwise.
std::optional<Affine> affineCore(const dsl::Format &format, const dsl::Expr &core);

// What a number of a row can be: its magnitude at most, and a power of two that divides it. None of
// codebooks and of components of more than 16 bits.
struct Extremes {
  double largest = 0, digit = std::numeric_limits<double>::infinity();
};
std::optional<Extremes> extremesOf(const RowNumber &number, const dsl::Format &format);

// Decodes the core. Operands of 16 bits: exact where it is an integer that they hold, else the
// slope, the offset and the number are each rounded to the operand type. "s8": integers
// of that range. "e4m3": integers up to 16, all of which it holds, and what is rounded to it
// (RoundedProduct.h). None for other operands, and where the core is not affine.
std::optional<DecodeSequence> affineDecode(const dsl::Format &format, const dsl::Expr &core,
                                           std::string_view mmaType);

// Multiplies every register by a number of its row, of at most `largest` and of at most `digits`
// significant binary digits, for operands of 16 bits.
// A power of two that the decode left out travels in that number as far as the range allows.
// `groupsOfHalves`: the number is another one for each half of an instruction's k.
DecodeSequence numberScaled(DecodeSequence sequence, const RowNumber &number, double largest,
                            int digits, bool groupsOfHalves, std::string_view mmaType);

} // namespace rho::compiler
