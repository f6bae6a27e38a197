#include "compiler/plan/ScaledOperand.h"

#include "compiler/decode/Affine.h"
#include "compiler/decode/ElementCore.h"
#include "compiler/decode/Remap.h"
#include "compiler/decode/ScaleSequence.h"
#include "dsl/Evaluate.h"
#include "dsl/Expressions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace rho::compiler {

using dsl::Expr;

std::string groupProblem(const ScaleUse &use, const PlacedGemm &placed) {
  if (use.group % placed.leastGroup == 0)
    return "";
  return "group " + std::to_string(use.declared) + " is no multiple of the instruction's k, " +
         std::to_string(placed.leastGroup);
}

namespace {

// Of numbers that are not 0, in magnitude: the least and the largest, and their lowest binary
// digit.
struct Spread {
  double least = 1, largest = 1, digit = 1;

  void take(double number) {
    if (!std::isfinite(number) || number == 0)
      return;
    least = std::min(least, std::abs(number));
    largest = std::max(largest, std::abs(number));
    digit = std::min(digit, lowestDigit(number));
  }
  friend Spread operator*(const Spread &a, const Spread &b) {
    return {a.least * b.least, a.largest * b.largest, a.digit * b.digit};
  }
};
Spread spreadOf(const std::vector<double> &numbers) {
  constexpr double most = std::numeric_limits<double>::max();
  Spread spread{most, 0, most};
  for (double number : numbers)
    spread.take(number);
  return spread.largest == 0 ? Spread() : spread;
}
Spread spreadOf(dsl::ElementType type) {
  constexpr int mostBits = 8;
  if (type.bits() > mostBits) // of which only this is asked
    return {1, type.maxMagnitude(), 1};
  std::vector<double> numbers;
  for (uint32_t code = 0; code < 1U << type.bits(); ++code)
    numbers.push_back(type.decode(code));
  return spreadOf(numbers);
}

// What codes of at most 8 bits can make of the core. What wider ones make has the size of the
// weights, which operands of 16 bits have always been trusted to hold: 1.
Spread spreadOf(const dsl::Format &weight, const Expr &core) {
  auto isWide = [&](int component) {
    return weight.components[static_cast<size_t>(component)].type.bits() > 8;
  };
  for (int component = 0; component < static_cast<int>(weight.components.size()); ++component)
    if (isWide(component) && mentions(core, component))
      return {};
  if (std::optional<ElementCore> alone = elementCore(weight, core))
    return alone->type ? spreadOf(*alone->type) : spreadOf(alone->values);
  if (const std::optional<dsl::Remap> &remap = weight.element().remap) {
    std::vector<int> others = dsl::componentsOf(*remap);
    if (std::any_of(others.begin(), others.end(), isWide))
      return spreadOf(weight.element().type);
  }
  dsl::Range range = dsl::rangeOf(core, weight);
  return {1, std::max(std::abs(range.min), std::abs(range.max)), 1};
}

// Whether a type holds products of these numbers times 2^log2, as they are or rounded once.
bool holdsProducts(dsl::ElementType operand, const Spread &products, int log2, bool exact) {
  const int normal = operand.leastExponent();
  double least = exact ? std::ldexp(products.digit, operand.mantissaBits()) : products.least;
  return std::ldexp(products.largest, log2) <= operand.maxFinite() &&
         std::ldexp(least, log2 - normal) >= 1;
}

// Of the ways to multiply scales into an operand the one that rounds least, or why there is none.
class OperandScaling {
public:
  OperandScaling(const dsl::Format &weight, const Expr &core, const std::vector<ScaleUse> &groups,
                 const DecodeSequence &decode, const PlacedGemm &placed, bool hasOthers)
      : weight(weight), core(core), groups(groups), decode(decode), placed(placed),
        hasOthers(hasOthers), operand(dsl::ElementType::get(placed.mmaType)) {}

  ScaledOperand run() {
    if (placed.integerAccumulator)
      return refused("operands are integers (" + placed.mmaType + ")");
    if (operand.bits() < 16)
      return refused("products with scales do not fit operands of " + placed.mmaType);
    for (const ScaleUse &use : groups)
      if (!groupProblem(use, placed).empty() && !isGroupOfHalf(use.group))
        return refused("group " + std::to_string(use.declared) +
                       " is no multiple of half of the instruction's k, " +
                       std::to_string(placed.mmaK / 2));
    readScales();
    return groups.size() == 1 ? byOneScale() : byProduct();
  }

private:
  const dsl::Format &weight;
  const Expr &core;
  const std::vector<ScaleUse> &groups;
  const DecodeSequence &decode;
  const PlacedGemm &placed;
  const bool hasOthers;
  const dsl::ElementType operand;
  RowNumber product{{{.factor = 1, .components = {}}}}; // of the scales
  Spread scales, elements;                              // of such products, and what they scale
  bool groupsOfHalves = false;
  // Of scales of more than 8 bits, powers of two among them, products have the size of the weights.
  bool narrow = true;
  // Where sums can be scaled nothing is rounded, nor leaves the range.
  bool sumsCanBe = true;
  static constexpr int digitsOfF32 = 24; // of rounded products

  static ScaledOperand refused(std::string why) { return {{}, 0, std::move(why)}; }
  dsl::ElementType typeOf(const ScaleUse &use) const {
    return weight.components[static_cast<size_t>(use.component)].type;
  }

  void readScales() {
    elements = spreadOf(weight, core);
    for (const ScaleUse &use : groups) {
      const dsl::ElementType type = typeOf(use);
      product = product.times(RowNumber{{{.factor = 1, .components = {use.component}}}});
      scales = scales * spreadOf(type);
      groupsOfHalves = groupsOfHalves || isGroupOfHalf(use.group);
      narrow = narrow && type.bits() <= 8 && type.exponentBits() <= 5;
      sumsCanBe = sumsCanBe && groupProblem(use, placed).empty();
    }
  }

  ScaledOperand byOneScale() const {
    const dsl::ElementType type = typeOf(groups[0]);
    // Exact when the bits of element and scale fit the operand type.
    const std::optional<int> digits = significantBits(weight, core);
    const bool exact = decode.roundings == 0 && digits &&
                       type.significantBits() + *digits <= operand.mantissaBits() + 1;
    const std::optional<DecodeSequence> unscaled =
        decode.sparseBits > 0 || !decode.program.lanes.empty()
            ? decode
            : decodeSequence(weight, core, placed.mmaType, leastScaledLog2(type, placed.mmaType));
    if (unscaled && (!hasAllExponents(type, placed.mmaType) || (hasOthers && sumsCanBe)))
      if (auto scaled = withScale(*unscaled, weight, groups[0].component, placed.mmaType))
        return checked(*std::move(scaled), exact ? 0 : 1);
    if (holdsAll(operand, type))
      return byNumber(type.significantBits(), exact ? 0 : 1);
    // Small products need the scale's exponents.
    if (sumsCanBe || operand.exponentBits() < type.exponentBits())
      return refused("'" + weight.component(groups[0].component).name + "', of " +
                     std::string(type.name()) + ", is not exact in " + placed.mmaType);
    return byRoundedNumber();
  }

  ScaledOperand byProduct() const {
    if (scales.largest <= operand.maxFinite())
      return byNumber(digitsOfF32, 2);
    if (sumsCanBe || operand.exponentBits() < dsl::ElementType::get("f32").exponentBits())
      return refused("products of scales leave the range of " + placed.mmaType);
    return byRoundedNumber();
  }

  // The power of two that a decode has left out may take what is small out of the range: of wide
  // scales it is not known how small that is.
  ScaledOperand byNumber(int digits, int roundings) const {
    const int leastLog2 = leastScaledLog2(dsl::ElementType::get("f16"), placed.mmaType);
    ScaledOperand result;
    for (DecodeSequence start : {decode, restored(decode, placed.mmaType)}) {
      if (!narrow && start.log2Factor < leastLog2)
        continue;
      if (groups.size() == 1)
        leaveSignsToScale(start, weight, groups[0].component);
      result = checked(
          numberScaled(start, product, scales.largest, digits, groupsOfHalves, placed.mmaType),
          roundings);
      if (result.decode)
        break;
    }
    return result;
  }

  // Rounded, of scales of any size: packing sees to it (operandRanges).
  ScaledOperand byRoundedNumber() const {
    const double largest = std::min(scales.largest, operand.maxFinite());
    return checked(numberScaled(restored(decode, placed.mmaType), product, largest, digitsOfF32,
                                groupsOfHalves, placed.mmaType),
                   2);
  }

  ScaledOperand checked(DecodeSequence scaled, int roundings) const {
    if (std::ldexp(elements.largest, scaled.log2Factor) > operand.maxFinite())
      return refused("the elements leave the range of " + placed.mmaType);
    if (narrow && !holdsProducts(operand, scales * elements, scaled.log2Factor, roundings == 0))
      return refused("products with scales leave the range of " + placed.mmaType);
    return {std::move(scaled), roundings, ""};
  }
};

} // namespace

ScaledOperand scaleOperand(const dsl::Format &weight, const Expr &core,
                           const std::vector<ScaleUse> &groups, const DecodeSequence &decode,
                           const PlacedGemm &placed, bool hasOthers) {
  return OperandScaling(weight, core, groups, decode, placed, hasOthers).run();
}

} // namespace rho::compiler
