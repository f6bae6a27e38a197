#include "dsl/Format.h"

#include <algorithm>
#include <bit>

namespace rho::dsl {

std::vector<int> componentsOf(const Remap &remap) {
  std::vector<int> components = {remap.selector};
  for (const Remap::Entry &entry : remap.entries)
    if (entry.component >= 0)
      components.push_back(entry.component);
  return components;
}

int Format::storedBits(int component) const {
  const Component &self = components[static_cast<size_t>(component)];
  if (self.host >= 0)
    return 0;
  bool shared = std::any_of(components.begin(), components.end(),
                            [&](const Component &other) { return other.host == component; });
  return shared ? spareUnitBits(self.type) : self.type.bits();
}

double Format::bitsPerElement() const {
  double bits = 0;
  for (size_t i = 0; i < components.size(); ++i) {
    const Component &component = components[i];
    auto stored = static_cast<double>(storedBits(static_cast<int>(i)));
    if (component.extent == Extent::Element)
      bits += stored;
    else if (component.extent == Extent::Group)
      bits += stored / static_cast<double>(component.group * component.rows);
  }
  return bits;
}

Format plainFormat(ElementType type) {
  Format format;
  format.name = type.name();
  format.components.push_back(
      Component{.name = "element", .type = type, .encode = nullptr, .span = {}});
  auto value = std::make_shared<Expr>();
  value->kind = Expr::Kind::Component;
  format.value = value;
  return format;
}

bool isBest(const ExprPtr &rule) {
  return rule && rule->kind == Expr::Kind::Call && rule->function == Expr::Function::Best;
}

bool equal(const Expr &a, const Expr &b) {
  auto operandEqual = [](const ExprPtr &x, const ExprPtr &y) { return equal(*x, *y); };
  return a.kind == b.kind && a.integer == b.integer &&
         std::bit_cast<uint64_t>(a.real) == std::bit_cast<uint64_t>(b.real) &&
         a.component == b.component && a.op == b.op && a.reduction == b.reduction &&
         a.function == b.function && a.type == b.type &&
         std::equal(a.operands.begin(), a.operands.end(), b.operands.begin(), b.operands.end(),
                    operandEqual);
}

static bool equal(const ExprPtr &a, const ExprPtr &b) { return a && b ? equal(*a, *b) : !a && !b; }

static bool equal(const Component &a, const Component &b) {
  return a.name == b.name && a.type == b.type && a.extent == b.extent && a.group == b.group &&
         a.rows == b.rows && a.host == b.host && a.shift == b.shift && a.remap == b.remap &&
         a.perToken == b.perToken && a.encodeDeclared == b.encodeDeclared &&
         equal(a.encode, b.encode);
}

static bool equal(const Requirement &a, const Requirement &b) {
  return a.atMost == b.atMost && a.bound == b.bound && equal(a.expr, b.expr);
}

bool operator==(const Format &a, const Format &b) {
  auto componentEqual = [](const Component &x, const Component &y) { return equal(x, y); };
  auto requirementEqual = [](const Requirement &x, const Requirement &y) { return equal(x, y); };
  return a.name == b.name && a.encodeOrder == b.encodeOrder && equal(a.value, b.value) &&
         std::equal(a.components.begin(), a.components.end(), b.components.begin(),
                    b.components.end(), componentEqual) &&
         std::equal(a.requirements.begin(), a.requirements.end(), b.requirements.begin(),
                    b.requirements.end(), requirementEqual);
}

bool isPlain(const Format &format) {
  for (std::string_view name : {"f16", "bf16", "f32"})
    if (format.name == name)
      return format == plainFormat(ElementType::get(name));
  return false;
}

} // namespace rho::dsl
