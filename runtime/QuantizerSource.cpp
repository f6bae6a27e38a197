#include "runtime/QuantizerSource.h"

#include "dsl/DeriveEncode.h"
#include "dsl/Operators.h"

#include <cinttypes>
#include <cstdio>
#include <numeric>

namespace rho {
namespace {

// Numbers that a thread of the kernel takes at once (`chunk` there).
constexpr int64_t chunk = 16;

// The same double in CUDA C++.
std::string literal(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.17g", value);
  std::string out = text;
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

std::string name(const dsl::Component &component) { return std::string(component.type.name()); }

std::string read(const dsl::Format &format, int index, const char *column) {
  const dsl::Component &component = format.components[static_cast<size_t>(index)];
  return "row.template component<" + name(component) + ", " + std::to_string(component.group) +
         ">(" + std::to_string(index) + ", " + column + ")";
}

// Translates one encode rule: double arithmetic in the order in which it is written.
class RuleWriter {
public:
  explicit RuleWriter(const dsl::Format &format) : format(format) {}

  // Statements that define what the returned expression needs, each on a line.
  std::string statements;

  std::string scalar(const dsl::Expr &expr) { return write(expr, false); }

private:
  std::string write(const dsl::Expr &expr, bool reducing) {
    using Kind = dsl::Expr::Kind;
    auto operand = [&](size_t i) { return write(*expr.operands[i], reducing); };
    switch (expr.kind) {
    case Kind::Integer:
      return literal(static_cast<double>(expr.integer));
    case Kind::Real:
      return literal(expr.real);
    case Kind::Component:
      return component(expr.component);
    case Kind::Input:
      return "x";
    case Kind::Negate:
      return "(-" + operand(0) + ")";
    case Kind::Cast: {
      std::string type(expr.type ? expr.type->name() : "f32"); // sema gives every cast its type
      return type + "::decode(" + type + "::encode(" + operand(0) + "))";
    }
    case Kind::Reduce:
      return reduction(expr);
    case Kind::Call: // the only one, see problemOf
      return "bitFloor(" + operand(0) + ")";
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
      return "(" + a + " * 0.0)"; // bitwise operators in rules do not pass sema
    }
  }

  // Constant over the extent of the rule: read once.
  std::string component(int index) {
    std::string variable = "c" + std::to_string(index);
    if (statements.find("double " + variable + " ") == std::string::npos)
      statements +=
          "    const double " + variable + " = " + read(format, index, "team.begin") + ";\n";
    return variable;
  }

  std::string reduction(const dsl::Expr &expr) {
    const char *operation = expr.reduction == dsl::Expr::Reduction::Absmax ? "Absmax"
                            : expr.reduction == dsl::Expr::Reduction::Min  ? "Min"
                                                                           : "Max";
    const dsl::Expr &operand = *expr.operands[0];
    // Input itself is compared in float, which holds it exactly.
    bool plain = operand.kind == dsl::Expr::Kind::Input;
    std::string call = "reduce<" + std::string(operation) + ">(" +
                       (plain ? "[](float x) { return x; }"
                              : "[&](double x) { return " + write(operand, true) + "; }") +
                       ")";
    if (plain && expr.reduction == dsl::Expr::Reduction::Absmax)
      call = "absmax()";
    std::string variable = "r" + std::to_string(reductions++);
    statements += "    const double " + variable + " = team." +
                  (call == "absmax()" ? "" : "template ") + call + ";\n";
    return variable;
  }

  const dsl::Format &format;
  int reductions = 0;
};

// The types that quantize_activations.cu has.
bool isKnown(dsl::ElementType type) {
  return (type.isInteger() && type.bits() >= 2) || type.bits() == 32 ||
         type == dsl::ElementType::get("e2m1") || type == dsl::ElementType::get("e4m3") ||
         type == dsl::ElementType::get("e8m0") || type == dsl::ElementType::get("f16") ||
         type == dsl::ElementType::get("bf16");
}

// What the source cannot say of a rule.
std::optional<std::string> problemOf(const dsl::Expr &expr) {
  if (expr.kind == dsl::Expr::Kind::Call && expr.function != dsl::Expr::Function::BitFloor)
    return std::string(dsl::nameOf(expr.function)) + "()";
  if (expr.kind == dsl::Expr::Kind::Cast && expr.type && !isKnown(*expr.type))
    return "type " + std::string(expr.type->name());
  for (const dsl::ExprPtr &operand : expr.operands)
    if (std::optional<std::string> problem = problemOf(*operand))
      return problem;
  return std::nullopt;
}

std::string extentName(const dsl::Component &component) {
  return component.extent == dsl::Extent::Group ? "k[" + std::to_string(component.group) + "]"
                                                : "token";
}

std::string ruleText(const dsl::Format &format, int index) {
  const dsl::Component &component = format.components[static_cast<size_t>(index)];
  RuleWriter writer(format);
  std::string value = writer.scalar(*component.encode);
  std::string i = std::to_string(index);
  return "struct Rule" + i + " { // " + name(component) + " per " + extentName(component) +
         "\n"
         "  using Type = " +
         name(component) +
         ";\n"
         "  static constexpr int index = " +
         i +
         ";\n"
         "  static constexpr long long group = " +
         std::to_string(component.group) +
         ";\n"
         "  template <class Row, class Team>\n"
         "  static __device__ double value(const Row &row, const Team &team) {\n" +
         writer.statements + "    return " + value +
         ";\n"
         "  }\n"
         "};\n";
}

} // namespace

std::string quantizerHeader(const dsl::Format &format, int elementBits, int groupsPerWord) {
  int64_t run = chunk; // numbers of an aligned chunk that share all scales
  std::string parameters, arguments, rules, calls, product;
  for (size_t i = 1; i < format.components.size(); ++i) {
    const dsl::Component &component = format.components[i];
    if (component.extent == dsl::Extent::Group)
      run = std::gcd(run, component.group);
    std::string index = std::to_string(i);
    parameters += ", void *c" + index;
    arguments += ", static_cast<unsigned char *>(c" + index + ")";
    product += (i == 1 ? "" : " * ") + read(format, static_cast<int>(i), "column");
  }
  for (int index : format.encodeOrder) {
    rules += ruleText(format, index);
    calls += "  encodeComponent<Rule" + std::to_string(index) + ">(row);\n";
  }
  bool scaled = format.components.size() > 1;
  return "#define RHO_COMPONENT_PARAMETERS " + parameters +
         "\n"
         "#define RHO_COMPONENT_ARGUMENTS " +
         arguments +
         "\n"
         "using Element = " +
         name(format.element()) +
         ";\n"
         "constexpr int elementBits = " +
         std::to_string(elementBits) +
         ";\n"
         "constexpr int groupsPerWord = " +
         std::to_string(groupsPerWord) +
         ";\n"
         "constexpr int scaleRun = " +
         std::to_string(run) + ";\n" + rules +
         "template <class Row> __device__ void encodeComponents(const Row &row) {\n" + calls +
         "}\n"
         "template <class Row> __device__ double elementScale(const Row &row, long long column) {\n"
         "  return " +
         (scaled ? product : "1.0") +
         ";\n"
         "}\n";
}

std::optional<std::string> quantizerSourceProblem(const dsl::Format &format) {
  if (format.element().remap)
    return "'" + format.element().name + "' has a remapped code, of which there is no kernel";
  for (const dsl::Component &component : format.components) {
    if (!isKnown(component.type))
      return "'" + component.name + "' is of type " + std::string(component.type.name());
    if (component.encode)
      if (std::optional<std::string> problem = problemOf(*component.encode))
        return "the rule of '" + component.name + "' uses " + *problem;
  }
  return std::nullopt;
}

Status checkActivationFormat(const dsl::Gemm &gemm, const SourceMap *sources) {
  const dsl::Format &format = gemm.activation;
  if (format.partition) {
    dsl::Gemm alone = gemm;
    for (const dsl::Part &part : format.partition->parts) {
      alone.activation = *part.format;
      if (Status supported = checkActivationFormat(alone, sources); !supported)
        return supported;
    }
    return Done{};
  }
  auto refuse = [&](const std::string &reason, Span span) -> Status {
    std::vector<std::string> args = {format.name, reason};
    return sources ? Error{{makeDiagnostic(DiagId::unsupported_activation, args, span, *sources)}}
                   : makeError(DiagId::unsupported_activation, args);
  };
  int bits = format.element().type.bits();
  if (bits != 4 && bits != 8 && bits != 16 && bits != 32)
    return refuse("its element has " + std::to_string(bits) + " bits, it must have 4, 8, 16 or 32",
                  format.element().span);
  for (size_t i = 1; i < format.components.size(); ++i) {
    const dsl::Component &component = format.components[i];
    if (component.extent == dsl::Extent::Tensor)
      return refuse("'" + component.name + "' is per tensor, it must be per token or per k[G]",
                    component.span);
    if (!component.encode)
      return refuse("'" + component.name + "' has no encode rule", component.span);
  }
  if (!dsl::isProduct(format) && !dsl::isRemappedProduct(format))
    return refuse("its value must be the product of the element and scales",
                  format.value ? format.value->span : format.span);
  if (!format.requirements.empty())
    return refuse("it must have no requirement", format.requirements[0].span);
  return Done{};
}

} // namespace rho
