// The value of a format as a product: what of it has the element, scales and a constant.
#include "compiler/plan/Placement.h"

#include "dsl/Expressions.h"

#include <algorithm>

namespace rho::compiler {

using dsl::Expr;

Result<Factors> factorValue(const dsl::Format &format, bool weight, Span span,
                            const SourceMap *sources) {
  if (format.partition || (format.residual && !weight))
    return errorAt(DiagId::parts_not_compiled,
                   {format.name, format.partition ? "partition" : "residual"}, span, sources);
  std::vector<dsl::ExprPtr> others; // such as (scale - 32)
  Factors result;
  for (const dsl::ExprPtr &part : dsl::factorsOf(format.value)) {
    if (mentions(*part, 0)) {
      result.core = result.core ? dsl::binary(Expr::Op::Mul, result.core, part) : part;
    } else if (part->kind == Expr::Kind::Component) {
      const dsl::Component &component = format.components[part->component];
      result.scales.push_back({weight, part->component, component.extent,
                               kernelGroup(component.group), component.group});
    } else if (dsl::isLiteral(*part)) {
      result.constant *= dsl::numberOf(*part);
    } else {
      others.push_back(part);
    }
  }
  if (!result.core)
    return errorAt(DiagId::unsupported_value, {format.name, "the element is missing"}, span,
                   sources);
  for (const dsl::ExprPtr &other : others)
    result.core = dsl::binary(Expr::Op::Mul, result.core, other);
  std::vector<int> remapped;
  if (format.element().remap)
    remapped = dsl::componentsOf(*format.element().remap);
  for (int i = 1; i < static_cast<int>(format.components.size()); ++i)
    if (mentions(*result.core, i) ||
        std::find(remapped.begin(), remapped.end(), i) != remapped.end())
      result.coreParameters.push_back(i);
  return result;
}

} // namespace rho::compiler
