#include "dsl/DeriveEncode.h"

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

ExprPtr componentOf(int index) {
  auto expr = std::make_shared<Expr>();
  expr->kind = Expr::Kind::Component;
  expr->component = index;
  return expr;
}

ExprPtr constant(double value) {
  auto expr = std::make_shared<Expr>();
  if (std::floor(value) == value && value < 0x1p53) {
    expr->kind = Expr::Kind::Integer;
    expr->integer = static_cast<int64_t>(value);
  } else {
    expr->kind = Expr::Kind::Real;
    expr->real = value;
  }
  return expr;
}

ExprPtr divide(ExprPtr a, ExprPtr b) {
  auto expr = std::make_shared<Expr>();
  expr->kind = Expr::Kind::Binary;
  expr->op = Expr::Op::Div;
  expr->operands = {std::move(a), std::move(b)};
  return expr;
}

// What absmax(x) becomes: the smaller of the two sides of the type, where it has two.
double largestElement(ElementType type) {
  double above = type.maxFinite(), below = -type.minFinite();
  return above <= 0 ? below : below <= 0 ? above : std::min(above, below);
}

} // namespace

bool isProduct(const Format &format) {
  std::vector<int> counts(format.components.size(), 0);
  return countFactors(*format.value, counts) &&
         std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; });
}

ExprPtr deriveEncode(const Format &format, int component) {
  const auto &order = format.encodeOrder;
  auto self = std::find(order.begin(), order.end(), component);
  ExprPtr input = leaf(Expr::Kind::Input);
  for (auto coarser = order.begin(); coarser != self; ++coarser)
    input = divide(input, componentOf(*coarser));
  auto reduce = std::make_shared<Expr>();
  reduce->kind = Expr::Kind::Reduce;
  reduce->reduction = Expr::Reduction::Absmax;
  reduce->operands = {input};
  ExprPtr rule = divide(reduce, constant(largestElement(format.element().type)));
  for (auto finer = self == order.end() ? self : self + 1; finer != order.end(); ++finer) {
    ElementType type = format.components[static_cast<size_t>(*finer)].type;
    if (type.bits() <= 8 && type.exponentBits() <= 5)
      rule = divide(rule, constant(type.maxFinite()));
  }
  return rule;
}

} // namespace rho::dsl
