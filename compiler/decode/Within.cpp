#include "compiler/decode/Within.h"

#include "dsl/Evaluate.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rho::compiler {

using dsl::Expr;

namespace {

// An integer expression as a sum of products, each with its factors in order: what is written in
// several ways is one.
struct IntegerSum {
  std::map<std::string, int64_t> terms; // the factor of each product
  int64_t constant = 0;

  // Adds `factor` times an expression; false beyond 64 bits.
  bool add(const Expr &expr, const dsl::Format &format, int64_t factor) {
    const bool isSum = expr.kind == Expr::Kind::Binary && expr.op == Expr::Op::Add;
    const bool isDifference = expr.kind == Expr::Kind::Binary && expr.op == Expr::Op::Sub;
    const bool isNegated = expr.kind == Expr::Kind::Negate;
    if (!isSum && !isDifference && !isNegated)
      return addProduct(expr, format, factor);
    int64_t last = factor; // of the last operand
    if (!isSum && __builtin_sub_overflow(int64_t{0}, factor, &last))
      return false;
    return (isNegated || add(*expr.operands[0], format, factor)) &&
           add(*expr.operands.back(), format, last);
  }

private:
  bool addProduct(const Expr &expr, const dsl::Format &format, int64_t factor) {
    std::vector<std::string> names;
    if (!addFactors(expr, format, factor, names))
      return false;
    if (names.empty())
      return !__builtin_add_overflow(constant, factor, &constant);
    std::sort(names.begin(), names.end());
    std::string product;
    for (const std::string &name : names)
      product += (product.empty() ? "" : " * ") + name;
    int64_t &sum = terms[product];
    const bool fits = !__builtin_add_overflow(sum, factor, &sum);
    if (sum == 0)
      terms.erase(product);
    return fits;
  }

  static bool addFactors(const Expr &expr, const dsl::Format &format, int64_t &factor,
                         std::vector<std::string> &names) {
    if (expr.kind == Expr::Kind::Integer)
      return !__builtin_mul_overflow(factor, expr.integer, &factor);
    if (expr.kind == Expr::Kind::Negate)
      return !__builtin_sub_overflow(int64_t{0}, factor, &factor) &&
             addFactors(*expr.operands[0], format, factor, names);
    if (expr.kind == Expr::Kind::Binary && expr.op == Expr::Op::Mul)
      return addFactors(*expr.operands[0], format, factor, names) &&
             addFactors(*expr.operands[1], format, factor, names);
    names.push_back("(" + dsl::print(expr, format) + ")");
    return true;
  }
};

// What a requirement says of the sum `of`: how much above the requirement's it is, or above what is
// less than 0 of it. None: nothing.
struct Related {
  bool negated;
  double offset;
};
std::optional<Related> related(const IntegerSum &of, const IntegerSum &required) {
  const auto constant = static_cast<double>(of.constant);
  const auto other = static_cast<double>(required.constant);
  if (of.terms == required.terms)
    return Related{false, constant - other};
  std::map<std::string, int64_t> negated = required.terms;
  for (auto &[product, factor] : negated)
    factor = factor == INT64_MIN ? 0 : -factor;
  return of.terms == negated ? std::optional(Related{true, constant + other}) : std::nullopt;
}

} // namespace

bool isWithin(const Expr &expr, const dsl::Format &format, double min, double max) {
  dsl::Range range = dsl::rangeOf(expr, format);
  if (!range.integer)
    return false;
  IntegerSum sum;
  if (!format.requirements.empty() && sum.add(expr, format, 1))
    for (const dsl::Requirement &requirement : format.requirements) {
      IntegerSum required;
      if (!required.add(*requirement.expr, format, 1))
        continue;
      const std::optional<Related> same = related(sum, required);
      if (!same)
        continue;
      const auto bound = static_cast<double>(requirement.bound);
      const double own = same->offset + (same->negated ? -bound : bound);
      if (requirement.atMost != same->negated)
        range.max = std::min(range.max, own);
      else
        range.min = std::max(range.min, own);
    }
  return range.min >= min && range.max <= max;
}

} // namespace rho::compiler
