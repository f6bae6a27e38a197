// The multiply-add that a decode ends in: it takes a factor or a term of the row in the same
// instruction.
#pragma once

#include "compiler/decode/Sequences.h"

#include <array>

namespace rho::compiler {

// x * slope + offset.
struct Line {
  double slope, offset;
  friend bool operator==(const Line &, const Line &) = default;
};

// What makes output r of x, where that is an addition, a multiplication or both, with constants.
std::optional<Line> lineOf(const DecodeProgram &program, size_t r, std::string_view mmaType);
// Instead these, for an output that has one.
void setLine(DecodeProgram &program, size_t r, std::string_view mmaType,
             DecodeProgram::Operand slope, DecodeProgram::Operand offset);

// Where every register of `sequence` is made by x * slope + offset at last, the same for all, slope
// at most 1 (a larger one brings numbers back from the end of the range) and offset not 0:
// multiplies them by a number of their row half, an operand in both halves of a register, as
// x * number + (offset / slope) * number. The sum is rounded once, as a product is. False, and
// nothing done, where that is not so, or where the operand's type does not hold the second product,
// for numbers of up to `largest` with at most `digits` significant binary digits.
bool scaleLine(DecodeSequence &sequence,
               const std::array<DecodeProgram::Operand, 2> &numbers, // of row halves
               double largest, int digits, std::string_view mmaType);

} // namespace rho::compiler
