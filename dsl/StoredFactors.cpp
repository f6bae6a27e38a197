#include "dsl/StoredFactors.h"

#include "dsl/Evaluate.h"
#include "dsl/Expressions.h"
#include "dsl/Numbers.h"
#include "dsl/StoredValues.h"

#include <algorithm>
#include <cmath>

namespace rho::dsl {

namespace {

// What is tabulated: all codes of such a component.
constexpr int mostTabulatedBits = 16;

// Components that an expression reads.
std::vector<int> readBy(const Expr &expr, const Format &format) {
  std::vector<int> result;
  for (int i = 0; i < static_cast<int>(format.components.size()); ++i)
    if (mentions(expr, i))
      result.push_back(i);
  return result;
}

// For each component the factor that becomes a number in its place, or null.
std::vector<ExprPtr> factorsToStore(const Format &format) {
  std::vector<ExprPtr> stored(format.components.size());
  std::vector<int> uses(format.components.size(), 0);
  for (const ExprPtr &factor : factorsOf(format.value)) {
    const std::vector<int> read = readBy(*factor, format);
    for (int component : read)
      ++uses[static_cast<size_t>(component)];
    if (read.size() != 1 || read[0] == 0)
      continue;
    const Component &component = format.component(read[0]);
    if (factor->kind != Expr::Kind::Component || component.type.isCodebook())
      stored[static_cast<size_t>(read[0])] = factor;
  }
  for (const Requirement &requirement : format.requirements)
    for (int component : readBy(*requirement.expr, format))
      ++uses[static_cast<size_t>(component)];
  if (format.element().remap)
    for (int component : componentsOf(*format.element().remap))
      ++uses[static_cast<size_t>(component)];
  for (size_t i = 0; i < stored.size(); ++i)
    if (uses[i] != 1)
      stored[i] = nullptr;
  return stored;
}

// What a factor stands for, for the code of its component.
class FactorNumbers {
public:
  FactorNumbers(const Format &format, const ExprPtr &factor, size_t component)
      : alone(format), component(component), codes(format.components.size(), 0) {
    alone.value = factor;
    const int bits = format.components[component].type.bits();
    for (uint32_t code = 0; bits <= mostTabulatedBits && code < uint32_t{1} << bits; ++code)
      table.push_back(compute(code));
  }
  const std::vector<double> &all() const { return table; } // none of more than 16 bits
  double of(uint32_t code) { return table.empty() ? compute(code) : table[code]; }

private:
  Format alone;
  size_t component;
  std::vector<uint32_t> codes;
  std::vector<double> table;

  double compute(uint32_t code) {
    codes[component] = code;
    return evaluate(alone, codes.data());
  }
};

// All numbers that the factor of a component can be; none where there are more than of 16 bits.
std::vector<double> numbersOf(const Format &format, const ExprPtr &factor, size_t component) {
  std::vector<double> numbers = FactorNumbers(format, factor, component).all();
  if (numbers.empty() && factor->kind == Expr::Kind::Cast && factor->type->bits() <= 16)
    for (uint32_t code = 0; code < uint32_t{1} << factor->type->bits(); ++code)
      numbers.push_back(factor->type->decode(code));
  return numbers;
}

std::optional<ElementType> exactType(const std::vector<double> &numbers) {
  if (numbers.empty())
    return std::nullopt;
  for (const char *name : {"f16", "bf16", "f32"}) {
    const ElementType type = ElementType::get(name);
    if (std::all_of(numbers.begin(), numbers.end(), [&](double number) {
          return std::isnan(number) || type.decode(type.encode(number)) == number;
        }))
      return type;
  }
  return std::nullopt;
}

// What is stored otherwise of the components of `format`, in `result`.
void storeFactors(const Format &format, PlainFactors &result) {
  const std::vector<ExprPtr> stored = factorsToStore(format);
  for (size_t i = 0; i < stored.size(); ++i) {
    if (!stored[i])
      continue;
    const std::optional<ElementType> exact = exactType(numbersOf(format, stored[i], i));
    Component &component = result.format.components[i];
    component.type = exact.value_or(ElementType::get("f32"));
    if (!exact)
      result.roundoff += std::ldexp(1.0, -component.type.mantissaBits() - 1);
    takeGivenCodes(component);
    // It shares no unit any more.
    for (Component &each : result.format.components)
      if (&each == &component || each.host == static_cast<int>(i))
        storeApart(each);
    result.add("'" + component.name + "' as " + std::string(component.type.name()));
  }
  std::vector<ExprPtr> factors;
  for (const ExprPtr &factor : factorsOf(format.value)) {
    const std::vector<int> read = readBy(*factor, format);
    const bool isStored = read.size() == 1 && stored[static_cast<size_t>(read[0])];
    factors.push_back(isStored ? componentOf(read[0]) : factor);
  }
  if (!result.components.empty())
    result.format.value = productOf(factors);
}

} // namespace

std::optional<PlainFactors> plainFactors(const Format &format) {
  if (format.partition || (format.residual && format.residual->part.divisor != 0))
    return std::nullopt;
  PlainFactors result{format};
  storeFactors(format, result);
  if (format.residual) {
    const Format &declared = *format.residual->part.format;
    PlainFactors own = plainFactors(declared).value_or(PlainFactors{declared});
    for (Component &component : own.format.components)
      if (component.host >= 0) {
        storeApart(component);
        own.add("'" + component.name + "' apart");
      }
    if (!own.components.empty())
      result.add(own.components);
    result.roundoff += own.roundoff;
    result.format.residual->part.format = std::make_shared<const Format>(std::move(own.format));
  }
  if (result.components.empty())
    return std::nullopt;
  return result;
}

Result<QuantizedMatrix> storedFactors(QuantizedMatrix codes, std::shared_ptr<const Format> plain) {
  if (plain->residual) {
    const std::shared_ptr<const Format> formats[] = {
        std::make_shared<const Format>(withoutResidual(*plain)), plain->residual->part.format};
    for (size_t i = 0; i < codes.parts.size(); ++i) {
      Result<QuantizedMatrix> part = storedFactors(std::move(codes.parts[i]), formats[i]);
      if (!part)
        return part;
      codes.parts[i] = std::move(*part);
    }
    codes.format = std::move(plain);
    return codes;
  }
  const std::vector<ExprPtr> stored = factorsToStore(*codes.format);
  for (size_t i = 0; i < stored.size(); ++i) {
    if (!stored[i])
      continue;
    FactorNumbers numbers(*codes.format, stored[i], i);
    const ElementType type = plain->components[i].type;
    const CodeArray &from = codes.components[i];
    CodeArray to(type.bits(), from.size());
    for (int64_t j = 0; j < from.size(); ++j) {
      const double number = numbers.of(from.get(j));
      if (!std::isfinite(number)) {
        const Component &component = codes.format->components[i];
        const int64_t columns = codeGrid(component, codes.rows, codes.k).columns;
        const int64_t columnsOfCode = component.extent == Extent::Group ? component.group : codes.k;
        return makeError(DiagId::non_finite_input,
                         {nameOfNonFinite(number), std::to_string(j / columns * component.rows),
                          std::to_string(j % columns * columnsOfCode)});
      }
      to.set(j, type.encode(number));
    }
    codes.components[i] = std::move(to);
  }
  codes.format = std::move(plain);
  return codes;
}

} // namespace rho::dsl
