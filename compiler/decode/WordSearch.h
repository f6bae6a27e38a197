// How the operand registers of a unit are taken out of its packed words: which register's codes lie
// where in them, and which instructions bring them to their places.
#pragma once

#include "compiler/decode/LaneForms.h"
#include "compiler/decode/Sequences.h"
#include "compiler/decode/Throughput.h"

#include <array>
#include <optional>
#include <vector>

namespace rho::compiler {

constexpr int wordBits = 32;

// How the bits of a word come to a register.
struct Move {
  enum class Kind : uint8_t { None, Left, Right, Rotate } kind = Kind::None;
  int amount = 0;
  friend auto operator<=>(const Move &, const Move &) = default;
};

// Moves of a word, one bit for each: those that several registers take are made once.
using Moves = uint64_t;
Moves bitOf(const Move &move);
void countMoves(OpCounts &counts, Moves moves);

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
    int word = 0; // of the unit
  };
  std::vector<Piece> pieces;
  uint32_t used = 0; // bits of each lane of the word, where that is one
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

// Bits of a lane that lie `by` places lower in it, cyclically.
uint32_t rotatedRight(uint32_t lane, int by, int laneBits);

// The ways to move what lies so to `places`, a shift to the left first.
std::vector<Move> movesFor(uint32_t places, int by, int laneBits);

// A set of places in two parts: low ones and those above.
using TwoParts = std::array<uint32_t, 2>;
std::vector<TwoParts> consecutiveParts(uint32_t places);

// Calls visit(pieces, bits that they use) for each way to move two parts to their places, by
// different amounts and from different bits.
template <class Visit> void forMovedParts(const TwoParts &parts, int laneBits, const Visit &visit) {
  for (int a = 0; a < laneBits; ++a)
    for (int b = 0; b < laneBits; ++b) {
      const uint32_t first = rotatedRight(parts[0], a, laneBits),
                     second = rotatedRight(parts[1], b, laneBits);
      if (a == b || (first & second) != 0)
        continue;
      for (const Move &moveA : movesFor(parts[0], a, laneBits))
        for (const Move &moveB : movesFor(parts[1], b, laneBits))
          visit(std::vector<Extraction::Piece>{{parts[0], moveA}, {parts[1], moveB}},
                first | second);
    }
}

// The cheapest plan for `registers` registers with lanes of `laneBits` bits, each by one of
// `forms`, that together use every bit of the word; `extra[i]` is the arithmetic of form i. None
// where no plan that costs less than `bound` uses them all.
std::optional<WordPlan> searchWord(const std::vector<LaneForm> &forms,
                                   const std::vector<OpCounts> &extra, int registers, int laneBits,
                                   const InstructionRates &rates, WordCost bound);

// Where place `place` of lane `lane` comes from.
CodeBit sourceBit(const WordPlan::Register &r, int place, int lane, int laneBits);

// The same for the bit that a form weighs.
CodeBit weightedBit(const WordPlan::Register &r, int lane, int laneBits);

// Appends a plan's extraction; returns the registers before arithmetic.
std::vector<DecodeProgram::Operand> emitExtraction(const WordPlan &plan, int laneBits,
                                                   DecodeProgram &program);

} // namespace rho::compiler
