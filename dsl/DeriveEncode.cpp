#include "dsl/DeriveEncode.h"

#include "dsl/Expressions.h"
#include "dsl/ValueSearch.h"

#include <algorithm>
#include <cmath>

namespace rho::dsl {

namespace {

// Counts how often each component is a factor; false where something else is one.
bool countFactors(const Expr &expr, std::vector<int> &counts) {
  if (expr.kind == Expr::Kind::Component) {
    ++counts[static_cast<size_t>(expr.component)];
    return true;
  }
  return expr.kind == Expr::Kind::Binary && expr.op == Expr::Op::Mul &&
         countFactors(*expr.operands[0], counts) && countFactors(*expr.operands[1], counts);
}

ExprPtr leaf(Expr::Kind kind) {
  auto expr = std::make_shared<Expr>();
  expr->kind = kind;
  return expr;
}

ExprPtr constant(double value) {
  return std::floor(value) == value && std::fabs(value) < 0x1p53
             ? integerOf(static_cast<int64_t>(value))
             : realOf(value);
}

ExprPtr divide(ExprPtr a, ExprPtr b) { return binary(Expr::Op::Div, std::move(a), std::move(b)); }

ExprPtr reduce(Expr::Reduction reduction, ExprPtr of) {
  auto expr = std::make_shared<Expr>();
  expr->kind = Expr::Kind::Reduce;
  expr->reduction = reduction;
  expr->operands = {std::move(of)};
  return expr;
}

// max(max(of), 0) or min(min(of), 0).
ExprPtr reachFromZero(bool above, ExprPtr of) {
  auto expr = std::make_shared<Expr>();
  expr->kind = Expr::Kind::Call;
  expr->function = above ? Expr::Function::Max : Expr::Function::Min;
  expr->operands = {reduce(above ? Expr::Reduction::Max : Expr::Reduction::Min, std::move(of)),
                    constant(0)};
  return expr;
}
ExprPtr rangeWithZero(const ExprPtr &of) {
  return binary(Expr::Op::Sub, reachFromZero(true, of), reachFromZero(false, of));
}

// A value that is a product of components, each at most once, and literals.
struct Product {
  std::vector<bool> factors; // by component; none: the value is no such product
  double literal = 1;
};

Product productIn(const Format &format) {
  Product product;
  std::vector<int> counts(format.components.size(), 0);
  for (const ExprPtr &factor : factorsOf(format.value))
    if (isLiteral(*factor))
      product.literal *= numberOf(*factor);
    else if (!countFactors(*factor, counts))
      return {};
  if (std::any_of(counts.begin(), counts.end(), [](int count) { return count > 1; }))
    return {};
  product.factors.assign(counts.begin(), counts.end());
  return product;
}

// Whether a number of ordinary size over the largest element has no code in any of the scales: the
// element has 6 to 8 bits of exponent, which also keeps sums of products of two in f32, or it has 5
// and no scale has more.
bool outrangesScales(const Format &format, const std::vector<bool> &factors) {
  constexpr int wideExponentBits = 5; // of f16
  int exponentBits = format.element().type.exponentBits(), ofScales = 0;
  for (size_t i = 1; i < factors.size(); ++i)
    if (factors[i])
      ofScales = std::max(ofScales, format.components[i].type.exponentBits());
  return exponentBits > wideExponentBits ||
         (exponentBits == wideExponentBits && ofScales <= wideExponentBits);
}

// What absmax(x) becomes: the smaller of the two sides of the type, where it has two.
double largestElement(const Format &format, const std::vector<bool> &factors) {
  if (outrangesScales(format, factors))
    return 1;
  ElementType type = format.element().type;
  double above = type.maxFinite(), below = -type.minFinite();
  return above <= 0 ? below : below <= 0 ? above : std::min(above, below);
}

} // namespace

bool isProduct(const Format &format) {
  std::vector<int> counts(format.components.size(), 0);
  return !format.element().remap && countFactors(*format.value, counts) &&
         std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; });
}

std::optional<double> literalFactor(const Format &format) {
  const auto [factors, literal] = productIn(format);
  const bool isWhole = !factors.empty() && !format.element().remap &&
                       std::find(factors.begin(), factors.end(), false) == factors.end();
  return isWhole ? std::optional(literal) : std::nullopt;
}

std::optional<double> literalDivisor(const Format &format) {
  if (isProduct(format))
    return 1;
  const bool searched = format.element().type.bits() <= maxSearchedElementBits;
  return searched ? std::nullopt : literalFactor(format);
}

bool isRemappedProduct(const Format &format) {
  std::vector<int> counts(format.components.size(), 0);
  if (!format.element().remap || !countFactors(*format.value, counts))
    return false;
  for (int component : componentsOf(*format.element().remap))
    ++counts[static_cast<size_t>(component)];
  return std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; });
}

static bool isComponent(const Expr &expr, int index) {
  return expr.kind == Expr::Kind::Component && expr.component == index;
}

// x over the components before `component` in the encoding order, those of `among`.
static ExprPtr overCoarser(const Format &format, int component, const std::vector<bool> &among) {
  ExprPtr input = leaf(Expr::Kind::Input);
  for (int coarser : format.encodeOrder) {
    if (coarser == component)
      break;
    if (among[static_cast<size_t>(coarser)])
      input = divide(input, componentOf(coarser));
  }
  return input;
}

// Whether numbers of a type need another scale that brings them into its range.
static bool isNarrow(ElementType type) { return type.bits() <= 8 && type.exponentBits() <= 4; }

// The rule of a scale, from one for it and all finer ones of `among` together: over the largest
// values of those that are narrow. A narrow one before a wide one is 1: the wide one needs no help,
// and cannot give any to one that was rounded to 0.
static ExprPtr shareOfScale(const Format &format, int component, ExprPtr rule,
                            const std::vector<bool> &among) {
  const auto &order = format.encodeOrder;
  ElementType own = format.component(component).type;
  bool yields = isNarrow(own) && own.decode(own.encode(1)) == 1;
  auto self = std::find(order.begin(), order.end(), component);
  for (auto finer = self == order.end() ? self : self + 1; finer != order.end(); ++finer) {
    ElementType type = format.component(*finer).type;
    if (!among[static_cast<size_t>(*finer)])
      continue;
    if (isNarrow(type))
      rule = divide(rule, constant(type.maxFinite()));
    else if (yields)
      return constant(1);
  }
  return rule;
}

int zeroPointOf(const Format &format) {
  std::vector<const Expr *> factors = {format.value.get()};
  int zero = -1;
  std::vector<int> counts(format.components.size(), 0);
  for (size_t i = 0; i < factors.size(); ++i) {
    const Expr &factor = *factors[i];
    if (factor.kind == Expr::Kind::Binary && factor.op == Expr::Op::Mul) {
      factors.push_back(factor.operands[0].get());
      factors.push_back(factor.operands[1].get());
      continue;
    }
    bool difference = factor.kind == Expr::Kind::Binary && factor.op == Expr::Op::Sub &&
                      isComponent(*factor.operands[0], 0) &&
                      factor.operands[1]->kind == Expr::Kind::Component;
    if (difference && zero < 0)
      zero = factor.operands[1]->component;
    for (const Expr *part : difference
                                ? std::vector{factor.operands[0].get(), factor.operands[1].get()}
                                : std::vector{&factor})
      if (!countFactors(*part, counts))
        return -1;
  }
  bool once = std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; });
  return once && zero > 0 ? zero : -1;
}

static ExprPtr deriveZeroPoint(const Format &format, int component, int zero) {
  ElementType element = format.element().type;
  double lo = element.minFinite(), hi = element.maxFinite();
  std::vector<bool> scales(format.components.size(), true);
  scales[static_cast<size_t>(zero)] = false;
  ExprPtr numbers = overCoarser(format, component, scales);
  if (component == zero)
    return binary(Expr::Op::Sub, constant(lo), reachFromZero(false, numbers));
  ExprPtr rule = divide(rangeWithZero(numbers), constant(hi - lo));
  return shareOfScale(format, component, rule, scales);
}

// element * scale + offset or - offset; null where the value has another form.
static ExprPtr deriveOffset(const Format &format, int component) {
  const Expr &value = *format.value;
  if (format.components.size() != 3 || value.kind != Expr::Kind::Binary ||
      (value.op != Expr::Op::Add && value.op != Expr::Op::Sub) ||
      format.element().type.minFinite() != 0)
    return nullptr;
  const Component &one = format.components[1], &other = format.components[2];
  if (one.extent != other.extent || one.group != other.group || one.rows != other.rows)
    return nullptr;
  bool swapped = value.op == Expr::Op::Add && value.operands[0]->kind == Expr::Kind::Component;
  const Expr &product = *value.operands[swapped ? 1 : 0],
             &offset = *value.operands[swapped ? 0 : 1];
  std::vector<int> counts(3, 0);
  if (offset.kind != Expr::Kind::Component || offset.component == 0 ||
      !countFactors(product, counts) || counts[0] != 1 ||
      counts[static_cast<size_t>(3 - offset.component)] != 1 ||
      counts[static_cast<size_t>(offset.component)] != 0)
    return nullptr;
  ExprPtr input = leaf(Expr::Kind::Input);
  bool added = value.op == Expr::Op::Add;
  ExprPtr low = added ? reduce(Expr::Reduction::Min, input) : reachFromZero(false, input);
  ExprPtr high = added ? reduce(Expr::Reduction::Max, input) : reachFromZero(true, input);
  if (component == offset.component)
    return added ? low : binary(Expr::Op::Sub, constant(0), low);
  return divide(binary(Expr::Op::Sub, high, low), constant(format.element().type.maxFinite()));
}

constexpr int mostSelectorBits = 4;

// best(0, 1, ...) of a selector; null where it has too many codes to try.
static ExprPtr deriveSelector(ElementType type) {
  if (type.bits() > mostSelectorBits)
    return nullptr;
  auto rule = std::make_shared<Expr>();
  rule->kind = Expr::Kind::Call;
  rule->function = Expr::Function::Best;
  for (int code = 0; code < 1 << type.bits(); ++code)
    rule->operands.push_back(constant(code));
  return rule;
}

// Whether a component chooses what the remapped code stands for, and nothing else.
static bool isSelector(const Format &format, int component, const std::vector<bool> &factors) {
  const std::optional<Remap> &remap = format.element().remap;
  return remap && remap->selector == component &&
         (factors.empty() || !factors[static_cast<size_t>(component)]);
}

ExprPtr deriveEncode(const Format &format, int component) {
  const auto [factors, literal] = productIn(format);
  auto self = static_cast<size_t>(component);
  if (isSelector(format, component, factors))
    return deriveSelector(format.components[self].type);
  if (!factors.empty() && factors[self] && std::isfinite(literal) && literal != 0) {
    ExprPtr rule = divide(reduce(Expr::Reduction::Absmax, overCoarser(format, component, factors)),
                          constant(largestElement(format, factors) * std::abs(literal)));
    return shareOfScale(format, component, rule, factors);
  }
  if (!factors.empty() || format.element().remap)
    return nullptr;
  // By the scales, but for one whose rule the user wrote.
  if (int zero = zeroPointOf(format);
      zero > 0 && (format.encodeOrder.back() == zero || format.component(zero).encodeDeclared))
    return deriveZeroPoint(format, component, zero);
  return deriveOffset(format, component);
}

std::string whyNotDerivable(const Format &format, int component) {
  const auto [factors, literal] = productIn(format);
  if (isSelector(format, component, factors))
    return "it is a selector of " + std::to_string(format.component(component).type.bits()) +
           " bits, of which rules try at most " + std::to_string(mostSelectorBits);
  if (!factors.empty() && factors[static_cast<size_t>(component)])
    return std::string("the product of the value's literals is ") +
           (literal == 0 ? "0" : "not finite");
  if (format.element().remap)
    return "the value of an element with a remapped code is no product of it, scales, each once, "
           "and literals";
  return "the value is neither a product of the element, scales, each once, and literals, nor "
         "(element - zero) * scales with the zero as fine as the finest of them nor element * "
         "scale + offset or element * scale - offset in one extent with elements from 0 on";
}

static bool isNeverNegative(const Format &format, const Expr &rule) {
  auto all = [&] {
    return std::all_of(rule.operands.begin(), rule.operands.end(),
                       [&](const ExprPtr &operand) { return isNeverNegative(format, *operand); });
  };
  switch (rule.kind) {
  case Expr::Kind::Integer:
    return rule.integer >= 0;
  case Expr::Kind::Real:
    return rule.real >= 0;
  case Expr::Kind::Component:
    return isNeverNegative(format, format.component(rule.component));
  case Expr::Kind::Reduce:
    return rule.reduction == Expr::Reduction::Absmax || all();
  case Expr::Kind::Cast:
    return all();
  case Expr::Kind::Call:
    return rule.function == Expr::Function::Best && all();
  case Expr::Kind::Binary:
    return (rule.op == Expr::Op::Add || rule.op == Expr::Op::Mul || rule.op == Expr::Op::Div) &&
           all();
  default:
    return false;
  }
}

bool isNeverNegative(const Format &format, const Component &component) {
  return component.type.minFinite() >= 0 ||
         (component.encode && isNeverNegative(format, *component.encode));
}

} // namespace rho::dsl
