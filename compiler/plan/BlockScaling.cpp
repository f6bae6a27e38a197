#include "compiler/plan/Placement.h"

#include "dsl/DeriveEncode.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace rho::compiler {

namespace {

// PTX ISA, the table of valid combinations of kinds, element types, scale types and sizes of the
// vector of scales; `components` says which of a format are such.
struct Instruction {
  std::string_view mmaType, type, components;
  int64_t block;
};
constexpr Instruction instructions[] = {
    {"e2m1", "ue4m3", "e4m3 or ueXm3", 16},
    {"e2m1", "ue8m0", "e8m0", 32},
    {"e4m3", "ue8m0", "e8m0", 32},
};

// The p of an instruction whose scales, read from the codes of a type as they are, are its numbers
// times 2^p; none where they are not. e4m3 is ue4m3 where it is never negative.
std::optional<int> scaleLog2(dsl::ElementType type, std::string_view scale) {
  if (type.name() == "e8m0")
    return scale == "ue8m0" ? std::optional(0) : std::nullopt;
  if (scale != "ue4m3" || !type.isFloat() || type.bits() > 8)
    return std::nullopt;
  dsl::ElementType own = dsl::ElementType::get("ue4m3");
  double ratio = own.decode(1) / type.decode(1);
  for (uint32_t code = 0; code < 1U << std::min(type.bits(), own.bits()); ++code) {
    double read = own.decode(code), number = type.decode(code) * ratio;
    if (read != number && !(std::isnan(read) && std::isnan(number)))
      return std::nullopt;
  }
  return std::ilogb(ratio);
}

std::string describe(const dsl::Component &component) {
  return std::string(component.type.name()) + " per k[" + std::to_string(component.group) + "]";
}

std::string allInstructions(std::string_view mmaType) {
  std::string text;
  for (const Instruction &instruction : instructions)
    if (instruction.mmaType == mmaType)
      text += (text.empty() ? "" : " or ") + std::string(instruction.components) + " per k[" +
              std::to_string(instruction.block) + "]";
  return text;
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
    index = use.component;
    result = &format.components[use.component];
  }
  return result;
}

CodeSplit splitOperand(const dsl::Format &format, int64_t block, std::string &problem) {
  CodeSplit split = splitCodes(format, problem);
  const dsl::Component &selector = format.components[split.selector];
  if (problem.empty() && (selector.extent != dsl::Extent::Group || selector.group != block))
    problem = "'" + selector.name + "' is per " + dsl::printExtent(selector) +
              ", it selects for the blocks of the instruction, k[" + std::to_string(block) + "]";
  return split;
}

} // namespace

std::string fitBlockScaling(const dsl::Gemm &gemm, const std::vector<ScaleUse> &weightScales,
                            const std::vector<ScaleUse> &activationScales, std::string_view mmaType,
                            bool splitsWeight, BlockScaling &scaling) {
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
    return !component ||
           (scaleLog2(component->type, instruction.type) && component->group == instruction.block);
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
  for (const dsl::Component *component : {weight, activation})
    if (component)
      scaling.log2 += *scaleLog2(component->type, chosen->type);
  if (activation && !dsl::isNeverNegative(gemm.activation, *activation))
    return "the rule of '" + activation->name + "' may give a negative scale, " +
           std::string(chosen->type) + " has no sign";
  if (splitsWeight)
    scaling.weightSplit = splitOperand(gemm.weight, chosen->block, problem);
  if (gemm.activation.element().remap && problem.empty())
    scaling.activationSplit = splitOperand(gemm.activation, chosen->block, problem);
  return problem;
}

} // namespace rho::compiler
