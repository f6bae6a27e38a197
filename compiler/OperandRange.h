// Whether a weight's numbers fit the operands that its kernel makes of them.
#pragma once

#include "compiler/TextFields.h"
#include "compiler/decode/RowNumber.h"
#include "dsl/Quantize.h"

#include <optional>
#include <string>
#include <vector>

namespace rho::compiler {

// Operands of a type that hold what a weight's codes stand for, without some of its scales and
// literal factors, times 2^log2.
struct OperandRange {
  std::string type;
  int log2 = 0;
  std::vector<uint8_t> outside; // components that are applied to sums
  // Of the weight's numbers, of its residual's, or of the weight's with a residual that shares its
  // scales, at most half a step of the element more.
  enum class Of : uint8_t { Weight, Residual, Both } of = Of::Weight;
  // Whether numbers, 0 apart, may be too small to be normal ones of the type, too.
  bool small = false;
  // Of components of the weight, or of its residual: what decodes compute of a row beside its
  // codes, in the same type.
  std::vector<RowNumber> numbers = {};
  // "type=f16 log2=-3 outside=1,2 of=0 small=0 numbers=-", and back; read() gives what is wrong
  // with it.
  std::string print() const;
  std::string read(FieldReader &fields);
  friend bool operator==(const OperandRange &, const OperandRange &) = default;
};

// The first number, row by row, that is beyond the type: an infinite operand, one that is NaN, or
// one that would lose digits. The codes are those of the weight's format. Quick where the largest
// scale times the largest element is not beyond it, nor the least ones. Errors:
// pack_beyond_operand, pack_beyond_number, pack_below_operand.
std::optional<Error> beyondOperands(const OperandRange &range, const dsl::QuantizedMatrix &weight);

} // namespace rho::compiler
