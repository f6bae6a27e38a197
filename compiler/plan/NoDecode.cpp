#include "compiler/decode/Affine.h"
#include "compiler/decode/ElementCore.h"
#include "compiler/plan/Placement.h"
#include "dsl/Evaluate.h"
#include "dsl/Numbers.h"

#include <algorithm>
#include <cmath>

namespace rho::compiler {

namespace {

using dsl::Expr;

// Whether integers of it may end in zeros, which cost no digits.
bool shifts(const Expr &expr) {
  return (expr.kind == Expr::Kind::Binary && expr.op == Expr::Op::Shl) ||
         std::any_of(expr.operands.begin(), expr.operands.end(),
                     [](const dsl::ExprPtr &operand) { return shifts(*operand); });
}

// What of the core's numbers no operand holds; empty where that is not the reason.
std::string numberProblem(const dsl::Format &weight, const Expr &core, dsl::ElementType operand) {
  std::string stored =
      operand.bits() > 4 ? "" : ": operands of 4 bits are codes as they are stored";
  auto exact = [&](double value, int log2) {
    return !std::isfinite(value) || exactIn(operand, std::ldexp(value, log2));
  };
  std::string name(operand.name());
  const dsl::ElementType type = weight.element().type;
  if (isBareElement(core) && type.bits() > 8)
    return ": elements of more than 8 bits are operands of their own type, f16 or bf16, alone";
  if (std::optional<ElementCore> alone = elementCore(weight, core)) {
    const std::vector<double> &values = alone->allowed.empty() ? alone->values : alone->allowed;
    constexpr int farthest = 40;
    for (int log2 = -farthest; log2 <= farthest; ++log2)
      if (std::all_of(values.begin(), values.end(),
                      [&](double value) { return exact(value, log2); }))
        return stored.empty() && !isBareElement(core)
                   ? ": no short sequence makes them of its bits, a codebook of the same numbers "
                     "may have one"
                   : stored;
    return ": its numbers are not all ones of " + name + ", times any power of two";
  }
  if (weight.element().remap) {
    for (uint32_t code = 0; code < uint32_t{1} << type.bits() && stored.empty(); ++code)
      if (code != weight.element().remap->code && !exact(type.decode(code), 0))
        return ": beside a remapped code its numbers must be ones of " + name + ", " +
               dsl::printNumber(type.decode(code)) + " is none";
    for (int component : dsl::componentsOf(*weight.element().remap))
      if (component != weight.element().remap->selector)
        return ": '" + weight.components[static_cast<size_t>(component)].name +
               "' is a number that only the kernel sees, of which it makes no " + name;
    const std::string known =
        type.isCodebook() ? ": of codebooks with a remapped code those of 16 values have one"
                          : ": of elements of " + std::to_string(type.bits()) +
                                " bits none is known with a remapped code";
    return stored.empty() ? known : stored;
  }
  if (core.kind == Expr::Kind::Cast && core.type->isFloat())
    return stored.empty() ? ": of what is rounded only e4m3(element * scale) has one, for operands "
                            "of e4m3, of elements of up to 7 bits, no codebooks, where f16 holds "
                            "every product and groups are of 16 or more"
                          : stored;
  dsl::Range range = dsl::rangeOf(core, weight);
  for (double value : {range.min, range.max})
    if (range.integer && !exact(value, 0))
      return ": it can be " + dsl::printNumber(value) + ", which " + name + " does not hold";
  const double largest = std::max(std::abs(range.min), std::abs(range.max));
  if (const int digits = operand.mantissaBits() + 1;
      range.integer && !operand.isInteger() && !shifts(core) && largest > std::ldexp(1, digits))
    return ": it is an integer up to " + dsl::printNumber(largest) + ", " + name +
           " holds all of " + std::to_string(digits) + " bits";
  if (!range.integer && operand.bits() == 16 && largest > operand.maxFinite())
    return ": it can leave the range of " + name;
  return stored.empty()
             ? ": none is known for such expressions of what numbers share, element - zero "
               "and element * step + origin have one"
             : stored;
}

} // namespace

Error noDecode(const dsl::Gemm &gemm, const Factors &w, const std::string &mmaType,
               const SourceMap *sources) {
  const dsl::Format &weight = gemm.weight;
  std::string core = dsl::print(*w.core, weight);
  bool halves = dsl::ElementType::get(mmaType).bits() == 16;
  if (!halves && !isBareElement(*w.core) && !dsl::rangeOf(*w.core, weight).integer &&
      affineCore(weight, *w.core))
    return errorAt(DiagId::unsupported_value,
                   {weight.name, "'" + core + "' adds real numbers, operands of " + mmaType +
                                     " hold what the element alone stands for; with activations of "
                                     "f16 or bf16 it is possible"},
                   gemm.weightSpan, sources);
  return errorAt(DiagId::no_decode,
                 {core, weight.name, mmaType, gemm.activation.name,
                  numberProblem(weight, *w.core, dsl::ElementType::get(mmaType))},
                 gemm.weightSpan, sources);
}

} // namespace rho::compiler
