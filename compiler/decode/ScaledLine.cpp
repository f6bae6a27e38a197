#include "compiler/decode/ScaledLine.h"

#include <cmath>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

// x * slope + offset.
struct Line {
  double slope, offset;
};

std::optional<Line> lastLine(const DecodeProgram &program) {
  const DecodeInstr &last = program.instructions[static_cast<size_t>(program.outputs[0])];
  for (int output : program.outputs) {
    const DecodeInstr &instr = program.instructions[static_cast<size_t>(output)];
    if (instr.op != Op::FmaBF16)
      return std::nullopt;
    for (size_t i : {size_t{1}, size_t{2}})
      if (instr.operands[i].kind != Operand::Kind::Const || instr.operands[i] != last.operands[i])
        return std::nullopt;
  }
  auto number = [&](size_t operand) {
    return dsl::ElementType::get("bf16").decode(last.operands[operand].value & 0xffff);
  };
  return Line{number(1), number(2)};
}

// Significant binary digits.
int digitsOf(double number) {
  int exponent = 0, digits = 0;
  for (double rest = std::fabs(std::frexp(number, &exponent)); rest != 0; ++digits)
    rest = 2 * rest - std::floor(2 * rest);
  return digits;
}

} // namespace

bool scaleLine(DecodeSequence &sequence, const std::array<Operand, 2> &numbers, double largest,
               int digits, std::string_view mmaType) {
  constexpr int digitsOfBF16 = 8;
  if (mmaType != "bf16")
    return false;
  dsl::ElementType type = dsl::ElementType::get(mmaType);
  std::optional<Line> line = lastLine(sequence.program);
  if (!line || line->offset == 0 || line->slope > 1 || digitsOf(line->slope) != 1)
    return false;
  double shift = line->offset / line->slope;
  if (digitsOf(shift) + digits > digitsOfBF16 || std::fabs(shift) * largest > type.maxFinite())
    return false;
  uint32_t offset = type.encode(shift);
  DecodeProgram scaled;
  scaled.params = sequence.program.params;
  std::array<Operand, 2> offsets;
  for (size_t half = 0; half < 2; ++half)
    offsets[half] =
        scaled.times(mmaType, numbers[half], DecodeProgram::constant(offset | offset << 16));
  scaled.append(sequence.program);
  for (size_t r = 0; r < scaled.outputs.size(); ++r) {
    DecodeInstr &last = scaled.instructions[static_cast<size_t>(scaled.outputs[r])];
    last.operands[1] = numbers[r & 1];
    last.operands[2] = offsets[r & 1];
  }
  sequence.program = std::move(scaled);
  sequence.log2Factor -= std::ilogb(line->slope);
  return true;
}

} // namespace rho::compiler
