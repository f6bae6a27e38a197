#include "runtime/QuantizerExpressions.h"

#include "dsl/Expressions.h"
#include "dsl/Numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

namespace rho::quantizer {

namespace {

std::string hexadecimal(uint32_t value) { return "0x" + dsl::hexadecimal(value) + "u"; }

// The table of a codebook: named after its values, so that equal declarations give equal text.
std::string tableName(dsl::ElementType codebook) {
  return "Book" + dsl::fingerprint(codebook.name());
}

std::string tableText(dsl::ElementType codebook) {
  std::string values;
  for (uint32_t code = 0; code < 1U << codebook.bits(); ++code)
    values += (values.empty() ? "" : ", ") + literal(codebook.decode(code));
  return "struct " + tableName(codebook) +
         " {\n  static constexpr int bits = " + std::to_string(codebook.bits()) +
         ";\n  static __device__ double values(unsigned code) {\n    static constexpr double all[] "
         "= {" +
         values + "};\n    return all[code];\n  }\n};\n";
}

bool readsComponents(const dsl::Expr &expr) {
  return anyWithin(expr, [](const dsl::Expr &e) { return e.kind == dsl::Expr::Kind::Component; });
}

bool readsNumbers(const dsl::Expr &expr) {
  return expr.kind == dsl::Expr::Kind::Input ||
         (expr.kind != dsl::Expr::Kind::Reduce &&
          std::any_of(expr.operands.begin(), expr.operands.end(),
                      [](const auto &operand) { return readsNumbers(*operand); }));
}

// The numbers over what they share.
bool isQuotient(const dsl::Expr &expr) {
  if (expr.kind == dsl::Expr::Kind::Input)
    return true;
  return expr.kind == dsl::Expr::Kind::Binary && expr.op == dsl::Expr::Op::Div &&
         isQuotient(*expr.operands[0]) && !readsNumbers(*expr.operands[1]);
}

std::string readText(int index, const std::string &column) {
  return "values.template read<" + componentName(index) + ">(" + column + ")";
}

// Of the numbers themselves, which are compared in float: it holds them exactly.
std::string extreme(const std::string &operation) {
  return operation == "Absmax"
             ? "team.absmax()"
             : "team.template reduce<" + operation + ">([](float x) { return x; })";
}

} // namespace

std::string literal(double value) { return dsl::printReal(value); }

std::string nameOf(dsl::ElementType type) {
  if (type.isCodebook())
    return "Codebook<" + tableName(type) + ">";
  constexpr std::string_view named[] = {"e2m1", "e4m3", "e8m0", "f16", "bf16", "f32"};
  const bool isNamed =
      std::find(std::begin(named), std::end(named), type.name()) != std::end(named);
  if (type.isInteger() || isNamed)
    return std::string(type.name());
  const double infinity = std::numeric_limits<double>::infinity();
  const char *special = std::isinf(type.decode(type.encode(infinity)))       ? "Special::Ieee"
                        : std::isnan(type.decode(type.encode(std::nan("")))) ? "Special::NanOnly"
                                                                             : "Special::None";
  auto number = [](int value) { return std::to_string(value) + ", "; };
  return "Float<" + number(type.bits()) + number(type.exponentBits()) +
         number(type.mantissaBits()) + number((1 << (type.exponentBits() - 1)) - 1) + special +
         ", " + hexadecimal(type.encode(type.maxFinite())) + ", " +
         hexadecimal(type.encode(std::nan(""))) + (type.hasSign() ? ">" : ", false>");
}

std::string componentName(int index) { return "C" + std::to_string(index); }

std::string tablesText(const std::vector<const dsl::Format *> &formats) {
  std::map<std::string, std::string> tables;
  for (const dsl::Format *format : formats)
    for (const dsl::Component &component : format->components)
      if (component.type.isCodebook())
        tables[tableName(component.type)] = tableText(component.type);
  std::string text;
  for (const auto &[name, table] : tables)
    text += table;
  return text;
}

// How many summands without the element a line has; none where it is no line.
static std::optional<int> offsetsOfLine(const dsl::Expr &value) {
  auto reads = [](const dsl::Expr &expr) {
    return anyWithin(expr, [](const dsl::Expr &e) {
      return e.kind == dsl::Expr::Kind::Component && e.component == 0;
    });
  };
  auto of = [&](size_t i) { return offsetsOfLine(*value.operands[i]); };
  if (!reads(value))
    return 1;
  if (value.kind == dsl::Expr::Kind::Component)
    return 0;
  if (value.kind == dsl::Expr::Kind::Negate)
    return of(0);
  if (value.kind != dsl::Expr::Kind::Binary)
    return std::nullopt;
  const bool first = reads(*value.operands[0]), second = reads(*value.operands[1]);
  switch (value.op) {
  case dsl::Expr::Op::Add:
  case dsl::Expr::Op::Sub: {
    std::optional<int> a = of(0), b = of(1);
    return a && b ? std::optional(*a + *b) : std::nullopt;
  }
  case dsl::Expr::Op::Mul:
    return first && second ? std::nullopt : of(first ? 0 : 1);
  case dsl::Expr::Op::Div:
    return second ? std::nullopt : of(0);
  default:
    return std::nullopt;
  }
}

bool isLineOfElement(const dsl::Expr &value) { return offsetsOfLine(value).value_or(2) <= 1; }

bool readsBits(const dsl::Expr &value) {
  return anyWithin(value, [](const dsl::Expr &expr) {
    using Op = dsl::Expr::Op;
    constexpr std::array bitwise = {Op::And, Op::Or, Op::Xor, Op::Shl, Op::Shr};
    if (expr.kind == dsl::Expr::Kind::Cast)
      return !expr.type || expr.type->isInteger();
    return expr.kind == dsl::Expr::Kind::Binary &&
           std::find(bitwise.begin(), bitwise.end(), expr.op) != bitwise.end();
  });
}

bool reducesComponents(const dsl::Expr &rule) {
  return anyWithin(rule, [](const dsl::Expr &expr) {
    return expr.kind == dsl::Expr::Kind::Reduce && !isQuotient(*expr.operands[0]) &&
           readsComponents(*expr.operands[0]);
  });
}

std::string ExpressionWriter::write(const dsl::Expr &expr, Reads reads) {
  using Kind = dsl::Expr::Kind;
  auto operand = [&](size_t i) { return write(*expr.operands[i], reads); };
  switch (expr.kind) {
  case Kind::Integer:
    return literal(static_cast<double>(expr.integer));
  case Kind::Real:
    return literal(expr.real);
  case Kind::Component:
    if (reads == Reads::Scales)
      return expr.component == 0 ? "element" : "scales.c" + std::to_string(expr.component);
    if (reads == Reads::Reduced)
      return readText(expr.component, "0");
    // Constant over the extent of the rule: read once.
    return variable("c" + std::to_string(expr.component), readText(expr.component, "team.begin"));
  case Kind::Input:
    return "x";
  case Kind::Negate:
    return "(-" + operand(0) + ")";
  case Kind::Cast: {
    std::string type = expr.type ? nameOf(*expr.type) : "f32"; // sema gives every cast its type
    return type + "::decode(" + type + "::encode(" + operand(0) + "))";
  }
  case Kind::Reduce:
    return reduction(expr, reads == Reads::Reduced);
  case Kind::Call:
    return call(expr, reads);
  case Kind::Binary:
    break;
  }
  std::string a = operand(0), b = operand(1);
  switch (expr.op) {
  case dsl::Expr::Op::Add:
    return "(" + a + " + " + b + ")";
  case dsl::Expr::Op::Sub:
    return "(" + a + " - " + b + ")";
  case dsl::Expr::Op::Mul:
    return "(" + a + " * " + b + ")";
  case dsl::Expr::Op::Div:
    return "divide(" + a + ", " + b + ")";
  default:
    return "(" + a + " * 0.0)"; // bitwise operators: not in rules, and see readsBits()
  }
}

std::string ExpressionWriter::call(const dsl::Expr &expr, Reads reads) {
  std::string a = write(*expr.operands[0], reads);
  if (expr.function == dsl::Expr::Function::BitFloor)
    return "bitFloor(" + a + ")";
  const char *name = expr.function == dsl::Expr::Function::Min ? "smaller(" : "larger(";
  return name + a + ", " + write(*expr.operands[1], reads) + ")";
}

std::string ExpressionWriter::variable(const std::string &name, const std::string &value) {
  if (std::find(variables.begin(), variables.end(), name) == variables.end()) {
    variables.push_back(name);
    statements += "      " + name + " = " + value + ";\n";
  }
  return name;
}

// The number of a reduction among those that rules make.
std::string ExpressionWriter::number(const std::string &operation, const std::string &call) {
  const std::pair<std::string, std::string> wanted = {operation, call};
  const auto found = std::find(reductions.begin(), reductions.end(), wanted);
  const std::string index = std::to_string(found - reductions.begin());
  if (found == reductions.end())
    reductions.push_back(wanted);
  return index;
}

// Of quotients, by the extremes of the numbers: see Team::reduceQuotients.
std::string ExpressionWriter::quotientOfReduced(const std::string &operation,
                                                const dsl::Expr &operand) {
  const std::string function = "[&](double x) { return " + write(operand, Reads::Reduced) + "; }";
  auto reduced = [&](const char *op) { return "reduced(" + number(op, extreme(op)) + ")"; };
  return operation == "Absmax" ? "quotient<Absmax>(" + function + ", " + reduced("Absmax") + ")"
                               : "quotient<" + operation + ">(" + function + ", " + reduced("Min") +
                                     ", " + reduced("Max") + ")";
}

std::string ExpressionWriter::reduction(const dsl::Expr &expr, bool reduced) {
  const char *operation = expr.reduction == dsl::Expr::Reduction::Absmax ? "Absmax"
                          : expr.reduction == dsl::Expr::Reduction::Min  ? "Min"
                                                                         : "Max";
  const dsl::Expr &operand = *expr.operands[0];
  const bool plain = operand.kind == dsl::Expr::Kind::Input;
  if (reduced && !plain && isQuotient(operand))
    return quotientOfReduced(operation, operand);
  const std::string call =
      plain
          ? extreme(operation)
          : std::string("team.template ") + (isQuotient(operand) ? "reduceQuotients<" : "reduce<") +
                operation + ">([&](double x) { return " + write(operand, Reads::Inside) + "; })";
  const std::string index = number(operation, call);
  return reduced ? "reduced(" + index + ")" : variable("r" + index, call);
}

} // namespace rho::quantizer
