// Expressions that are made and not written by a user.
#pragma once

#include "dsl/Format.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace rho::dsl {

inline ExprPtr componentOf(int index) {
  auto expr = std::make_shared<Expr>();
  expr->kind = Expr::Kind::Component;
  expr->component = index;
  return expr;
}

inline ExprPtr integerOf(int64_t value) {
  auto expr = std::make_shared<Expr>();
  expr->kind = Expr::Kind::Integer;
  expr->integer = value;
  return expr;
}

inline ExprPtr realOf(double value) {
  auto expr = std::make_shared<Expr>();
  expr->kind = Expr::Kind::Real;
  expr->real = value;
  return expr;
}

inline ExprPtr binary(Expr::Op op, ExprPtr a, ExprPtr b) {
  auto expr = std::make_shared<Expr>();
  expr->kind = Expr::Kind::Binary;
  expr->op = op;
  expr->operands = {std::move(a), std::move(b)};
  return expr;
}

// Whether it holds for an expression or for one within it.
template <class Holds> bool anyWithin(const Expr &expr, const Holds &holds) {
  return holds(expr) ||
         std::any_of(expr.operands.begin(), expr.operands.end(),
                     [&](const ExprPtr &operand) { return anyWithin(*operand, holds); });
}
inline bool mentions(const Expr &expr, int component) {
  return anyWithin(expr, [&](const Expr &within) {
    return within.kind == Expr::Kind::Component && within.component == component;
  });
}

// A number that is written, or what is less than 0 of one.
inline bool isLiteral(const Expr &expr) {
  return expr.kind == Expr::Kind::Integer || expr.kind == Expr::Kind::Real ||
         (expr.kind == Expr::Kind::Negate && isLiteral(*expr.operands[0]));
}
inline double numberOf(const Expr &literal) {
  return literal.kind == Expr::Kind::Negate    ? -numberOf(*literal.operands[0])
         : literal.kind == Expr::Kind::Integer ? static_cast<double>(literal.integer)
                                               : literal.real;
}

// What an expression is the product of, from left to right: what is divided is times an inverse,
// and what is negated times -1.
inline void appendFactors(const ExprPtr &expr, std::vector<ExprPtr> &factors) {
  const bool isBinary = expr->kind == Expr::Kind::Binary;
  if (isBinary && expr->op == Expr::Op::Mul) {
    for (const ExprPtr &operand : expr->operands)
      appendFactors(operand, factors);
  } else if (isBinary && expr->op == Expr::Op::Div && isLiteral(*expr->operands[1]) &&
             numberOf(*expr->operands[1]) != 0) {
    appendFactors(expr->operands[0], factors);
    factors.push_back(realOf(1 / numberOf(*expr->operands[1])));
  } else if (isBinary && expr->op == Expr::Op::Div && !mentions(*expr->operands[1], 0) &&
             !isLiteral(*expr->operands[0])) {
    appendFactors(expr->operands[0], factors);
    factors.push_back(binary(Expr::Op::Div, realOf(1), expr->operands[1]));
  } else if (expr->kind == Expr::Kind::Negate && !isLiteral(*expr)) {
    appendFactors(expr->operands[0], factors);
    factors.push_back(integerOf(-1));
  } else {
    factors.push_back(expr);
  }
}
inline std::vector<ExprPtr> factorsOf(const ExprPtr &expr) {
  std::vector<ExprPtr> factors;
  appendFactors(expr, factors);
  return factors;
}
// Null of none.
inline ExprPtr productOf(const std::vector<ExprPtr> &factors) {
  ExprPtr product;
  for (const ExprPtr &factor : factors)
    product = product ? binary(Expr::Op::Mul, product, factor) : factor;
  return product;
}

} // namespace rho::dsl
