// A weight's residual: low bits of the weight's own operands where its codes are, products of its
// own elsewhere.
#include "compiler/LayoutMap.h"
#include "compiler/decode/Extract.h"
#include "compiler/plan/Placement.h"

#include <bit>
#include <cmath>
#include <utility>

namespace rho::compiler {

namespace {

using dsl::Extent;
using Scales = dsl::ScheduleDecl::Scales;
using Roles = dsl::ScheduleDecl::Roles;

// Why no kernel adds such a residual; empty: one may.
std::string residualProblem(const dsl::Gemm &gemm, const PlacedGemm &placed, Roles roles) {
  const dsl::Residual &residual = *gemm.weight.residual;
  constexpr int64_t rowsOfInstruction = 16;
  if (gemm.activation.partition)
    return "its activations '" + gemm.activation.name + "' are a partition";
  if (residual.part.format->hasParts())
    return "its format '" + residual.part.format->name + "' has parts";
  if (roles == Roles::ExCP)
    return "roles excp have no residual, others have";
  if (placed.blockScaling)
    return "instructions with block scales have none";
  if (residual.blocks.rows == 0)
    return "its blocks are of all rows, a kernel takes n[R] k[G] with a multiple of 16 rows";
  if (residual.blocks.rows % rowsOfInstruction != 0)
    return "its blocks have " + std::to_string(residual.blocks.rows) +
           " rows, a kernel takes multiples of " + std::to_string(rowsOfInstruction);
  int64_t chunk = chunkK(residual.part.format->element().type.bits());
  if (residual.blocks.k % chunk != 0)
    return "its blocks have " + std::to_string(residual.blocks.k) +
           " columns, a kernel takes multiples of " + std::to_string(chunk);
  for (const dsl::Component &component : residual.part.format->components)
    if (component.host >= 0)
      return "'" + component.name + "' of '" + residual.part.format->name +
             "' lies in spare bits of another component";
  for (const dsl::Component &component : residual.part.format->components)
    if (component.extent == Extent::Group && kernelGroup(component.group) != component.group)
      return "'" + component.name + "' of '" + residual.part.format->name + "' is per k[" +
             std::to_string(component.group) + "], a kernel takes powers of two";
  return "";
}

} // namespace

dsl::Gemm residualOf(const dsl::Gemm &gemm) {
  dsl::Gemm result = gemm;
  result.weight = *gemm.weight.residual->part.format;
  return result;
}

dsl::Format decodedWeight(const dsl::Gemm &gemm, const PlacedGemm &placed) {
  return placed.sparseBits > 0 ? refinedWeight(gemm.weight) : gemm.weight;
}

namespace {

// A weight and a residual that shares its scales, as the halves of one operand; none where
// operands or planes of codes do not hold them so.
std::optional<Result<PlacedGemm>> placeRefined(const dsl::Gemm &gemm, const PlacedGemm &dense,
                                               Scales groupScales, Roles roles,
                                               std::string_view target, const SourceMap *sources) {
  const dsl::Part &part = gemm.weight.residual->part;
  auto isPlane = [](int bits) { return std::has_single_bit(static_cast<unsigned>(bits)); };
  int sparseBits = part.divisor == 0 ? 0 : part.format->element().type.bits();
  if (sparseBits == 0 || !isPlane(sparseBits) || !isPlane(dense.weightBits))
    return std::nullopt;
  dsl::Gemm refined = gemm;
  refined.weight = refinedWeight(gemm.weight);
  dsl::ElementType type = refined.weight.element().type;
  dsl::ElementType operand = dsl::ElementType::get(dense.mmaType);
  if (operand.isInteger() ? operand.bits() < type.bits() : operand.bits() < 16)
    return std::nullopt;
  std::optional<DecodeSequence> decode = extractRefined(type, dense.mmaType, sparseBits);
  if (!decode)
    return std::nullopt;
  int log2Factor = std::exchange(decode->log2Factor, 0);
  Result<PlacedGemm> placed = placeFormats(refined, groupScales, roles, target, &*decode, sources);
  if (placed) {
    placed->sparseBits = sparseBits;
    placed->constant = std::ldexp(placed->constant, -log2Factor);
    placed->placements.push_back({"weight." + part.name, Placement::Operand,
                                  "the low " + std::to_string(sparseBits) +
                                      " bits of the decoded operand, in stored blocks"});
  }
  return placed;
}

// A residual of its own, beside activations that are multiplied as those of `dense`.
Result<PlacedGemm> placeApart(const dsl::Gemm &gemm, const PlacedGemm &dense, Roles roles,
                              std::string_view target, const SourceMap *sources) {
  dsl::Gemm residual = residualOf(gemm);
  residual.schedule.scales.reset();
  auto placed = [&](Scales scales) {
    return placeFormats(residual, scales, roles, target, nullptr, sources, Within::Residual, {},
                        dense.mmaType == "s8");
  };
  // Scaled operands need no second set of partial sums.
  Result<PlacedGemm> byOperands = placed(Scales::Operand);
  return byOperands ? byOperands : placed(Scales::Accumulator);
}

} // namespace

Result<PlacedGemm> placeResidual(const dsl::Gemm &gemm, PlacedGemm dense, Scales groupScales,
                                 Roles roles, std::string_view target, const SourceMap *sources) {
  const std::string &name = gemm.weight.residual->part.name;
  auto refuse = [&](const std::string &why) {
    return errorAt(DiagId::no_residual_kernel, {name, gemm.weight.name, why}, gemm.weightSpan,
                   sources);
  };
  if (std::string why = residualProblem(gemm, dense, roles); !why.empty())
    return refuse(why);
  if (auto refined = placeRefined(gemm, dense, groupScales, roles, target, sources))
    return *refined;
  if (roles == Roles::Gemv)
    return refuse("roles gemv add low bits of the weight's operands, it has products of its own");
  Result<PlacedGemm> placed = placeApart(gemm, dense, roles, target, sources);
  if (placed && placed->mmaType != dense.mmaType) { // its codes are no s4, the weight's are
    Result<PlacedGemm> wide =
        placeFormats(gemm, groupScales, roles, target, nullptr, sources, Within::Gemm, {}, true);
    if (!wide)
      return wide;
    dense = *std::move(wide);
    placed = placeApart(gemm, dense, roles, target, sources);
  }
  if (!placed)
    return placed.error();
  for (const FactorPlacement &one : placed->placements)
    if (std::string_view part = one.factor; part.starts_with("weight."))
      dense.placements.push_back({"weight." + name + std::string(part.substr(6)), one.placement,
                                  one.reason + ", in stored blocks"});
  dense.residual = std::make_shared<const PlacedGemm>(std::move(*placed));
  return dense;
}

} // namespace rho::compiler
