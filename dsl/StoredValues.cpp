#include "dsl/StoredValues.h"

#include "dsl/Expressions.h"

#include <algorithm>

namespace rho::dsl {

const Component *componentNamed(const Format &format, std::string_view name) {
  const auto found = std::find_if(format.components.begin() + 1, format.components.end(),
                                  [&](const Component &each) { return each.name == name; });
  return found == format.components.end() ? nullptr : &*found;
}

void storeApart(Component &component) {
  component.host = -1;
  component.shift = 0;
}

void takeGivenCodes(Component &component) {
  component.encode = integerOf(1);
  component.encodeDeclared = true;
}

Format valuesAs(ElementType type, const Format &format, bool keepsGroups) {
  Format values;
  values.name = format.name + "_as_" + std::string(type.name());
  values.span = format.span;
  Component element = format.element();
  element.type = type;
  element.remap.reset();
  values.components.push_back(std::move(element));
  values.value = componentOf(0);
  auto multiply = [&](const ExprPtr &factor) {
    values.value = binary(Expr::Op::Mul, values.value, factor);
  };
  for (const ExprPtr &factor : factorsOf(format.value)) {
    if (isLiteral(*factor))
      multiply(factor);
    if (factor->kind != Expr::Kind::Component || factor->component == 0)
      continue;
    Component component = format.component(factor->component);
    if (component.type.isCodebook() || (component.extent == Extent::Group && !keepsGroups) ||
        componentNamed(values, component.name))
      continue;
    storeApart(component);
    takeGivenCodes(component);
    multiply(componentOf(static_cast<int>(values.components.size())));
    values.components.push_back(std::move(component));
  }
  for (Extent extent : {Extent::Tensor, Extent::Row, Extent::Group})
    for (size_t i = 1; i < values.components.size(); ++i)
      if (values.components[i].extent == extent)
        values.encodeOrder.push_back(static_cast<int>(i));
  return values;
}

Format valueOfElement(const Format &format, const Format &values) {
  Format result = format;
  result.requirements.clear();
  std::vector<ExprPtr> others;
  std::vector<bool> kept(format.components.size(), false);
  for (const ExprPtr &factor : factorsOf(format.value)) {
    const bool bare = factor->kind == Expr::Kind::Component && factor->component != 0;
    const auto component = static_cast<size_t>(factor->component);
    if (bare && !kept[component] && componentNamed(values, format.components[component].name))
      kept[component] = true;
    else if (!isLiteral(*factor))
      others.push_back(factor);
  }
  result.value = productOf(others);
  return result;
}

QuantizedMatrix storedValues(QuantizedMatrix codes, std::shared_ptr<const Format> values) {
  if (*codes.format == *values)
    return codes;
  if (values->partition) {
    for (size_t part = 0; part < codes.parts.size(); ++part)
      codes.parts[part] =
          storedValues(std::move(codes.parts[part]), values->partition->parts[part].format);
    codes.format = std::move(values);
    return codes;
  }
  const std::shared_ptr<const Format> format = codes.format;
  QuantizedMatrix result;
  result.rows = codes.rows;
  result.k = codes.k;
  const ElementType type = values->element().type;
  result.components.emplace_back(type.bits(), codes.rows * codes.k);
  if (!format->hasParts())
    codes.format = std::make_shared<const Format>(valueOfElement(*format, *values));
  for (int64_t row = 0; row < codes.rows; ++row) {
    const std::vector<double> numbers = codes.rowValues(row);
    for (int64_t column = 0; column < codes.k; ++column)
      result.components[0].set(row * codes.k + column,
                               type.encode(numbers[static_cast<size_t>(column)] + 0.0)); // no -0
  }
  for (size_t i = 1; i < values->components.size(); ++i) {
    const Component *from = componentNamed(*format, values->components[i].name);
    result.components.push_back(
        std::move(codes.components[static_cast<size_t>(from - format->components.data())]));
  }
  result.format = std::move(values);
  return result;
}

} // namespace rho::dsl
