#include "dsl/Evaluate.h"
#include "dsl/Operators.h"
#include "dsl/Sema.h"

#include <charconv>
#include <cmath>
#include <iterator>

namespace rho::dsl {

namespace {

// Of an integer all digits, or six where double has not all.
std::string number(double value) {
  const bool isWhole = std::fabs(value) < 1e17;
  char buffer[64];
  auto [end, error] = std::to_chars(buffer, std::end(buffer), value,
                                    isWhole ? std::chars_format::fixed : std::chars_format::general,
                                    isWhole ? 0 : 6);
  return {buffer, end};
}

class Lowering {
public:
  Lowering(const ExprScope &scope, const ast::Expr &root)
      : scope(scope), root(&root), findings(scope.findings) {}

  // `reduced`: inside of a reduction.
  ExprPtr lower(const ast::Expr &expr, bool reduced) {
    switch (expr.kind) {
    case ast::Expr::Kind::Integer: {
      auto node = make(Expr::Kind::Integer, expr);
      node->integer = expr.integer;
      return inRange(node, expr);
    }
    case ast::Expr::Kind::Real: {
      auto node = make(Expr::Kind::Real, expr);
      node->real = expr.real;
      return node;
    }
    case ast::Expr::Kind::Name:
      return name(expr, reduced);
    case ast::Expr::Kind::Negate: {
      ExprPtr operand = lower(*expr.operands[0], reduced);
      if (!operand)
        return nullptr;
      auto node = make(Expr::Kind::Negate, expr);
      node->operands = {operand};
      return inRange(node, expr);
    }
    case ast::Expr::Kind::Binary:
      return binary(expr, reduced);
    case ast::Expr::Kind::Call:
      return call(expr, reduced);
    }
    return nullptr;
  }

private:
  bool isRule() const { return scope.encodes >= 0; }

  std::shared_ptr<Expr> make(Expr::Kind kind, const ast::Expr &expr) {
    auto node = std::make_shared<Expr>();
    made.push_back(node);
    node->kind = kind;
    node->span = expr.span;
    return node;
  }

  ExprPtr error(DiagId id, const std::vector<std::string> &args, const ast::Expr &expr) {
    findings.add(id, args, expr.span);
    return nullptr;
  }

  ExprPtr name(const ast::Expr &expr, bool reduced) {
    if (expr.name == "x") {
      if (!isRule())
        return error(DiagId::only_in_encode, {"x"}, expr);
      if (!reduced)
        return error(DiagId::rule_not_reduced, {target()}, expr);
      return make(Expr::Kind::Input, expr);
    }
    if (scope.ofPart)
      return error(
          DiagId::unknown_name,
          {"number", shown(expr.name), "a part's rule reads the numbers x of a block alone"}, expr);
    std::vector<std::string> known;
    const std::vector<Component> &components = scope.format.components;
    for (size_t i = 0; i < components.size(); ++i) {
      known.push_back(components[i].name);
      if (components[i].name != expr.name)
        continue;
      if (scope.poisoned[i])
        return nullptr;
      if (isRule() && !isEncodedBefore(static_cast<int>(i)))
        return error(DiagId::rule_reads_later, {target(), expr.name}, expr);
      auto node = make(Expr::Kind::Component, expr);
      node->component = static_cast<int>(i);
      return node;
    }
    return error(DiagId::unknown_name, {"component", shown(expr.name), hint(expr.name, known)},
                 expr);
  }

  std::string target() const { return scope.format.component(scope.encodes).name; }

  bool isEncodedBefore(int component) const {
    for (int index : scope.format.encodeOrder) {
      if (index == scope.encodes)
        return false;
      if (index == component)
        return true;
    }
    return false;
  }

  // Whether operands may be used by what takes integers; reports where not.
  bool integers(std::string_view taker, std::initializer_list<ExprPtr> operands,
                const ast::Expr &expr) {
    if (isRule()) {
      error(DiagId::integer_needed_in_rule, {std::string(taker)}, expr);
      return false;
    }
    for (const ExprPtr &operand : operands) {
      if (ranges.isInteger(*operand))
        continue;
      error(DiagId::integer_needed, {std::string(taker)}, expr);
      return false;
    }
    return true;
  }

  ExprPtr binary(const ast::Expr &expr, bool reduced) {
    ExprPtr a = lower(*expr.operands[0], reduced), b = lower(*expr.operands[1], reduced);
    if (!a || !b)
      return nullptr;
    const Operator &op = operatorOf(expr.op);
    if (op.integerOnly && !integers(op.spelling, {a, b}, expr))
      return nullptr;
    auto node = make(Expr::Kind::Binary, expr);
    node->op = expr.op;
    node->operands = {a, b};
    Range right = ranges.of(*b);
    if ((expr.op == Expr::Op::Shl || expr.op == Expr::Op::Shr) && (right.min < 0 || right.max > 52))
      return error(DiagId::shift_out_of_range, {number(right.min), number(right.max)}, expr);
    if (expr.op == Expr::Op::Div && right.min == 0 && right.max == 0)
      return error(DiagId::division_by_zero, {text(*node)}, expr);
    return inRange(node, expr);
  }

  ExprPtr call(const ast::Expr &expr, bool reduced) {
    const FunctionName *function = findFunction(expr.name);
    std::optional<Expr::Reduction> reduction = findReduction(expr.name);
    if (function && !(reduction && expr.operands.size() == 1))
      return callFunction(*function, expr, reduced);
    std::optional<ElementType> type = ElementType::fromName(expr.name);
    if (reduction && !isRule())
      return error(DiagId::only_in_encode, {expr.name + "()"}, expr);
    if (reduction && reduced)
      return error(DiagId::nested_reduction, {expr.name + "()"}, expr);
    if ((reduction || type) && expr.operands.size() != 1)
      return wrongCount(expr, 1, 1);
    ExprPtr operand = lower(*expr.operands[0], reduced || reduction);
    if (!reduction && !type)
      return error(DiagId::unknown_name,
                   {"function", shown(expr.name), hint(expr.name, functions())}, expr);
    if (!operand || (type && type->isInteger() && !integers(expr.name + "()", {operand}, expr)))
      return nullptr;
    auto node = make(reduction ? Expr::Kind::Reduce : Expr::Kind::Cast, expr);
    node->operands = {operand};
    if (reduction)
      node->reduction = *reduction;
    else
      node->type = type;
    return node;
  }

  ExprPtr callFunction(const FunctionName &function, const ast::Expr &expr, bool reduced) {
    if (!isRule())
      return error(DiagId::only_in_encode, {expr.name + "()"}, expr);
    if (expr.operands.size() < function.fewest || expr.operands.size() > function.most)
      return wrongCount(expr, function.fewest, function.most);
    if (function.function == Expr::Function::Best && &expr != root)
      return error(DiagId::best_inside, {expr.name + "()"}, expr);
    auto node = make(Expr::Kind::Call, expr);
    node->function = function.function;
    bool good = true;
    for (const auto &operand : expr.operands) {
      node->operands.push_back(lower(*operand, reduced));
      good = good && node->operands.back();
    }
    return good ? node : nullptr;
  }

  ExprPtr wrongCount(const ast::Expr &expr, size_t fewest, size_t most) {
    std::string takes = std::to_string(fewest);
    if (most != fewest)
      takes += " to " + std::to_string(most);
    return error(DiagId::argument_count,
                 {expr.name + "()", std::to_string(expr.operands.size()), takes}, expr);
  }

  std::vector<std::string> functions() const {
    std::vector<std::string> names;
    if (isRule())
      for (const ReductionName &reduction : reductionNames)
        names.emplace_back(reduction.name);
    if (isRule())
      for (const FunctionName &function : functionNames)
        if (!findReduction(function.name))
          names.emplace_back(function.name);
    const std::vector<std::string> types = ElementType::allNames();
    names.insert(names.end(), types.begin(), types.end());
    return names;
  }

  std::string text(const Expr &expr) const { return shown(print(expr, scope.format)); }

  ExprPtr inRange(const std::shared_ptr<Expr> &node, const ast::Expr &expr) {
    if (!ranges.isInteger(*node) || (isRule() && node->kind != Expr::Kind::Integer))
      return node;
    // A bound that rounds up to 2^53 is refused as well, so that the others are exact.
    Range range = ranges.of(*node);
    double reached = std::fabs(range.min) > std::fabs(range.max) ? range.min : range.max;
    if (std::fabs(reached) <= maxInteger)
      return node;
    const bool isNumber = node->kind == Expr::Kind::Integer; // which a double may round
    return error(DiagId::integer_overflow,
                 {text(*node), isNumber ? std::to_string(node->integer) : number(reached),
                  number(maxInteger)},
                 expr);
  }

  const ExprScope &scope;
  const ast::Expr *root; // the whole expression
  Findings &findings;
  KnownRanges ranges{scope.format};
  std::vector<ExprPtr> made; // what `ranges` knows
};

} // namespace

ExprPtr lower(const ast::Expr &expr, const ExprScope &scope) {
  return Lowering(scope, expr).lower(expr, false);
}

} // namespace rho::dsl
