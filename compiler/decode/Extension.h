// What decodes of parameters of a row are made with.
#pragma once

#include "compiler/decode/Sequences.h"

namespace rho::compiler {

// The outputs of a sequence and its parameters, to which more is added.
class Extension {
public:
  using Operand = DecodeProgram::Operand;

  Extension(DecodeSequence &sequence, std::string_view mmaType, bool groupsOfHalves = false)
      : sequence(sequence), p(sequence.program), mmaType(mmaType),
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
  Operand output(size_t r) const {
    return {Operand::Kind::Temp, static_cast<uint32_t>(p.outputs[r])};
  }
  void setOutput(size_t r, Operand value) { p.outputs[r] = static_cast<int>(value.value); }

private:
  DecodeSequence &sequence;
  DecodeProgram &p;
  std::string_view mmaType;
  bool groupsOfHalves;
};

} // namespace rho::compiler
