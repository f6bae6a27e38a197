// Where the codes of a packed weight and of an activation lie.
#include "compiler/plan/Geometry.h"

#include "compiler/LayoutMap.h"
#include "compiler/decode/ScaleSequence.h"
#include "dsl/Division.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace rho::compiler {

namespace {

int log2Of(int64_t powerOfTwo) { return std::countr_zero(static_cast<uint64_t>(powerOfTwo)); }
// Of numbers below `count`.
int bitsBelow(int64_t count) { return std::bit_width(static_cast<uint64_t>(count - 1)); }

constexpr AxisBit nBit(int bit) { return {AxisBit::Axis::N, static_cast<uint8_t>(bit)}; }
constexpr AxisBit kBit(int bit) { return {AxisBit::Axis::K, static_cast<uint8_t>(bit)}; }

// Which coordinate bits a code's place in plane `plane` of its unit stands for. Sub-element s of
// register r is k offset s (lowest k bits); r's low bit is the fragment's row half (row bit 0 in
// the thread-contiguous order); r's next bit is `upperHalf` of an instruction's k, the others count
// instructions along k from bit `firstStep` on.
// With `oneRowHalf` all registers have the same row half, and count the other bits.
using Positions = std::function<int(size_t registerIndex, size_t sub)>;
std::vector<AxisBit> unitOrder(const DecodeSequence &decode, const Positions &position,
                               AxisBit upperHalf, int firstStep, bool oneRowHalf) {
  std::vector<AxisBit> order(static_cast<size_t>(log2Of(decode.codes)));
  auto place = [&](size_t registerIndex, size_t sub, AxisBit bit) {
    int difference = position(registerIndex, sub) ^ position(0, 0);
    order[static_cast<size_t>(log2Of(difference))] = bit;
  };
  for (size_t s = 1; s < decode.perRegister(); s *= 2)
    place(0, s, kBit(std::countr_zero(s)));
  std::vector<AxisBit> ofRegisters{upperHalf};
  if (!oneRowHalf)
    ofRegisters.insert(ofRegisters.begin(), nBit(0));
  for (size_t r = 1; r < decode.registers(); r *= 2) {
    auto bit = static_cast<size_t>(std::countr_zero(r)), known = ofRegisters.size();
    place(r, 0, bit < known ? ofRegisters[bit] : kBit(firstStep + static_cast<int>(bit - known)));
  }
  return order;
}

std::vector<AxisBit> codeOrder(const DecodeSequence &decode, const Positions &position,
                               const Geometry &g, bool oneRowHalf) {
  // Of a unit, the bits of registers, with one that would be the row half.
  size_t registers = decode.registers() << (oneRowHalf ? 1 : 0);
  int kLow = std::countr_zero(decode.perRegister()), kStep = log2Of(g.mmaK);
  int kChunk = log2Of(g.chunkK());
  // Instructions interleave the k of a quad, unless each thread has a run of its own.
  int kLane = g.hasRuns ? kChunk - 2 : kLow;
  AxisBit upperHalf = kBit(g.hasRuns ? kLow : kStep - 1);
  int firstStep = g.hasRuns ? kStep - 2 : kStep;
  std::vector<AxisBit> order = unitOrder(decode, position, upperHalf, firstStep, oneRowHalf);
  // Units of a chunk: first what the unit leaves of one instruction's four registers, then the
  // instructions along k.
  if (registers == 1 || oneRowHalf)
    order.push_back(nBit(0));
  if (registers <= 2)
    order.push_back(upperHalf);
  int inUnit = std::max(0, std::countr_zero(registers) - 2); // bits of instructions
  for (int bit = firstStep + inUnit; bit < kChunk - kStep + firstStep; ++bit)
    order.push_back(kBit(bit));
  // Lanes: lane % 4 along k, lane / 4 along rows.
  order.push_back(kBit(kLane));
  order.push_back(kBit(kLane + 1));
  int rowTileBits = log2Of(g.rowTiles());
  for (int bit = 0; bit < 3; ++bit)
    order.push_back(nBit(1 + rowTileBits + bit));
  // Row tiles of the warp, warps of the panel.
  for (int bit = 0; bit < rowTileBits; ++bit)
    order.push_back(nBit(1 + bit));
  for (int bit = 1 + rowTileBits + 3; bit < bitsBelow(g.panelRows()); ++bit)
    order.push_back(nBit(bit));
  return order;
}

std::vector<AxisBit> codeOrder(const DecodeSequence &decode, const Geometry &g, size_t plane) {
  return codeOrder(
      decode, [&](size_t r, size_t s) { return decode.position(r, s, plane); }, g, false);
}

// The place, as the owner counts codes, of that which the reader has as sub-element s of register
// r.
int positionFor(const DecodeSequence &owner, const DecodeSequence &reader, size_t r, size_t s) {
  for (size_t i = 0; i < owner.registers(); ++i)
    for (size_t j = 0; j < owner.perRegister(); ++j)
      if (owner.bits[i][j] == reader.bits[r][s])
        return owner.position(i, j);
  return 0; // readingCodesOf() has found it
}

// Whether each bit of a register's number, and of a sub-element's, is one bit of a code's place,
// which is what unitOrder() takes them for.
bool hasOrderOfBits(const DecodeSequence &decode, const Positions &position) {
  auto bitsOf = [&](size_t number, const auto &placeOf) {
    int place = 0;
    for (size_t bit = 1; bit <= number; bit *= 2)
      place |= (number & bit) != 0 ? placeOf(bit) : 0;
    return place;
  };
  auto ofRegister = [&](size_t r) { return position(r, 0) ^ position(0, 0); };
  auto ofSub = [&](size_t s) { return position(0, s) ^ position(0, 0); };
  auto isBit = [](int place) { return std::has_single_bit(static_cast<unsigned>(place)); };
  for (size_t r = 0; r < decode.registers(); ++r)
    for (size_t s = 0; s < decode.perRegister(); ++s)
      if ((std::has_single_bit(r) && !isBit(ofRegister(r))) ||
          (std::has_single_bit(s) && !isBit(ofSub(s))) ||
          (position(r, s) ^ position(0, 0)) != (bitsOf(r, ofRegister) | bitsOf(s, ofSub)))
        return false;
  return true;
}

// Block scales: a word has four of one row; 32 words are those that the lanes of a warp give one
// instruction, or two of neighbouring row tiles (thread-id 0 and 1). Lane 4 r + c has row r of each
// fragment half c % 2, of row tile c / 2.
std::vector<AxisBit> blockScaleOrder(const Geometry &g, int64_t groups) {
  int rowTileBits = log2Of(g.rowTiles());
  int paired = std::min(rowTileBits, 1);
  std::vector<AxisBit> order{kBit(0), kBit(1), nBit(0)};
  auto rows = [&](int first, int last) {
    for (int bit = first; bit < last; ++bit)
      order.push_back(nBit(bit));
  };
  rows(1, 1 + paired);
  rows(1 + rowTileBits, 4 + rowTileBits);
  rows(1 + paired, 1 + rowTileBits);
  rows(4 + rowTileBits, bitsBelow(g.tileN));
  for (int bit = 2; bit < log2Of(groups); ++bit)
    order.push_back(kBit(bit));
  return order;
}

} // namespace

std::optional<std::vector<uint8_t>> columnBitsFor(const PlacedGemm &owner, PlacedGemm &reader) {
  Schedule any;
  any.tileM = 8;
  any.tileN = 64;
  any.tileK = Geometry::smallestTileK;
  any.warpsM = any.warpsN = 1;
  Geometry g = makeGeometry(reader, any);
  reader.oneRowHalf = owner.decode.registers() == 1 && reader.decode.registers() > 1;
  if (reader.decode.registers() == 1 && owner.decode.registers() > 1)
    return std::nullopt;
  if (reader.oneRowHalf && !reader.decode.params.empty()) // those are of row halves
    return std::nullopt;
  std::vector<AxisBit> written = codeOrder(owner.decode, makeGeometry(owner, any), 0);
  const Positions position = [&](size_t r, size_t s) {
    return positionFor(owner.decode, reader.decode, r, s);
  };
  if (!hasOrderOfBits(reader.decode, position))
    return std::nullopt;
  std::vector<AxisBit> read = codeOrder(reader.decode, position, g, reader.oneRowHalf);
  std::vector<uint8_t> columnBits(static_cast<size_t>(log2Of(g.chunkK())));
  for (size_t i = 0; i < read.size(); ++i) {
    if (read[i].axis != written[i].axis ||
        (read[i].axis == AxisBit::Axis::N && read[i].bit != written[i].bit))
      return std::nullopt;
    if (read[i].axis == AxisBit::Axis::K && read[i].bit < columnBits.size())
      columnBits[read[i].bit] = written[i].bit;
  }
  while (!columnBits.empty() && columnBits.back() + 1U == columnBits.size())
    columnBits.pop_back(); // the highest keep their places
  return columnBits;
}

namespace {

// The sections of a weight without parts: how many tiles there are follows from n and k.
class Sections {
public:
  Sections(const dsl::Format &weight, const PlacedGemm &placed, const Geometry &g, int64_t n,
           int64_t k, bool isPiece = false)
      : weight(weight), placed(placed), g(g), n(n), k(k), isPiece(isPiece) {}

  LayoutSection plane(size_t plane) const {
    LayoutSection section;
    section.shift = g.planes()[plane].shift;
    section.codeBits = g.planes()[plane].bits;
    section.unitBits = placed.decode.unitBits(plane);
    section.codeXor = placed.decode.codeXor >> storedBits(section).shift & storedBits(section).mask;
    section.tileN = g.panelRows();
    section.tilesN = divideUp(n, section.tileN);
    section.tileK = g.chunkK();
    section.tilesK = divideUp(k, g.tileK) * g.chunks();
    section.codeTable = placed.decode.codeTable;
    section.negatedBy = placed.decode.scaleSign.selector;
    section.negatedBit = placed.decode.scaleSign.bit;
    section.order = codeOrder(placed.decode, g, plane);
    return section;
  }

  LayoutSection component(int index) const {
    const dsl::Component &component = weight.components[static_cast<size_t>(index)];
    LayoutSection section;
    section.component = index;
    section.codeBits = dsl::unitBits(component.type);
    bool inWords = placed.blockScaling && placed.blockScaling->isInWords(true, section.component);
    section.tileN = inWords ? g.tileN : g.panelRows();
    section.tilesN = divideUp(n, section.tileN);
    section.tileK = 1;
    section.tilesK = 1;
    section.unitK = k;
    if (component.extent == dsl::Extent::Group) {
      section.unitK = extentK(component);
      section.unitN = component.rows;
      int64_t groups = g.groupsPerTile(section.unitK);
      section.tileK =
          inWords || isPiece ? groups : g.groupsPerUnit(section.codeBits, section.unitK);
      section.tilesK = divideUp(k, section.unitK * groups) * (groups / section.tileK);
    } else if (component.extent == dsl::Extent::Tensor &&
               placed.streamed[static_cast<size_t>(index)]) {
      section.unitN = n; // in every row, as what decodes take
    } else if (component.extent == dsl::Extent::Tensor) {
      section.tileN = 1;
      section.tilesN = 1;
    }
    if (inWords) {
      section.order = blockScaleOrder(g, section.tileK);
      section.noSign = placed.blockScaling->type == "ue4m3" &&
                       placed.blockScaling->isScale(true, section.component);
      return section;
    }
    if (placed.blockScaling && placed.blockScaling->weightSplit) {
      const std::vector<int> &pairs = placed.blockScaling->weightSplit->stored;
      if (std::find(pairs.begin(), pairs.end(), section.component) != pairs.end())
        section.sumType = placed.mmaType;
    }
    for (const DecodeParam &param : placed.decode.params)
      if (param.form == DecodeParam::Form::Multiplier && param.component == index) {
        section.noSign = multiplierType(weight, index) != component.type;
        section.codeTable = placed.decode.scaleTable.codes;
      }
    int together = log2Of(g.groupsTogether(section.codeBits, extentK(component)));
    // Of the runs of a quad, those of the rows of a thread together.
    int spread = together + log2Of(g.groupsPerChunk(extentK(component)));
    int rows = section.tileN > 1 ? log2Of(g.rowsPerThread()) : 0;
    auto take = [&](AxisBit::Axis axis, int first, int last) {
      for (int bit = first; bit < last; ++bit)
        section.order.push_back({axis, static_cast<uint8_t>(bit)});
    };
    take(AxisBit::Axis::K, 0, together);
    take(AxisBit::Axis::N, 0, rows);
    take(AxisBit::Axis::K, together, spread);
    take(AxisBit::Axis::N, rows, bitsBelow(section.tileN));
    take(AxisBit::Axis::K, spread, log2Of(section.tileK));
    return section;
  }

private:
  const dsl::Format &weight;
  const PlacedGemm &placed;
  const Geometry &g;
  int64_t n, k;
  bool isPiece; // of a residual, which is one tile
};

// Puts a section behind what has `end` bytes already.
void append(LayoutSection section, int64_t alignment, std::vector<LayoutSection> &sections,
            int64_t &end) {
  section.offset = end;
  section.bytes = section.tilesN * section.tilesK * tileBytes(section);
  end = roundUp(section.offset + section.bytes, alignment);
  sections.push_back(std::move(section));
}

} // namespace

PieceParts piecePartsOf(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g) {
  const dsl::Format &format = *gemm.weight.residual->part.format;
  PieceParts result;
  Geometry piece = pieceGeometry(placed, g);
  piece.tileN = piece.warpN();
  piece.warpsN = piece.panelWarps = 1;
  const PlacedGemm &own = placed.residual ? *placed.residual : placed;
  Sections ofPiece(format, own, piece, piece.tileN, piece.tileK, true);
  size_t firstPlane = g.sparseBits > 0 ? g.densePlanes().size() : 0;
  for (size_t plane = firstPlane; plane < piece.planes().size(); ++plane)
    append(ofPiece.plane(plane), partAlignment, result.parts, result.bytes);
  for (int i = 1; i < static_cast<int>(format.components.size()) && placed.residual; ++i)
    if (own.streamed[static_cast<size_t>(i)])
      append(ofPiece.component(i), partAlignment, result.parts, result.bytes);
  return result;
}

namespace {

ResidualLayout makeResidualLayout(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                  const Geometry &g, const Geometry &piece, const Problem &problem,
                                  int64_t &end) {
  const dsl::Residual &declared = *gemm.weight.residual;
  const dsl::Format &format = *declared.part.format;
  ResidualLayout r;
  r.blockN = declared.blocks.rows;
  r.blockK = declared.blocks.k;
  r.tileN = g.tileN;
  r.tileK = g.tileK;
  r.tilesN = divideUp(problem.n, g.tileN);
  r.tilesK = divideUp(problem.k, g.tileK);
  r.pieceN = piece.warpN();
  r.pieceK = piece.tileK;
  PieceParts ofPiece = piecePartsOf(gemm, placed, g);
  r.pieceBytes = ofPiece.bytes;
  r.parts = std::move(ofPiece.parts);
  for (LayoutSection &part : r.parts) {
    dsl::Extent extent = format.components[static_cast<size_t>(part.component)].extent;
    if (part.component != 0 && extent > dsl::Extent::Group) // one code for all of k
      part.unitK = std::max(problem.k, r.pieceK);
    if (part.component != 0 && extent == dsl::Extent::Tensor)
      part.unitN = problem.n;
  }
  for (int i = 1; i < static_cast<int>(format.components.size()) && placed.residual; ++i)
    if (!placed.residual->streamed[static_cast<size_t>(i)])
      append(Sections(format, *placed.residual, g, problem.n, problem.k).component(i),
             sectionAlignment, r.sections, end);
  int64_t blocks = divideUp(problem.n, r.blockN) * divideUp(problem.k, r.blockK);
  int64_t stored = dsl::mostBlocks(declared.part, blocks);
  int64_t perBlock = std::min(r.blockN, r.tilesN * r.tileN) / r.pieceN *
                     (std::min(r.blockK, roundUp(problem.k, r.pieceK)) / r.pieceK);
  r.pieces = stored * perBlock;
  auto take = [&](int64_t bytes) {
    int64_t offset = end;
    end = roundUp(end + bytes, sectionAlignment);
    return offset;
  };
  r.wordsOffset = take(r.wordsBytes());
  r.firstsOffset = take(r.firstsBytes());
  r.pieceOffset = take(r.pieces * r.pieceBytes);
  return r;
}

} // namespace

WeightLayout makeWeightLayout(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                              const Problem &problem) {
  WeightLayout layout;
  layout.n = problem.n;
  layout.k = problem.k;
  Sections sections(gemm.weight, placed, g, problem.n, problem.k);
  auto add = [&](LayoutSection section) {
    append(std::move(section), sectionAlignment, layout.sections, layout.bytes);
  };
  add(sections.plane(0));
  for (int i = 1; i < static_cast<int>(gemm.weight.components.size()); ++i)
    if (gemm.weight.components[static_cast<size_t>(i)].host < 0) // else stored with its host
      add(sections.component(i));
  for (size_t plane = 1; plane < g.densePlanes().size(); ++plane)
    add(sections.plane(plane));
  if (placed.storesBlocks())
    layout.residual =
        makeResidualLayout(gemm, placed, g, pieceGeometry(placed, g), problem, layout.bytes);
  return layout;
}

ActivationLayout makeActivationLayout(const PlacedGemm &placed, const Geometry &g,
                                      const Problem &problem) {
  ActivationLayout layout{problem.k, g.activationBits(), 0,
                          placed.blockScaling ? BlockScaling::perWord : 1, placed.columnBits};
  int64_t unit = int64_t{1} << placed.columnBits.size();
  layout.pitchBytes = divideUp(roundUp(problem.k, unit) * g.activationBits(), 128) * 16;
  if (placed.parts.empty())
    return layout;
  layout = {.k = problem.k, .tileK = g.tileK};
  for (const PlacedGemm &part : placed.parts)
    layout.parts.push_back(makeActivationLayout(part, geometryOfPart(part, g), problem));
  return layout;
}

} // namespace rho::compiler
