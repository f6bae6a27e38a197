#include "compiler/decode/Line.h"

#include "compiler/decode/ElementCore.h"

#include <cmath>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

// Of all registers, where it is the same.
std::optional<Line> commonLine(const DecodeProgram &program, std::string_view mmaType) {
  std::optional<Line> line = lineOf(program, 0, mmaType);
  for (size_t r = 1; line && r < program.outputs.size(); ++r)
    if (lineOf(program, r, mmaType) != line)
      line.reset();
  return line;
}

} // namespace

std::optional<Line> lineOf(const DecodeProgram &program, size_t r, std::string_view mmaType) {
  const DecodeInstr &instr = program.instructions[static_cast<size_t>(program.outputs[r])];
  dsl::ElementType type = dsl::ElementType::get(mmaType);
  auto number = [&](size_t operand) -> std::optional<double> {
    uint32_t value = instr.operands[operand].value;
    bool twice =
        instr.operands[operand].kind == Operand::Kind::Const && value >> 16 == (value & 0xffff);
    return twice ? std::optional(type.decode(value & 0xffff)) : std::nullopt;
  };
  std::optional<double> slope = instr.op == Op::AddF16 ? 1 : number(1);
  std::optional<double> offset =
      instr.op == Op::MulF16 ? 0 : number(instr.op == Op::AddF16 ? 1 : 2);
  bool linear = instr.op == Op::AddF16 || instr.op == Op::MulF16 || instr.op == Op::FmaF16 ||
                instr.op == Op::FmaBF16;
  if (!linear || !slope || !offset)
    return std::nullopt;
  return Line{*slope, *offset};
}

void setLine(DecodeProgram &program, size_t r, std::string_view mmaType, Operand slope,
             Operand offset) {
  DecodeInstr &instr = program.instructions[static_cast<size_t>(program.outputs[r])];
  instr = {mmaType == "f16" ? Op::FmaF16 : Op::FmaBF16, {instr.operands[0], slope, offset}};
}

bool scaleLine(DecodeSequence &sequence, const std::array<Operand, 2> &numbers, double largest,
               int digits, std::string_view mmaType) {
  dsl::ElementType type = dsl::ElementType::get(mmaType);
  std::optional<Line> line = commonLine(sequence.program, mmaType);
  if (!line || line->offset == 0 || line->slope <= 0 || line->slope > 1 ||
      significantBits(line->slope) != 1)
    return false;
  double shift = line->offset / line->slope;
  if (significantBits(shift) + digits > type.significantBits() ||
      std::fabs(shift) * largest > type.maxFinite())
    return false;
  DecodeProgram scaled;
  scaled.params = sequence.program.params;
  std::array<Operand, 2> offsets;
  for (size_t half = 0; half < 2; ++half)
    offsets[half] = scaled.times(mmaType, numbers[half], DecodeProgram::number(mmaType, shift));
  scaled.append(sequence.program);
  for (size_t r = 0; r < scaled.outputs.size(); ++r)
    setLine(scaled, r, mmaType, numbers[r & 1], offsets[r & 1]);
  sequence.program = std::move(scaled);
  sequence.log2Factor -= std::ilogb(line->slope);
  return true;
}

} // namespace rho::compiler
