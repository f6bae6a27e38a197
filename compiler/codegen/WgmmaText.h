// The PTX of a batch of wgmma instructions, and where its operands lie in shared memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rho::compiler {

// Where byte `column` of the rows lies in a part of so many rows: boxes of 128 bytes a row, the
// width of the swizzle, one after the other along k.
int64_t columnOffset(int64_t rows, int64_t column);

// Instructions that a warpgroup starts together: for each step along k one for each 64 of its
// weight rows, with all batch rows of the tile. Operands are named as they are in the text.
struct WgmmaBatch {
  std::string element;          // of both operands
  int64_t tileM = 0, tileN = 0; // of the CTA
  int64_t rowTiles = 0;
  int64_t firstStep = 0;         // within the k tile
  bool fresh = false;            // sums start at zero
  std::vector<std::string> sums; // row tile by row tile
  // Operand A: registers, step by step, row tile by row tile, four each; or the descriptor of a
  // part that holds the warpgroup's rows of the tile.
  std::vector<std::string> registers;
  std::string rows;
  std::string columns; // of operand B, the descriptor of the part
  int64_t steps = 0;

  bool isInteger() const { return element == "s8"; }
  // Bytes from the start of a row to what a step takes of it.
  int64_t columnOf(int64_t step) const { return (firstStep + step) * 32; }
  std::string print() const;
};

} // namespace rho::compiler
