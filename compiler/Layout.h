// Where a packed weight's bits lie. Chosen by the compiler, carried by the kernel image, executed
// by pack(). Plain data: nothing here knows a format by name.
#pragma once

#include "dsl/Division.h"
#include "dsl/Error.h"
#include "dsl/Quantize.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rho::compiler {

// Bytes: of a weight and of each of its sections, and of what a piece of a residual is made of.
inline constexpr int64_t sectionAlignment = 256, partAlignment = 16;

// How many numbers each code has in LayoutSection::unitBits.
inline constexpr int mostScatteredBits = 8;

// One bit of a position: which bit of which local coordinate it holds.
struct AxisBit {
  enum class Axis : uint8_t { N, K } axis;
  uint8_t bit;
  friend bool operator==(const AxisBit &, const AxisBit &) = default;
};

// Bits of one component's codes inside the packed weight, and of those in its spare bits: all of
// them, or one of several bit planes. A section is a sequence of equal tiles in the order [n
// tile][k tile]; a tile is a sequence of `codeBits` bits of each code, from bit `shift` on (zeros
// past the type's), least significant first; the position of a code in its tile is read bit by bit,
// low to high, from `order`. Of rows that are no power of two `order` names the bits of the next
// one: positions of rows that the tile does not have are left out. Units of a tile behind the last
// of k have its code, so that no code is there that the weight has not; rows behind the last code
// 0.
struct LayoutSection {
  int component = 0;  // index into Format::components
  int64_t offset = 0; // first byte
  int64_t bytes = 0;  // of the whole section
  int shift = 0;
  int codeBits = 0;
  int64_t tileN = 0; // rows of one tile: of codes and scales a panel
  int64_t tileK = 0; // columns of one tile, in units of `unitK`: a chunk, or what is loaded at once
  // k extent of one code: 1 (element), G or a divisor of it (group, whose code is then there
  // several times), whole k (row, tensor)
  int64_t unitK = 1;
  int64_t unitN = 1; // rows that share one code, each of which holds a copy of it
  int64_t tilesN = 0, tilesK = 0;
  uint32_t codeXor =
      0; // applied to what is stored of every code (0x8: two's complement -> offset binary)
  // Instead of codeXor: code c is stored as codeTable[c]; empty: not so. Codes of up to 8 bits. Of
  // a scale none stands for 0: elements that it multiplies are stored as 0 instead.
  std::vector<uint8_t> codeTable;
  // Codes of up to 8 bits, scattered over units of unitBits.size() bits and of as many codes as
  // have so many bits in this section: bit i of a unit is bit unitBits[i] % 8 of its code
  // unitBits[i] / 8. Then any bit of a code may lie in any section of its component, and `codeXor`
  // and `codeTable` are of whole codes. Empty: codes lie one after the other.
  std::vector<uint8_t> unitBits;
  // Of elements: where this component of a block has this bit, a code is stored as the one of the
  // opposite number, as if the numbers were the negative ones. 0: nowhere.
  int negatedBy = 0, negatedBit = 0;
  bool noSign = false; // codes are read without their top bit, which must be 0
  // Each code is stored as two of this type whose numbers, of one sign, sum to its own: main | rest
  // << bits. Empty: not so.
  std::string sumType;
  std::vector<AxisBit> order;
  friend bool operator==(const LayoutSection &, const LayoutSection &) = default;
};

// The stored blocks of a residual, cut into pieces of pieceN x pieceK numbers. Of each tile of
// tileN x tileK numbers, in the order [n tile][k tile], the pieces that are stored lie one after
// the other, those of the same rows, a band, together; those of all tiles do. For each tile there
// is a word (u32), the number of its first piece, and one more word is the number of all pieces.
// For each band of a tile, in the order [n tile][band][k tile], there is a BandWord.
struct BandWord {
  static constexpr int storedBits = 8; // bit i: piece i of the band along k is; above them the
                                       // number of the first that is, modulo 2^24
  static constexpr int numberBits = 32 - storedBits;
};
struct ResidualLayout {
  static constexpr int64_t mostPieces = 256; // of a tile
  int64_t blockN = 0, blockK = 0;            // of the declaration
  int64_t tileN = 0, tileK = 0, tilesN = 0, tilesK = 0;
  int64_t pieceN = 0, pieceK = 0;
  int64_t wordsOffset = 0, firstsOffset = 0, pieceOffset = 0; // first bytes in the packed weight
  int64_t pieces = 0;                                         // that there is room for
  int64_t pieceBytes = 0;
  // Of a piece, each one tile, offsets from its first byte. Where they hold the bits of the
  // element's codes below those of the weight's sections, the residual shares the weight's scales,
  // and the codes are those of both as one number.
  std::vector<LayoutSection> parts;
  std::vector<LayoutSection> sections; // of what blocks share: one code a row, or one
  int64_t rowsOfPieces() const { return tileN / pieceN; }
  int64_t piecesAlongK() const { return tileK / pieceK; }
  int64_t firstsBytes() const { return 4 * (tilesN * tilesK + 1); }
  int64_t wordsBytes() const { return 4 * tilesN * rowsOfPieces() * tilesK; }
  friend bool operator==(const ResidualLayout &, const ResidualLayout &) = default;
};

// Rows n >= problem n and columns k >= problem k hold code 0 (before codeXor and codeTable).
struct WeightLayout {
  int64_t n = 0, k = 0; // of the problem
  int64_t bytes = 0;    // of the packed weight
  std::vector<LayoutSection> sections;
  std::optional<ResidualLayout> residual = std::nullopt;
  bool isRefined() const { return residual && !sections.empty() && sections[0].shift > 0; }
  std::string print() const; // canonical, one line a section; part of the spec
  // Error layout_text_invalid.
  static Result<WeightLayout> parse(std::string_view text);
  friend bool operator==(const WeightLayout &, const WeightLayout &) = default;
};

// How activations lie in memory: element codes row-major [m][pitch bytes], sub-byte codes low
// nibble first, bytes past k zero; signed codes of fewer than `elementBits` bits sign-extended;
// then each further component that is not in another's spare bits in an allocation of its own:
// Group [ceil(k/G)][mStride], Row [m], Tensor [1], in the component's own type. With
// `groupsPerWord` w > 1 the codes of w consecutive groups of a row lie together, Group [ceil(k/(w
// G))][mStride][w], zero past the last group.
//
// A row's codes may lie in another order, that of a weight whose decode serves several
// instructions: bit i of where a code lies is bit columnBits[i] of its column; higher bits are the
// same.
//
// A partition has `parts`, each with buffers for all blocks, of which those are read that it
// stores. Then a table of 32-bit integers says which k tiles, of `tileK` columns each, a part has:
// for each part where its list begins, where the last one ends, and the lists, in order, without
// gaps.
struct ActivationLayout {
  int64_t k = 0;
  int elementBits = 0;    // as stored
  int64_t pitchBytes = 0; // a multiple of 16
  int groupsPerWord = 1;  // or blocksPerWord, of kernels whose instructions apply the scales
  std::vector<uint8_t> columnBits = {}; // empty: codes lie in order
  int64_t tileK = 0;
  std::vector<ActivationLayout> parts = {};
  static constexpr int blocksPerWord = 4;
  int64_t tilesK() const { return divideUp(k, tileK); } // of a partition
  int64_t tableEntries() const { return static_cast<int64_t>(parts.size()) + 1 + tilesK(); }
  // Where the code of a column lies.
  int64_t placeOf(int64_t column) const;
  friend bool operator==(const ActivationLayout &, const ActivationLayout &) = default;
};

// A component as it is stored, of a partition the components of its parts one after the other.
struct StoredComponent {
  size_t part = 0;
  const dsl::Format *format = nullptr; // of the part
  int component = 0;
  const dsl::Component &declared() const { return format->components[component]; }
};
std::vector<StoredComponent> storedComponents(const dsl::Format &activation);

// Distance in codes, or words of them, between groups of an activation's group component: m rounded
// up to 16, so that a group begins at a multiple of 16 bytes.
inline int64_t activationGroupStride(int64_t m) { return roundUp(m, 16); }

// Packs codes in natural order. `out` has layout.bytes bytes; all of them are written. Errors:
// layout_mismatch, pack_beyond_element, pack_breaks_requirement, pack_negative_scale, pack_no_sum.
Status pack(const WeightLayout &layout, const dsl::QuantizedMatrix &weight, uint8_t *out);

} // namespace rho::compiler
