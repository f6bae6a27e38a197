// How large the numbers are that a value is the sum of: what rounding errors are relative to.
#include "dsl/Evaluate.h"

#include <cmath>

namespace rho::dsl {

namespace {

double magnitudeOf(const Expr &expr, const Format &format, const uint32_t *codes) {
  auto operand = [&](size_t i) { return magnitudeOf(*expr.operands[i], format, codes); };
  switch (expr.kind) {
  case Expr::Kind::Negate:
    return operand(0);
  case Expr::Kind::Cast: // the number, or that less a power of two that it flips over
    return expr.type->isInteger() ? operand(0) + std::ldexp(1.0, expr.type->bits()) : operand(0);
  case Expr::Kind::Binary:
    switch (expr.op) {
    case Expr::Op::Add:
    case Expr::Op::Sub:
      return operand(0) + operand(1);
    case Expr::Op::Mul:
      return operand(0) * operand(1);
    case Expr::Op::Div: { // by a sum, which is the less exact the more it cancels
      double divisor = evaluate(*expr.operands[1], format, codes);
      return quotient(operand(0) * operand(1), divisor * divisor);
    }
    case Expr::Op::Shl:
      return std::ldexp(operand(0), static_cast<int>(evaluate(*expr.operands[1], format, codes)));
    default:
      break;
    }
    break;
  default:
    break;
  }
  return std::abs(evaluate(expr, format, codes));
}

} // namespace

bool isRealSum(const Expr &expr, const Format &format) {
  if (isIntegerTyped(expr, format))
    return false;
  if (expr.kind == Expr::Kind::Binary && (expr.op == Expr::Op::Add || expr.op == Expr::Op::Sub))
    return true;
  for (const ExprPtr &operand : expr.operands)
    if (isRealSum(*operand, format))
      return true;
  return false;
}

double magnitude(const Format &format, const uint32_t *codes) {
  return isRealSum(*format.value, format) ? magnitudeOf(*format.value, format, codes)
                                          : std::abs(evaluate(format, codes));
}

} // namespace rho::dsl
