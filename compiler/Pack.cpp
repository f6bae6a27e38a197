#include "compiler/CodePair.h"
#include "compiler/LayoutMap.h"
#include "compiler/Parallel.h"
#include "compiler/Requirements.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <sstream>

namespace rho::compiler {

using dsl::CodeArray;
using dsl::Component;
using dsl::Format;
using dsl::QuantizedMatrix;

namespace {

// For each position of a tile, the local coordinate n * tileK + k that it holds.
std::vector<uint32_t> positionTable(const LayoutSection &section) {
  std::vector<uint32_t> table(size_t(1) << section.order.size());
  for (uint32_t position = 0; position < table.size(); ++position) {
    uint32_t n = 0;
    uint32_t k = 0;
    for (size_t i = 0; i < section.order.size(); ++i) {
      uint32_t bit = (position >> i) & 1;
      (section.order[i].axis == AxisBit::Axis::N ? n : k) |= bit << section.order[i].bit;
    }
    table[position] = n * static_cast<uint32_t>(section.tileK) + k;
  }
  return table;
}

// A window of a component's codes: a tile from a row and unit on, clipped to what exists.
struct TileWindow {
  int64_t firstRow, firstUnit, rows, units;
};

TileWindow windowOf(const LayoutSection &section, NaturalShape shape, int64_t n, int64_t row,
                    int64_t unit) {
  int64_t rows = storedRows(section, shape, n);
  return {row, unit, std::clamp<int64_t>(rows - row, 0, section.tileN),
          std::clamp<int64_t>(shape.units - unit, 0, section.tileK)};
}

template <class Code>
void gather(const Code *codes, const TileWindow &window, int64_t pitch,
            const LayoutSection &section, uint32_t *local) {
  const uint32_t mask = static_cast<uint32_t>((uint64_t(1) << section.codeBits) - 1);
  for (int64_t row = 0; row < window.rows; ++row) {
    const Code *from = codes + (window.firstRow + row) / section.unitN * pitch + window.firstUnit;
    uint32_t *to = local + row * section.tileK;
    if (section.codeTable.empty())
      for (int64_t unit = 0; unit < window.units; ++unit)
        to[unit] = ((static_cast<uint32_t>(from[unit]) >> section.shift) & mask) ^ section.codeXor;
    else
      for (int64_t unit = 0; unit < window.units; ++unit)
        to[unit] = section.codeTable[static_cast<uint32_t>(from[unit]) & mask];
  }
}

// The code bits of `local` in table order, densely, least significant first.
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

// Words of codes whose bits are in another order.
class ScatteredCodes {
public:
  explicit ScatteredCodes(const LayoutSection &section)
      : bits(section.codeBits), perWord(32 / section.codeBits), places(section.wordBits) {
    for (size_t i = 0; i < perWord; ++i)
      for (uint32_t code = 0; code < uint32_t(1) << bits; ++code) {
        uint32_t word = 0;
        for (int bit = 0; bit < bits; ++bit)
          word |= (code >> bit & 1) << places[i * bits + bit];
        words.push_back(word);
      }
  }

  void write(const std::vector<uint32_t> &table, const uint32_t *local, uint8_t *out) const {
    for (size_t first = 0; first < table.size(); first += perWord, out += 4) {
      uint32_t word = 0;
      for (size_t i = 0; i < perWord; ++i)
        word |= words[(i << bits) + local[table[first + i]]];
      std::memcpy(out, &word, 4);
    }
  }

  void read(const std::vector<uint32_t> &table, const uint8_t *in, uint32_t *local) const {
    for (size_t first = 0; first < table.size(); first += perWord, in += 4) {
      uint32_t word = 0;
      std::memcpy(&word, in, 4);
      for (size_t i = 0; i < perWord; ++i) {
        uint32_t code = 0;
        for (int bit = 0; bit < bits; ++bit)
          code |= (word >> places[i * bits + bit] & 1) << bit;
        local[table[first + i]] = code;
      }
    }
  }

private:
  int bits;
  size_t perWord;
  const std::vector<uint8_t> &places;
  std::vector<uint32_t> words; // of each code at each place of a word
};

// Code of each stored code.
std::vector<uint32_t> inverseOf(const LayoutSection &section) {
  std::vector<uint32_t> inverse(size_t(1) << std::min(section.codeBits, 8));
  for (uint32_t code = 0; code < section.codeTable.size(); ++code)
    inverse[section.codeTable[code]] = code;
  return inverse;
}

void readCodes(const std::vector<uint32_t> &table, int bits, const uint8_t *in, uint32_t *local) {
  const uint64_t mask = (uint64_t(1) << bits) - 1;
  uint64_t pending = 0;
  int count = 0;
  for (uint32_t to : table) {
    for (; count < bits; count += 8)
      pending |= static_cast<uint64_t>(*in++) << count;
    local[to] = static_cast<uint32_t>(pending & mask);
    pending >>= bits;
    count -= bits;
  }
}

// The codes of one section's component, in natural order and in tiles.
class SectionCodes {
public:
  SectionCodes(const LayoutSection &section, NaturalShape shape, int64_t n)
      : section(section), shape(shape), n(n), table(positionTable(section)),
        inverse(inverseOf(section)) {
    if (!section.wordBits.empty())
      scattered.emplace(section);
  }

  // The tile from a row and unit on; `local` is scratch.
  void pack(const CodeArray &codes, int64_t row, int64_t unit, std::vector<uint32_t> &local,
            uint8_t *tile) const {
    local.resize(table.size());
    TileWindow window = windowOf(section, shape, n, row, unit);
    if (window.rows < section.tileN || window.units < section.tileK)
      std::fill(local.begin(), local.end(), storedCode(section, 0));
    switch (codes.width()) {
    case 1:
      gather(codes.data(), window, shape.units, section, local.data());
      break;
    case 2:
      gather(reinterpret_cast<const uint16_t *>(codes.data()), window, shape.units, section,
             local.data());
      break;
    default:
      gather(reinterpret_cast<const uint32_t *>(codes.data()), window, shape.units, section,
             local.data());
    }
    if (scattered)
      scattered->write(table, local.data(), tile);
    else
      writeCodes(table, section.codeBits, local.data(), tile);
  }

  void unpack(const uint8_t *tile, int64_t row, int64_t unit, std::vector<uint32_t> &local,
              CodeArray &codes) const {
    local.resize(table.size());
    TileWindow window = windowOf(section, shape, n, row, unit);
    if (scattered)
      scattered->read(table, tile, local.data());
    else
      readCodes(table, section.codeBits, tile, local.data());
    for (int64_t r = 0; r < window.rows; ++r) {
      int64_t natural = (window.firstRow + r) / section.unitN;
      if (natural * section.unitN != window.firstRow + r)
        continue; // a copy
      for (int64_t u = 0; u < window.units; ++u) {
        int64_t at = natural * shape.units + window.firstUnit + u;
        uint32_t stored = local[r * section.tileK + u];
        uint32_t bits = section.codeTable.empty() ? stored ^ section.codeXor : inverse[stored];
        codes.set(at, codes.get(at) | bits << section.shift);
      }
    }
  }

private:
  const LayoutSection &section;
  NaturalShape shape;
  int64_t n;
  std::vector<uint32_t> table, inverse;
  std::optional<ScatteredCodes> scattered;
};

void packSection(const LayoutSection &section, NaturalShape shape, int64_t n,
                 const CodeArray &codes, uint8_t *out) {
  SectionCodes packer(section, shape, n);
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

void unpackSection(const LayoutSection &section, NaturalShape shape, int64_t n, const uint8_t *in,
                   CodeArray &codes) {
  SectionCodes packer(section, shape, n);
  parallelFor(section.tilesN, [&](int64_t tileRow) {
    std::vector<uint32_t> local;
    for (int64_t tileColumn = 0; tileColumn < section.tilesK; ++tileColumn) {
      int64_t tile = tileRow * section.tilesK + tileColumn;
      packer.unpack(in + section.offset + tile * tileBytes(section), tileRow * section.tileN,
                    tileColumn * section.tileK, local, codes);
    }
  });
}

// The first code that is wider than its type; codes of 8, 16 and 32 bits cannot be.
std::optional<int64_t> firstTooWide(const CodeArray &codes, int bits) {
  if (bits == codes.width() * 8)
    return std::nullopt;
  constexpr int64_t chunk = int64_t(1) << 20;
  std::atomic<int64_t> first = codes.size();
  parallelFor(divideUp(codes.size(), chunk), [&](int64_t task) {
    int64_t end = std::min(codes.size(), (task + 1) * chunk);
    uint8_t all = 0;
    for (int64_t i = task * chunk; i < end && codes.width() == 1; ++i)
      all |= codes.data()[i];
    if (codes.width() == 1 && (all >> bits) == 0)
      return;
    for (int64_t i = task * chunk; i < end; ++i)
      if ((codes.get(i) >> bits) != 0) {
        int64_t known = first;
        while (i < known && !first.compare_exchange_weak(known, i)) {
        }
        return;
      }
  });
  if (first == codes.size())
    return std::nullopt;
  return first;
}

// What keeps the codes of a weight without parts from being those of its format; empty: nothing.
std::string codesProblem(const QuantizedMatrix &weight) {
  if (weight.components.size() != weight.format->components.size())
    return "the weight lacks components";
  for (size_t c = 0; c < weight.components.size(); ++c) {
    const Component &component = weight.format->components[c];
    NaturalShape shape = naturalShape(component, weight.rows, weight.k);
    int bits = component.type.bits();
    int width = bits <= 8 ? 1 : bits <= 16 ? 2 : 4;
    const CodeArray &codes = weight.components[c];
    if (codes.size() != shape.rows * shape.units || codes.width() != width)
      return "'" + component.name + "' has " + std::to_string(codes.size()) + " codes of " +
             std::to_string(codes.width()) + " bytes, " + std::to_string(shape.rows * shape.units) +
             " of " + std::to_string(width) + " are needed";
    if (std::optional<int64_t> wide = firstTooWide(codes, bits))
      return "code " + std::to_string(*wide) + " of '" + component.name + "' is " +
             std::to_string(codes.get(*wide)) + ", '" + std::string(component.type.name()) +
             "' has " + std::to_string(bits) + " bits";
  }
  return {};
}

std::string weightProblem(const WeightLayout &layout, const QuantizedMatrix &weight) {
  if (!weight.format)
    return "the weight has no format";
  if (weight.rows != layout.n || weight.k != layout.k)
    return "the weight is " + std::to_string(weight.rows) + " x " + std::to_string(weight.k) +
           ", the layout is for " + std::to_string(layout.n) + " x " + std::to_string(layout.k);
  if (std::string problem = mismatch(layout, *weight.format); !problem.empty())
    return problem;
  if (!layout.residual)
    return codesProblem(weight);
  int64_t blocks =
      divideUp(layout.n, layout.residual->blockN) * divideUp(layout.k, layout.residual->blockK);
  bool complete = weight.parts.size() == 2 && weight.choice.size() == blocks;
  for (const QuantizedMatrix &part : weight.parts) {
    if (!complete || !part.format || part.rows != weight.rows || part.k != weight.k)
      break;
    const Format &expected =
        &part == weight.parts.data() ? *weight.format : *weight.format->residual->part.format;
    if (part.format->components.size() != expected.components.size())
      return "the codes of its parts are of other formats";
    if (std::string problem = codesProblem(part); !problem.empty())
      return problem;
  }
  if (!complete)
    return "the weight has " + std::to_string(weight.parts.size()) + " parts and " +
           std::to_string(weight.choice.size()) + " choices, 2 and " + std::to_string(blocks) +
           " are needed";
  return {};
}

// The first code with a sign where the kernel reads none.
std::optional<Error> negativeScale(const std::vector<LayoutSection> &sections,
                                   const QuantizedMatrix &weight) {
  for (const LayoutSection &section : sections) {
    const CodeArray &codes = weight.components[section.component];
    if (!section.noSign)
      continue;
    const Component &component = weight.format->components[section.component];
    for (int64_t i = 0; i < codes.size(); ++i)
      if ((codes.get(i) >> (section.codeBits - 1)) != 0) {
        std::ostringstream value;
        value << component.type.decode(codes.get(i));
        return makeError(DiagId::pack_negative_scale,
                         {std::to_string(i), component.name, value.str()});
      }
  }
  return std::nullopt;
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

// The first code that no sum of two codes of the section's type stands for.
std::optional<Error> noSum(const std::vector<LayoutSection> &sections,
                           const QuantizedMatrix &weight) {
  for (const LayoutSection &section : sections) {
    if (section.sumType.empty())
      continue;
    const Component &component = weight.format->components[section.component];
    const CodeArray &codes = weight.components[section.component];
    for (int64_t i = 0; i < codes.size(); ++i) {
      double value = component.type.decode(codes.get(i));
      if (codePair(dsl::ElementType::get(section.sumType), value))
        continue;
      std::ostringstream text;
      text << value;
      return makeError(DiagId::pack_no_sum,
                       {std::to_string(i), component.name, text.str(), section.sumType});
    }
  }
  return std::nullopt;
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

// The inverse, in place.
void addSums(const LayoutSection &section, dsl::ElementType type, CodeArray &codes) {
  if (section.sumType.empty())
    return;
  dsl::ElementType operand = dsl::ElementType::get(section.sumType);
  for (int64_t i = 0; i < codes.size(); ++i)
    codes.set(i, type.encode(operand.decode(codes.get(i)) +
                             operand.decode(codes.get(i) >> operand.bits())));
}

// The inverse of unitsOf(), where `weight` has the units in place of the host's codes.
void divideUnits(QuantizedMatrix &weight, int host) {
  auto codeAt = [&](int component, uint32_t unit) {
    const Component &part = weight.format->components[component];
    return unit >> part.shift & ((1U << part.type.bits()) - 1);
  };
  std::vector<int> guests = dsl::guestsOf(*weight.format, host);
  CodeArray &units = weight.components[host];
  for (int64_t i = 0; i < units.size() && !guests.empty(); ++i) {
    uint32_t unit = units.get(i);
    for (int guest : guests)
      weight.components[guest].set(i, codeAt(guest, unit));
    units.set(i, codeAt(host, unit));
  }
}

void packSections(const std::vector<LayoutSection> &sections, const QuantizedMatrix &weight,
                  uint8_t *out) {
  for (const LayoutSection &section : sections) {
    const Component &component = weight.format->components[section.component];
    std::optional<CodeArray> stored = unitsOf(weight, section.component);
    if (!stored)
      stored = sumsOf(section, weight);
    packSection(section, naturalShape(component, weight.rows, weight.k), weight.rows,
                stored ? *stored : weight.components[section.component], out);
  }
}

// Calls visit(row, column) for the first number of each stored piece of a tile, and returns their
// bits. Pieces past the last row, of blocks that begin before it, are stored too: warps that share
// a block have the same pieces.
template <class Visit>
uint64_t forStoredPieces(const ResidualLayout &r, const QuantizedMatrix &weight, int64_t tileRow,
                         int64_t tileColumn, const Visit &visit) {
  uint64_t stored = 0;
  for (int64_t i = 0; i < r.rowsOfPieces() * r.piecesAlongK(); ++i) {
    int64_t row = tileRow * r.tileN + i / r.piecesAlongK() * r.pieceN;
    int64_t column = tileColumn * r.tileK + i % r.piecesAlongK() * r.pieceK;
    int64_t block = row / r.blockN * divideUp(weight.k, r.blockK) + column / r.blockK;
    bool exists = row / r.blockN * r.blockN < weight.rows && column < weight.k;
    if (!exists || weight.choice.get(block) == 0)
      continue;
    stored |= uint64_t(1) << i;
    visit(row, column);
  }
  return stored;
}

Status packResidual(const ResidualLayout &r, const QuantizedMatrix &weight, uint8_t *out) {
  auto none = [](int64_t, int64_t) {};
  int64_t tiles = r.tilesN * r.tilesK;
  std::vector<uint64_t> stored(static_cast<size_t>(tiles));
  std::vector<uint32_t> first(static_cast<size_t>(tiles) + 1, 0);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    auto i = static_cast<size_t>(tile);
    stored[i] = forStoredPieces(r, weight, tile / r.tilesK, tile % r.tilesK, none);
    first[i + 1] = first[i] + static_cast<uint32_t>(std::popcount(stored[i]));
  }
  if (first.back() > r.pieces)
    return makeError(DiagId::layout_mismatch,
                     {"the weight's residual has " + std::to_string(first.back()) +
                      " pieces of blocks, the budget leaves room for " + std::to_string(r.pieces)});
  const QuantizedMatrix &residual = weight.parts[1];
  std::vector<SectionCodes> parts;
  for (const LayoutSection &part : r.parts)
    parts.emplace_back(
        part, naturalShape(residual.format->components[part.component], weight.rows, weight.k),
        weight.rows);
  std::memcpy(out + r.firstsOffset, first.data(), static_cast<size_t>(r.firstsBytes()));
  uint8_t *pieces = out + r.pieceOffset;
  std::memset(pieces, 0, static_cast<size_t>(r.pieces * r.pieceBytes));
  parallelFor(tiles, [&](int64_t tile) {
    auto i = static_cast<size_t>(tile);
    BlockList list{stored[i]};
    std::memcpy(out + r.listOffset + tile * ResidualLayout::listBytes, &list, sizeof list);
    std::vector<uint32_t> local;
    uint8_t *piece = pieces + first[i] * r.pieceBytes;
    forStoredPieces(r, weight, tile / r.tilesK, tile % r.tilesK, [&](int64_t row, int64_t column) {
      for (size_t p = 0; p < parts.size(); ++p)
        parts[p].pack(residual.components[r.parts[p].component], row, column / r.parts[p].unitK,
                      local, piece + r.parts[p].offset);
      piece += r.pieceBytes;
    });
  });
  packSections(r.sections, residual, out);
  return Done{};
}

// Codes of zero in natural order.
QuantizedMatrix emptyMatrix(std::shared_ptr<const Format> format, int64_t n, int64_t k) {
  QuantizedMatrix matrix;
  matrix.rows = n;
  matrix.k = k;
  for (const Component &component : format->components) {
    NaturalShape shape = naturalShape(component, n, k);
    matrix.components.emplace_back(component.type.bits(), shape.rows * shape.units);
  }
  matrix.format = std::move(format);
  return matrix;
}

void unpackSections(const std::vector<LayoutSection> &sections, const uint8_t *in,
                    QuantizedMatrix &weight) {
  for (const LayoutSection &section : sections) {
    const Component &component = weight.format->components[section.component];
    unpackSection(section, naturalShape(component, weight.rows, weight.k), weight.rows, in,
                  weight.components[section.component]);
    addSums(section, component.type, weight.components[section.component]);
  }
  for (size_t c = 1; c < weight.components.size(); ++c)
    divideUnits(weight, static_cast<int>(c));
}

// The residual's codes, and which blocks are stored. Codes of the others are 0.
QuantizedMatrix unpackResidual(const ResidualLayout &r, const Format &format, int64_t n, int64_t k,
                               const uint8_t *in, CodeArray &choice) {
  QuantizedMatrix residual = emptyMatrix(format.residual->part.format, n, k);
  unpackSections(r.sections, in, residual);
  choice = CodeArray(8, divideUp(n, r.blockN) * divideUp(k, r.blockK));
  std::vector<uint32_t> local;
  for (int64_t tile = 0; tile < r.tilesN * r.tilesK; ++tile) {
    BlockList list;
    std::memcpy(&list, in + r.listOffset + tile * ResidualLayout::listBytes, sizeof list);
    uint32_t first = 0;
    std::memcpy(&first, in + r.firstsOffset + 4 * tile, sizeof first);
    int64_t piece = first;
    for (int64_t i = 0; i < r.rowsOfPieces() * r.piecesAlongK(); ++i) {
      int64_t row = tile / r.tilesK * r.tileN + i / r.piecesAlongK() * r.pieceN;
      int64_t column = tile % r.tilesK * r.tileK + i % r.piecesAlongK() * r.pieceK;
      if ((list.stored >> i & 1) == 0 || column >= k || piece >= r.pieces)
        continue;
      if (row >= n) {
        ++piece;
        continue;
      }
      choice.set(row / r.blockN * divideUp(k, r.blockK) + column / r.blockK, 1);
      for (const LayoutSection &part : r.parts) {
        const Component &component = residual.format->components[part.component];
        SectionCodes(part, naturalShape(component, n, k), n)
            .unpack(in + r.pieceOffset + piece * r.pieceBytes + part.offset, row,
                    column / part.unitK, local, residual.components[part.component]);
      }
      ++piece;
    }
  }
  return residual;
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

  std::memset(out, 0, static_cast<size_t>(layout.bytes));
  packSections(layout.sections, *parts[0], out);
  return layout.residual ? packResidual(*layout.residual, weight, out) : Done{};
}

Result<QuantizedMatrix> unpack(const WeightLayout &layout, std::shared_ptr<const Format> format,
                               const uint8_t *in) {
  std::string problem = format ? mismatch(layout, *format) : "there is no format";
  if (!problem.empty())
    return makeError(DiagId::layout_mismatch, {problem});
  if (!layout.residual) {
    QuantizedMatrix weight = emptyMatrix(std::move(format), layout.n, layout.k);
    unpackSections(layout.sections, in, weight);
    return weight;
  }
  Format without = *format;
  without.residual.reset();
  QuantizedMatrix weight;
  weight.rows = layout.n;
  weight.k = layout.k;
  weight.parts.push_back(
      emptyMatrix(std::make_shared<const Format>(std::move(without)), layout.n, layout.k));
  unpackSections(layout.sections, in, weight.parts[0]);
  weight.parts.push_back(
      unpackResidual(*layout.residual, *format, layout.n, layout.k, in, weight.choice));
  weight.format = std::move(format);
  return weight;
}

} // namespace rho::compiler
