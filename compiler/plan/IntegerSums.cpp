#include "compiler/plan/IntegerSums.h"

#include "dsl/Evaluate.h"

#include <cmath>
#include <iomanip>
#include <sstream>

namespace rho::compiler {

namespace {

// The largest magnitude of a sum between two flushes, and so of each of its parts: every product at
// its largest.
Result<double> largestSum(const dsl::Gemm &gemm, const PlacedGemm &placed, const Problem &problem,
                          const SourceMap *sources) {
  dsl::Format decoded = decodedWeight(gemm, placed);
  Result<Factors> factors = factorValue(decoded, true, gemm.weightSpan, sources);
  if (!factors)
    return factors.error();
  dsl::Range weight = dsl::rangeOf(*factors->core, decoded);
  dsl::ElementType x = gemm.activation.element().type;
  double largest = std::max(std::abs(weight.min), std::abs(weight.max)) *
                   std::ldexp(1.0, placed.log2Factor) * x.maxMagnitude();
  int64_t terms = placed.flushK > 0 ? std::min(placed.flushK, problem.k) : problem.k;
  return largest * static_cast<double>(terms);
}

std::string whole(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(0) << value;
  return text.str();
}

} // namespace

std::optional<Error> checkAccumulator(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                      const Problem &problem, const SourceMap *sources) {
  if (!placed.parts.empty()) {
    std::optional<Error> first;
    forEachGemm(gemm, placed, [&](const dsl::Gemm &one, const PlacedGemm &part) {
      if (!first)
        first = checkAccumulator(one, part, problem, sources);
    });
    return first;
  }
  if (placed.integerAccumulator) {
    Result<double> sum = largestSum(gemm, placed, problem, sources);
    if (!sum)
      return sum.error();
    const bool fits = *sum <= 2147483647.0; // NaN does not
    if (!fits)
      return errorAt(DiagId::accumulator_overflow,
                     {whole(*sum), std::to_string(problem.k), "2147483647"}, gemm.span, sources);
  }
  return placed.residual ? checkAccumulator(residualOf(gemm), *placed.residual, problem, sources)
                         : std::nullopt;
}

std::string whyNotBiased(const dsl::Gemm &gemm, const PlacedGemm &placed, const Problem &problem,
                         dsl::ScheduleDecl::Roles roles) {
  constexpr double limit = 1 << 22;
  if (!placed.parts.empty()) {
    std::string first;
    forEachGemm(gemm, placed, [&](const dsl::Gemm &one, const PlacedGemm &part) {
      if (first.empty())
        first = whyNotBiased(one, part, problem, roles);
    });
    return first;
  }
  if (!placed.integerAccumulator)
    return "sums of " + placed.mmaType + " operands are floats already";
  if (placed.flushK == 0)
    return "no scale is shared by a group along k, each output is converted once";
  if (roles != dsl::ScheduleDecl::Roles::Uniform)
    return "sums of roles " + std::string(dsl::name(roles)) + " start at zero";
  Result<double> sum = largestSum(gemm, placed, problem, nullptr);
  if (!sum)
    return "their range is not known";
  if (*sum >= limit)
    return "sums of a group reach " + whole(*sum) + ", they must stay below " + whole(limit);
  return "";
}

} // namespace rho::compiler
