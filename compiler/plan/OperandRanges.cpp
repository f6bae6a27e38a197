#include "compiler/plan/OperandRanges.h"

#include "compiler/decode/ScaleSequence.h"

#include <algorithm>
#include <cmath>

namespace rho::compiler {

namespace {

// Whether what decodes take beside codes, literals or components of f32 or products of these, may
// exceed the operands' type.
bool numbersMayExceed(const dsl::Format &weight, const PlacedGemm &placed) {
  auto exceeds = [&](const RowNumber::Term &term) {
    double largest = std::abs(term.factor);
    for (int component : term.components)
      largest *= weight.components[static_cast<size_t>(component)].type.maxMagnitude();
    return largest > dsl::ElementType::get(placed.mmaType).maxFinite();
  };
  return std::any_of(placed.decode.params.begin(), placed.decode.params.end(),
                     [&](const DecodeParam &param) {
                       return param.hasNumber() && std::any_of(param.number.terms.begin(),
                                                               param.number.terms.end(), exceeds);
                     });
}

// Of operands of f16, where scales, offsets or special values of any size make them, of others that
// such a number may exceed, and of those that powers of two of any size multiply: what other codes
// of at most 8 bits make is known when a kernel is planned.
void addOperandRange(const dsl::Format &weight, const PlacedGemm &placed, OperandRange::Of of,
                     std::vector<OperandRange> &ranges) {
  std::vector<RowNumber> powers;
  for (const DecodeParam &param : placed.decode.params)
    if (param.form == DecodeParam::Form::Multiplier && powers.empty() &&
        hasAllExponents(weight.components[static_cast<size_t>(param.component)].type,
                        placed.mmaType))
      powers.push_back({{{.factor = std::ldexp(1.0, placed.decode.scaleLog2),
                          .components = {param.component}}}});
  if (placed.mmaType != "f16" && powers.empty() && !numbersMayExceed(weight, placed))
    return;
  OperandRange range{placed.mmaType, placed.decode.log2Factor, {}, of, !powers.empty(), powers};
  std::vector<bool> inside(weight.components.size(), true);
  for (const auto *uses : {&placed.accumulator, &placed.epilogue})
    for (const ScaleUse &use : *uses)
      if (use.weight) {
        inside[static_cast<size_t>(use.component)] = false;
        range.outside.push_back(static_cast<uint8_t>(use.component));
      }
  // What a selector chooses is taken where a code stands for it: one of the weight's numbers.
  auto isChosen = [](const RowNumber::Term &term) { return term.selector != 0; };
  for (const DecodeParam &param : placed.decode.params)
    if (param.hasNumber() && !param.number.isConstant() &&
        std::none_of(param.number.terms.begin(), param.number.terms.end(), isChosen) &&
        std::find(range.numbers.begin(), range.numbers.end(), param.number) == range.numbers.end())
      range.numbers.push_back(param.number);
  bool mayExceed = weight.element().remap.has_value() || !powers.empty();
  for (size_t i = 1; i < inside.size(); ++i)
    mayExceed = mayExceed || (inside[i] && weight.components[i].type.bits() > 8);
  if (mayExceed)
    ranges.push_back(std::move(range));
}

} // namespace

std::vector<OperandRange> operandRanges(const dsl::Gemm &gemm, const PlacedGemm &placed) {
  std::vector<OperandRange> ranges;
  forEachGemm(gemm, placed, [&](const dsl::Gemm &part, const PlacedGemm &how) {
    addOperandRange(part.weight, how,
                    how.sparseBits > 0 ? OperandRange::Of::Both : OperandRange::Of::Weight, ranges);
    if (how.residual)
      addOperandRange(residualOf(part).weight, *how.residual, OperandRange::Of::Residual, ranges);
  });
  return ranges;
}

Result<std::vector<OperandRange>> operandRanges(const dsl::Gemm &gemm, const Plan &plan) {
  Result<PlacedGemm> placed = place(gemm, plan, nullptr);
  if (!placed)
    return placed.error();
  return operandRanges(gemm, *placed);
}

} // namespace rho::compiler
