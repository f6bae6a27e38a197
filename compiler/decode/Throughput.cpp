#include "compiler/decode/Throughput.h"

#include <algorithm>

namespace rho::compiler {

void OpCounts::add(DecodeInstr::Op op) {
  using Op = DecodeInstr::Op;
  switch (op) {
  case Op::Shl:
    ++shiftLeft;
    return;
  case Op::Mad:
    ++multiply;
    return;
  case Op::MulF16:
  case Op::AddF16:
  case Op::FmaF16:
    ++f16;
    return;
  case Op::FmaBF16:
    ++bf16;
    return;
  case Op::Pair:
    ++load;
    return;
  case Op::And:
  case Op::Or:
  case Op::Xor:
  case Op::AndOr:
  case Op::Select:
  case Op::Shr:
  case Op::RotateLeft:
  case Op::Prmt:
  case Op::ToE4M3:
    ++logic;
    return;
  }
}

OpCounts OpCounts::operator+(const OpCounts &other) const {
  return {logic + other.logic, multiply + other.multiply,   f16 + other.f16,
          bf16 + other.bf16,   shiftLeft + other.shiftLeft, load + other.load};
}

OpCounts countInstructions(const DecodeProgram &program) {
  OpCounts counts;
  for (const DecodeInstr &instr : program.instructions)
    counts.add(instr.op);
  return counts;
}

int cycles(const OpCounts &counts, const InstructionRates &rates) {
  int logic = counts.logic * rates.logic;
  int multiply =
      counts.multiply * rates.multiply + counts.f16 * rates.f16 + counts.bf16 * rates.bf16;
  for (int i = 0; i < counts.shiftLeft; ++i) {
    if (multiply + rates.multiply <= logic + rates.logic)
      multiply += rates.multiply;
    else
      logic += rates.logic;
  }
  return std::max({counts.total(), logic, multiply, counts.load * rates.load});
}

} // namespace rho::compiler
