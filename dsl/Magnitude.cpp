// How large the numbers are that a value is the sum of: what rounding errors are relative to.
#include "dsl/Evaluate.h"

#include <cmath>

namespace rho::dsl {

namespace {

double magnitudeOf(const Expr &expr, const Format &format, const uint32_t *codes) {
  if (isIntegerTyped(expr, format))
    return std::abs(static_cast<double>(evaluateInteger(expr, format, codes)));
  auto operand = [&](size_t i) { return magnitudeOf(*expr.operands[i], format, codes); };
  switch (expr.kind) {
  case Expr::Kind::Real:
    return std::abs(expr.real);
  case Expr::Kind::Component: {
    Format alone = format; // a remapped element depends on others
    alone.value = ExprPtr(ExprPtr(), &expr);
    return std::abs(evaluate(alone, codes));
  }
  case Expr::Kind::Negate:
  case Expr::Kind::Cast:
    return operand(0);
  case Expr::Kind::Binary:
    return expr.op == Expr::Op::Mul   ? operand(0) * operand(1)
           : expr.op == Expr::Op::Div ? operand(0) / operand(1)
                                      : operand(0) + operand(1);
  default:
    return std::nan("");
  }
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
  return magnitudeOf(*format.value, format, codes);
}

} // namespace rho::dsl
