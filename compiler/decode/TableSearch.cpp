#include "compiler/decode/TableSearch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

// One byte of what the lanes hold, entry i for stored code i.
using Bytes = std::array<uint8_t, 16>;

bool isConstant(const Bytes &bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [&](uint8_t b) { return b == bytes[0]; });
}

uint8_t topBits(uint8_t byte) { return byte & 0x80 ? 0xff : 0; }

uint32_t fourOf(const uint8_t *table) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i)
    word |= static_cast<uint32_t>(table[i]) << (8 * i);
  return word;
}

// Prmt on a constant table of eight bytes.
Operand lookUp(DecodeProgram &program, const uint8_t *table, Operand selectors) {
  return program.add(Op::Prmt, constant(fourOf(table)), constant(fourOf(table + 4)), selectors);
}

// Eight codes to a word, four to a group: bits 0 to 2 of a code lie where a Prmt's selector has
// them, so that group 1 is the word shifted by 16.
class TableBuilder {
public:
  TableBuilder(const std::vector<uint32_t> &lanes, int laneBits)
      : lanes(lanes), planes(laneBits / 8) {}

  std::vector<TableDecode> run() {
    std::vector<TableDecode> result;
    for (auto construct : {&TableBuilder::bySign, &TableBuilder::byPairs, &TableBuilder::byMask})
      if (std::optional<TableDecode> found = (this->*construct)())
        result.push_back(*std::move(found));
    return result;
  }

  TableDecode withParameter(uint32_t code) {
    parameterCode = static_cast<int>(code);
    TableDecode result = *byMask();
    DecodeSequence &decode = result.sequence;
    decode.codeTable.clear(); // each code is stored as it is
    if (planes ==
        2) { // group g made registers 2 g and 2 g + 1; those of a row half are r and r + 2
      std::swap(decode.program.outputs[1], decode.program.outputs[2]);
      std::swap(decode.bits[1], decode.bits[2]);
    }
    decode.program.params = 2;
    return result;
  }

  std::optional<TableDecode> pairsWithParameter(uint32_t code) {
    parameterCode = static_cast<int>(code);
    std::optional<TableDecode> result = byPairs();
    if (result)
      result->sequence.program.params = 2;
    return result;
  }

  // The table of either half is silent for the other's codes, whose selectors have bit 3 set. Codes
  // are renamed so that `code` is 15, the first of the second table, whose entries stand in
  // reverse: its selectors are those of the first with all bits flipped, -1 less them.
  TableDecode bytesWithParameter(uint32_t code, bool chosen, ByteLine line,
                                 std::string_view mmaType) {
    const uint32_t renaming = code ^ 15;
    std::vector<int> codes(lanes.size());
    for (size_t stored = 0; stored < codes.size(); ++stored)
      codes[stored] = static_cast<int>(stored ^ renaming);
    begin(codes);
    sequence.codeTable.clear();
    sequence.codeXor = renaming;
    parameterIsChosen = chosen;
    DecodeProgram &p = sequence.program;
    p.params = chosen ? 4 : 2;
    dsl::ElementType type = dsl::ElementType::get(mmaType);
    // A byte under the exponent at which the last bit of the lane's mantissa is 1.
    double start = std::ldexp(1.0, type.mantissaBits());
    uint32_t exponent = type.encode(start) >> 8;
    const Bytes &stored = bytes[0];
    uint8_t second[8];
    std::reverse_copy(stored.begin() + 8, stored.end(), second);
    Operand low = DecodeProgram::word();
    std::vector<Operand> registers;
    for (int group = 0; group < 2; ++group) {
      if (group == 1)
        low = p.add(Op::Shr, low, constant(16));
      Operand high = flipped(low);
      Operand ofSecond = lookUpOwn(second, group, high);
      Operand numbers = p.add(Op::Mad, lookUp(p, stored.data(), low), constant(1), ofSecond);
      for (uint32_t selector : {0x4140U, 0x4342U}) {
        Operand lane =
            p.add(Op::Prmt, numbers, constant(exponent * 0x01010101U), constant(selector));
        registers.push_back(
            p.fma(mmaType, lane, DecodeProgram::number(mmaType, line.slope),
                  DecodeProgram::number(mmaType, line.offset - start * line.slope)));
      }
    }
    for (size_t r : {0, 2, 1, 3}) { // those of a row half are every second
      p.output(registers[r]);
      sequence.bits.emplace_back();
      for (int i = 0; i < 2; ++i) {
        int at = static_cast<int>(8 * r) + 4 * i;
        sequence.bits.back().push_back({{0, at}, {0, at + 1}, {0, at + 2}, {0, at + 3}});
      }
    }
    return {sequence, "two tables of 8, each silent for the other's codes"};
  }

private:
  const std::vector<uint32_t> &lanes;
  int planes; // bytes of a lane
  int parameterCode = -1;
  bool parameterIsChosen = false; // from four bytes of it
  DecodeSequence sequence;
  std::vector<Bytes> bytes; // by plane, then by stored code

  // Begins a sequence whose code `codes[i]` is stored as i.
  void begin(const std::vector<int> &codes) {
    sequence = {};
    sequence.codes = 8;
    sequence.codeTable.resize(codes.size());
    bytes.assign(static_cast<size_t>(planes), {});
    for (size_t i = 0; i < codes.size(); ++i) {
      sequence.codeTable[static_cast<size_t>(codes[i])] = static_cast<uint8_t>(i);
      for (int plane = 0; plane < planes; ++plane)
        bytes[static_cast<size_t>(plane)][i] =
            static_cast<uint8_t>(lanes[static_cast<size_t>(codes[i])] >> (8 * plane));
    }
  }

  // All bits, on another pipe than that of permutations.
  Operand flipped(Operand selectors) {
    return sequence.program.add(Op::Mad, selectors, constant(UINT32_MAX), constant(UINT32_MAX));
  }

  // Four of eight bytes, the first of which is the parameter's.
  Operand lookUpOwn(const uint8_t *table, int group, Operand selectors) {
    DecodeProgram &p = sequence.program;
    Operand places = parameterIsChosen ? DecodeProgram::param(2 + group) : constant(0x7650);
    Operand own = p.add(Op::Prmt, DecodeProgram::param(group), constant(fourOf(table)), places);
    return p.add(Op::Prmt, own, constant(fourOf(table + 4)), selectors);
  }

  // Ends it: `groups[g][plane]` holds the bytes of four codes. The codes' top bits lie where
  // `topBit` says.
  template <class TopBit>
  TableDecode finish(const std::vector<std::vector<Operand>> &groups, TopBit topBit,
                     std::string method) {
    DecodeProgram &p = sequence.program;
    for (int group = 0; group < 2; ++group) {
      const std::vector<Operand> &parts = groups[static_cast<size_t>(group)];
      if (planes == 1)
        p.output(parts[0]);
      else
        for (uint32_t selector : {0x5140u, 0x7362u})
          p.output(p.add(Op::Prmt, parts[0], parts[1], constant(selector)));
      int perRegister = 4 / planes;
      for (int i = 0; i < 4; ++i) {
        if (i % perRegister == 0)
          sequence.bits.emplace_back();
        int at = 16 * group + 4 * i;
        sequence.bits.back().push_back({{0, at}, {0, at + 1}, {0, at + 2}, {0, topBit(group, i)}});
      }
    }
    return {sequence, std::move(method)};
  }
  static int nextToThem(int group, int i) { return 16 * group + 4 * i + 3; }

  std::vector<Operand> constantPlanes() const {
    std::vector<Operand> result;
    for (const Bytes &plane : bytes)
      result.push_back(constant(plane[0] * 0x01010101u));
    return result;
  }

  // Magnitudes by one table, signs by themselves.
  std::optional<TableDecode> bySign() {
    uint32_t sign = 0x80u << (8 * (planes - 1));
    std::vector<int> codes(lanes.size(), -1);
    size_t magnitudes = 0;
    std::vector<bool> taken(lanes.size());
    for (size_t i = 0; i < lanes.size(); ++i)
      for (size_t j = 0; j < lanes.size(); ++j)
        if (!taken[i] && !taken[j] && lanes[i] < sign && lanes[j] == (lanes[i] | sign)) {
          taken[i] = taken[j] = true;
          codes[magnitudes] = static_cast<int>(i);
          codes[magnitudes + 8] = static_cast<int>(j);
          ++magnitudes;
        }
    if (magnitudes != 8)
      return std::nullopt;
    begin(codes);
    DecodeProgram &p = sequence.program;
    Operand index = p.add(Op::And, DecodeProgram::word(), constant(0x77777777));
    Operand signs = DecodeProgram::word();
    std::vector<std::vector<Operand>> groups;
    for (int group = 0; group < 2; ++group) {
      if (group == 1) {
        index = p.add(Op::Shr, index, constant(16));
        signs = p.add(Op::Shl, signs, constant(4));
      }
      groups.push_back(constantPlanes());
      for (int plane = 0; plane < planes; ++plane) {
        const Bytes &table = bytes[static_cast<size_t>(plane)];
        bool top = plane == planes - 1;
        Operand &part = groups.back()[static_cast<size_t>(plane)];
        if (!isConstant(table))
          part = lookUp(p, table.data(), index);
        if (top)
          part = p.add(Op::AndOr, signs, constant(0x80808080), part);
      }
    }
    // A byte's sign is its own top bit, or the bit four places lower.
    auto topBit = [](int group, int i) { return 8 * i + (group == 0 ? 7 : 3); };
    return finish(groups, topBit, "magnitudes from a table of 8, signs in place");
  }

  // A selector with bit 3 set repeats the top bit of the byte that the other three name. So the
  // tables A, read by the selectors, and B, read by the selectors with bit 3 flipped, give for a
  // code below 8 A[c] ^ top(B[c]) and for the others B[c - 8] ^ top(A[c - 8]). Both can be what is
  // wanted when the top bits of what codes c and c + 8 want are equal. B stands in reverse, its
  // selectors have all bits flipped.
  std::optional<TableDecode> byPairs() {
    std::optional<std::vector<int>> codes = pairsOfEqualTops();
    if (!codes)
      return std::nullopt;
    begin(*codes);
    DecodeProgram &p = sequence.program;
    Operand low = DecodeProgram::word();
    std::vector<std::vector<Operand>> groups;
    for (int group = 0; group < 2; ++group) {
      if (group == 1)
        low = p.add(Op::Shr, low, constant(16));
      Operand high = flipped(low);
      groups.push_back(constantPlanes());
      for (int plane = 0; plane < planes; ++plane) {
        const Bytes &wanted = bytes[static_cast<size_t>(plane)];
        if (isConstant(wanted))
          continue;
        uint8_t a[8], b[8];
        for (size_t i = 0; i < 8; ++i) { // top(A) = 0, so top(B) is the top bit that both want
          b[7 - i] = wanted[i + 8];
          a[i] = wanted[i] ^ topBits(wanted[i + 8]);
        }
        Operand first = lookUp(p, a, low);
        Operand second = parameterCode < 0 ? lookUp(p, b, high) : lookUpOwn(b, group, high);
        groups.back()[static_cast<size_t>(plane)] = p.add(Op::Xor, first, second);
      }
    }
    return finish(groups, nextToThem, "two tables of 8, each silent for the other's codes");
  }

  // Codes in an order in which those 8 apart want equal top bits, the parameter's last.
  std::optional<std::vector<int>> pairsOfEqualTops() const {
    std::map<uint32_t, std::vector<int>> byTopBits;
    const uint32_t tops = planes == 1 ? 0x80 : 0x8080;
    for (size_t code = 0; code < lanes.size(); ++code)
      byTopBits[lanes[code] & tops].push_back(static_cast<int>(code));
    std::vector<std::vector<int>> classes;
    for (auto &[key, members] : byTopBits) {
      if (members.size() % 2 != 0)
        return std::nullopt;
      classes.push_back(std::move(members));
    }
    auto isOwn = [&](int code) { return code == parameterCode; };
    for (std::vector<int> &members : classes)
      if (auto own = std::find_if(members.begin(), members.end(), isOwn); own != members.end()) {
        std::iter_swap(own, members.end() - 1);
        std::swap(members, classes.back());
      }
    std::vector<int> codes(lanes.size());
    size_t pair = 0;
    for (const std::vector<int> &members : classes)
      for (size_t i = 0; i < members.size() / 2; ++i, ++pair) {
        codes[pair] = members[i];
        codes[pair + 8] = members[i + members.size() / 2];
      }
    return codes;
  }

  // Two tables and a choice by the top bit, for any values.
  std::optional<TableDecode> byMask() {
    std::vector<int> codes(lanes.size());
    std::iota(codes.begin(), codes.end(), 0);
    begin(codes);
    DecodeProgram &p = sequence.program;
    Operand word = DecodeProgram::word();
    Operand index = p.add(Op::And, word, constant(0x77777777));
    // Bytes with the top bits of codes 0 2 4 6 and 1 3 5 7 on top.
    Operand even = p.add(Op::Shl, word, constant(4));
    std::vector<std::vector<Operand>> groups;
    for (int group = 0; group < 2; ++group) {
      if (group == 1)
        index = p.add(Op::Shr, index, constant(16));
      Operand mask = p.add(Op::Prmt, even, word, constant(group == 0 ? 0xd9c8 : 0xfbea));
      groups.push_back(constantPlanes());
      for (int plane = 0; plane < planes; ++plane) {
        if (parameterCode < 0 && isConstant(bytes[static_cast<size_t>(plane)]))
          continue;
        Operand low = halfTable(plane, 0, group, index);
        Operand high = halfTable(plane, 8, group, index);
        bool masked = low == constant(0);
        groups.back()[static_cast<size_t>(plane)] =
            masked ? p.add(Op::And, mask, high) : p.add(Op::Select, mask, high, low);
      }
    }
    return finish(groups, nextToThem, "two tables of 8 and a choice");
  }

  // Four bytes of a plane from the eight codes from `first` on.
  Operand halfTable(int plane, size_t first, int group, Operand index) {
    DecodeProgram &p = sequence.program;
    const uint8_t *table = bytes[static_cast<size_t>(plane)].data() + first;
    int at = parameterCode - static_cast<int>(first); // of the parameter's byte
    if (parameterCode < 0 || at < 0 || at >= 8) {
      bool same = std::all_of(table, table + 8, [&](uint8_t b) { return b == table[0]; });
      return same ? constant(table[0] * 0x01010101u) : lookUp(p, table, index);
    }
    Operand words[2];
    for (size_t word = 0; word < 2; ++word) {
      uint32_t known = fourOf(table + 4 * word);
      words[word] = constant(known);
      if (static_cast<size_t>(at) / 4 != word)
        continue;
      int shift = 4 * (at % 4);
      uint32_t selector = (0x7654U & ~(0xfU << shift)) | static_cast<uint32_t>(plane) << shift;
      // A permutation takes a constant in its second place.
      words[word] =
          p.add(Op::Prmt, DecodeProgram::param(group), constant(known), constant(selector));
    }
    return p.add(Op::Prmt, words[0], words[1], index);
  }
};

} // namespace

TableDecode tableWithParameter(const std::vector<uint32_t> &lanes, int laneBits, uint32_t code) {
  return TableBuilder(lanes, laneBits).withParameter(code);
}

std::optional<TableDecode> pairsWithParameter(const std::vector<uint32_t> &lanes, uint32_t code,
                                              bool top) {
  std::vector<uint32_t> known = lanes;
  known[code] = top ? 0x80 : 0;
  return TableBuilder(known, 8).pairsWithParameter(code);
}

TableDecode bytesWithParameter(const std::vector<uint32_t> &bytes, uint32_t code, bool chosen,
                               ByteLine line, std::string_view mmaType) {
  return TableBuilder(bytes, 8).bytesWithParameter(code, chosen, line, mmaType);
}

DecodeProgram tablePlacesSequence(int bits, int storedBits, int shift, int codes) {
  DecodeProgram p;
  p.params = 1;
  const int inTurns = std::countr_zero(DecodeProgram::pairBytes); // of addresses
  const bool inBytes = storedBits == 8;
  // Bit `from` of the word as bit `to`, under others.
  auto moved = [&](int from, int to) {
    const auto distance = constant(static_cast<uint32_t>(std::abs(from - to)));
    return from == to ? DecodeProgram::word()
                      : p.add(from > to ? Op::Shr : Op::Shl, DecodeProgram::word(), distance);
  };
  auto lowOf = [&](int at, uint32_t bytes) {
    return p.add(Op::AndOr, moved(at, inTurns), constant(bytes << inTurns),
                 DecodeProgram::param(0));
  };
  auto highOf = [&](int at, uint32_t bytes) {
    return bits == 1 ? constant(0) : p.add(Op::And, moved(at + 1, 0), constant(bytes));
  };
  constexpr uint32_t eachByte = 0x01010101;
  Operand low, high;
  if (inBytes) { // all of them at once
    low = lowOf(shift, eachByte);
    high = highOf(shift, eachByte);
  }
  for (int code = 0; code < codes; ++code) {
    if (!inBytes) {
      low = lowOf(code * storedBits + shift, 1);
      high = highOf(code * storedBits + shift, 1);
    }
    // The highest byte is the sign of the one before it, which is 0 or 1.
    const auto byte = static_cast<uint32_t>(inBytes ? code : 0);
    p.output(p.add(Op::Prmt, low, high, constant(0xc400 | byte * 0x1111)));
  }
  return p;
}

DecodeProgram placesSequence(int bits, int storedBits, int shift, int codes) {
  DecodeProgram p;
  const uint32_t mask = (1U << bits) - 1, own = 0x50, others = 0x76; // the selectors, a byte each
  const bool inBytes = storedBits == 8;
  Operand moved = DecodeProgram::word();
  if (inBytes) { // all of them at once
    if (shift != 0)
      moved = p.add(Op::Shr, moved, constant(static_cast<uint32_t>(shift)));
    moved = p.add(Op::AndOr, moved, constant(mask * 0x01010101U), constant(own * 0x01010101U));
  }
  for (int code = 0; code < codes; ++code) {
    const auto at = static_cast<uint32_t>(code * storedBits + shift);
    if (inBytes) {
      Operand selector = constant(0x4440U | static_cast<uint32_t>(code));
      p.output(p.add(Op::Prmt, moved, constant(others), selector));
      continue;
    }
    Operand low = at == 0 ? moved : p.add(Op::Shr, moved, constant(at));
    p.output(p.add(Op::AndOr, low, constant(mask), constant(others << 8 | own)));
  }
  return p;
}

namespace {

// Of 4 values: codes come to where selectors have them by shifts of the whole word.
TableDecode fourBytes(const std::vector<uint32_t> &lanes) {
  TableDecode result{{}, "a table of 4"};
  DecodeSequence &sequence = result.sequence;
  DecodeProgram &p = sequence.program;
  sequence.codes = 16;
  sequence.codeTable = {0, 1, 2, 3};
  uint32_t table = lanes[0] | lanes[1] << 8 | lanes[2] << 16 | lanes[3] << 24;
  for (int place : {0, 2}) { // of a code in its four bits
    Operand selectors = DecodeProgram::word();
    if (place != 0)
      selectors = p.add(Op::Shr, selectors, constant(2));
    selectors = p.add(Op::And, selectors, constant(0x33333333));
    for (int half = 0; half < 2; ++half) {
      if (half == 1)
        selectors = p.add(Op::Shr, selectors, constant(16));
      p.output(p.add(Op::Prmt, constant(table), constant(table), selectors));
      sequence.bits.emplace_back();
      for (int i = 0; i < 4; ++i) {
        int at = 16 * half + 4 * i + place;
        sequence.bits.back().push_back({{0, at}, {0, at + 1}});
      }
    }
  }
  return result;
}

} // namespace

std::vector<TableDecode> tableDecodes(const std::vector<uint32_t> &lanes, int laneBits) {
  if (lanes.size() == 4 && laneBits == 8)
    return {fourBytes(lanes)};
  if (lanes.size() != 16 || (laneBits != 8 && laneBits != 16))
    return {};
  return TableBuilder(lanes, laneBits).run();
}

} // namespace rho::compiler
