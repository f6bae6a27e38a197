// Straight-line programs over 32-bit registers that turn packed words into MMA operand
// registers. A program is data: it is printed into the IR, run on the CPU over all of its inputs
// by tests, and emitted instruction by instruction by the decode pass.
#pragma once

#include "dsl/Error.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rho::compiler {

struct DecodeInstr {
  enum class Op : uint8_t {
    And,        // a & b
    Or,         // a | b
    Xor,        // a ^ b
    AndOr,      // (a & b) | c, one LOP3
    AndXor,     // (a & b) ^ c, one LOP3
    Select,     // (a & b) | (~a & c), one LOP3
    Shl,        // a << b
    Shr,        // a >> b, logical
    RotateLeft, // a rotated left by b
    Prmt,    // bytes of (b:a) selected by the nibbles of c; bit 3: eight times the byte's top bit
    Mad,     // a * b + c, low 32 bits
    MulF16,  // f16x2, rounded to nearest even
    AddF16,  // f16x2
    FmaF16,  // f16x2, one rounding
    FmaBF16, // bf16x2, subnormals kept; multiply and add are written with it (sm_80 has no others)
    ToE4M3,  // f16x2 to two e4m3 in the low half, rounded to nearest even, saturating (sm_89 on)
    Pair,    // what the program's tables of pairs have at byte a + b: see DecodeProgram::lanes
  };
  struct Operand {
    enum class Kind : uint8_t { None, Word, Param, Temp, Const } kind = Kind::None;
    uint32_t value = 0; // index, or the constant itself
    friend bool operator==(const Operand &, const Operand &) = default;
  };
  Op op;
  std::array<Operand, 3> operands;
  // a | 0: an output that is a word or a parameter as it is.
  bool isCopy() const;
  friend bool operator==(const DecodeInstr &, const DecodeInstr &) = default;
};

// Number of operands and the name of an operation.
int operandCount(DecodeInstr::Op op);
std::string_view name(DecodeInstr::Op op);

struct DecodeProgram {
  int params = 0; // parameter registers
  // 16 for each table of pairs, of which there are 1, 2 or 4; or none, also where they stand
  // elsewhere. A table has, for each byte of two codes, a register of two of its lanes, that of the
  // low code below. It lies in shared memory, where each lane of a warp reads copies in a bank of
  // its own. Entries are pairStride bytes apart, tables 0 and 1 in turns, 2 and 3 behind them: an
  // address has the bytes 4 * lane + pairBytes * (table % 2), two codes, and table / 2.
  std::vector<uint16_t> lanes = {};
  static constexpr int64_t lanesOfTable = 16;
  static constexpr uint32_t pairBytes = 128, pairStride = 2 * pairBytes,
                            tableStride = 256 * pairStride; // of two tables
  int64_t lookups() const;                                  // in them, instructions
  int64_t tables() const { return static_cast<int64_t>(lanes.size()) / lanesOfTable; }
  static int64_t tableBytes(int64_t tables) { return (tables + 1) / 2 * int64_t{tableStride}; }
  std::vector<DecodeInstr> instructions; // instruction i defines temp i
  std::vector<int> outputs;              // temps; output r is operand register r

  // Of the packed words that it reads, the last one's index plus 1.
  int words() const;
  // What makes `count` outputs from `first` on; parameters and words keep their places.
  DecodeProgram part(size_t first, size_t count) const;

  // The same program of words that are exclusive-or'ed with masks first.
  DecodeProgram ofWordsXor(const std::vector<uint32_t> &masks) const;

  // "params 2; t0 = and w0 0xf0f0f0f; ...; out t2 t5", with "; lanes 0xbf80 ..." behind the first
  std::string print() const;
  static Result<DecodeProgram> parse(std::string_view text);
  // Runs the program on the CPU. Its tables of pairs begin at address 0.
  std::vector<uint32_t> run(const std::vector<uint32_t> &words,
                            const std::vector<uint32_t> &params) const;

  // Building.
  using Operand = DecodeInstr::Operand;
  static Operand word(int index = 0) { return {Operand::Kind::Word, static_cast<uint32_t>(index)}; }
  static Operand param(int index) { return {Operand::Kind::Param, static_cast<uint32_t>(index)}; }
  static Operand constant(uint32_t value) { return {Operand::Kind::Const, value}; }
  // A number of type f16 or bf16 in both halves of a register.
  static Operand number(std::string_view type, double value);
  Operand add(DecodeInstr::Op op, Operand a, Operand b = {}, Operand c = {});
  // Of both halves of registers, numbers of type f16 or bf16, each with one rounding. x + y is
  // written x * 1 + y and x * y as x * y + -0 where an operation of its own is not there.
  Operand fma(std::string_view type, Operand x, Operand y, Operand z);
  Operand times(std::string_view type, Operand x, Operand y);
  Operand plus(std::string_view type, Operand x, Operand y);
  // Behind what is there, with the outputs behind its own; words and parameters are the same.
  void append(const DecodeProgram &other);
  // What no instruction has made yet, a word or a constant, takes one.
  void output(Operand value);
  Operand outputAt(size_t r) const {
    return {Operand::Kind::Temp, static_cast<uint32_t>(outputs[r])};
  }
  void setOutput(size_t r, Operand made) { outputs[r] = static_cast<int>(made.value); }

  friend bool operator==(const DecodeProgram &, const DecodeProgram &) = default;
};

// Short, for the sequences, which are full of them.
inline DecodeInstr::Operand constant(uint32_t value) { return DecodeProgram::constant(value); }

// A lane's bits in every lane of a register.
inline uint32_t everywhere(uint32_t lane, int laneBits) {
  uint32_t result = 0;
  for (int at = 0; at < 32; at += laneBits)
    result |= lane << at;
  return result;
}

} // namespace rho::compiler
