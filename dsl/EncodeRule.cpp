#include "dsl/EncodeRule.h"

#include "dsl/Evaluate.h"
#include "dsl/Operators.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace rho::dsl {

namespace {

// Numbers that are computed at a time: intermediate results stay in the first-level cache.
constexpr int64_t chunk = 256;

// a[i] = a[i] op b(i); the operator is looked at once.
template <class Right> void applyAll(Expr::Op op, double *a, Right b, int64_t count) {
  auto each = [&](auto compute) {
    for (int64_t i = 0; i < count; ++i)
      a[i] = compute(a[i], b(i));
  };
  switch (op) {
  case Expr::Op::Add:
    return each([](double l, double r) { return l + r; });
  case Expr::Op::Sub:
    return each([](double l, double r) { return l - r; });
  case Expr::Op::Mul:
    return each([](double l, double r) { return l * r; });
  case Expr::Op::Div:
    return each(quotient);
  default:
    return each([](double, double) { return std::nan(""); }); // does not pass sema
  }
}

double rounded(const Expr &cast, double value) {
  ElementType type = castTypeOf(cast);
  return type.decode(type.encode(value));
}

// NaN where an operand is NaN.
double call(Expr::Function function, double a, double b) {
  switch (function) {
  case Expr::Function::BitFloor: {
    if (a == 0 || !std::isfinite(a))
      return std::fabs(a);
    int exponent = 0;
    std::frexp(a, &exponent);
    return std::ldexp(1.0, exponent - 1);
  }
  case Expr::Function::Min:
    return std::isnan(a) || a < b ? a : b;
  case Expr::Function::Max:
    return std::isnan(a) || a > b ? a : b;
  case Expr::Function::Best:
    break; // the encoder computes each of its operands as a rule
  }
  return std::nan("");
}

void collect(const Expr &expr, std::vector<const Expr *> &reductions) {
  if (expr.kind == Expr::Kind::Reduce)
    return reductions.push_back(&expr);
  for (const ExprPtr &operand : expr.operands)
    collect(*operand, reductions);
}

bool readsInput(const Expr &expr) {
  return expr.kind == Expr::Kind::Input ||
         std::any_of(expr.operands.begin(), expr.operands.end(),
                     [](const ExprPtr &operand) { return readsInput(*operand); });
}

// An expression without input; its reductions are taken from `reduced` one after the other.
double scalar(const Expr &expr, const double *components, const double *&reduced) {
  switch (expr.kind) {
  case Expr::Kind::Integer:
    return static_cast<double>(expr.integer);
  case Expr::Kind::Real:
    return expr.real;
  case Expr::Kind::Component:
    return components[expr.component];
  case Expr::Kind::Negate:
    return -scalar(*expr.operands[0], components, reduced);
  case Expr::Kind::Binary: {
    double a = scalar(*expr.operands[0], components, reduced);
    double b = scalar(*expr.operands[1], components, reduced);
    return realBinary(expr.op, a, b);
  }
  case Expr::Kind::Cast:
    return rounded(expr, scalar(*expr.operands[0], components, reduced));
  case Expr::Kind::Reduce:
    // Which of 0 and -0 a minimum finds depends on the order of the numbers: adding 0 makes both 0.
    return *reduced++ + 0.0;
  case Expr::Kind::Call: {
    double a = scalar(*expr.operands[0], components, reduced);
    double b = expr.operands.size() > 1 ? scalar(*expr.operands[1], components, reduced) : 0;
    return call(expr.function, a, b);
  }
  case Expr::Kind::Input:
    break;
  }
  return std::nan("");
}

// An expression inside of a reduction, for `count` <= chunk numbers.
void elementwise(const Expr &expr, const double *components, const double *x, int64_t count,
                 double *out) {
  if (!readsInput(expr)) {
    const double *none = nullptr;
    std::fill_n(out, count, scalar(expr, components, none));
    return;
  }
  switch (expr.kind) {
  case Expr::Kind::Negate:
    elementwise(*expr.operands[0], components, x, count, out);
    for (int64_t i = 0; i < count; ++i)
      out[i] = -out[i];
    return;
  case Expr::Kind::Binary: {
    elementwise(*expr.operands[0], components, x, count, out);
    if (const Expr &right = *expr.operands[1]; !readsInput(right)) {
      const double *none = nullptr;
      double same = scalar(right, components, none);
      applyAll(expr.op, out, [same](int64_t) { return same; }, count);
      return;
    }
    double right[chunk];
    elementwise(*expr.operands[1], components, x, count, right);
    applyAll(expr.op, out, [&](int64_t i) { return right[i]; }, count);
    return;
  }
  case Expr::Kind::Call: {
    double right[chunk] = {};
    elementwise(*expr.operands[0], components, x, count, out);
    if (expr.operands.size() > 1)
      elementwise(*expr.operands[1], components, x, count, right);
    for (int64_t i = 0; i < count; ++i)
      out[i] = call(expr.function, out[i], right[i]);
    return;
  }
  case Expr::Kind::Cast:
    elementwise(*expr.operands[0], components, x, count, out);
    for (int64_t i = 0; i < count; ++i)
      out[i] = rounded(expr, out[i]);
    return;
  default:
    std::copy_n(x, count, out);
  }
}

double identity(Expr::Reduction reduction) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (reduction) {
  case Expr::Reduction::Absmax:
    return 0;
  case Expr::Reduction::Min:
    return infinity;
  case Expr::Reduction::Max:
    break;
  }
  return -infinity;
}

// NaN wins over every number, whatever the order.
double pick(Expr::Reduction reduction, double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return std::nan("");
  return reduction == Expr::Reduction::Min ? (b < a ? b : a) : (b > a ? b : a);
}

// The extreme of `count` numbers by `better(candidate, best)`, NaN where one is NaN. Minima and
// maxima may be taken in any order: four lanes, which the host compares at a time.
template <class Of, class Better>
double extreme(double start, const double *x, int64_t count, Of of, Better better) {
  constexpr int64_t lanes = 4;
  double best[lanes] = {start, start, start, start};
  bool nan[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane) {
      double value = of(x[i + lane]);
      nan[lane] |= value != value;
      best[lane] = better(value, best[lane]) ? value : best[lane];
    }
  for (; i < count; ++i) {
    double value = of(x[i]);
    nan[0] |= value != value;
    best[0] = better(value, best[0]) ? value : best[0];
  }
  for (int64_t lane = 1; lane < lanes; ++lane) {
    nan[0] |= nan[lane];
    best[0] = better(best[lane], best[0]) ? best[lane] : best[0];
  }
  return nan[0] ? std::nan("") : best[0];
}

double reduceNumbers(Expr::Reduction reduction, const double *x, int64_t count) {
  auto same = [](double value) { return value; };
  double start = identity(reduction);
  switch (reduction) {
  case Expr::Reduction::Absmax:
    return extreme(start, x, count, [](double value) { return std::fabs(value); }, std::greater());
  case Expr::Reduction::Min:
    return extreme(start, x, count, same, std::less());
  case Expr::Reduction::Max:
    break;
  }
  return extreme(start, x, count, same, std::greater());
}

} // namespace

EncodeRule::EncodeRule(const Expr &rule) : rule(rule) { collect(rule, reductions); }

EncodeRule::Partial EncodeRule::begin() const {
  Partial partial;
  begin(partial);
  return partial;
}

void EncodeRule::begin(Partial &partial) const {
  partial.clear();
  for (const Expr *reduction : reductions)
    partial.push_back(identity(reduction->reduction));
}

void EncodeRule::reduce(Partial &partial, const double *x, int64_t count,
                        const double *components) const {
  double values[chunk];
  for (size_t r = 0; r < reductions.size(); ++r) {
    const Expr &operand = *reductions[r]->operands[0];
    Expr::Reduction kind = reductions[r]->reduction;
    if (operand.kind == Expr::Kind::Input) {
      partial[r] = pick(kind, partial[r], reduceNumbers(kind, x, count));
      continue;
    }
    for (int64_t at = 0; at < count; at += chunk) {
      int64_t part = std::min(chunk, count - at);
      elementwise(operand, components, x + at, part, values);
      partial[r] = pick(kind, partial[r], reduceNumbers(kind, values, part));
    }
  }
}

void EncodeRule::combine(Partial &partial, const Partial &other) const {
  for (size_t r = 0; r < reductions.size(); ++r)
    partial[r] = pick(reductions[r]->reduction, partial[r], other[r]);
}

double EncodeRule::finish(const Partial &partial, const double *components) const {
  const double *reduced = partial.data();
  return scalar(rule, components, reduced);
}

} // namespace rho::dsl
