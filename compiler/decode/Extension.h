// What decodes of parameters of a row are made with.
#pragma once

#include "compiler/decode/Sequences.h"

namespace rho::compiler {

// The parameters of a sequence, to which more are added.
class Extension {
public:
  using Operand = DecodeProgram::Operand;

  Extension(DecodeSequence &sequence, std::string_view mmaType, bool groupsOfHalves = false)
      : sequence(sequence), mmaType(mmaType),
        groupsOfHalves(groupsOfHalves && sequence.hasBothHalves()) {}

  Operand param(const DecodeParam &wanted) { return DecodeProgram::param(sequence.param(wanted)); }
  // A number of the row of register r, and of its half of k where that has a group of its own, in
  // both halves of a register.
  Operand number(const RowNumber &number, size_t r) {
    if (!number.isConstant())
      return param({DecodeParam::Form::Number, 0, static_cast<int>(r & 1), number,
                    groupsOfHalves ? static_cast<int>(r >> 1 & 1) : 0});
    return DecodeProgram::number(mmaType, number.constant());
  }

private:
  DecodeSequence &sequence;
  std::string_view mmaType;
  bool groupsOfHalves;
};

} // namespace rho::compiler
