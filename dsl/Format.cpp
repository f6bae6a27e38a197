#include "dsl/Expressions.h"

#include "dsl/Lasting.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace rho::dsl {

// The most bits a number that a partition can take: its widest parts as far as budgets allow.
static double partBits(const Partition &partition) {
  struct Share {
    double bits, share;
  };
  std::vector<Share> shares;
  for (const Part &part : partition.parts)
    shares.push_back({part.format->bitsPerElement(), part.most()});
  std::sort(shares.begin(), shares.end(), [](Share a, Share b) { return a.bits > b.bits; });
  double bits = 0, left = 1;
  for (Share one : shares) {
    double taken = std::min(one.share, left);
    bits += taken * one.bits;
    left -= taken;
  }
  return bits;
}

// Bits a number that a part stores itself.
static double ownBits(const Part &part) {
  return part.divisor != 0 ? part.format->bitsPerElement(0) : part.format->bitsPerElement();
}

// Bits a number that say how each block is stored.
static double choiceBits(const Blocks &blocks, size_t choices) {
  double numbers = static_cast<double>(blocks.rows) * static_cast<double>(blocks.k);
  return blocks.rows == 0 ? 0 : std::bit_width(choices - 1) / numbers;
}

// A budget is the double next to the decimal that was written, so that a product which is whole may
// come out a little short of that.
int64_t mostBlocks(const Part &part, int64_t blocks) {
  double most = part.budget.value_or(100) * static_cast<double>(blocks) / 100;
  double whole = std::round(most);
  bool isWhole = std::abs(most - whole) <= 4 * std::numeric_limits<double>::epsilon() * whole;
  return static_cast<int64_t>(isWhole ? whole : std::floor(most));
}

std::vector<int> componentsOf(const Remap &remap) {
  std::vector<int> components = {remap.selector};
  for (const Remap::Entry &entry : remap.entries)
    if (entry.component >= 0)
      components.push_back(entry.component);
  return components;
}

std::vector<int> guestsOf(const Format &format, int host) {
  std::vector<int> guests;
  for (size_t i = 0; i < format.components.size(); ++i)
    if (format.components[i].host == host)
      guests.push_back(static_cast<int>(i));
  return guests;
}

int Format::storedBits(int component) const {
  const Component &self = components[static_cast<size_t>(component)];
  if (self.host >= 0)
    return 0;
  bool shared = !guestsOf(*this, component).empty();
  return shared ? unitBits(self.type) : self.type.bits();
}

double Format::bitsPerElement(int component) const {
  const Component &self = components[static_cast<size_t>(component)];
  switch (self.extent) {
  case Extent::Element:
    return storedBits(component);
  case Extent::Group:
    return static_cast<double>(storedBits(component)) / static_cast<double>(self.group * self.rows);
  case Extent::Row:
  case Extent::Tensor:
    break;
  }
  return 0;
}

double Format::bitsPerElement() const {
  double bits = 0;
  if (partition)
    bits += partBits(*partition) + choiceBits(partition->blocks, partition->parts.size());
  if (residual)
    bits += ownBits(residual->part) * residual->part.most() + choiceBits(residual->blocks, 2);
  for (size_t i = 0; i < components.size(); ++i)
    bits += bitsPerElement(static_cast<int>(i));
  return bits;
}

Format plainFormat(ElementType type) {
  Format format;
  format.name = type.name();
  format.components.push_back(
      Component{.name = "element", .type = type, .encode = nullptr, .span = {}});
  format.value = componentOf(0);
  return format;
}

// The expression with the element times `factor`.
static ExprPtr scaledElement(const ExprPtr &expr, double factor) {
  auto copy = std::make_shared<Expr>(*expr);
  if (expr->kind != Expr::Kind::Component || expr->component != 0) {
    for (ExprPtr &operand : copy->operands)
      operand = scaledElement(operand, factor);
    return copy;
  }
  return binary(Expr::Op::Mul, std::move(copy), realOf(factor));
}

Format withoutResidual(Format format) {
  format.residual.reset();
  return format;
}

Format measuredPart(const std::vector<Part> &parts, size_t index, int64_t k) {
  Format format = *parts[index].format;
  for (Component &component : format.components)
    if (component.extent == Extent::Row && index == 0 && !format.hasParts()) {
      component.extent = Extent::Group;
      component.group = k;
    }
  return format;
}

Format withElement(Format format, ElementType type, double factor, std::string name) {
  format.name = std::move(name);
  format.residual.reset();
  format.partition.reset();
  format.components[0].type = type;
  format.value = scaledElement(format.value, factor);
  return format;
}

static void forgetChoice(Part &part) {
  part.left = part.right = nullptr;
  Format meaning = meaningOf(*part.format);
  if (part.divisor != 0) // its name says what it is, "s4 / 16"
    meaning.name = part.format->name;
  part.format = std::make_shared<const Format>(std::move(meaning));
}

Format meaningOf(Format format) {
  format.name.clear();
  format.encodeOrder.clear();
  for (Component &component : format.components) {
    component.encode = nullptr;
    component.encodeDeclared = false;
  }
  if (format.partition)
    for (Part &part : format.partition->parts)
      forgetChoice(part);
  if (format.residual) {
    forgetChoice(format.residual->part);
    format.residual->part.budget.reset();
  }
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

static bool equal(const Part &a, const Part &b) {
  return a.name == b.name && a.atLeast == b.atLeast && a.budget == b.budget &&
         a.divisor == b.divisor && equal(a.left, b.left) && equal(a.right, b.right) &&
         (a.format == b.format || *a.format == *b.format);
}

static bool partsEqual(const Format &a, const Format &b) {
  if (a.partition.has_value() != b.partition.has_value() ||
      a.residual.has_value() != b.residual.has_value())
    return false;
  if (a.partition && !(a.partition->blocks == b.partition->blocks &&
                       std::equal(a.partition->parts.begin(), a.partition->parts.end(),
                                  b.partition->parts.begin(), b.partition->parts.end(),
                                  [](const Part &x, const Part &y) { return equal(x, y); })))
    return false;
  return !a.residual ||
         (a.residual->blocks == b.residual->blocks && equal(a.residual->part, b.residual->part));
}

bool operator==(const Format &a, const Format &b) {
  auto componentEqual = [](const Component &x, const Component &y) { return equal(x, y); };
  auto requirementEqual = [](const Requirement &x, const Requirement &y) { return equal(x, y); };
  return a.name == b.name && a.encodeOrder == b.encodeOrder && equal(a.value, b.value) &&
         partsEqual(a, b) &&
         std::equal(a.components.begin(), a.components.end(), b.components.begin(),
                    b.components.end(), componentEqual) &&
         std::equal(a.requirements.begin(), a.requirements.end(), b.requirements.begin(),
                    b.requirements.end(), requirementEqual);
}

const std::vector<std::string> &plainTypes() {
  static const auto &names = lasting(std::vector<std::string>{"f16", "bf16", "f32"});
  return names;
}

bool isPlainType(std::string_view name) {
  return std::find(plainTypes().begin(), plainTypes().end(), name) != plainTypes().end();
}

bool isPlain(const Format &format) {
  return isPlainType(format.name) && format == plainFormat(ElementType::get(format.name));
}

} // namespace rho::dsl
