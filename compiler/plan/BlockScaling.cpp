#include "compiler/plan/Placement.h"

#include <optional>

namespace rho::compiler {

namespace {

using dsl::Expr;

// PTX ISA, the table of valid combinations of kinds, element types, scale types and sizes of the
// vector of scales. e4m3 of a format is the instruction's ue4m3 where it is never negative.
struct Instruction {
  std::string_view mmaType, component, type;
  int64_t block;
};
constexpr Instruction instructions[] = {
    {"e2m1", "e4m3", "ue4m3", 16},
    {"e2m1", "ue4m3", "ue4m3", 16},
    {"e2m1", "e8m0", "ue8m0", 32},
    {"e4m3", "e8m0", "ue8m0", 32},
};

std::string describe(const dsl::Component &component) {
  return std::string(component.type.name()) + " per k[" + std::to_string(component.group) + "]";
}

std::string allInstructions(std::string_view mmaType) {
  std::string text;
  for (const Instruction &instruction : instructions)
    if (instruction.mmaType == mmaType)
      text += (text.empty() ? "" : " or ") + std::string(instruction.component) + " per k[" +
              std::to_string(instruction.block) + "]";
  return text;
}

// Whether a rule gives no negative number, as its form shows. Codes that the user brings are none
// of the rule's; packing looks at those.
bool neverNegative(const Expr &expr, const dsl::Format &format) {
  auto all = [&] {
    for (const dsl::ExprPtr &operand : expr.operands)
      if (!neverNegative(*operand, format))
        return false;
    return true;
  };
  switch (expr.kind) {
  case Expr::Kind::Integer:
    return expr.integer >= 0;
  case Expr::Kind::Real:
    return expr.real >= 0;
  case Expr::Kind::Component: {
    const dsl::Component &component = format.components[expr.component];
    return component.type.minFinite() >= 0 ||
           (component.encode && neverNegative(*component.encode, format));
  }
  case Expr::Kind::Reduce:
    return expr.reduction == Expr::Reduction::Absmax || all();
  case Expr::Kind::Cast:
    return all();
  case Expr::Kind::Binary:
    return (expr.op == Expr::Op::Add || expr.op == Expr::Op::Mul || expr.op == Expr::Op::Div) &&
           all();
  default:
    return false;
  }
}

// The group scale of one operand; null: it has none. `problem` where it has several.
const dsl::Component *groupScale(const dsl::Format &format, const std::vector<ScaleUse> &uses,
                                 int &index, std::string &problem) {
  const dsl::Component *result = nullptr;
  for (const ScaleUse &use : uses) {
    if (use.extent != dsl::Extent::Group)
      continue;
    if (result)
      problem = "'" + format.name + "' has several group scales, an instruction takes one";
    for (const dsl::Component &other : format.components)
      if (other.host == use.component)
        problem = "'" + other.name + "' lies in spare bits of '" +
                  format.components[use.component].name + "', an instruction reads all of a scale";
    index = use.component;
    result = &format.components[use.component];
  }
  return result;
}

} // namespace

std::string fitBlockScaling(const dsl::Gemm &gemm, const std::vector<ScaleUse> &weightScales,
                            const std::vector<ScaleUse> &activationScales, std::string_view mmaType,
                            BlockScaling &scaling) {
  std::string problem, takes = allInstructions(mmaType);
  const dsl::Component *weight = groupScale(gemm.weight, weightScales, scaling.weight, problem);
  const dsl::Component *activation =
      groupScale(gemm.activation, activationScales, scaling.activation, problem);
  if (!problem.empty())
    return problem;
  if (takes.empty())
    return "no instruction with operands of " + std::string(mmaType) + " has block scales";
  if (!weight && !activation)
    return "neither operand has group scales; instructions with operands of " +
           std::string(mmaType) + " take " + takes;
  auto fits = [](const dsl::Component *component, const Instruction &instruction) {
    return !component || (component->type.name() == instruction.component &&
                          component->group == instruction.block);
  };
  const Instruction *chosen = nullptr;
  for (const Instruction &instruction : instructions)
    if (instruction.mmaType == mmaType && fits(weight, instruction) &&
        fits(activation, instruction))
      chosen = &instruction;
  if (!chosen) {
    std::string found = weight ? "'" + weight->name + "' is " + describe(*weight) : "";
    if (activation)
      found += (weight ? " and '" : "'") + activation->name + "' is " + describe(*activation);
    return found + "; instructions with operands of " + std::string(mmaType) + " take " + takes +
           " of both";
  }
  scaling.type = chosen->type;
  scaling.block = chosen->block;
  if (activation && activation->type.minFinite() < 0 &&
      !(activation->encode && neverNegative(*activation->encode, gemm.activation)))
    return "the rule of '" + activation->name + "' may give a negative scale, " +
           std::string(chosen->type) + " has no sign";
  return "";
}

} // namespace rho::compiler
