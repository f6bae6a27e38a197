// Decodes of any element: codes are taken apart into lanes, one to a byte or half of a register,
// and become numbers there by their bits, by an offset or by a table.
#include "compiler/decode/Extract.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

uint32_t lowBits(int count) { return count >= 32 ? UINT32_MAX : (1U << count) - 1; }

// Bits [from, from + count) of a code, to be put at bit `to` of its lane.
struct Field {
  int from, count, to;
};

// Takes codes out of the words of a unit. A group is the codes of one register of lanes. Code bits
// of a plane lie in lanes of the words themselves, groups beside each other, so that one shift and
// one mask take a plane's bits of a group.
class Extractor {
public:
  Extractor(DecodeProgram &program, int codeBits, int laneBits, int sparseBits = 0)
      : program(program), laneBits(laneBits), planes(planesOf(codeBits, sparseBits)),
        smallestPlane(std::min(planes.front().bits, planes.back().bits)) {}

  int codes() const { return 32 / smallestPlane; }
  int groups() const { return codes() * laneBits / 32; }

  // The fields of a group's codes in their lanes, over the bits of `rest`.
  Operand fields(int group, const std::vector<Field> &wanted, uint32_t rest = 0) {
    // Bits that one shift brings to their places share it.
    std::map<std::pair<int, int>, uint32_t> masks; // by word and shift to the right
    for (const Field &field : wanted) {
      int word = 0; // of the plane
      for (auto [shift, plane] : planes) {
        int perWord = laneBits / plane;
        int low = std::max(field.from, shift),
            high = std::min(field.from + field.count, shift + plane);
        if (low < high) {
          int at = inLane(group, plane) + low - shift;
          int to = field.to + low - field.from;
          masks[{word + group / perWord, at - to}] |= lowBits(high - low) << to;
        }
        word += codes() * plane / 32;
      }
    }
    std::optional<Operand> result;
    if (masks.size() == 2 && rest == 0) { // two planes that fill the lanes
      const auto &[one, mask] = *masks.begin();
      const auto &[other, otherMask] = *masks.rbegin();
      if ((mask ^ otherMask) == lowBits(laneBits)) {
        Operand bits = shifted(one.first, one.second), others = shifted(other.first, other.second);
        return program.add(Op::Select, constant(everywhere(mask, laneBits)), bits, others);
      }
    }
    for (const auto &[source, mask] : masks) {
      Operand bits = shifted(source.first, source.second);
      Operand lanes = constant(everywhere(mask, laneBits));
      if (result)
        result = program.add(Op::AndOr, bits, lanes, *result);
      else if (rest != 0)
        result = program.add(Op::AndOr, bits, lanes, constant(everywhere(rest, laneBits)));
      else
        result = program.add(Op::And, bits, lanes);
    }
    return *result;
  }

  // Word of the group in which bit `bit` of the codes is bit `to` of their lanes, beside others.
  Operand raw(int group, int bit, int to) {
    int word = 0;
    for (auto [shift, plane] : planes) {
      if (bit >= shift && bit < shift + plane) {
        int perWord = laneBits / plane;
        return shifted(word + group / perWord, inLane(group, plane) + bit - shift - to);
      }
      word += codes() * plane / 32;
    }
    return {};
  }

  // Where the bits of the code in lane `lane` of a group lie.
  std::vector<CodeBit> place(int group, int lane) const {
    std::vector<CodeBit> result;
    int word = 0;
    for (auto [shift, plane] : planes) {
      int perWord = laneBits / plane;
      auto first = static_cast<size_t>(shift), count = static_cast<size_t>(plane);
      result.resize(std::max(result.size(), first + count));
      int at = laneBits * lane + inLane(group, plane);
      for (size_t bit = 0; bit < count; ++bit)
        result[first + bit] = {word + group / perWord, at + static_cast<int>(bit)};
      word += codes() * plane / 32;
    }
    return result;
  }

private:
  DecodeProgram &program;
  int laneBits;
  std::vector<CodePlane> planes;
  int smallestPlane;
  std::map<std::pair<int, int>, Operand> known;

  // The lowest bit of a group in the lanes of a plane's word.
  int inLane(int group, int plane) const { return group % (laneBits / plane) * plane; }

  Operand shifted(int word, int right) {
    if (right == 0)
      return DecodeProgram::word(word);
    auto [entry, isNew] = known.try_emplace({word, right});
    if (isNew)
      entry->second = program.add(right > 0 ? Op::Shr : Op::Shl, DecodeProgram::word(word),
                                  constant(static_cast<uint32_t>(std::abs(right))));
    return entry->second;
  }
};

// A decode in the making: which codes stand where, and what is common to all constructions.
class Decoder {
public:
  Decoder(dsl::ElementType type, std::string_view mmaType, int sparseBits = 0)
      : type(type), mma(dsl::ElementType::get(mmaType)), bits(type.bits()) {
    result.sparseBits = sparseBits;
  }

  std::optional<DecodeSequence> decode() {
    if (bits > 8 || bits < 2)
      return std::nullopt;
    bool fits = type.isInteger() ? integers() : type.isFloat() && placement();
    if (!fits && !table())
      return std::nullopt;
    return std::move(result);
  }

  // Integers of which some blocks have the low bits: without tables.
  std::optional<DecodeSequence> refined() {
    if (bits > 8 || type.kind() != dsl::ElementType::Kind::Signed ||
        !(isHalf() && bits == 8 ? halvesOfBytes() : integers()))
      return std::nullopt;
    return std::move(result);
  }

  DecodeSequence bytes() {
    Extractor extractor(p, bits, 8);
    for (int group = 0; group < extractor.groups(); ++group)
      p.output(extractor.fields(group, {{0, bits, 0}}));
    lanesAreRegisters(extractor);
    result.codeXor = type.kind() == dsl::ElementType::Kind::Signed ? offsetBinary() : 0;
    return std::move(result);
  }

private:
  dsl::ElementType type, mma;
  int bits;
  DecodeSequence result;
  DecodeProgram &p = result.program;

  bool isHalf() const { return mma.bits() == 16; }
  uint32_t offsetBinary() const { return 1U << (bits - 1); }
  uint32_t both(double value) const { return everywhere(mma.encode(value), 16); }

  // One register for each group of lanes as wide as the operand's elements.
  void lanesAreRegisters(const Extractor &extractor) {
    result.codes = extractor.codes();
    result.bits.clear();
    for (int group = 0; group < extractor.groups(); ++group) {
      result.bits.emplace_back();
      for (int lane = 0; lane < 32 / mma.bits(); ++lane)
        result.bits.back().push_back(extractor.place(group, lane));
    }
  }

  Operand plus(Operand x, double addend) { return p.plus(mma.name(), x, constant(both(addend))); }

  // Integers by an offset. Signed codes are stored in offset binary.
  bool integers() {
    bool isSigned = type.kind() == dsl::ElementType::Kind::Signed;
    if (mma.isInteger())
      return isSigned || bits < mma.bits() ? integerLanes(isSigned) : false;
    if (!isHalf())
      return false;
    Extractor extractor(p, bits, 16, result.sparseBits);
    double bias = isSigned ? offsetBinary() : 0;
    // The bits of 2^m with a small number u in its lowest mantissa bits are the number 2^m + u.
    double magic = std::ldexp(1.0, mma.mantissaBits());
    for (int group = 0; group < extractor.groups(); ++group) {
      auto number = [&](int from, int count) {
        return extractor.fields(group, {{from, count, 0}}, mma.encode(magic));
      };
      if (bits <= mma.mantissaBits()) {
        p.output(plus(number(0, bits), -magic - bias));
        continue;
      }
      constexpr int half = 4; // 8 bits in bf16: a multiple of 16 and the rest
      Operand high = plus(number(half, bits - half), -magic - bias / (1 << half));
      p.output(p.fma(mma.name(), high, constant(both(1 << half)), plus(number(0, half), -magic)));
    }
    lanesAreRegisters(extractor);
    result.codeXor = isSigned ? offsetBinary() : 0;
    return true;
  }

  // Bytes in offset binary become the lowest bits of numbers, a pair of them by one Prmt: of f16
  // between 2^m and 2^(m+1) whose last bit is 2^-sparseBits, and of bf16, which has no room for 8
  // bits there, of the smallest, which are multiplied.
  bool halvesOfBytes() {
    Extractor extractor(p, bits, 8, result.sparseBits);
    const bool isSmallest = bits > mma.mantissaBits();
    const double magic = std::ldexp(1.0, mma.mantissaBits() - result.sparseBits);
    constexpr int factor = 127;
    result.log2Factor =
        isSmallest ? factor + mma.leastExponent() - mma.mantissaBits() : -result.sparseBits;
    const double bias = std::ldexp(offsetBinary(), result.log2Factor);
    for (int group = 0; group < extractor.groups(); ++group) {
      Operand bytes = extractor.fields(group, {{0, bits, 0}});
      for (int half = 0; half < 2; ++half) {
        Operand top = constant(isSmallest ? 0 : mma.encode(magic) >> 8);
        Operand number = p.add(Op::Prmt, bytes, top, constant(half == 0 ? 0x4140 : 0x4342));
        p.output(isSmallest ? p.fma(mma.name(), number, constant(both(std::ldexp(1.0, factor))),
                                    constant(both(-bias)))
                            : plus(number, -magic - bias));
        result.bits.emplace_back();
        for (int lane = 0; lane < 2; ++lane)
          result.bits.back().push_back(extractor.place(group, 2 * half + lane));
      }
    }
    result.codes = extractor.codes();
    result.codeXor = offsetBinary();
    return true;
  }

  // Signed codes as the top bits of lanes, times a power of two: what is below is zero.
  bool integerLanes(bool isSigned) {
    int laneBits = mma.bits(), to = isSigned ? laneBits - bits : 0;
    if (bits > laneBits)
      return false;
    Extractor extractor(p, bits, laneBits, result.sparseBits);
    for (int group = 0; group < extractor.groups(); ++group)
      p.output(extractor.fields(group, {{0, bits, to}}));
    lanesAreRegisters(extractor);
    result.log2Factor = to;
    return true;
  }

  // Exponent and mantissa under the operand's wider exponent: the number times a power of two,
  // subnormals too.
  bool placement() {
    int exponent = type.exponentBits(), mantissa = type.mantissaBits();
    if (mma.isInteger() || exponent > mma.exponentBits() || mantissa > mma.mantissaBits() ||
        type.name() == "e8m0")
      return false;
    int log2Factor = (1 << (exponent - 1)) - (1 << (mma.exponentBits() - 1));
    if (std::ldexp(type.maxFinite(), log2Factor) > mma.maxFinite())
      return false;
    Extractor extractor(p, bits, mma.bits());
    int to = mma.mantissaBits() - mantissa;
    for (int group = 0; group < extractor.groups(); ++group) {
      std::vector<Field> fields{{0, exponent + mantissa, to}};
      if (type.hasSign())
        fields.push_back({bits - 1, 1, mma.bits() - 1});
      p.output(extractor.fields(group, fields));
    }
    lanesAreRegisters(extractor);
    result.log2Factor = log2Factor;
    return true;
  }

  // --- Tables. One Prmt takes four of 8 bytes by the low 3 bits of four codes, which stand in
  // nibbles; further bits choose among such results by masks of bytes.

  // The power of two nearest to 1 at which all numbers are exact operands.
  std::optional<int> exactFactor() const {
    constexpr int farthest = 8;
    auto isExact = [&](int log2) {
      for (int code = 0; code < 1 << bits; ++code) {
        double value = std::ldexp(type.decode(static_cast<uint32_t>(code)), log2);
        if (std::isfinite(value) && mma.decode(mma.encode(value)) != value)
          return false;
      }
      return true;
    };
    for (int distance = 0; distance <= farthest; ++distance)
      for (int log2 : {distance, -distance})
        if (isExact(log2))
          return log2;
    return std::nullopt;
  }

  // The power of two nearest to 1 at which no number leaves the normal ones, whose roundoff is
  // relative.
  std::optional<int> normalFactor() const {
    double least = HUGE_VAL, most = 0;
    for (int code = 0; code < 1 << bits; ++code) {
      double value = std::abs(type.decode(static_cast<uint32_t>(code)));
      if (value == 0 || !std::isfinite(value))
        continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
    const int lowest = mma.leastExponent();
    int log2 = std::max(0, lowest - std::ilogb(least));
    if (log2 == 0)
      while (std::ldexp(most, log2) > mma.maxFinite())
        --log2;
    const bool fits =
        std::ldexp(most, log2) <= mma.maxFinite() && std::ilogb(least) + log2 >= lowest;
    return fits ? std::optional(log2) : std::nullopt;
  }

  bool table() {
    std::optional<int> exact = exactFactor();
    if (mma.bits() < 8 || (!exact && !isHalf()))
      return false;
    std::optional<int> factor = exact ? exact : normalFactor();
    if (!factor)
      return false;
    result.log2Factor = *factor;
    result.roundings = exact ? 0 : 1;
    std::vector<uint32_t> codes;
    for (int code = 0; code < 1 << bits; ++code) {
      double value = std::ldexp(type.decode(static_cast<uint32_t>(code)), result.log2Factor);
      if (std::isfinite(value) && std::abs(value) > mma.maxFinite())
        return false;
      codes.push_back(std::isfinite(value) ? mma.encode(value) : 0);
    }
    if (bits == 8)
      return byteTable(codes);
    Extractor extractor(p, bits, 4);
    for (int group = 0; group < extractor.groups(); ++group) {
      // 8 codes of up to 3 bits below a 0.
      Operand index =
          bits < 4 ? extractor.fields(group, {{0, bits, 0}}) : extractor.fields(group, {{0, 3, 0}});
      std::vector<Operand> tops, evens; // of further bits, at the tops of odd and even nibbles
      for (int bit = 3; bit < bits; ++bit) {
        tops.push_back(extractor.raw(group, bit, 3));
        evens.push_back(p.add(Op::Shl, tops.back(), constant(4)));
      }
      for (int half = 0; half < 2; ++half) {
        if (half == 1)
          index = p.add(Op::Shr, index, constant(16));
        std::vector<Operand> masks;
        for (size_t bit = 0; bit < tops.size(); ++bit)
          masks.push_back(
              p.add(Op::Prmt, evens[bit], tops[bit], constant(half == 0 ? 0xd9c8 : 0xfbea)));
        lookUp(codes, index, masks);
      }
    }
    describeTable(extractor, 2);
    return true;
  }

  // Codes of 8 bits lie in bytes: the low bits of four are brought together in nibbles.
  bool byteTable(const std::vector<uint32_t> &codes) {
    Extractor extractor(p, bits, 8);
    Operand word = DecodeProgram::word();
    Operand low = p.add(Op::And, word, constant(0x07070707));
    Operand pairs = p.add(Op::Or, low, p.add(Op::Shr, low, constant(4)));
    Operand index = p.add(Op::Prmt, pairs, pairs, constant(0x2020));
    std::vector<Operand> masks;
    for (int bit = 3; bit < bits; ++bit) {
      Operand top = extractor.raw(0, bit, 7);
      masks.push_back(p.add(Op::Prmt, top, top, constant(0xba98)));
    }
    lookUp(codes, index, masks);
    describeTable(extractor, 1);
    return true;
  }

  // The numbers of four codes as registers.
  void lookUp(const std::vector<uint32_t> &codes, Operand index,
              const std::vector<Operand> &masks) {
    auto bytesAt = [&](int shift) {
      std::vector<uint8_t> bytes;
      for (uint32_t code : codes)
        bytes.push_back(static_cast<uint8_t>(code >> shift));
      while (bytes.size() < 8)
        bytes.push_back(0);
      return bytes;
    };
    Operand low = select(bytesAt(0), index, masks, masks.size());
    if (!isHalf())
      return p.output(low);
    Operand high = select(bytesAt(8), index, masks, masks.size());
    p.output(p.add(Op::Prmt, low, high, constant(0x5140)));
    p.output(p.add(Op::Prmt, low, high, constant(0x7362)));
  }

  // Of a table of 8 << depth bytes, those of four codes.
  Operand select(const std::vector<uint8_t> &bytes, Operand index,
                 const std::vector<Operand> &masks, size_t depth) {
    bool same = std::all_of(bytes.begin(), bytes.end(), [&](uint8_t b) { return b == bytes[0]; });
    if (same)
      return constant(everywhere(bytes[0], 8));
    if (depth == 0) {
      uint32_t words[2] = {0, 0};
      for (size_t i = 0; i < 8; ++i)
        words[i / 4] |= static_cast<uint32_t>(bytes[i]) << (8 * (i % 4));
      return p.add(Op::Prmt, constant(words[0]), constant(words[1]), index);
    }
    auto middle = bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2);
    std::vector<uint8_t> lower(bytes.begin(), middle), upper(middle, bytes.end());
    if (lower == upper)
      return select(lower, index, masks, depth - 1);
    Operand whenSet = select(upper, index, masks, depth - 1);
    Operand otherwise = select(lower, index, masks, depth - 1);
    return p.add(Op::Select, masks[depth - 1], whenSet, otherwise);
  }

  // Registers hold the codes of each group in order, `quartets` times four.
  void describeTable(const Extractor &extractor, int quartets) {
    result.codes = extractor.codes();
    int perRegister = 32 / mma.bits();
    for (int group = 0; group < extractor.groups(); ++group)
      for (int lane = 0; lane < 4 * quartets; lane += perRegister) {
        result.bits.emplace_back();
        for (int s = 0; s < perRegister; ++s)
          result.bits.back().push_back(extractor.place(group, lane + s));
      }
  }
};

} // namespace

std::optional<DecodeSequence> extractRefined(dsl::ElementType type, std::string_view mmaType,
                                             int sparseBits) {
  return Decoder(type, mmaType, sparseBits).refined();
}

DecodeSequence extractBytes(dsl::ElementType type) { return Decoder(type, "s8").bytes(); }

std::optional<DecodeSequence> extractElement(dsl::ElementType type, std::string_view mmaType) {
  return Decoder(type, mmaType).decode();
}

} // namespace rho::compiler
