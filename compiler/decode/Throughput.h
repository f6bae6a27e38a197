// What the instructions of a decode cost: how long each occupies which pipe of an SM's quarter.
#pragma once

#include "compiler/decode/DecodeProgram.h"

#include <algorithm>

namespace rho::compiler {

// Cycles for which one instruction of a warp occupies its pipe, from the results per cycle and SM
// of the CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions" (128 lanes are
// one cycle, 64 are two). A quarter of an SM issues one instruction a cycle. Bitwise operations,
// shifts, byte permutes and conversions share one pipe, multiplications another; ptxas writes a
// shift to the left as a multiplication where that pipe has room.
//
// The defaults are of compute capability 9.0, and decodes of all targets are chosen by them. The
// rates of 8.x differ by bf16 = 2 (8.0) or f16 = bf16 = 2 (8.6, 8.9), those of 12.0 by logic = 1
// for bitwise operations and f16 = bf16 = 2: docs/DECODE.md says what they would choose.
struct InstructionRates {
  int logic = 2;    // 64 results per cycle
  int multiply = 2; // 64 results: 32-bit integer multiply-add
  int f16 = 1;      // 256 results, two to a lane
  int bf16 = 1;
  int load = 4; // 32 results, of shared memory, for all quarters of an SM
  friend auto operator<=>(const InstructionRates &, const InstructionRates &) = default;
};

// Instructions by what they occupy.
struct OpCounts {
  int logic = 0, multiply = 0, f16 = 0, bf16 = 0;
  int shiftLeft = 0; // either pipe
  int load = 0;

  void add(DecodeInstr::Op op);
  OpCounts operator+(const OpCounts &other) const {
    return {logic + other.logic, multiply + other.multiply,   f16 + other.f16,
            bf16 + other.bf16,   shiftLeft + other.shiftLeft, load + other.load};
  }
  int total() const { return logic + multiply + f16 + bf16 + shiftLeft + load; }
};
OpCounts countInstructions(const DecodeProgram &program);

// Cycles of a warp that alone uses its quarter of the SM: what the busiest of issue and pipes
// takes. Searches ask it more than anything else.
inline int cycles(const OpCounts &counts, const InstructionRates &rates) {
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
