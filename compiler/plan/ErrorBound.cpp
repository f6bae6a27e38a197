#include "compiler/ErrorBound.h"

#include "compiler/OnTarget.h"
#include "compiler/plan/Placement.h"
#include "dsl/Division.h"

#include <algorithm>
#include <cmath>

namespace rho::compiler {

double roundoff(dsl::ElementType type) { return std::ldexp(1.0, -type.mantissaBits() - 1); }

namespace {

// Below the smallest normal number the error is absolute: half of the smallest subnormal.
double underflow(dsl::ElementType type) {
  return std::ldexp(1.0, type.leastExponent() - type.mantissaBits() - 1);
}

// Equal shares divide an output's k tiles among as many CTAs at most.
int64_t sharesOfOutput(const Plan &plan) {
  return plan.schedule.streamsK() ? divideUp(plan.problem.k, plan.schedule.tileK)
                                  : plan.schedule.splitK;
}

} // namespace

// With u = 2^-24 and S the magnitude:
// - integer sums are exact; converting one to f32 costs u of it;
// - a float MMA's products are exact (11-bit times 11-bit significands fit 24 bits); tensor cores
//   add them with at least 24 bits and truncation, so each of the k additions costs at most 2u of
//   the running sum, itself at most S; joining chains of accumulators adds at most one u for each
//   instruction;
// - e4m3: the tensor cores of sm_89 and sm_90 align the products of an instruction and the running
//   sum to the largest of them and truncate each, and the result, to 14 bits (DeepSeek-AI,
//   "DeepSeek-V3 Technical Report", 2024, section 3.5.2; SageAttention2, Zhang et al. 2024, finds
//   accumulators of 13 mantissa bits). The largest is at most the magnitude of what is summed
//   there, so each truncation costs at most 2^-13 of it: of all k, or of a group where groups' sums
//   are scaled and added as floats. An instruction may work in two halves: mmaK + 4 truncations.
//   Nothing less is certain, though of random numbers few errors come near: from k of 1000 or 2000
//   on such a bound is more than most outputs. The emulator's sums are held to that of floats;
// - an operand that is a sum of two, of one sign: as many more instructions, each of whose products
//   are at most those of the sum;
// - e2m1, and block scales: nothing is published of the sums of sm_120a, which are taken to be no
//   better than those. Elements times scales are exact: at most 4 significant bits each;
// - an operand scale that is not exact rounds each product weight * scale once: the operand type's
//   roundoff of S; a product of scales is computed in f32 and rounded as well. Of a number slope *
//   element + offset both are, and the number itself: together twice the roundoff of |slope *
//   element| + |offset|, of which S is the sum for such formats;
// - activations, and scales of weights, that are stored as rounded numbers cost a roundoff of S;
// - scaling a group's partial sum costs u for the product of scales and u for the fused add; the
//   running sum collects one such error per group, and of a gemv, whose threads have such sums of
//   parts of k, one for each addition of those;
// - each epilogue multiplication costs u, the output its own roundoff.
// - the sum of a part of a partition is scaled by what is that part's alone and added to the others
//   before the epilogue: the worst of the parts, with all multiplications relative to the
//   magnitude, and 2u for each part;
// - a residual's sums have such errors of their own, relative to its share of S; scaling both sums
//   and adding them costs u of each share for each factor, one for the fused add, and what groups
//   of warps and parts of k exchange are then floats: u for each.
static double errorOfSums(const PlacedGemm &placed, const Plan &plan, int64_t tileK, Summing by) {
  const double u = std::ldexp(1.0, -24);
  double k = static_cast<double>(plan.problem.k), error = 0;
  int64_t flush = std::min(placed.flushK, tileK); // 0: only at the end
  if (placed.integerAccumulator)
    error += u;
  else if (by == Summing::Gpu && (placed.mmaType == "e4m3" || placed.mmaType == "e2m1"))
    error += std::ceil((flush > 0 ? static_cast<double>(flush) : k) / placed.mmaK) *
             (placed.mmaK + 4) * placed.products() * std::ldexp(1.0, -13);
  else
    error += (k + 16) * 2 * u + std::ceil(k / placed.mmaK) * placed.products() * u;
  if (placed.operandRoundings > 0) {
    double operand = roundoff(dsl::ElementType::get(placed.mmaType));
    error += placed.operandRoundings * (operand * (1 + 4 * operand) + 4 * u);
  }
  if (placed.flushK > 0) {
    error += (std::ceil(k / static_cast<double>(flush)) +
              static_cast<double>(placed.accumulator.size()) + 1) *
             u;
    if (plan.schedule.roles == dsl::ScheduleDecl::Roles::Gemv)
      error += static_cast<double>(plan.schedule.warpsK + 2) * u;
  }
  int64_t shares = sharesOfOutput(plan);
  if (shares > 1 && (!placed.integerAccumulator || placed.flushK > 0))
    error += static_cast<double>(shares) * u;
  return error;
}

ErrorBound::ErrorBound(const dsl::Gemm &declared, const Plan &plan, Summing by)
    : output(declared.output), by(by) {
  const TargetGemm target = onTarget(declared, plan.target);
  Result<PlacedGemm> placed = place(target.gemm, plan, nullptr);
  if (!placed)
    return; // such a plan has no kernel
  const double stored = target.roundoff + target.weightRoundoff;
  if (placed->parts.empty()) {
    cover(*placed, plan);
    perMagnitude += stored * (1 + perMagnitude);
    return;
  }
  double worst = 0;
  for (const PlacedGemm &part : placed->parts) {
    perMagnitude = perResult = 0;
    cover(part, plan);
    worst = std::max(worst, perMagnitude + perResult);
  }
  perMagnitude = worst + stored * (1 + worst) +
                 std::ldexp(static_cast<double>(placed->parts.size()) +
                                static_cast<double>(sharesOfOutput(plan)),
                            -23);
}

void ErrorBound::cover(const PlacedGemm &placed, const Plan &plan) {
  const double u = std::ldexp(1.0, -24);
  perMagnitude = errorOfSums(placed, plan, plan.schedule.tileK, by);
  perResult = (static_cast<double>(placed.epilogue.size()) + 2) * u * 1.001;
  if (const PlacedGemm *residual = placed.residual.get()) {
    int64_t tileK = chunkK(residual->weightBits);
    size_t factors = std::max(placed.epilogue.size(), residual->epilogue.size());
    perMagnitude = std::max(perMagnitude, errorOfSums(*residual, plan, tileK, by)) +
                   (static_cast<double>(factors) + 3) * u * 1.001 +
                   static_cast<double>(sharesOfOutput(plan) + plan.schedule.warpsK) * u;
  }
}

double ErrorBound::operator()(double magnitude, double y) const {
  double bound = perMagnitude * magnitude + perResult * std::abs(y);
  return bound + roundoff(output) * (std::abs(y) + bound) + underflow(output);
}

} // namespace rho::compiler
