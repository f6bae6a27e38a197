#include "compiler/decode/RoundedProduct.h"

#include "compiler/decode/ElementCore.h"
#include "compiler/decode/Narrow.h"
#include "dsl/Evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;
using Form = DecodeParam::Form;

constexpr int64_t halfOfK = 16; // of an instruction of 8-bit operands

// Scales whose products with the element are numbers of f16.
struct ExactScale {
  RowNumber number;
  double largest = 0;
  int64_t group = 0; // of the finest; 0: constant along k
};
std::optional<ExactScale> exactScale(const dsl::Format &format, const Affine &product) {
  const dsl::ElementType element = format.element().type, half = dsl::ElementType::get("f16");
  const std::optional<Extremes> extremes = extremesOf(product.slope, format); // none of codebooks
  if (!extremes || format.element().remap || element.isCodebook() || element.bits() > 8 ||
      product.slope.terms.size() != 1 || !product.offset.terms.empty())
    return std::nullopt;
  ExactScale scale{product.slope};
  const int ofFactor = significantBits(product.slope.terms[0].factor);
  int digits = element.significantBits() + (ofFactor == 1 ? 0 : ofFactor); // of powers of two none
  for (int component : product.slope.uses()) {
    const dsl::Component &part = format.components[static_cast<size_t>(component)];
    digits += part.type.significantBits();
    if (part.extent == dsl::Extent::Group)
      scale.group = std::min(scale.group == 0 ? kernelGroup(part.group) : scale.group,
                             kernelGroup(part.group));
  }
  const double digit =
      element.isFloat() ? std::ldexp(1.0, element.leastExponent() - element.mantissaBits()) : 1;
  if (digits > half.significantBits() || (scale.group > 0 && scale.group < halfOfK) ||
      extremes->largest * element.maxMagnitude() > half.maxFinite() ||
      extremes->digit * digit < std::ldexp(1.0, smallestUsefulLog2))
    return std::nullopt;
  scale.largest = extremes->largest;
  return scale;
}

// `halves`, a decode of the element to f16, times the scale, with all powers of two.
DecodeSequence scaledHalves(DecodeSequence halves, const ExactScale &scale) {
  // What the decode left out goes to the scale as far as that has room.
  const int room = std::ilogb(dsl::ElementType::get("f16").maxFinite() / scale.largest);
  const int carried = std::clamp(-halves.log2Factor, 0, room);
  const RowNumber factor = scale.number.times(std::ldexp(1.0, carried));
  halves.log2Factor += carried;
  // A unit of four registers of f16 lies in one half of k; of more, every second four in the other.
  const bool inBoth = scale.group == halfOfK && halves.registers() > 4;
  DecodeProgram &p = halves.program;
  for (size_t r = 0; r < halves.registers(); ++r) {
    const int kHalf = inBoth ? static_cast<int>(r >> 2 & 1) : 0;
    const int own = halves.param({Form::Number, 0, static_cast<int>(r & 1), factor, kHalf});
    p.setOutput(r, p.times("f16", p.outputAt(r), DecodeProgram::param(own)));
  }
  return restored(std::move(halves), "f16");
}

// Each product in f16, then one conversion.
std::optional<DecodeSequence> byConversion(const dsl::Format &format, const ExactScale &scale) {
  dsl::Expr element{};
  element.kind = dsl::Expr::Kind::Component;
  std::optional<DecodeSequence> best;
  for (int leastLog2 : {-1000, -8, 0}) { // more instructions, fewer powers of two to restore
    std::optional<DecodeSequence> halves = decodeSequence(format, element, "f16", leastLog2);
    if (!halves || halves->roundings != 0 || halves->registers() % 4 != 0)
      continue;
    DecodeSequence scaled = scaledHalves(*std::move(halves), scale);
    if (!best || isShorter(scaled, *best))
      best = std::move(scaled);
  }
  return best ? narrowedToE4M3(*std::move(best)) : std::nullopt;
}

constexpr int tableBits = 4; // a sign and one of eight magnitudes
using Magnitudes = std::array<double, 8>;

// Those of the numbers of an element that are not negative, ascending.
std::optional<Magnitudes> magnitudesOf(dsl::ElementType element) {
  if (element.bits() != tableBits)
    return std::nullopt;
  std::vector<double> found;
  for (uint32_t code = 0; code < 1U << tableBits; ++code)
    if (const double value = element.decode(code); value >= 0 && !std::signbit(value))
      found.push_back(value);
  std::sort(found.begin(), found.end());
  Magnitudes result{};
  if (found.size() != result.size() ||
      std::adjacent_find(found.begin(), found.end()) != found.end())
    return std::nullopt;
  std::copy(found.begin(), found.end(), result.begin());
  return result;
}

// Of every code a sign, the top bit, and the place of its magnitude. None where one that weights
// hold has none.
std::optional<std::vector<uint8_t>> signsAndMagnitudes(const dsl::Format &format,
                                                       const Magnitudes &magnitudes) {
  const std::vector<bool> allowed = dsl::allowedElements(format);
  std::vector<uint8_t> codes;
  for (uint32_t code = 0; code < 1U << tableBits; ++code) {
    const double value = format.element().type.decode(code);
    const auto *at = std::find(magnitudes.begin(), magnitudes.end(), std::fabs(value));
    if (at == magnitudes.end() && (allowed.empty() || allowed[code]))
      return std::nullopt;
    const auto place = static_cast<uint8_t>(at == magnitudes.end() ? 0 : at - magnitudes.begin());
    codes.push_back(std::signbit(value) ? place | 8 : place);
  }
  return codes;
}

// Looks the eight products of a group and row up, which registers hold, and gives them their signs.
std::optional<DecodeSequence> byTable(const dsl::Format &format, const ExactScale &scale) {
  constexpr int64_t least = 64; // numbers of a group, of which a thread has a quarter: else no gain
  const std::optional<Magnitudes> magnitudes = magnitudesOf(format.element().type);
  if (!magnitudes || (scale.group > 0 && scale.group < least))
    return std::nullopt;
  std::optional<std::vector<uint8_t>> codes = signsAndMagnitudes(format, *magnitudes);
  if (!codes)
    return std::nullopt;
  DecodeSequence result;
  DecodeProgram &p = result.program;
  auto products = [&](Form form, int row) {
    return DecodeProgram::param(result.param({form, 0, row, scale.number}));
  };
  // Places of magnitudes in the nibbles of the halves of a word; where a nibble has its fourth bit
  // the signs are, those of row half 0 at the top of bytes. Products have the scale's sign.
  const Operand word = DecodeProgram::word();
  const Operand places = p.add(Op::And, word, constant(0x77777777));
  for (int row = 0; row < 2; ++row) {
    const Operand own = row == 0 ? places : p.add(Op::Shr, places, constant(16));
    const Operand signs = row == 0 ? word : p.add(Op::Shl, word, constant(4));
    const Operand looked =
        p.add(Op::Prmt, products(Form::LowProducts, row), products(Form::HighProducts, row), own);
    p.output(p.add(Op::AndXor, signs, constant(0x80808080), looked));
    result.bits.emplace_back();
    for (int code = 0; code < 4; ++code) {
      const int place = 16 * row + 4 * code, sign = 8 * code + (row == 0 ? 7 : 3);
      result.bits.back().push_back({{0, place}, {0, place + 1}, {0, place + 2}, {0, sign}});
    }
  }
  result.codes = 8;
  result.codeTable = *std::move(codes);
  return result;
}

} // namespace

std::optional<DecodeSequence> roundedProduct(const dsl::Format &format, const Affine &product) {
  const std::optional<ExactScale> scale = exactScale(format, product);
  if (!scale)
    return std::nullopt;
  std::optional<DecodeSequence> looked = byTable(format, *scale);
  return looked ? looked : byConversion(format, *scale);
}

DecodeProgram productsSequence(dsl::ElementType element, DecodeParam::Form form) {
  const Magnitudes magnitudes = *magnitudesOf(element);
  const size_t first = form == Form::LowProducts ? 0 : magnitudes.size() / 2;
  DecodeProgram program;
  program.params = 1;
  auto two = [&](size_t at) {
    const uint32_t low = DecodeProgram::number("f16", magnitudes[at]).value & 0xffff,
                   high = DecodeProgram::number("f16", magnitudes[at + 1]).value << 16;
    return program.add(Op::ToE4M3,
                       program.times("f16", DecodeProgram::param(0), constant(low | high)));
  };
  const Operand low = two(first), high = two(first + 2);
  program.output(program.add(Op::Prmt, low, high, constant(0x5410)));
  return program;
}

} // namespace rho::compiler
