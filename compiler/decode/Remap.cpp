#include "compiler/decode/Remap.h"

#include "compiler/LayoutMap.h"
#include "compiler/decode/Extension.h"
#include "compiler/decode/Extract.h"
#include "compiler/decode/PairTable.h"
#include "compiler/decode/TableSearch.h"
#include "dsl/Expressions.h"

#include <algorithm>
#include <cmath>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

// What a remapped code stands for, by the selector of its row.
RowNumber entryOf(const dsl::Remap &remap) {
  RowNumber entry;
  for (size_t i = 0; i < remap.entries.size(); ++i) {
    const dsl::Remap::Entry &own = remap.entries[i];
    RowNumber::Term term{own.value, {}, remap.selector, static_cast<int>(i)};
    if (own.component >= 0) {
      term.factor = own.negated ? -1 : 1;
      term.components = {own.component};
    }
    if (term.factor != 0)
      entry.terms.push_back(term);
  }
  return entry;
}

// How often that is rounded, at most, to an operand.
int roundingsOf(const dsl::Remap &remap, const dsl::Format &format, dsl::ElementType operand) {
  auto isExact = [&](const dsl::Remap::Entry &entry) {
    return entry.component < 0
               ? exactIn(operand, entry.value)
               : holdsAll(operand, format.components[static_cast<size_t>(entry.component)].type);
  };
  return std::all_of(remap.entries.begin(), remap.entries.end(), isExact) ? 0 : 1;
}

// Whether what a code stands for is as exact times 2^log2 as it is alone. A component of a tensor
// may be any number of its type.
bool holdScaled(const dsl::Format &format, dsl::ElementType operand, int log2) {
  auto holds = [&](double number) {
    const double scaled = std::ldexp(number, log2);
    return exactIn(operand, scaled) || std::abs(scaled) >= std::ldexp(1.0, operand.leastExponent());
  };
  const dsl::Remap &remap = *format.element().remap;
  return log2 == 0 ||
         std::all_of(remap.entries.begin(), remap.entries.end(),
                     [&](const dsl::Remap::Entry &entry) {
                       if (entry.component < 0)
                         return holds(entry.value);
                       const dsl::ElementType type =
                           format.components[static_cast<size_t>(entry.component)].type;
                       return type.isInteger() && type.bits() <= 8 && holds(1) &&
                              holds(type.maxMagnitude());
                     });
}

// Whether a number times 2^log2 is an integer of so few bits that it and an offset fit a byte whose
// top bit is clear.
constexpr double byteOffset = 64;
bool fitsByte(double value, int log2) {
  double scaled = std::ldexp(value, log2);
  return scaled == std::floor(scaled) && scaled >= -byteOffset && scaled < byteOffset;
}

// Every number that a code may stand for; none where an entry is of more than 8 bits.
std::optional<std::vector<double>> everyValue(const dsl::Format &format) {
  const dsl::Remap &remap = *format.element().remap;
  dsl::ElementType type = format.element().type;
  std::vector<double> values;
  for (uint32_t code = 0; code < 1U << type.bits(); ++code)
    if (code != remap.code)
      values.push_back(type.decode(code));
  for (const dsl::Remap::Entry &entry : remap.entries) {
    if (entry.component < 0) {
      values.push_back(entry.value);
      continue;
    }
    dsl::ElementType own = format.components[static_cast<size_t>(entry.component)].type;
    if (own.bits() > 8)
      return std::nullopt;
    for (uint32_t code = 0; code < 1U << own.bits(); ++code)
      values.push_back(entry.negated ? -own.decode(code) : own.decode(code));
  }
  return values;
}

// 16 codes of small multiples of one number by tables of bytes. None where other numbers stand
// among them, or may.
std::optional<DecodeSequence> remappedBytes(const dsl::Format &format, std::string_view mmaType) {
  const dsl::Remap &remap = *format.element().remap;
  dsl::ElementType type = format.element().type, operand = dsl::ElementType::get(mmaType);
  RowNumber entry = entryOf(remap); // not rounded: each is an integer of 8 bits
  std::optional<std::vector<double>> values = everyValue(format); // that must fit
  if (type.bits() != 4 || operand.bits() != 16 || entry.isConstant() || !values)
    return std::nullopt;
  constexpr int mostHalvings = 6;
  for (int log2 = 0; log2 <= mostHalvings; ++log2) {
    if (!std::all_of(values->begin(), values->end(), [&](double v) { return fitsByte(v, log2); }))
      continue;
    std::vector<uint32_t> bytes;
    for (uint32_t code = 0; code < 16; ++code)
      bytes.push_back(static_cast<uint32_t>(std::ldexp(type.decode(code), log2) + byteOffset));
    double slope = std::ldexp(1.0, -log2);
    int selector = entry.fewChoices(format);
    ByteLine line{-byteOffset * slope, slope};
    DecodeSequence result =
        bytesWithParameter(bytes, remap.code, selector != 0, line, mmaType).sequence;
    double start = std::ldexp(1.0, operand.mantissaBits());
    entry = entry.times(std::ldexp(1.0, log2)).plus(RowNumber::of(start + byteOffset));
    using Form = DecodeParam::Form;
    for (int half = 0; half < 2; ++half)
      result.params.push_back({selector != 0 ? Form::Choices : Form::Number, 0, half, entry});
    for (int half = 0; half < 2 && selector != 0; ++half)
      result.params.push_back({Form::Places, selector, half, {}});
    return result;
  }
  return std::nullopt;
}

// The sequence whose parameters are a number of each row half.
DecodeSequence ofRows(DecodeSequence sequence, const RowNumber &number) {
  for (int half = 0; half < 2; ++half)
    sequence.params.push_back({DecodeParam::Form::Number, 0, half, number});
  return sequence;
}

// 16 codes by tables of bytes, of which the remapped code's are a row's own. None where other codes
// are not exact.
std::optional<DecodeSequence> remappedTable(const dsl::Format &format, dsl::ElementType operand) {
  const dsl::Remap &remap = *format.element().remap;
  dsl::ElementType type = format.element().type;
  RowNumber entry = entryOf(remap);
  if (type.bits() != 4 || operand.bits() != 16 || entry.isConstant())
    return std::nullopt;
  std::vector<uint32_t> lanes;
  for (uint32_t code = 0; code < 16; ++code) {
    double value = type.decode(code);
    lanes.push_back(code == remap.code ? 0 : operand.encode(value));
    if (code != remap.code && operand.decode(lanes.back()) != value)
      return std::nullopt;
  }
  DecodeSequence result =
      ofRows(tableWithParameter(lanes, operand.bits(), remap.code).sequence, entry);
  result.roundings = roundingsOf(remap, format, operand);
  return result;
}

// What a remapped code's lane of 8 bits is, as the low byte of an f16: 1024 and half as much again,
// plus that byte. None where codes of floats would have to be computed, which are not linear in
// their numbers.
std::optional<RowNumber> byteNumber(const RowNumber &number, dsl::ElementType operand) {
  RowNumber result = number;
  if (operand.isFloat()) // of integers the last bits of the sum are the operand
    for (RowNumber::Term &term : result.terms) {
      if (!term.components.empty())
        return std::nullopt;
      term.factor = operand.encode(term.factor);
    }
  return result.plus(RowNumber::of(1536));
}

// The least power of two at which operands of 8 bits hold all that codes of 4 bits may stand for.
std::optional<int> factorOfBytes(const dsl::Format &format, dsl::ElementType operand) {
  std::optional<std::vector<double>> values = everyValue(format);
  if (format.element().type.bits() != 4 || operand.bits() != 8 || !values)
    return std::nullopt;
  constexpr int mostDoublings = 6;
  for (int log2 = 0; log2 <= mostDoublings; ++log2)
    if (std::all_of(values->begin(), values->end(),
                    [&](double value) { return exactIn(operand, std::ldexp(value, log2)); }))
      return log2;
  return std::nullopt;
}

// 16 codes to operands of 8 bits that hold all of their numbers. `entry`: what the remapped code
// stands for.
std::optional<DecodeSequence>
remappedOperandBytes(const dsl::Format &format, dsl::ElementType operand, const RowNumber &entry) {
  const dsl::Remap &remap = *format.element().remap;
  const std::optional<int> log2 = factorOfBytes(format, operand);
  if (!log2)
    return std::nullopt;
  const std::optional<RowNumber> number = byteNumber(entry.times(std::ldexp(1.0, *log2)), operand);
  if (!number)
    return std::nullopt;
  std::vector<uint32_t> lanes;
  for (uint32_t code = 0; code < 16; ++code)
    lanes.push_back(code == remap.code
                        ? 0
                        : operand.encode(std::ldexp(format.element().type.decode(code), *log2)));
  DecodeSequence result =
      ofRows(tableWithParameter(lanes, operand.bits(), remap.code).sequence, *number);
  result.log2Factor = *log2;
  return result;
}

// The same where `entry` is literals of one sign. As many
// lanes have a sign as have none, if zero of floats has the other one, or numbers of integers are
// those of which the special one is negative.
std::optional<DecodeSequence>
operandBytesOfOneSign(const dsl::Format &format, dsl::ElementType operand, const RowNumber &entry) {
  const dsl::Remap &remap = *format.element().remap;
  const std::optional<int> log2 = factorOfBytes(format, operand);
  if (!log2 || entry.isConstant() || entry.terms.size() != remap.entries.size())
    return std::nullopt; // one is 0
  const bool isNegative = entry.terms[0].factor < 0;
  const bool opposite = operand.isInteger() && !isNegative;
  const double factor = std::ldexp(opposite ? -1.0 : 1.0, *log2);
  if (!std::all_of(entry.terms.begin(), entry.terms.end(), [&](const RowNumber::Term &term) {
        return term.components.empty() && (term.factor < 0) == isNegative &&
               exactIn(operand, term.factor * factor);
      }))
    return std::nullopt;
  std::vector<uint32_t> lanes;
  for (uint32_t code = 0; code < 16; ++code) {
    const double value = format.element().type.decode(code) * factor;
    if (code != remap.code && !exactIn(operand, value))
      return std::nullopt;
    lanes.push_back(operand.encode(value != 0 ? value : isNegative ? 0.0 : -0.0));
  }
  std::optional<TableDecode> table = pairsWithParameter(lanes, remap.code, isNegative != opposite);
  if (!table)
    return std::nullopt;
  DecodeSequence result =
      ofRows(std::move(table->sequence), *byteNumber(entry.times(factor), operand));
  result.log2Factor = *log2;
  result.opposite = opposite;
  return result;
}

// The bit of a remapped code's selector, in spare bits of `scale`, by which `entry`, what the code
// stands for, differs in nothing but its sign, so that a scale that stands once in the value can
// have it. None: there is no such bit.
ScaleSign signOfScale(const dsl::Format &format, int scale, const RowNumber &entry) {
  if (negatedCodes(format).empty())
    return {};
  const std::vector<dsl::ExprPtr> factors = dsl::factorsOf(format.value);
  if (std::count_if(factors.begin(), factors.end(),
                    [&](const dsl::ExprPtr &factor) { return mentions(*factor, scale); }) != 1)
    return {}; // squared it has no sign
  const int selector = entry.fewChoices(format);
  const dsl::Component &chooses = format.components[static_cast<size_t>(selector)];
  if (selector == 0 || chooses.host != scale ||
      format.components[static_cast<size_t>(scale)].type.hasSign())
    return {};
  for (int bit = 0; bit < chooses.type.bits(); ++bit) {
    bool isSign = true;
    for (int code = 0; code < 1 << chooses.type.bits(); ++code)
      isSign = isSign &&
               entry.chosen(selector, code ^ 1 << bit) == entry.chosen(selector, code).times(-1);
    if (isSign)
      return {selector, bit};
  }
  return {};
}

} // namespace

std::optional<DecodeSequence> remappedPairs(const dsl::Format &format, std::string_view mmaType,
                                            int log2Factor) {
  const dsl::Remap &remap = *format.element().remap;
  const dsl::ElementType type = format.element().type, operand = dsl::ElementType::get(mmaType);
  const RowNumber entry = entryOf(remap).times(std::ldexp(1.0, log2Factor));
  const int selector = entry.fewChoices(format);
  if (type.bits() != 4 || operand.bits() != 16 || selector == 0 || !entry.isOfTensor(format) ||
      !holdScaled(format, operand, log2Factor))
    return std::nullopt;
  std::vector<uint16_t> lanes;
  const int choices = 1 << format.components[static_cast<size_t>(selector)].type.bits();
  for (int choice = 0; choice < choices; ++choice) {
    const RowNumber own = entry.chosen(selector, choice);
    for (uint32_t code = 0; code < DecodeProgram::lanesOfTable; ++code) {
      double value = std::ldexp(type.decode(code), log2Factor);
      if (code == remap.code)
        value = own.isConstant() ? own.constant() : 0;
      else if (!exactIn(operand, value))
        return std::nullopt;
      lanes.push_back(static_cast<uint16_t>(operand.encode(value)));
    }
  }
  DecodeSequence sequence = pairSequence(std::move(lanes), entry);
  sequence.roundings = roundingsOf(remap, format, operand);
  sequence.log2Factor = log2Factor;
  return sequence;
}

void leaveSignsToScale(DecodeSequence &sequence, const dsl::Format &format, int scale) {
  constexpr int64_t tables = 4;
  if (sequence.program.tables() != tables)
    return;
  const ScaleSign sign = signOfScale(format, scale, sequence.params.front().number);
  if (sign.selector == 0)
    return;
  std::vector<uint16_t> lanes;
  for (uint32_t table = 0; table < tables / 2; ++table) {
    const auto own =
        sequence.program.lanes.begin() + sign.codeOfTable(table) * DecodeProgram::lanesOfTable;
    lanes.insert(lanes.end(), own, own + DecodeProgram::lanesOfTable);
  }
  sequence.program.lanes = std::move(lanes); // it reads two tables as it reads four
  sequence.scaleSign = sign;
}

std::optional<DecodeSequence> remappedOfOneSign(const dsl::Format &format, std::string_view mmaType,
                                                int scale) {
  const dsl::ElementType operand = dsl::ElementType::get(mmaType);
  const RowNumber entry = entryOf(*format.element().remap);
  const ScaleSign sign = signOfScale(format, scale, entry);
  if (sign.selector == 0)
    return std::nullopt;
  std::optional<DecodeSequence> result =
      operandBytesOfOneSign(format, operand, entry.negatedWhere(sign.selector, sign.bit));
  if (result)
    result->scaleSign = sign;
  return result;
}

std::optional<DecodeSequence> remappedDecode(const dsl::Format &format, std::string_view mmaType) {
  const dsl::Remap &remap = *format.element().remap;
  dsl::ElementType operand = dsl::ElementType::get(mmaType);
  if (std::optional<DecodeSequence> byBytes = remappedBytes(format, mmaType))
    return byBytes;
  if (std::optional<DecodeSequence> byTable = remappedTable(format, operand))
    return byTable;
  const RowNumber entry = entryOf(remap);
  for (auto way : {operandBytesOfOneSign, remappedOperandBytes})
    if (std::optional<DecodeSequence> byOperand = way(format, operand, entry))
      return byOperand;
  std::optional<DecodeSequence> base;
  if (operand.bits() == 16)
    base = extractElement(format.element().type, mmaType);
  if (!base || base->perRegister() != 2)
    return std::nullopt;
  DecodeSequence result = holdScaled(format, operand, base->log2Factor)
                              ? *std::move(base)
                              : restored(*std::move(base), mmaType);
  result.roundings = std::max(result.roundings, roundingsOf(remap, format, operand));
  Extension extension(result, mmaType);
  DecodeProgram &p = result.program;
  const uint32_t stored = result.stored(remap.code), code = stored | stored << 16;
  for (size_t r = 0; r < result.registers(); ++r) {
    // The codes in the halves of a register, all bits flipped that the code has: 0 is a match.
    std::optional<Operand> codes;
    for (size_t b = 0; b < result.bits[r][0].size(); ++b) {
      CodeBit low = result.bits[r][0][b], high = result.bits[r][1][b];
      if (low.word != high.word || high.bit != low.bit + 16)
        return std::nullopt;
      Operand word = DecodeProgram::word(low.word);
      int right = low.bit - static_cast<int>(b);
      auto distance = DecodeProgram::constant(static_cast<uint32_t>(std::abs(right)));
      if (right != 0)
        word = p.add(right > 0 ? Op::Shr : Op::Shl, word, distance);
      Operand mask = DecodeProgram::constant(0x00010001U << b);
      codes = codes ? p.add(Op::AndOr, word, mask, *codes) : p.add(Op::And, word, mask);
    }
    Operand differ = p.add(Op::Xor, *codes, DecodeProgram::constant(code));
    // 0x8000 less the difference has its top bit where there is none.
    Operand top = p.add(Op::Mad, differ, DecodeProgram::constant(UINT32_MAX),
                        DecodeProgram::constant(0x80008000));
    Operand match = p.add(Op::Prmt, top, top, DecodeProgram::constant(0xbb99));
    RowNumber own = entry.times(std::ldexp(1.0, result.log2Factor));
    p.setOutput(r, p.add(Op::Select, match, extension.number(own, r), p.outputAt(r)));
  }
  return result;
}

} // namespace rho::compiler
