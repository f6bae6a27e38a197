#include "compiler/decode/Throughput.h"

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
  case Op::AndXor:
  case Op::Select:
  case Op::Shr:
  case Op::RotateLeft:
  case Op::Prmt:
  case Op::ToE4M3:
    ++logic;
    return;
  }
}

OpCounts countInstructions(const DecodeProgram &program) {
  OpCounts counts;
  for (const DecodeInstr &instr : program.instructions)
    counts.add(instr.op);
  return counts;
}

} // namespace rho::compiler
