#include "compiler/CodePair.h"
#include "compiler/LayoutMap.h"
#include "compiler/PackChecks.h"
#include "compiler/PackGroups.h"
#include "compiler/Parallel.h"
#include "compiler/Requirements.h"
#include "dsl/Division.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

namespace rho::compiler {

using dsl::CodeArray;
using dsl::Component;
using dsl::Format;
using dsl::QuantizedMatrix;

namespace {

// For each position of a tile, the local coordinate n * tileK + k that it holds.
std::vector<uint32_t> positionTable(const LayoutSection &section) {
  std::vector<uint32_t> table;
  table.reserve(static_cast<size_t>(section.tileN * section.tileK));
  for (uint32_t position = 0; position >> section.order.size() == 0; ++position) {
    uint32_t n = 0;
    uint32_t k = 0;
    for (size_t i = 0; i < section.order.size(); ++i) {
      uint32_t bit = (position >> i) & 1;
      (section.order[i].axis == AxisBit::Axis::N ? n : k) |= bit << section.order[i].bit;
    }
    if (n < section.tileN)
      table.push_back(n * static_cast<uint32_t>(section.tileK) + k);
  }
  return table;
}

// A window of a component's codes: a tile from a row and unit on, clipped to what exists.
struct TileWindow {
  int64_t firstRow, firstUnit, rows, units;
};

TileWindow windowOf(const LayoutSection &section, dsl::BlockGrid grid, int64_t n, int64_t row,
                    int64_t unit) {
  int64_t rows = storedRows(section, grid, n);
  return {row, unit, std::clamp<int64_t>(rows - row, 0, section.tileN),
          std::clamp<int64_t>(grid.columns - unit, 0, section.tileK)};
}

// storedCode() of each, without a branch in the loops.
template <class Code>
void gatherCodes(const Code *codes, const TileWindow &window, int64_t pitch,
                 const LayoutSection &section, uint32_t *local) {
  const auto [shift, mask] = storedBits(section);
  for (int64_t row = 0; row < window.rows; ++row) {
    const Code *from = codes + (window.firstRow + row) / section.unitN * pitch + window.firstUnit;
    uint32_t *to = local + row * section.tileK;
    if (section.codeTable.empty())
      for (int64_t unit = 0; unit < window.units; ++unit)
        to[unit] = ((static_cast<uint32_t>(from[unit]) >> shift) & mask) ^ section.codeXor;
    else
      for (int64_t unit = 0; unit < window.units; ++unit)
        to[unit] = section.codeTable[(static_cast<uint32_t>(from[unit]) >> shift) & mask];
  }
}

// The codes of a tile one behind the other, least significant bit first. A table says which of
// those in natural order each place has.
void writeCodes(const std::vector<uint32_t> &table, int bits, const uint32_t *local, uint8_t *out) {
  if (bits == 4 && table.size() % 2 == 0) {
    for (size_t i = 0; i < table.size(); i += 2)
      *out++ = static_cast<uint8_t>(local[table[i]] | local[table[i + 1]] << 4);
    return;
  }
  uint64_t pending = 0;
  int count = 0;
  for (uint32_t from : table) {
    pending |= static_cast<uint64_t>(local[from]) << count;
    for (count += bits; count >= 8; count -= 8, pending >>= 8)
      *out++ = static_cast<uint8_t>(pending);
  }
  if (count > 0)
    *out = static_cast<uint8_t>(pending);
}

// The same of codes that are scattered: LayoutSection::unitBits.
class ScatteredCodes {
public:
  explicit ScatteredCodes(const LayoutSection &section)
      : codes(section.unitBits.size() / section.codeBits), words(section.unitBits.size() / 32) {
    for (size_t i = 0; i < section.unitBits.size(); ++i) {
      const uint32_t code = section.unitBits[i] / mostScatteredBits,
                     bit = section.unitBits[i] % mostScatteredBits;
      std::vector<Part> &parts = words[i / 32];
      auto part = std::find_if(parts.begin(), parts.end(),
                               [&](const Part &other) { return other.code == code; });
      if (part == parts.end())
        part = parts.insert(part, {code, {}});
      for (uint32_t value = 0; value < part->held.size(); ++value)
        part->held[value] |= (value >> bit & 1) << i % 32;
    }
  }

  void write(const std::vector<uint32_t> &table, const uint32_t *local, uint8_t *out) const {
    for (size_t first = 0; first < table.size(); first += codes)
      for (const std::vector<Part> &parts : words) {
        uint32_t word = 0;
        for (const Part &part : parts)
          word |= part.held[local[table[first + part.code]]];
        std::memcpy(out, &word, 4);
        out += 4;
      }
  }

private:
  // What a word holds of a code of the unit, by the code's value.
  struct Part {
    uint32_t code;
    std::array<uint32_t, size_t{1} << mostScatteredBits> held;
  };
  size_t codes; // of a unit
  std::vector<std::vector<Part>> words;
};

// The codes of one section's component, from natural order to tiles.
class SectionCodes {
public:
  SectionCodes(const LayoutSection &section, dsl::BlockGrid grid, int64_t n)
      : section(section), grid(grid), n(n), table(positionTable(section)) {
    if (!section.unitBits.empty())
      scattered.emplace(section);
  }

  // The tile from a row and unit on; `local` is scratch.
  void pack(const CodeArray &codes, int64_t row, int64_t unit, std::vector<uint32_t> &local,
            uint8_t *tile) const {
    local.resize(table.size());
    TileWindow window = windowOf(section, grid, n, row, unit);
    if (window.rows < section.tileN || window.units < section.tileK)
      std::fill(local.begin(), local.end(), storedCode(section, 0));
    gather(codes, window, local.data());
    if (window.units < section.tileK)
      fillBehind(codes, window, local.data());
    if (scattered)
      scattered->write(table, local.data(), tile);
    else
      writeCodes(table, section.codeBits, local.data(), tile);
  }

private:
  void gather(const CodeArray &codes, const TileWindow &window, uint32_t *local) const {
    switch (codes.width()) {
    case 1:
      return gatherCodes(codes.data(), window, grid.columns, section, local);
    case 2:
      return gatherCodes(reinterpret_cast<const uint16_t *>(codes.data()), window, grid.columns,
                         section, local);
    default:
      return gatherCodes(reinterpret_cast<const uint32_t *>(codes.data()), window, grid.columns,
                         section, local);
    }
  }

  // Behind the last column there is what is in it: activations are zero there, and a code that no
  // number has might stand for one that operands do not hold.
  void fillBehind(const CodeArray &codes, const TileWindow &window, uint32_t *local) const {
    std::vector<uint32_t> last(static_cast<size_t>(window.rows * section.tileK));
    gather(codes, {window.firstRow, grid.columns - 1, window.rows, 1}, last.data());
    for (int64_t row = 0; row < window.rows; ++row)
      std::fill(local + row * section.tileK + window.units, local + (row + 1) * section.tileK,
                last[static_cast<size_t>(row * section.tileK)]);
  }

  const LayoutSection &section;
  dsl::BlockGrid grid;
  int64_t n;
  std::vector<uint32_t> table;
  std::optional<ScatteredCodes> scattered;
};

void packSection(const LayoutSection &section, dsl::BlockGrid grid, int64_t n,
                 const CodeArray &codes, uint8_t *out) {
  SectionCodes packer(section, grid, n);
  int64_t bytesPerTile = tileBytes(section);
  uint8_t *base = out + section.offset;
  parallelFor(section.tilesN, [&](int64_t tileRow) {
    std::vector<uint32_t> local;
    for (int64_t tileColumn = 0; tileColumn < section.tilesK; ++tileColumn)
      packer.pack(codes, tileRow * section.tileN, tileColumn * section.tileK, local,
                  base + (tileRow * section.tilesK + tileColumn) * bytesPerTile);
  });
  int64_t used = section.tilesN * section.tilesK * bytesPerTile;
  std::memset(base + used, 0, static_cast<size_t>(section.bytes - used));
}

// Units of a component and of those in its spare bits; none where it has a unit for itself.
std::optional<CodeArray> unitsOf(const QuantizedMatrix &weight, int host) {
  std::vector<int> guests = dsl::guestsOf(*weight.format, host);
  if (guests.empty())
    return std::nullopt;
  CodeArray units(weight.format->storedBits(host), weight.components[host].size());
  for (int64_t i = 0; i < units.size(); ++i) {
    uint32_t unit = weight.components[host].get(i);
    for (int guest : guests)
      unit |= weight.components[guest].get(i) << weight.format->components[guest].shift;
    units.set(i, unit);
  }
  return units;
}

// Codes as the two that sum to them; none where the section has them as they are.
std::optional<CodeArray> sumsOf(const LayoutSection &section, const QuantizedMatrix &weight) {
  if (section.sumType.empty())
    return std::nullopt;
  dsl::ElementType operand = dsl::ElementType::get(section.sumType);
  dsl::ElementType type = weight.format->components[section.component].type;
  const CodeArray &codes = weight.components[section.component];
  CodeArray sums(type.bits(), codes.size());
  for (int64_t i = 0; i < codes.size(); ++i) {
    CodePair pair = codePair(operand, type.decode(codes.get(i))).value_or(CodePair());
    sums.set(i, pair.main | pair.rest << operand.bits());
  }
  return sums;
}

// Units of a section along k in each group.
int64_t copiesOf(const LayoutSection &section, const Component &component) {
  return component.extent == dsl::Extent::Group ? component.group / section.unitK : 1;
}

// A group's code for each unit of the section that lies in it.
CodeArray copied(const CodeArray &codes, dsl::BlockGrid natural, dsl::BlockGrid stored,
                 int64_t copies) {
  CodeArray result(codes.width() * 8, stored.size());
  for (int64_t row = 0; row < stored.rows; ++row)
    for (int64_t unit = 0; unit < stored.columns; ++unit)
      result.set(row * stored.columns + unit, codes.get(row * natural.columns + unit / copies));
  return result;
}

void packSections(const std::vector<LayoutSection> &sections, const QuantizedMatrix &weight,
                  uint8_t *out) {
  for (const LayoutSection &section : sections) {
    const Component &component = weight.format->components[section.component];
    dsl::BlockGrid grid = storedGrid(section, component, weight.rows, weight.k);
    std::optional<CodeArray> stored = unitsOf(weight, section.component);
    if (!stored)
      stored = sumsOf(section, weight);
    if (int64_t copies = copiesOf(section, component); copies > 1)
      stored = copied(stored ? *stored : weight.components[section.component],
                      codeGrid(component, weight.rows, weight.k), grid, copies);
    packSection(section, grid, weight.rows, stored ? *stored : weight.components[section.component],
                out);
  }
}

// Calls visit(piece, row, column) for each stored piece of a tile and its first number. Pieces past
// the last row, of blocks that begin before it, are stored too: warps that share a block have the
// same pieces.
template <class Visit>
void forStoredPieces(const ResidualLayout &r, const QuantizedMatrix &weight, int64_t tileRow,
                     int64_t tileColumn, const Visit &visit) {
  for (int64_t i = 0; i < r.rowsOfPieces() * r.piecesAlongK(); ++i) {
    int64_t row = tileRow * r.tileN + i / r.piecesAlongK() * r.pieceN;
    int64_t column = tileColumn * r.tileK + i % r.piecesAlongK() * r.pieceK;
    int64_t block = row / r.blockN * divideUp(weight.k, r.blockK) + column / r.blockK;
    bool exists = row / r.blockN * r.blockN < weight.rows && column < weight.k;
    if (exists && weight.choice.get(block) != 0)
      visit(i, row, column);
  }
}

// `residual` has the codes of the pieces' parts.
Status packResidual(const ResidualLayout &r, const QuantizedMatrix &weight,
                    const QuantizedMatrix &residual, uint8_t *out) {
  int64_t tiles = r.tilesN * r.tilesK, bands = r.rowsOfPieces();
  std::vector<uint32_t> first(static_cast<size_t>(tiles) + 1, 0);
  std::vector<uint32_t> words(static_cast<size_t>(tiles * bands));
  for (int64_t tile = 0; tile < tiles; ++tile) {
    std::vector<uint32_t> stored(static_cast<size_t>(bands), 0);
    forStoredPieces(
        r, weight, tile / r.tilesK, tile % r.tilesK, [&](int64_t piece, int64_t, int64_t) {
          stored[static_cast<size_t>(piece / r.piecesAlongK())] |= 1U << piece % r.piecesAlongK();
        });
    uint32_t next = first[static_cast<size_t>(tile)];
    for (int64_t band = 0; band < bands; ++band) {
      uint32_t own = stored[static_cast<size_t>(band)];
      words[static_cast<size_t>(wordOfBand(r, tile, band))] = own | next << BandWord::storedBits;
      next += static_cast<uint32_t>(std::popcount(own));
    }
    first[static_cast<size_t>(tile) + 1] = next;
  }
  if (first.back() > r.pieces)
    return makeError(DiagId::layout_mismatch,
                     {"the weight's residual has " + std::to_string(first.back()) +
                      " pieces of blocks, the budget leaves room for " + std::to_string(r.pieces) +
                      "; a gemm whose weight declares a larger budget has more"});
  std::vector<SectionCodes> parts;
  for (const LayoutSection &part : r.parts)
    parts.emplace_back(part,
                       codeGrid(residual.format->components[part.component], weight.rows, weight.k),
                       weight.rows);
  std::memcpy(out + r.firstsOffset, first.data(), static_cast<size_t>(r.firstsBytes()));
  std::memcpy(out + r.wordsOffset, words.data(), static_cast<size_t>(r.wordsBytes()));
  uint8_t *pieces = out + r.pieceOffset;
  std::memset(pieces, 0, static_cast<size_t>(r.pieces * r.pieceBytes));
  parallelFor(tiles, [&](int64_t tile) {
    std::vector<uint32_t> local;
    uint8_t *piece = pieces + first[static_cast<size_t>(tile)] * r.pieceBytes;
    forStoredPieces(r, weight, tile / r.tilesK, tile % r.tilesK,
                    [&](int64_t, int64_t row, int64_t column) {
                      for (size_t p = 0; p < parts.size(); ++p)
                        parts[p].pack(residual.components[r.parts[p].component], row,
                                      column / r.parts[p].unitK, local, piece + r.parts[p].offset);
                      piece += r.pieceBytes;
                    });
  });
  packSections(r.sections, residual, out);
  return Done{};
}

// Codes of a weight and a residual that shares its scales: weight * divisor + residual.
Result<QuantizedMatrix> refinedCodes(const QuantizedMatrix &weight) {
  const dsl::Part &part = weight.format->residual->part;
  const QuantizedMatrix &base = weight.parts[0], &fix = weight.parts[1];
  QuantizedMatrix whole = base;
  whole.format = std::make_shared<const Format>(refinedWeight(*weight.format));
  dsl::ElementType high = base.format->element().type, low = part.format->element().type,
                   both = whole.format->element().type;
  whole.components[0] = CodeArray(both.bits(), weight.rows * weight.k);
  Least beyond(weight.rows * weight.k);
  parallelFor(weight.rows, [&](int64_t row) {
    for (int64_t column = 0; column < weight.k; ++column) {
      int64_t i = row * weight.k + column;
      auto value = static_cast<int64_t>(high.decode(base.components[0].get(i))) * part.divisor;
      if (weight.choice.get(blockIndex(weight.format->residual->blocks, weight.k, row, column)) !=
          0)
        value += static_cast<int64_t>(low.decode(fix.components[0].get(i)));
      if (value < static_cast<int64_t>(both.minFinite()))
        beyond.offer(i);
      whole.components[0].set(i, static_cast<uint32_t>(value) & ((1U << both.bits()) - 1));
    }
  });
  if (const std::optional<int64_t> i = beyond.get())
    return makeError(DiagId::pack_beyond_element,
                     {std::to_string(*i / weight.k), std::to_string(*i % weight.k), part.name,
                      std::to_string(static_cast<int64_t>(low.decode(fix.components[0].get(*i)))),
                      std::to_string(static_cast<int64_t>(high.minFinite()))});
  return whole;
}

// All bytes of a weight whose codes fit the layout.
Status write(const WeightLayout &layout, const QuantizedMatrix &weight, uint8_t *out) {
  std::memset(out, 0, static_cast<size_t>(layout.bytes));
  if (layout.isRefined()) {
    Result<QuantizedMatrix> whole = refinedCodes(weight);
    if (!whole)
      return whole.error();
    packSections(layout.sections, *whole, out);
    return packResidual(*layout.residual, weight, *whole, out);
  }
  const QuantizedMatrix &base = weight.parts.empty() ? weight : weight.parts[0];
  const std::optional<QuantizedMatrix> changed = asStored(layout.sections, base);
  packSections(layout.sections, changed ? *changed : base, out);
  if (!layout.residual)
    return Done{};
  std::vector<LayoutSection> own = layout.residual->parts;
  own.insert(own.end(), layout.residual->sections.begin(), layout.residual->sections.end());
  const std::optional<QuantizedMatrix> changedOwn = asStored(own, weight.parts[1]);
  return packResidual(*layout.residual, weight, changedOwn ? *changedOwn : weight.parts[1], out);
}

} // namespace

Status pack(const WeightLayout &layout, const QuantizedMatrix &weight, uint8_t *out) {
  std::string problem = weightProblem(layout, weight);
  if (!problem.empty())
    return makeError(DiagId::layout_mismatch, {problem});
  std::vector<const QuantizedMatrix *> parts;
  for (const QuantizedMatrix &part : weight.parts)
    parts.push_back(&part);
  if (parts.empty())
    parts.push_back(&weight);
  for (const QuantizedMatrix *part : parts)
    if (std::optional<Place> breach = firstBreach(*part))
      return makeError(DiagId::pack_breaks_requirement,
                       {std::to_string(breach->n), std::to_string(breach->k), weight.format->name});
  if (std::optional<Error> negative = negativeScale(layout.sections, *parts[0]))
    return *negative;
  if (std::optional<Error> none = noSum(layout.sections, *parts[0]))
    return *none;
  if (layout.residual)
    if (auto negative = negativeScale(layout.residual->parts, weight.parts[1]))
      return *negative;
  return write(layout, weight, out);
}

} // namespace rho::compiler
