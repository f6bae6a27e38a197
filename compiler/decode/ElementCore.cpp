#include "compiler/decode/ElementCore.h"

#include "compiler/decode/Extract.h"
#include "compiler/decode/Narrow.h"
#include "dsl/Evaluate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>

namespace rho::compiler {

namespace {

using dsl::Expr;

bool readsOthers(const Expr &expr) {
  return (expr.kind == Expr::Kind::Component && expr.component != 0) ||
         std::any_of(expr.operands.begin(), expr.operands.end(),
                     [](const dsl::ExprPtr &operand) { return readsOthers(*operand); });
}

// Of an integer type as wide as the codes.
void findType(ElementCore &core) {
  int bits = std::countr_zero(core.values.size());
  uint32_t top = 1U << (bits - 1);
  for (const char *kind : {"s", "u"})
    for (uint32_t renamed : {0U, top}) {
      std::optional<dsl::ElementType> type =
          dsl::ElementType::fromName(kind + std::to_string(bits));
      bool same = type.has_value();
      for (uint32_t code = 0; same && code < core.values.size(); ++code)
        same = type->decode(code ^ renamed) == core.values[code];
      if (same) {
        core = {renamed, valuesOf(*type), {}, type};
        return;
      }
    }
}

void findAllowed(const dsl::Format &format, ElementCore &core) {
  const std::vector<bool> allowed = dsl::allowedElements(format);
  if (!allowed.empty())
    core.allowed = core.values;
  for (uint32_t code = 0; code < allowed.size(); ++code)
    if (!allowed[code])
      core.allowed[code ^ core.renamed] = std::numeric_limits<double>::quiet_NaN();
}

// Operands that are the packed codes themselves.
DecodeSequence unchanged(dsl::ElementType type) {
  DecodeSequence result;
  result.program.output(DecodeProgram::word());
  std::vector<int> codes(static_cast<size_t>(32 / type.bits()));
  std::iota(codes.begin(), codes.end(), 0);
  result.codes = 32 / type.bits();
  result.bits = bitsOfWholeCodes({codes}, type.bits());
  return result;
}

// Numbers that are integers of 8 bits when multiplied by a power of two.
std::optional<DecodeSequence> fractionsToS8(const ElementCore &core) {
  constexpr int mostDoublings = 7;
  dsl::ElementType s8 = dsl::ElementType::get("s8");
  for (int log2 = 0; log2 <= mostDoublings; ++log2) {
    bool exact = std::all_of(core.values.begin(), core.values.end(), [&](double value) {
      return std::isnan(value) || exactIn(s8, std::ldexp(value, log2));
    });
    if (!exact || core.values.empty())
      continue;
    const std::vector<SynthesizedDecode> found = foundDecodes(core, "f16", smallestUsefulLog2);
    std::optional<DecodeSequence> halves =
        found.empty() ? extractElement(*core.type, "f16") : std::optional(found[0].sequence);
    if (halves)
      return narrowedToS8(*std::move(halves), log2);
  }
  return std::nullopt;
}

} // namespace

bool isShorter(const DecodeSequence &a, const DecodeSequence &b) {
  return a.instructions() * b.codes < b.instructions() * a.codes;
}

DecodeSequence withCodesRenamed(DecodeSequence sequence, uint32_t renamed) {
  if (sequence.codeTable.empty()) {
    sequence.codeXor ^= renamed;
    return sequence;
  }
  std::vector<uint8_t> table = sequence.codeTable;
  for (uint32_t code = 0; code < table.size(); ++code)
    sequence.codeTable[code] = table[code ^ renamed];
  return sequence;
}

bool isBareElement(const Expr &core) {
  return core.kind == Expr::Kind::Component && core.component == 0;
}

std::optional<ElementCore> elementCore(const dsl::Format &format, const Expr &core) {
  dsl::ElementType type = format.element().type;
  if (format.element().remap || readsOthers(core) || (type.bits() > 8 && !isBareElement(core)))
    return std::nullopt;
  if (isBareElement(core)) {
    ElementCore bare{0, type.bits() <= 8 ? valuesOf(type) : std::vector<double>(), {}, type};
    findAllowed(format, bare);
    return bare;
  }
  dsl::Format alone = format;
  alone.value = std::make_shared<Expr>(core);
  std::vector<uint32_t> codes(format.components.size());
  ElementCore result;
  result.values.resize(size_t{1} << type.bits());
  dsl::valueTable(alone, codes.data(), result.values.data());
  findType(result);
  findAllowed(format, result);
  return result;
}

std::vector<SynthesizedDecode> foundDecodes(const ElementCore &core, std::string_view mmaType,
                                            int leastLog2) {
  const std::vector<SynthesizedDecode> &all = knownDecodes(core.values, mmaType, leastLog2);
  if (core.allowed.empty())
    return all;
  const std::vector<SynthesizedDecode> &fewer = knownDecodes(core.allowed, mmaType, leastLog2);
  auto rank = [](const SynthesizedDecode &decode) {
    return std::pair(decode.cycles, decode.sequence.instructions());
  };
  std::vector<SynthesizedDecode> result;
  std::merge(all.begin(), all.end(), fewer.begin(), fewer.end(), std::back_inserter(result),
             [&](const auto &a, const auto &b) { return rank(a) < rank(b); });
  return result;
}

std::vector<DecodeSequence> elementSequences(const ElementCore &core, std::string_view mmaType,
                                             int leastLog2, size_t most) {
  std::vector<DecodeSequence> result;
  if (core.type && core.type->name() == mmaType) {
    result.push_back(unchanged(*core.type));
  } else {
    if (!core.values.empty())
      for (const SynthesizedDecode &found : foundDecodes(core, mmaType, leastLog2))
        if (result.size() < most)
          result.push_back(found.sequence);
    if (core.type && result.size() < most) {
      std::optional<DecodeSequence> extracted = extractElement(*core.type, mmaType);
      if (result.empty() && mmaType == "s8" && !(extracted && extracted->log2Factor == 0))
        if (std::optional<DecodeSequence> narrow = fractionsToS8(core))
          if (!extracted || isShorter(*narrow, *extracted))
            extracted = std::move(narrow);
      if (extracted)
        result.push_back(*std::move(extracted));
    }
  }
  for (DecodeSequence &sequence : result)
    sequence = withCodesRenamed(std::move(sequence), core.renamed);
  return result;
}

int significantBits(double number) {
  int exponent = 0;
  auto digits = static_cast<uint64_t>(std::ldexp(std::frexp(std::abs(number), &exponent), 53));
  return digits == 0 ? 0 : std::bit_width(digits) - std::countr_zero(digits);
}

double lowestDigit(double number) {
  return std::ldexp(1.0, std::ilogb(number) + 1 - significantBits(number));
}

std::optional<int> significantBits(const dsl::Format &format, const Expr &core) {
  const dsl::Component &element = format.element();
  int most = 0;
  auto holdValues = [&](const std::vector<double> &values) {
    for (double value : values)
      if (std::isfinite(value))
        most = std::max(most, significantBits(value));
  };
  if (std::optional<ElementCore> alone = elementCore(format, core)) {
    holdValues(alone->values);
    return alone->values.empty() ? element.type.significantBits() : most;
  }
  if (element.remap) {
    if (!isBareElement(core))
      return std::nullopt;
    holdValues(valuesOf(element.type));
    for (const dsl::Remap::Entry &entry : element.remap->entries)
      if (entry.component < 0)
        holdValues({entry.value});
      else
        most = std::max(
            most, format.components[static_cast<size_t>(entry.component)].type.significantBits());
    return most;
  }
  dsl::Range range = dsl::rangeOf(core, format);
  double largest = std::max(std::abs(range.min), std::abs(range.max));
  if (!range.integer || largest >= 0x1p53)
    return std::nullopt;
  return std::bit_width(static_cast<uint64_t>(largest));
}

} // namespace rho::compiler
