#include "compiler/plan/Placement.h"

#include "dsl/Evaluate.h"

#include <algorithm>

namespace rho::compiler {

namespace {

using dsl::Expr;
using dsl::Extent;
using Scales = dsl::ScheduleDecl::Scales;
using Roles = dsl::ScheduleDecl::Roles;

bool mentions(const Expr &expr, int component) {
  if (expr.kind == Expr::Kind::Component && expr.component == component)
    return true;
  return std::any_of(expr.operands.begin(), expr.operands.end(),
                     [&](const dsl::ExprPtr &operand) { return mentions(*operand, component); });
}

void flattenProduct(const dsl::ExprPtr &expr, std::vector<dsl::ExprPtr> &factors) {
  if (expr->kind == Expr::Kind::Binary && expr->op == Expr::Op::Mul) {
    flattenProduct(expr->operands[0], factors);
    flattenProduct(expr->operands[1], factors);
    return;
  }
  factors.push_back(expr);
}

std::string path(bool weight, const std::string &component) {
  return (weight ? "weight." : "activation.") + component;
}

bool isBareElement(const Expr &expr) {
  return expr.kind == Expr::Kind::Component && expr.component == 0;
}

// What no family of kernels reads yet; such formats can still be quantized and evaluated.
std::optional<Error> kernelGap(const dsl::Format &format, Span span, const SourceMap *sources) {
  auto gap = [&](const dsl::Component &component, const std::string &what) {
    return errorAt(DiagId::no_kernels, {component.name, format.name, what}, span, sources);
  };
  for (const dsl::Component &component : format.components) {
    if (component.remap)
      return gap(component, "has a remapped code");
    if (component.host >= 0)
      return gap(component, "is in spare bits of '" + format.components[component.host].name + "'");
    if (component.rows > 1)
      return gap(component, "is per " + dsl::printExtent(component));
  }
  return std::nullopt;
}

// The types of scales that kernels turn into f32.
std::optional<Error> scaleGap(const dsl::Format &format, const std::vector<ScaleUse> &scales,
                              Span span, const SourceMap *sources) {
  for (const ScaleUse &use : scales) {
    const dsl::Component &component = format.components[use.component];
    std::string_view type = component.type.name();
    if (type != "f32" && type != "f16" && type != "bf16" && type != "e4m3")
      return errorAt(DiagId::no_kernels,
                     {component.name, format.name, "is a scale of type " + std::string(type)}, span,
                     sources);
  }
  return std::nullopt;
}

} // namespace

Error errorAt(DiagId id, const std::vector<std::string> &args, Span span,
              const SourceMap *sources) {
  if (sources && span.file != Span::none)
    return Error{{makeDiagnostic(id, args, span, *sources)}};
  return makeError(id, args);
}

Result<Factors> factorValue(const dsl::Format &format, bool weight, Span span,
                            const SourceMap *sources) {
  if (format.hasParts())
    return errorAt(DiagId::parts_not_compiled,
                   {format.name, format.partition ? "partition" : "residual"}, span, sources);
  std::vector<dsl::ExprPtr> parts;
  flattenProduct(format.value, parts);
  Factors result;
  for (const dsl::ExprPtr &part : parts) {
    if (mentions(*part, 0)) {
      if (result.core)
        return errorAt(DiagId::unsupported_value,
                       {format.name, "the element stands in two factors"}, span, sources);
      result.core = part;
    } else if (part->kind == Expr::Kind::Component) {
      const dsl::Component &component = format.components[part->component];
      result.scales.push_back({weight, part->component, component.extent, component.group});
    } else if (part->kind == Expr::Kind::Integer) {
      result.constant *= static_cast<double>(part->integer);
    } else if (part->kind == Expr::Kind::Real) {
      result.constant *= part->real;
    } else {
      return errorAt(DiagId::unsupported_value,
                     {format.name, "'" + dsl::print(*part, format) + "' is neither"}, span,
                     sources);
    }
  }
  if (!result.core)
    return errorAt(DiagId::unsupported_value, {format.name, "the element is missing"}, span,
                   sources);
  for (size_t i = 1; i < format.components.size(); ++i)
    if (mentions(*result.core, static_cast<int>(i)))
      result.coreParameters.push_back(static_cast<int>(i));
  return result;
}

Result<PlacedGemm> place(const dsl::Gemm &gemm, Scales groupScales, Roles roles,
                         const SourceMap *sources) {
  const dsl::Format &weight = gemm.weight, &activation = gemm.activation;
  if (std::optional<Error> gap = kernelGap(weight, gemm.weightSpan, sources))
    return *gap;
  if (std::optional<Error> gap = kernelGap(activation, gemm.activationSpan, sources))
    return *gap;
  Result<Factors> w = factorValue(weight, true, gemm.weightSpan, sources);
  if (!w)
    return w.error();
  Result<Factors> x = factorValue(activation, false, gemm.activationSpan, sources);
  if (!x)
    return x.error();
  if (std::optional<Error> gap = scaleGap(weight, w->scales, gemm.weightSpan, sources))
    return *gap;
  if (std::optional<Error> gap = scaleGap(activation, x->scales, gemm.activationSpan, sources))
    return *gap;

  PlacedGemm result;
  result.constant = w->constant * x->constant;
  result.mmaType = activation.element().type.name();
  bool known = result.mmaType == "f16" || result.mmaType == "bf16" || result.mmaType == "e4m3" ||
               result.mmaType == "s8" || result.mmaType == "s4";
  if (!isBareElement(*x->core) || !known)
    return errorAt(DiagId::no_mma_for_activation,
                   {activation.name, result.mmaType, dsl::print(*x->core, activation)},
                   gemm.activationSpan, sources);
  if (result.mmaType == "s4" && roles != Roles::Uniform)
    result.mmaType = "s8"; // wgmma has no 4-bit operands: the same integers, widened
  dsl::ElementType operand = dsl::ElementType::get(result.mmaType);
  result.weightBits = weight.element().type.bits();
  result.integerAccumulator = operand.isInteger();
  // One k step of every instruction in use covers 32 bytes of each operand row.
  result.mmaK = 256 / operand.bits();

  std::optional<DecodeSequence> decode = decodeSequence(weight, *w->core, result.mmaType);
  if (!decode)
    return errorAt(DiagId::no_decode,
                   {dsl::print(*w->core, weight), weight.name, result.mmaType, activation.name},
                   gemm.weightSpan, sources);
  for (int parameter : w->coreParameters) {
    const dsl::Component &component = weight.components[parameter];
    if (component.extent != Extent::Group || component.group % result.mmaK != 0)
      return errorAt(DiagId::unsupported_value,
                     {weight.name, "'" + component.name +
                                       "' beside the element needs an extent of k[G] with G a "
                                       "multiple of " +
                                       std::to_string(result.mmaK)},
                     gemm.weightSpan, sources);
  }

  std::optional<DecodeSequence> scaled;
  auto accumulate = [&](const ScaleUse &use, const std::string &name, const std::string &reason) {
    result.accumulator.push_back(use);
    result.flushK = result.flushK == 0 ? use.group : std::min(result.flushK, use.group);
    result.placements.push_back({path(use.weight, name), Placement::Accumulator, reason});
  };
  result.placements.push_back({path(true, weight.element().name), Placement::Operand,
                               "decoded to " + result.mmaType + " in " +
                                   std::to_string(decode->instructions()) + " instructions per 8"});
  for (const ScaleUse &use : w->scales) {
    const dsl::Component &component = weight.components[use.component];
    if (use.extent != Extent::Group) {
      result.epilogue.push_back(use);
      result.placements.push_back(
          {path(true, component.name), Placement::Epilogue, "constant along k, once per output"});
      continue;
    }
    std::string why;
    if (result.integerAccumulator)
      why = "operands are integers (" + result.mmaType + ")";
    else if (operand.bits() < 16)
      why = "products with scales do not fit operands of " + result.mmaType;
    else if (result.operandScale >= 0)
      why = "another scale is there already";
    else if (use.group % result.mmaK != 0)
      why = "group " + std::to_string(use.group) + " is no multiple of the instruction's k, " +
            std::to_string(result.mmaK);
    if (why.empty()) {
      scaled = withScale(*decode, weight, use.component, result.mmaType);
      if (!scaled)
        why = std::string(component.type.name()) + " is not exact in " + result.mmaType;
    }
    bool operandLegal = why.empty();
    bool accumulatorLegal = use.group % result.mmaK == 0;
    std::string whyNotAccumulator = "group " + std::to_string(use.group) +
                                    " is no multiple of the instruction's k, " +
                                    std::to_string(result.mmaK);
    if (!operandLegal && !accumulatorLegal)
      return errorAt(DiagId::no_legal_placement, {component.name, weight.name, whyNotAccumulator},
                     gemm.weightSpan, sources);
    if (groupScales == Scales::Operand && operandLegal) {
      result.operandScale = use.component;
      result.placements.push_back(
          {path(true, component.name), Placement::Operand, "multiplied into the decoded operand"});
    } else if (groupScales == Scales::Operand) {
      return errorAt(DiagId::scales_not_legal, {"operand", gemm.name, why},
                     gemm.schedule.scales ? gemm.schedule.scalesSpan : gemm.weightSpan, sources);
    } else if (!accumulatorLegal) {
      return errorAt(DiagId::scales_not_legal, {"accumulator", gemm.name, whyNotAccumulator},
                     gemm.schedule.scales ? gemm.schedule.scalesSpan : gemm.weightSpan, sources);
    } else {
      accumulate(use, component.name,
                 operandLegal ? "scales the partial sum of each group" : "forced: " + why);
    }
  }
  for (const ScaleUse &use : x->scales) {
    const dsl::Component &component = activation.components[use.component];
    if (use.extent != Extent::Group) {
      result.epilogue.push_back(use);
      result.placements.push_back(
          {path(false, component.name), Placement::Epilogue, "constant along k, once per output"});
      continue;
    }
    if (use.group % result.mmaK != 0)
      return errorAt(DiagId::no_legal_placement,
                     {component.name, activation.name,
                      "group " + std::to_string(use.group) +
                          " is no multiple of the instruction's k, " + std::to_string(result.mmaK)},
                     gemm.activationSpan, sources);
    accumulate(use, component.name, "activations are not decoded again");
  }
  result.decode = result.operandScale >= 0 ? *scaled : withoutScale(*decode, result.mmaType);
  result.log2Factor = result.decode.log2Factor;
  return result;
}

} // namespace rho::compiler
