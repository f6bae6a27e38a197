// The decode sequences that the compiler knows: from the core of a weight's value expression (the
// part that holds the element) to MMA operand registers, and from packed scales to operand
// multipliers. Every sequence is proved over all of its inputs in tests/compiler/DecodeTest.cpp.
#pragma once

#include "compiler/decode/DecodeProgram.h"
#include "compiler/decode/RowNumber.h"
#include "dsl/Format.h"

#include <optional>
#include <string>
#include <vector>

namespace rho::compiler {

// A kernel's groups are of a power of two of k: those of a weight, declared per k[48], of the
// largest that divides them, and each of these has a copy of the code (LayoutSection::unitK).
inline int64_t kernelGroup(int64_t declared) { return declared & -declared; }
// Whether the two halves of an instruction's k, for operands of 16 bits, have a group each.
inline bool isGroupOfHalf(int64_t group) { return group == 8; }

// What a parameter register of a decode holds, for the weight row of the output register.
struct DecodeParam {
  enum class Form : uint8_t {
    Byte,        // the code, zero-extended
    Bytes,       // the code in all four bytes
    Places,      // a permutation's: bytes 5 to 7 behind the one of bytes 0 to 3 that the code names
    Multiplier,  // the scale as an operand-type pair (s, s), from a scale sequence
    Number,      // `number` twice, rounded to numberType()
    Choices,     // the low bytes of the four of those that a selector chooses from
    Pairs,       // where in an entry this lane reads, of the table that `number`'s selector names
    PairsBegin,  // where tables of pairs begin; of no component
    LowProducts, // what productsSequence() makes of `number`
    HighProducts, //
  } form;
  int component; // index into the weight's components, but of numbers
  int rowHalf;   // 0: fragment rows 0..7, 1: rows 8..15
  RowNumber number =
      {};        // of forms Number, Choices and products; of Pairs what a code stands for, or none
  int kHalf = 0; // where a unit has both halves of an instruction's k, of two groups
  bool hasNumber() const {
    return form == Form::Number || form == Form::Choices || !number.terms.empty();
  }
  bool hasComponent() const {
    return !hasNumber() && form != Form::Pairs && form != Form::PairsBegin;
  }
  friend bool operator==(const DecodeParam &, const DecodeParam &) = default;
};

// How IR names the form of a parameter: "byte.0", "number.1.1" where kHalf is 1.
struct ParameterForm {
  DecodeParam::Form form;
  int rowHalf, kHalf;
};
std::string print(const ParameterForm &form);
std::optional<ParameterForm> parseForm(std::string_view text);

// What a Number is rounded to: operands of 16 bits, or f16 beside others.
std::string_view numberType(std::string_view mmaType);

// Where one bit of a code lies in the words of a unit.
struct CodeBit {
  int word, bit;
  friend bool operator==(const CodeBit &, const CodeBit &) = default;
};

// Bytes that stand for the codes of a scale, and differ, of which one bitwise operation makes
// multipliers: s * 2^log2Factor is `rest` with the byte above the low bits that s does not have. 0
// is no such number: elements that it multiplies have to be 0 themselves.
struct ScaleTable {
  std::vector<uint8_t> codes; // 256, by code; empty: scales are stored as they are
  uint32_t rest = 0;          // of a multiplier's 16 bits, above the byte
};

// Of groups whose selector has this bit packing negates the numbers of all codes, and the scale is
// negative where it is used: what a remapped code stands for then needs one sign only.
struct ScaleSign {
  int selector = 0; // component, in spare bits of the scale; 0: none
  int bit = 0;
  // The selector's code, without that bit, whose table of pairs this is.
  uint32_t codeOfTable(uint32_t table) const;
};

// A unit of packed codes -> operand registers. Register r of the unit belongs to fragment row half
// (r & 1), half (r >> 1 & 1) of an instruction's k, and instruction r / 4 along k; see the A
// fragment in the PTX ISA, section 9.7.14.5 (all of these shapes keep the same byte layout).
//
// Codes of 1, 2, 4 or 8 bits lie in words one after the other. Those of other widths are divided
// into planes of such widths, see planesOf(): the words of the first plane come first. Or their
// bits are scattered over the words, of which each plane has as many.
struct DecodeSequence {
  DecodeProgram program;
  std::vector<DecodeParam> params; // parameter registers, in order
  int codes = 0;                   // of a unit
  int sparseBits = 0;              // of a code, that lie in a plane of their own: see planesOf()
  // bits[r][s][b]: where bit b of the code of sub-element s of register r lies.
  std::vector<std::vector<std::vector<CodeBit>>> bits;
  int roundings = 0;     // of values, to the operand type
  int log2Factor = 0;    // registers hold value * 2^log2Factor
  bool opposite = false; // or the negative number
  int scaleLog2 = 0;     // multiplier parameters hold the scale * 2^scaleLog2
  ScaleTable scaleTable; // as which byte a scale's code is stored
  ScaleSign scaleSign;
  uint32_t codeXor = 0;           // applied to the codes when they are packed
  std::vector<uint8_t> codeTable; // instead: code c is stored as codeTable[c]; empty: not so
  uint32_t stored(uint32_t code) const {
    return codeTable.empty() ? code ^ codeXor : codeTable[code];
  }
  // The index of such a parameter, which is added if there is none.
  int param(const DecodeParam &wanted);
  // Puts a code where that of sub-element s of register r lies in the words of a unit.
  void put(uint32_t code, size_t r, size_t s, std::vector<uint32_t> &words) const;
  int instructions() const { return static_cast<int>(program.instructions.size()); }
  size_t registers() const { return bits.size(); }
  // Of an instruction's k. A unit of two registers lies in one.
  bool hasBothHalves() const { return registers() >= 4; }
  size_t perRegister() const { return bits[0].size(); }
  // Which code of plane `plane` of the unit (0 = least significant of its first word) is that of
  // sub-element s of register r; where bits of codes lie scattered, in order of registers.
  int position(size_t r, size_t s, size_t plane = 0) const;
  bool isScattered() const;
  // Of scattered codes: which of them, in order of registers, each bit of a plane's words belongs
  // to, and which of its bits it is, as LayoutSection::unitBits says. Empty: they are not
  // scattered.
  std::vector<uint8_t> unitBits(size_t plane = 0) const;
};

// A plane of bits of codes: `bits`, from bit `shift` on.
struct CodePlane {
  int shift, bits;
};
// The planes in which codes of so many bits are stored, low bits first, each of a power of two of
// bits, the largest that those left over have. `sparseBits` low bits that not all blocks have are
// the last plane, behind one plane of the others.
std::vector<CodePlane> planesOf(int codeBits, int sparseBits = 0);

// Whether a type holds a finite number.
bool exactIn(dsl::ElementType type, double value);
// Whether a type holds every finite number of another of up to 16 bits.
bool holdsAll(dsl::ElementType operand, dsl::ElementType type);

// Elements in a register of one MMA operand element type: "f16" and "bf16" 2, "e4m3" and "s8" 4,
// "s4" 8.
int elementsPerRegister(std::string_view mmaType);

// Bits of codes that lie whole in one word, sub-element by sub-element at `position`.
std::vector<std::vector<std::vector<CodeBit>>>
bitsOfWholeCodes(const std::vector<std::vector<int>> &position, int codeBits);

// A factor below the second would leave the range in which products with activations are exact. No
// decode aims at one below the first; numbers of a row may leave one there.
constexpr int smallestUsefulLog2 = -24, smallestKeptLog2 = -28;

// The sequence that decodes `core` (a subexpression of format.value that contains the element) to
// `mmaType`, or none: by search for a bare element, by range analysis for integer expressions on
// packed bytes. A factor below 2^leastLog2 is avoided at little cost.
std::optional<DecodeSequence> decodeSequence(const dsl::Format &format, const dsl::Expr &core,
                                             std::string_view mmaType,
                                             int leastLog2 = smallestUsefulLog2);

// That sequence and others, cheapest first, which may want codes in another order.
std::vector<DecodeSequence> decodeSequences(const dsl::Format &format, const dsl::Expr &core,
                                            std::string_view mmaType);

// `reader` for codes that are packed for `owner`. None where it reads bits that belong to different
// codes, or codes that are renamed otherwise.
std::optional<DecodeSequence> readingCodesOf(const DecodeSequence &owner, DecodeSequence reader);

// The leastLog2 for operands that a scale of `type` multiplies: scales of 8 bits carry any factor,
// others none that makes products inexact.
int leastScaledLog2(dsl::ElementType type, std::string_view mmaType);

// Multiplies every register by the scale of its row. `scale` must be exact as a multiplier of
// mmaType (see scaleSequence). None if the product could leave the type's range, and for types of
// fewer than 16 bits, which do not hold products.
std::optional<DecodeSequence> withScale(DecodeSequence sequence, const dsl::Format &format,
                                        int component, std::string_view mmaType);

// The sequence for use without an operand scale: a factor so small that products with activations
// would leave the exact range is multiplied back in.
DecodeSequence withoutScale(DecodeSequence sequence, std::string_view mmaType);

// The sequence with its power of two multiplied back in, of operands of 16 bits.
DecodeSequence restored(DecodeSequence sequence, std::string_view mmaType);

} // namespace rho::compiler
