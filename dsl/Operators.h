// Operators, reductions and their spelling: one table for parser, printer and syntax tree.
#pragma once

#include "dsl/Format.h"

#include <cstdlib>
#include <optional>
#include <string_view>

namespace rho::dsl {

struct Operator {
  Expr::Op op;
  std::string_view spelling;
  int precedence; // higher binds tighter; unary minus binds tighter than all
  bool integerOnly;
};

// By precedence, loosest first. All are left associative.
inline constexpr Operator operators[] = {
    {Expr::Op::Or, "|", 1, true},   {Expr::Op::Xor, "^", 2, true},  {Expr::Op::And, "&", 3, true},
    {Expr::Op::Shl, "<<", 4, true}, {Expr::Op::Shr, ">>", 4, true}, {Expr::Op::Add, "+", 5, false},
    {Expr::Op::Sub, "-", 5, false}, {Expr::Op::Mul, "*", 6, false}, {Expr::Op::Div, "/", 6, false},
};
inline constexpr int unaryPrecedence = 7;
inline constexpr int primaryPrecedence = 8;

inline const Operator &operatorOf(Expr::Op op) {
  for (const Operator &candidate : operators)
    if (candidate.op == op)
      return candidate;
  return operators[0];
}

inline const Operator *findOperator(std::string_view spelling) {
  for (const Operator &candidate : operators)
    if (candidate.spelling == spelling)
      return &candidate;
  return nullptr;
}

// The type of a Cast node; every one has one.
inline ElementType castTypeOf(const Expr &expr) {
  if (!expr.type)
    std::abort();
  return *expr.type;
}

struct ReductionName {
  Expr::Reduction reduction;
  std::string_view name;
};
inline constexpr ReductionName reductionNames[] = {
    {Expr::Reduction::Absmax, "absmax"},
    {Expr::Reduction::Min, "min"},
    {Expr::Reduction::Max, "max"},
};

inline std::optional<Expr::Reduction> findReduction(std::string_view name) {
  for (const ReductionName &candidate : reductionNames)
    if (candidate.name == name)
      return candidate.reduction;
  return std::nullopt;
}

// Functions of an encode rule. Those with the name of a reduction have two arguments.
struct FunctionName {
  Expr::Function function;
  std::string_view name;
  size_t fewest, most; // arguments
};
inline constexpr FunctionName functionNames[] = {
    {Expr::Function::BitFloor, "bit_floor", 1, 1},
    {Expr::Function::Min, "min", 2, 2},
    {Expr::Function::Max, "max", 2, 2},
    {Expr::Function::Best, "best", 2, 64},
};

inline const FunctionName *findFunction(std::string_view name) {
  for (const FunctionName &candidate : functionNames)
    if (candidate.name == name)
      return &candidate;
  return nullptr;
}

inline std::string_view nameOf(Expr::Function function) {
  for (const FunctionName &candidate : functionNames)
    if (candidate.function == function)
      return candidate.name;
  return {};
}

inline std::string_view nameOf(Expr::Reduction reduction) {
  for (const ReductionName &candidate : reductionNames)
    if (candidate.reduction == reduction)
      return candidate.name;
  return {};
}

} // namespace rho::dsl
