#include "compiler/decode/Sequences.h"

#include "compiler/Layout.h"
#include "compiler/decode/Affine.h"
#include "compiler/decode/ElementCore.h"
#include "compiler/decode/Line.h"
#include "compiler/decode/Remap.h"
#include "compiler/decode/ScaleSequence.h"
#include "compiler/decode/Within.h"
#include "dsl/Evaluate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <tuple>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

// Integer expressions over an unsigned 4-bit element, four codes to a register, one in each byte.
// Sound because every intermediate value is shown to stay in 0..255, so that nothing carries into
// the next byte (LiquidGEMM, section 4 and equation 12, is the case this was built for).
class BytewiseBuilder {
public:
  BytewiseBuilder(const dsl::Format &format) : format(format) {}

  std::optional<DecodeSequence> build(const dsl::Expr &core) {
    if (format.element().type != dsl::ElementType::get("u4"))
      return std::nullopt;
    const dsl::Expr *expr = &core;
    if (expr->kind == dsl::Expr::Kind::Cast) {
      if (expr->type != dsl::ElementType::get("s8"))
        return std::nullopt;
      expr = expr->operands[0].get();
    } else if (!isWithin(*expr, format, 0, 127)) {
      return std::nullopt; // as s8 it would be read as negative
    }
    DecodeProgram &p = sequence.program;
    Operand low = p.add(Op::And, DecodeProgram::word(), constant(0x0f0f0f0f));
    Operand shifted = p.add(Op::Shr, DecodeProgram::word(), constant(4));
    Operand high = p.add(Op::And, shifted, constant(0x0f0f0f0f));
    for (int half = 0; half < 2; ++half) {
      rowHalf = half;
      codes = half == 0 ? low : high;
      std::optional<Operand> value = bytes(*expr);
      if (!value || value->kind != Operand::Kind::Temp)
        return std::nullopt;
      p.output(*value);
    }
    sequence.codes = 8;
    sequence.bits = bitsOfWholeCodes({{0, 2, 4, 6}, {1, 3, 5, 7}}, 4);
    return sequence;
  }

private:
  const dsl::Format &format;
  DecodeSequence sequence;
  int rowHalf = 0;
  Operand codes;

  Operand param(DecodeParam::Form form, int component) {
    return DecodeProgram::param(sequence.param({form, component, rowHalf, {}}));
  }

  bool isByteComponent(const dsl::Expr &expr) const {
    return expr.kind == dsl::Expr::Kind::Component && !isBareElement(expr) &&
           format.components[expr.component].type == dsl::ElementType::get("u8");
  }

  // A value that is the same for all four codes, as one number (for multiplying) ...
  std::optional<Operand> uniformNumber(const dsl::Expr &expr) {
    if (expr.kind == dsl::Expr::Kind::Integer && expr.integer >= 0 && expr.integer <= 255)
      return constant(static_cast<uint32_t>(expr.integer));
    if (isByteComponent(expr))
      return param(DecodeParam::Form::Byte, expr.component);
    return std::nullopt;
  }
  // ... or in every byte (for adding and for bitwise operations).
  std::optional<Operand> uniformBytes(const dsl::Expr &expr) {
    if (expr.kind == dsl::Expr::Kind::Integer && expr.integer >= 0 && expr.integer <= 255)
      return constant(everywhere(static_cast<uint32_t>(expr.integer), 8));
    if (isByteComponent(expr))
      return param(DecodeParam::Form::Bytes, expr.component);
    return std::nullopt;
  }

  // a * b with exactly one side uniform; the product is returned unemitted as (bytes, number).
  std::optional<std::pair<Operand, Operand>> product(const dsl::Expr &expr) {
    if (expr.kind != dsl::Expr::Kind::Binary || expr.op != dsl::Expr::Op::Mul)
      return std::nullopt;
    for (int side = 0; side < 2; ++side) {
      const dsl::Expr &varying = *expr.operands[side], &uniform = *expr.operands[1 - side];
      if (!isUniform(uniform))
        continue;
      std::optional<Operand> a = bytes(varying), b = uniformNumber(uniform);
      if (a && b)
        return std::pair(*a, *b);
    }
    return std::nullopt;
  }

  bool isUniform(const dsl::Expr &expr) const {
    return expr.kind == dsl::Expr::Kind::Integer ||
           (expr.kind == dsl::Expr::Kind::Component && !isBareElement(expr));
  }

  std::optional<Operand> bytes(const dsl::Expr &expr) {
    if (isBareElement(expr))
      return codes;
    if (expr.kind != dsl::Expr::Kind::Binary)
      return std::nullopt;
    // Sums and products must not carry; bitwise operations on bytes cannot.
    bool arithmetic = expr.op == dsl::Expr::Op::Mul || expr.op == dsl::Expr::Op::Add;
    if (arithmetic && !isWithin(expr, format, 0, 255))
      return std::nullopt;
    DecodeProgram &p = sequence.program;
    const dsl::Expr &left = *expr.operands[0], &right = *expr.operands[1];
    switch (expr.op) {
    case dsl::Expr::Op::Mul: {
      auto factors = product(expr);
      if (!factors)
        return std::nullopt;
      return p.add(Op::Mad, factors->first, factors->second, constant(0));
    }
    case dsl::Expr::Op::Add: {
      const dsl::Expr &varying = isUniform(left) ? right : left;
      std::optional<Operand> addend = uniformBytes(isUniform(left) ? left : right);
      if (!addend)
        return std::nullopt;
      if (auto factors = product(varying)) // the sum's bound covers the product's
        return p.add(Op::Mad, factors->first, factors->second, *addend);
      std::optional<Operand> value = bytes(varying);
      if (!value)
        return std::nullopt;
      return p.add(Op::Mad, *value, constant(1), *addend);
    }
    case dsl::Expr::Op::And:
    case dsl::Expr::Op::Or:
    case dsl::Expr::Op::Xor: {
      const dsl::Expr &varying = isUniform(left) ? right : left;
      std::optional<Operand> mask = uniformBytes(isUniform(left) ? left : right);
      std::optional<Operand> value = bytes(varying);
      if (!mask || !value)
        return std::nullopt;
      Op op = expr.op == dsl::Expr::Op::And  ? Op::And
              : expr.op == dsl::Expr::Op::Or ? Op::Or
                                             : Op::Xor;
      return p.add(op, *value, *mask);
    }
    default:
      return std::nullopt;
    }
  }
};

} // namespace

std::vector<CodePlane> planesOf(int codeBits, int sparseBits) {
  if (sparseBits > 0)
    return {{sparseBits, codeBits - sparseBits}, {0, sparseBits}};
  std::vector<CodePlane> planes;
  for (int shift = 0; shift < codeBits; shift += planes.back().bits)
    planes.push_back(
        {shift, static_cast<int>(std::bit_floor(static_cast<unsigned>(codeBits - shift)))});
  return planes;
}

std::vector<std::vector<std::vector<CodeBit>>>
bitsOfWholeCodes(const std::vector<std::vector<int>> &position, int codeBits) {
  std::vector<std::vector<std::vector<CodeBit>>> bits;
  for (const std::vector<int> &codes : position) {
    bits.emplace_back();
    for (int code : codes) {
      bits.back().emplace_back();
      for (int bit = 0; bit < codeBits; ++bit)
        bits.back().back().push_back({0, code * codeBits + bit});
    }
  }
  return bits;
}

static constexpr std::string_view formNames[] = {
    "byte",    "bytes", "places",      "multiplier",   "number",
    "choices", "pairs", "pairs_begin", "low_products", "high_products"};

std::string print(const ParameterForm &form) {
  return std::string(formNames[static_cast<size_t>(form.form)]) + "." +
         std::to_string(form.rowHalf) + (form.kHalf == 1 ? ".1" : "");
}

std::optional<ParameterForm> parseForm(std::string_view text) {
  const size_t dot = std::min(text.find('.'), text.size());
  const auto *name = std::find(std::begin(formNames), std::end(formNames), text.substr(0, dot));
  if (name == std::end(formNames))
    return std::nullopt;
  const auto form = static_cast<DecodeParam::Form>(name - std::begin(formNames));
  const std::string_view halves = text.substr(dot);
  for (auto [known, rowHalf, kHalf] :
       {std::tuple(".0", 0, 0), {".1", 1, 0}, {".0.1", 0, 1}, {".1.1", 1, 1}})
    if (halves == known)
      return ParameterForm{form, rowHalf, kHalf};
  return std::nullopt;
}

// The place of a bit among those of a plane's words, below 0 or too large where it lies in others.
static int placeIn(size_t plane, const std::vector<CodePlane> &planes, int codes, CodeBit at) {
  int first = 0;
  for (size_t before = 0; before < plane; ++before)
    first += codes * planes[before].bits;
  return at.word * 32 + at.bit - first;
}

bool DecodeSequence::isScattered() const {
  const std::vector<CodePlane> planes = planesOf(static_cast<int>(bits[0][0].size()), sparseBits);
  for (size_t plane = 0; plane < planes.size(); ++plane) {
    const int width = planes[plane].bits;
    auto placeOf = [&](size_t r, size_t s, int bit) {
      return placeIn(plane, planes, codes, bits[r][s].begin()[planes[plane].shift + bit]);
    };
    for (size_t r = 0; r < bits.size(); ++r)
      for (size_t s = 0; s < bits[r].size(); ++s) {
        // In one piece, at a place that the bits of r and s add up.
        int expected = placeOf(0, 0, 0);
        for (size_t bit = 1; bit < bits.size(); bit *= 2)
          expected ^= (r & bit) != 0 ? placeOf(bit, 0, 0) ^ placeOf(0, 0, 0) : 0;
        for (size_t bit = 1; bit < bits[r].size(); bit *= 2)
          expected ^= (s & bit) != 0 ? placeOf(0, bit, 0) ^ placeOf(0, 0, 0) : 0;
        if (expected % width != 0 || expected < 0 || expected >= codes * width)
          return true;
        for (int bit = 0; bit < width; ++bit)
          if (placeOf(r, s, bit) != expected + bit)
            return true;
      }
  }
  return false;
}

std::vector<uint8_t> DecodeSequence::unitBits(size_t plane) const {
  if (!isScattered())
    return {};
  const std::vector<CodePlane> planes = planesOf(static_cast<int>(bits[0][0].size()));
  const int held = codes * planes[plane].bits;
  std::vector<uint8_t> result(static_cast<size_t>(held));
  for (size_t r = 0; r < bits.size(); ++r)
    for (size_t s = 0; s < bits[r].size(); ++s)
      for (size_t b = 0; b < bits[r][s].size(); ++b)
        if (const int at = placeIn(plane, planes, codes, bits[r][s][b]); at >= 0 && at < held)
          result[static_cast<size_t>(at)] =
              static_cast<uint8_t>((r * perRegister() + s) * mostScatteredBits + b);
  return result;
}

int DecodeSequence::param(const DecodeParam &wanted) {
  const auto found = std::find(params.begin(), params.end(), wanted);
  const auto place = static_cast<int>(found - params.begin());
  if (found == params.end())
    params.push_back(wanted);
  program.params = static_cast<int>(params.size());
  return place;
}

void DecodeSequence::put(uint32_t code, size_t r, size_t s, std::vector<uint32_t> &words) const {
  const uint32_t own = stored(code);
  for (size_t b = 0; b < bits[r][s].size(); ++b) {
    const CodeBit at = bits[r][s][b];
    uint32_t &word = words[static_cast<size_t>(at.word)];
    word = (word & ~(1U << at.bit)) | (own >> b & 1) << at.bit;
  }
}

int DecodeSequence::position(size_t r, size_t s, size_t plane) const {
  if (isScattered())
    return static_cast<int>(r * perRegister() + s);
  std::vector<CodePlane> planes = planesOf(static_cast<int>(bits[r][s].size()), sparseBits);
  const CodeBit at = bits[r][s][static_cast<size_t>(planes[plane].shift)];
  return placeIn(plane, planes, codes, at) / planes[plane].bits;
}

std::string_view numberType(std::string_view mmaType) {
  return dsl::ElementType::get(mmaType).bits() == 16 ? mmaType : "f16";
}

bool exactIn(dsl::ElementType type, double value) {
  return std::isfinite(value) && type.decode(type.encode(value)) == value;
}

bool holdsAll(dsl::ElementType operand, dsl::ElementType type) {
  if (operand == type)
    return true;
  for (uint32_t code = 0; type.bits() <= 16 && code < 1U << type.bits(); ++code)
    if (double value = type.decode(code); std::isfinite(value) && !exactIn(operand, value))
      return false;
  return type.bits() <= 16;
}

int elementsPerRegister(std::string_view mmaType) {
  return 32 / dsl::ElementType::get(mmaType).bits();
}

std::optional<DecodeSequence> decodeSequence(const dsl::Format &format, const dsl::Expr &core,
                                             std::string_view mmaType, int leastLog2) {
  if (format.element().remap)
    return isBareElement(core) ? remappedDecode(format, mmaType)
                               : affineDecode(format, core, mmaType);
  if (std::optional<ElementCore> alone = elementCore(format, core)) {
    std::vector<DecodeSequence> best = elementSequences(*alone, mmaType, leastLog2, 1);
    if (!best.empty())
      return best[0];
    if (isBareElement(core))
      return std::nullopt;
  }
  std::optional<DecodeSequence> result;
  if (mmaType == "s8")
    result = BytewiseBuilder(format).build(core);
  return result ? result : affineDecode(format, core, mmaType);
}

std::vector<DecodeSequence> decodeSequences(const dsl::Format &format, const dsl::Expr &core,
                                            std::string_view mmaType) {
  std::vector<DecodeSequence> result;
  if (std::optional<ElementCore> alone = elementCore(format, core))
    result = elementSequences(*alone, mmaType, smallestUsefulLog2);
  if (result.empty())
    if (auto best = decodeSequence(format, core, mmaType))
      result.push_back(*std::move(best));
  return result;
}

std::optional<DecodeSequence> readingCodesOf(const DecodeSequence &owner, DecodeSequence reader) {
  std::set<std::vector<std::pair<int, int>>> places; // of whole codes
  auto placesOf = [](const std::vector<CodeBit> &code) {
    std::vector<std::pair<int, int>> bits;
    for (CodeBit at : code)
      bits.emplace_back(at.word, at.bit);
    return bits;
  };
  for (const auto &codes : owner.bits)
    for (const std::vector<CodeBit> &code : codes)
      places.insert(placesOf(code));
  if (reader.codes != owner.codes || reader.codeTable != owner.codeTable)
    return std::nullopt;
  for (const auto &codes : reader.bits)
    for (const std::vector<CodeBit> &code : codes)
      if (!places.contains(placesOf(code)))
        return std::nullopt;
  uint32_t renamed = reader.codeXor ^ owner.codeXor;
  if (renamed != 0) { // exclusive-or of each code, before all else
    std::vector<uint32_t> masks(static_cast<size_t>(reader.program.words()), 0);
    for (const auto &codes : reader.bits)
      for (const std::vector<CodeBit> &code : codes)
        for (size_t bit = 0; bit < code.size(); ++bit)
          masks[static_cast<size_t>(code[bit].word)] |= (renamed >> bit & 1) << code[bit].bit;
    reader.program = reader.program.ofWordsXor(masks);
    reader.codeXor = owner.codeXor;
  }
  return reader;
}

int leastScaledLog2(dsl::ElementType type, std::string_view mmaType) {
  if (type.bits() <= 8)
    return -1000; // any
  return mmaType == "f16" ? 0 : -8;
}

// Whether elements of code 0 are 0, and bytes of scales hold nothing else.
static bool hasOnlyAZero(const DecodeSequence &sequence, const dsl::Format &format, int component) {
  const std::vector<bool> allowed = dsl::allowedElements(format);
  if (!sequence.params.empty() || sequence.sparseBits > 0 || format.element().type.bits() > 8 ||
      !dsl::guestsOf(format, component).empty() || (!allowed.empty() && !allowed[0]))
    return false;
  std::vector<uint32_t> codes{0};
  for (size_t i = 1; i < format.components.size(); ++i)
    codes.push_back(format.components[i].type.encode(1));
  return dsl::evaluate(format, codes.data()) == 0;
}

std::optional<DecodeSequence> withScale(DecodeSequence sequence, const dsl::Format &format,
                                        int component, std::string_view mmaType) {
  if (dsl::ElementType::get(mmaType).bits() != 16)
    return std::nullopt;
  dsl::ElementType type = multiplierType(format, component);
  // A power of two that the decode left out may travel in the scale instead, as far as the
  // operand type's range allows; the epilogue restores the rest.
  if (sequence.log2Factor < 0) {
    if (sequence.log2Factor < leastScaledLog2(type, mmaType))
      sequence = restored(std::move(sequence), mmaType);
    else if (hasAllExponents(type, mmaType)) // of which only the most usual ones are taken
      sequence.scaleLog2 = std::max(0, smallestUsefulLog2 - sequence.log2Factor);
    else if (type.bits() <= 8)
      sequence.scaleLog2 = std::min(-sequence.log2Factor, scaleHeadroom(type, mmaType));
  }
  if (!scaleSequence(type, mmaType, sequence.scaleLog2) || format.components[component].shift != 0)
    return std::nullopt;
  if (hasOnlyAZero(sequence, format, component))
    if (std::optional<ScaleTable> table = scaleTable(type, mmaType, sequence.scaleLog2))
      sequence.scaleTable = *std::move(table);
  sequence.log2Factor += sequence.scaleLog2;
  if (dsl::unitBits(type) == 8) // whose multipliers take signs
    leaveSignsToScale(sequence, format, component);
  int base = static_cast<int>(sequence.params.size());
  bool halves =
      sequence.hasBothHalves() && isGroupOfHalf(kernelGroup(format.components[component].group));
  for (int kHalf = 0; kHalf < (halves ? 2 : 1); ++kHalf)
    for (int half = 0; half < 2; ++half)
      sequence.params.push_back({DecodeParam::Form::Multiplier, component, half, {}, kHalf});
  sequence.program.params = static_cast<int>(sequence.params.size());
  if (!halves && sequence.scaleLog2 == 0 &&
      scaleLine(sequence, {DecodeProgram::param(base), DecodeProgram::param(base + 1)},
                type.maxFinite(), type.significantBits(), mmaType))
    return sequence;
  DecodeProgram &p = sequence.program;
  for (size_t r = 0; r < p.outputs.size(); ++r) {
    Operand scale = DecodeProgram::param(base + static_cast<int>(halves ? r & 3 : r & 1));
    p.setOutput(r, p.times(mmaType, p.outputAt(r), scale));
  }
  return sequence;
}

DecodeSequence withoutScale(DecodeSequence sequence, std::string_view mmaType) {
  if (sequence.log2Factor < smallestKeptLog2)
    return restored(std::move(sequence), mmaType);
  return sequence;
}

DecodeSequence restored(DecodeSequence sequence, std::string_view mmaType) {
  constexpr int least = -14; // of f16 without subnormals
  const int most = std::ilogb(dsl::ElementType::get(mmaType).maxFinite());
  DecodeProgram &p = sequence.program;
  while (sequence.log2Factor != 0) { // powers of two beyond the type's range take several steps
    const int step = std::clamp(-sequence.log2Factor, least, most);
    const Operand power = DecodeProgram::number(mmaType, std::ldexp(1.0, step));
    for (size_t r = 0; r < p.outputs.size(); ++r)
      p.setOutput(r, p.times(mmaType, p.outputAt(r), power));
    sequence.log2Factor += step;
  }
  return sequence;
}

uint32_t ScaleSign::codeOfTable(uint32_t table) const {
  const uint32_t below = (1U << bit) - 1;
  return selector == 0 ? table : (table & ~below) << 1 | (table & below);
}

} // namespace rho::compiler
