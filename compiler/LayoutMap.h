// How codes in natural order and the tiles of a packed weight correspond; shared by the checks of a
// layout and by packing.
#pragma once

#include "compiler/Layout.h"
#include "dsl/Division.h"
#include "dsl/Format.h"
#include "dsl/Quantize.h"

namespace rho::compiler {

// Every tile starts at a byte of its own, also when its codes end inside one.
inline int64_t tileBytes(const LayoutSection &section) {
  return divideUp(section.tileN * section.tileK * section.codeBits, 8);
}

// Which bits of codes a section stores, from bit `shift` on.
struct StoredBits {
  int shift;
  uint32_t mask;
};
inline StoredBits storedBits(const LayoutSection &section) {
  if (!section.unitBits.empty())
    return {0, (1U << mostScatteredBits) - 1};
  return {section.shift, static_cast<uint32_t>((uint64_t(1) << section.codeBits) - 1)};
}

// What is stored of a code, before unitBits.
inline uint32_t storedCode(const LayoutSection &section, uint32_t code) {
  const StoredBits stored = storedBits(section);
  uint32_t bits = code >> stored.shift & stored.mask;
  return section.codeTable.empty() ? bits ^ section.codeXor : section.codeTable[bits];
}

// dsl::codeGrid() of what a section stores of a component: copies of a group's code are columns,
// too.
dsl::BlockGrid storedGrid(const LayoutSection &section, const dsl::Component &component,
                          int64_t rows, int64_t k);

// Rows of a section: those of its codes, or of all copies of them.
inline int64_t storedRows(const LayoutSection &section, const dsl::BlockGrid &grid, int64_t n) {
  return section.unitN > 1 ? n : grid.rows;
}

// Which of a residual's words (BandWord) is that of a band of a tile.
inline int64_t wordOfBand(const ResidualLayout &residual, int64_t tile, int64_t band) {
  int64_t row = tile / residual.tilesK * residual.rowsOfPieces() + band;
  return row * residual.tilesK + tile % residual.tilesK;
}
constexpr uint32_t storedMask = (uint32_t(1) << BandWord::storedBits) - 1; // of a BandWord

// A format with a residual that shares its scales as one of wider elements: those of the residual
// are their low bits, 0 outside of the stored blocks. It has no residual.
dsl::Format refinedWeight(const dsl::Format &weight);

// Of an element, for each code the one of the opposite number, of 0 and of a remapped code itself;
// empty where a code has none.
std::vector<uint32_t> negatedCodes(const dsl::Format &format);

// What keeps `layout` from holding a weight of `format`; empty: nothing.
std::string mismatch(const WeightLayout &layout, const dsl::Format &format);

} // namespace rho::compiler
