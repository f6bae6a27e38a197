#include "compiler/plan/InstructionCounts.h"

#include <algorithm>
#include <numeric>

namespace rho::compiler {

namespace {

using Class = dsl::InstructionClass;
constexpr double warpSize = 32, schedulers = 4;

Class classOf(DecodeInstr::Op op) {
  using Op = DecodeInstr::Op;
  switch (op) {
  case Op::And:
  case Op::Or:
  case Op::Xor:
  case Op::AndOr:
  case Op::AndXor:
  case Op::Select:
    return Class::Lop3;
  case Op::Shl:
  case Op::Shr:
  case Op::RotateLeft:
    return Class::Shf;
  case Op::Prmt:
    return Class::Prmt;
  case Op::Mad:
    return Class::Imad;
  case Op::MulF16:
  case Op::AddF16:
  case Op::FmaF16:
    return Class::Hfma2;
  case Op::ToE4M3:
    return Class::F2f;
  case Op::Pair:
    return Class::Lds;
  case Op::FmaBF16:
    break;
  }
  return Class::Bfma2;
}

} // namespace

InstructionCounts &InstructionCounts::operator+=(const InstructionCounts &more) {
  for (size_t i = 0; i < of.size(); ++i)
    of[i] += more.of[i];
  others += more.others;
  return *this;
}

double InstructionCounts::total() const { return std::accumulate(of.begin(), of.end(), others); }

InstructionCounts operator*(double times, InstructionCounts counts) {
  for (double &count : counts.of)
    count *= times;
  counts.others *= times;
  return counts;
}

InstructionCounts countDecode(const DecodeProgram &program) {
  InstructionCounts counts;
  for (const DecodeInstr &instr : program.instructions)
    if (!instr.isCopy()) // operands that are the codes have no decode
      counts[classOf(instr.op)] += 1;
  return counts;
}

InstructionCounts countScaling(const PlacedGemm &placed, dsl::ScheduleDecl::Sums sums) {
  InstructionCounts counts;
  // The multiply-add into the sums, and what combines the scales of both operands.
  counts[Class::Ffma] = placed.accumulator.size() > 1 ? 2 : 1;
  if (placed.integerAccumulator) // a conversion, or the subtraction of where it started
    counts[sums == dsl::ScheduleDecl::Sums::Biased ? Class::Ffma : Class::I2f] += 1;
  return counts;
}

double PipeCycles::slowest() const { return std::max({fma, alu, conversion, shared}); }

PipeCycles pipeCycles(const InstructionCounts &counts, const dsl::DeviceRates &rates) {
  PipeCycles cycles;
  for (size_t i = 0; i < dsl::instructionClasses; ++i) {
    auto which = static_cast<Class>(i);
    double busy = counts[which] * warpSize / rates.of(which);
    switch (which) {
    case Class::Ffma:
    case Class::Hfma2:
    case Class::Bfma2:
    case Class::Imad:
    case Class::Dp4a:
      cycles.fma += busy;
      break;
    case Class::I2f:
      (rates.of(Class::I2f) < rates.of(Class::Lop3) / 2 ? cycles.conversion : cycles.alu) += busy;
      break;
    case Class::Iadd:
    case Class::Lop3:
    case Class::Prmt:
    case Class::Shf:
      cycles.alu += busy;
      break;
    case Class::F2f:
      cycles.conversion += busy;
      break;
    case Class::Lds:
      cycles.shared += busy;
      break;
    }
  }
  return cycles;
}

double issueCycles(Class which, const dsl::DeviceRates &rates) {
  return warpSize * schedulers / rates.of(which);
}

} // namespace rho::compiler
