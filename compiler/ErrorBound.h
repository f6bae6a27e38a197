// How far a kernel's output may be from the exact result: computed, never guessed.
#pragma once

#include "compiler/Plan.h"

namespace rho::compiler {

struct PlacedGemm;

// Unit roundoff of rounding to nearest: half a unit in the last place, relative.
double roundoff(dsl::ElementType type);

// Who adds the products of an instruction: a GPU, which truncates those of e4m3 and of block scales
// to few digits, or the emulator, which rounds each sum to f32 once.
enum class Summing : uint8_t { Gpu, Emulator };

// Bounds |computed - y| for the outputs of one kernel. The derivation stands at the definition.
class ErrorBound {
public:
  // A plan of the gemm on the plan's target (compiler/OnTarget.h).
  ErrorBound(const dsl::Gemm &declared, const Plan &plan, Summing by);
  // For one output: y is the exact result, `magnitude` the sum over k of |activation * weight|.
  // Outputs that overflow the output type are infinite in both.
  double operator()(double magnitude, double y) const;

private:
  dsl::ElementType output;
  Summing by;
  void cover(const PlacedGemm &placed, const Plan &plan); // adds what a kernel's sums cost
  double perMagnitude = 0;                                // relative to the magnitude
  double perResult = 0;                                   // relative to the result
};

} // namespace rho::compiler
