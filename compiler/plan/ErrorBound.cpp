#include "compiler/ErrorBound.h"

#include "compiler/plan/Geometry.h"

#include <cmath>

namespace rho::compiler {

namespace {

// Unit roundoff of rounding to nearest: half a unit in the last place, relative.
double roundoff(dsl::ElementType type) { return std::ldexp(1.0, -type.mantissaBits() - 1); }

// Below the smallest normal number the error is absolute: half of the smallest subnormal.
double underflow(dsl::ElementType type) {
  int smallestExponent = 2 - (1 << (type.exponentBits() - 1)) - type.mantissaBits();
  return std::ldexp(1.0, smallestExponent - 1);
}

} // namespace

// With u = 2^-24 and S the magnitude:
// - integer sums are exact; converting one to f32 costs u of it;
// - a float MMA's products are exact (11-bit times 11-bit significands fit 24 bits); tensor cores
//   add them with at least 24 bits and truncation, so each of the k additions costs at most 2u of
//   the running sum, itself at most S; joining chains of accumulators adds at most one u for each
//   instruction;
// - an operand scale that is not exact rounds each product weight * scale once: the operand type's
//   roundoff of S;
// - scaling a group's partial sum costs u for the product of scales and u for the fused add; the
//   running sum collects one such error per group;
// - each epilogue multiplication costs u, the output its own roundoff.
double errorBound(const dsl::Gemm &gemm, const Plan &plan, double magnitude, double y) {
  Result<PlacedGemm> placed = place(gemm, plan.groupScales, nullptr);
  if (!placed)
    return 0; // such a plan has no kernel
  const double u = std::ldexp(1.0, -24);
  double k = static_cast<double>(plan.problem.k);
  double perSum = 0;
  if (placed->integerAccumulator)
    perSum += u;
  else
    perSum += (k + 16) * 2 * u + std::ceil(k / placed->mmaK) * u;
  if (placed->operandScale >= 0) {
    dsl::ElementType scale = gemm.weight.components[placed->operandScale].type;
    dsl::ElementType operand = dsl::ElementType::get(placed->mmaType);
    dsl::ElementType element = gemm.weight.element().type;
    // Significant bits of element times scale: exact when they fit the operand type.
    int bits = scale.mantissaBits() + 1 +
               (element.isFloat() ? element.mantissaBits() + 1 : element.bits() - 1);
    if (bits > operand.mantissaBits() + 1)
      perSum += roundoff(operand);
  }
  if (placed->flushK > 0) {
    double tile = static_cast<double>(std::min(placed->flushK, plan.schedule.tileK));
    perSum += (std::ceil(k / tile) + static_cast<double>(placed->accumulator.size()) + 1) * u;
  }
  if (plan.schedule.splitK > 1 && (!placed->integerAccumulator || placed->flushK > 0))
    perSum += static_cast<double>(plan.schedule.splitK) * u;
  double epilogue = (static_cast<double>(placed->epilogue.size()) + 2) * u;
  double bound = perSum * magnitude + epilogue * std::abs(y) * 1.001;
  double rounding = roundoff(gemm.output) * (std::abs(y) + bound) + underflow(gemm.output);
  return bound + rounding;
}

} // namespace rho::compiler
