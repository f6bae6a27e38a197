// How the operand registers of a unit are taken out of its packed word: which register's codes lie
// where in the word, and which instructions bring them to their places.
#pragma once

#include "compiler/decode/LaneForms.h"
#include "compiler/decode/Throughput.h"

#include <optional>
#include <vector>

namespace rho::compiler {

constexpr int wordBits = 32;

// How the bits of the word come to a register.
struct Move {
  enum class Kind : uint8_t { None, Left, Right, Rotate } kind = Kind::None;
  int amount = 0;
  friend auto operator<=>(const Move &, const Move &) = default;
};

// One register: some of its form's places by one move, others by another. In the same place of
// every lane, so that masks of one lane say all.
struct Extraction {
  enum class Kind : uint8_t {
    Moved,    // each piece moved and masked
    Multiply, // the pieces masked, moved by one multiplication with a sum of powers, masked again
    Bytes,    // whole bytes, by one permutation that also brings the constant
    Weighted, // the second piece, one bit, times a number and added to the first
  } kind = Kind::Moved;
  struct Piece {
    uint32_t places = 0; // of the lane
    Move move;
  };
  std::vector<Piece> pieces;
  uint32_t used = 0; // bits of each lane of the word
};

// Cycles of a warp, see Throughput.h, then instructions; the arithmetic included.
struct WordCost {
  int cycles = 0, instructions = 0;
  friend auto operator<=>(const WordCost &, const WordCost &) = default;
};

struct WordPlan {
  struct Register {
    LaneForm form;
    Extraction extraction;
  };
  std::vector<Register> registers;
  WordCost cost;
};

// The cheapest plan for `registers` registers with lanes of `laneBits` bits, each by one of
// `forms`, that together use every bit of the word; `extra[i]` is the arithmetic of form i. None
// where no plan that costs less than `bound` uses them all.
std::optional<WordPlan> searchWord(const std::vector<LaneForm> &forms,
                                   const std::vector<OpCounts> &extra, int registers, int laneBits,
                                   const InstructionRates &rates, WordCost bound);

// The bit of the word from which place `place` of lane `lane` comes.
int sourceBit(const WordPlan::Register &r, int place, int lane, int laneBits);

// The same for the bit that a form weighs.
int weightedBit(const WordPlan::Register &r, int lane, int laneBits);

// Appends a plan's extraction; returns the registers before arithmetic.
std::vector<DecodeProgram::Operand> emitExtraction(const WordPlan &plan, int laneBits,
                                                   DecodeProgram &program);

} // namespace rho::compiler
