#include "compiler/decode/Narrow.h"

#include "compiler/decode/Line.h"

#include <cmath>
#include <utility>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

// Registers r and r + 2 of each four are those of a row half: `join` makes one of both.
template <class Join>
std::optional<DecodeSequence> joined(DecodeSequence halves, const Join &join) {
  if (halves.registers() % 4 != 0)
    return std::nullopt;
  DecodeProgram &p = halves.program;
  std::vector<int> outputs = std::exchange(p.outputs, {});
  auto codes = std::exchange(halves.bits, {});
  for (size_t four = 0; four < outputs.size(); four += 4)
    for (size_t row = 0; row < 2; ++row) {
      size_t first = four + row, second = first + 2;
      auto temp = [&](size_t r) {
        return Operand{Operand::Kind::Temp, static_cast<uint32_t>(outputs[r])};
      };
      p.output(join(p, temp(first), temp(second)));
      halves.bits.push_back(codes[first]);
      halves.bits.back().insert(halves.bits.back().end(), codes[second].begin(),
                                codes[second].end());
    }
  return halves;
}

} // namespace

std::optional<DecodeSequence> narrowedToE4M3(DecodeSequence halves) {
  return joined(std::move(halves), [](DecodeProgram &p, Operand first, Operand second) {
    return p.add(Op::Prmt, p.add(Op::ToE4M3, first), p.add(Op::ToE4M3, second), constant(0x5410));
  });
}

std::optional<DecodeSequence> narrowedToS8(DecodeSequence halves, int log2) {
  // From 1024 to 2047 the last bits of an f16 count ones, and 1536 is a multiple of 256.
  auto both = [](double value) { return DecodeProgram::number("f16", value); };
  auto holds = [](double value) { return exactIn(dsl::ElementType::get("f16"), value); };
  if (!holds(std::ldexp(1.0, log2 - halves.log2Factor)))
    halves = restored(std::move(halves), "f16");
  double factor = std::ldexp(1.0, log2 - halves.log2Factor);
  DecodeProgram &p = halves.program;
  for (size_t r = 0; r < halves.registers(); ++r) {
    std::optional<Line> line = lineOf(p, r, "f16");
    double slope = line ? line->slope * factor : 0,
           offset = line ? line->offset * factor + 1536 : 0;
    if (line && holds(slope) && holds(offset)) {
      setLine(p, r, "f16", both(slope), both(offset));
      continue;
    }
    p.setOutput(r, p.fma("f16", p.outputAt(r), both(factor), both(1536)));
  }
  halves.log2Factor = log2;
  return joined(std::move(halves), [](DecodeProgram &program, Operand first, Operand second) {
    return program.add(Op::Prmt, first, second, constant(0x6420));
  });
}

} // namespace rho::compiler
