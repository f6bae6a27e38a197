#include "compiler/Layout.h"

#include "compiler/LayoutMap.h"
#include "compiler/TextFields.h"
#include "dsl/Division.h"
#include "dsl/Findings.h"
#include "dsl/Numbers.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

namespace rho::compiler {

using dsl::Component;
using dsl::Extent;
using dsl::Format;

namespace {

// With which products of a layout's numbers stay inside int64, or are seen to leave it.
// Weights of largestExtent rows and columns have no more, with 32 bits for each number and its
// scale.
constexpr int64_t maxBytes = int64_t(1) << 52;
constexpr int maxTileBits = 24;

std::string hexadecimal(uint32_t value) { return "0x" + dsl::hexadecimal(value); }

// Whether each number below `count` is there once.
bool isPermutation(const std::vector<uint8_t> &numbers, size_t count) {
  std::vector<bool> seen(count);
  for (uint8_t number : numbers)
    if (number >= count || seen[number])
      return false;
    else
      seen[number] = true;
  return numbers.size() == count;
}

// What is wrong with how a section's codes are renamed and scattered; empty: nothing.
std::string storedCodeProblem(const LayoutSection &section) {
  const std::vector<uint8_t> &unit = section.unitBits;
  const bool isScattered = !unit.empty();
  if ((section.codeXor & ~storedBits(section).mask) != 0)
    return "xor " + hexadecimal(section.codeXor) + " is wider than a code";
  const size_t renamed = isScattered ? section.codeTable.size() : size_t(1) << section.codeBits;
  if (!section.codeTable.empty() &&
      (section.codeBits > 8 || (section.shift != 0 && !isScattered) || section.codeXor != 0 ||
       !std::has_single_bit(renamed) || !isPermutation(section.codeTable, renamed)))
    return "'table' does not rename codes of " + std::to_string(section.codeBits) + " bits";
  if (!isScattered)
    return {};
  const auto codes = static_cast<int64_t>(unit.size()) / section.codeBits;
  std::vector<bool> seen(size_t{1} << 8);
  bool isOrder = unit.size() % 32 == 0 && unit.size() <= 256 &&
                 static_cast<int64_t>(unit.size()) == codes * section.codeBits &&
                 section.tileN * section.tileK % codes == 0;
  for (uint8_t bit : unit) {
    isOrder = isOrder && bit / mostScatteredBits < codes && !seen[bit];
    seen[bit] = true;
  }
  return isOrder ? ""
                 : "'unit' does not scatter codes of which it has " +
                       std::to_string(section.codeBits) + " bits";
}

// What is wrong with a section by itself; empty: nothing.
std::string sectionProblem(const LayoutSection &section, int64_t alignment) {
  if (section.codeBits < 1 || section.codeBits > 32)
    return "codes have " + std::to_string(section.codeBits) + " bits, from 1 to 32 are possible";
  if (section.shift < 0 || section.shift + section.codeBits > 32)
    return "it begins at bit " + std::to_string(section.shift) + " of codes";
  if (section.tileN < 1 || section.tileK < 1 || section.unitK < 1 || section.unitN < 1 ||
      section.tilesN < 1 || section.tilesK < 1 || section.unitK > maxExtent ||
      section.unitN > maxExtent || section.tilesN > maxExtent || section.tilesK > maxExtent)
    return "tile extents and counts must be positive";
  if (section.order.size() > maxTileBits)
    return "a tile has 2^" + std::to_string(section.order.size()) + " codes, at most 2^" +
           std::to_string(maxTileBits) + " are possible";
  // Exactly the bits of both local coordinates, each once.
  uint64_t seen[2] = {0, 0};
  for (AxisBit bit : section.order) {
    uint64_t mask = uint64_t(1) << (bit.bit & 63);
    uint64_t &bits = seen[bit.axis == AxisBit::Axis::K];
    if (bit.bit > maxTileBits || (bits & mask) != 0)
      return "the order names a bit twice or beyond a tile";
    bits |= mask;
  }
  if (seen[0] + 1 != std::bit_ceil(static_cast<uint64_t>(section.tileN)) ||
      seen[1] + 1 != static_cast<uint64_t>(section.tileK))
    return "the order does not name each bit of a " + std::to_string(section.tileN) + " x " +
           std::to_string(section.tileK) + " tile once";
  if (section.offset < 0 || section.offset % alignment != 0 || section.offset > maxBytes)
    return "offset " + std::to_string(section.offset) + " is not a multiple of " +
           std::to_string(alignment);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(section.tilesN, section.tilesK, &bytes) ||
      __builtin_mul_overflow(bytes, tileBytes(section), &bytes) || section.bytes < bytes ||
      section.bytes > maxBytes)
    return "its tiles have " + std::to_string(bytes) + " bytes, the section has " +
           std::to_string(section.bytes);
  if (!section.sumType.empty()) {
    std::optional<dsl::ElementType> type = dsl::ElementType::fromName(section.sumType);
    if (!type || type->isCodebook() || 2 * type->bits() > section.codeBits)
      return "'" + section.sumType + "' is no type of which two codes have " +
             std::to_string(section.codeBits) + " bits";
  }
  return storedCodeProblem(section);
}

// What keeps the sections of one component from holding each bit of its codes once.
std::string planeProblem(std::vector<const LayoutSection *> &sections) {
  std::sort(sections.begin(), sections.end(),
            [](const auto *a, const auto *b) { return a->shift < b->shift; });
  int next = 0;
  for (const LayoutSection *section : sections) {
    if (section->shift != next)
      return "its sections hold bit " + std::to_string(std::min(next, section->shift)) +
             (section->shift < next ? " twice" : " nowhere");
    next += section->codeBits;
  }
  std::set<uint8_t> scattered; // what their units hold
  size_t held = 0;
  for (const LayoutSection *section : sections) {
    scattered.insert(section->unitBits.begin(), section->unitBits.end());
    held += section->unitBits.size();
    if (section->unitBits.empty() != sections[0]->unitBits.empty() ||
        section->unitBits.size() / section->codeBits !=
            sections[0]->unitBits.size() / sections[0]->codeBits)
      return "its sections have units of different codes";
  }
  for (uint8_t bit : scattered)
    if (bit % mostScatteredBits >= next)
      return "its codes have no bit " + std::to_string(bit % mostScatteredBits);
  return scattered.size() == held ? "" : "its sections hold a bit twice";
}

using Ranges = std::vector<std::pair<int64_t, int64_t>>; // of bytes, the end exclusive
using Sections = std::vector<LayoutSection>;

// What is wrong with the sections of one format.
std::string sectionsProblem(std::initializer_list<const Sections *> all) {
  std::map<int, std::vector<const LayoutSection *>> planes; // by component
  for (const Sections *sections : all)
    for (const LayoutSection &section : *sections)
      planes[section.component].push_back(&section);
  for (auto &[component, sections] : planes)
    if (std::string problem = planeProblem(sections); !problem.empty())
      return "component " + std::to_string(component) + ": " + problem;
  return {};
}

// What is wrong with each of them by itself.
std::string eachProblem(const Sections &sections, int64_t alignment) {
  for (const LayoutSection &section : sections)
    if (std::string problem = sectionProblem(section, alignment); !problem.empty())
      return "section of component " + std::to_string(section.component) + ": " + problem;
  return {};
}

void appendRanges(const Sections &sections, Ranges &ranges) {
  for (const LayoutSection &section : sections)
    ranges.emplace_back(section.offset, section.offset + section.bytes);
}

// Whether ranges overlap or end past `bytes`.
bool collide(Ranges ranges, int64_t bytes) {
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 0; i < ranges.size(); ++i)
    if ((i > 0 && ranges[i].first < ranges[i - 1].second) || ranges[i].second > bytes)
      return true;
  return false;
}

// What is wrong with a residual by itself; empty: nothing.
std::string residualProblem(const WeightLayout &layout) {
  const ResidualLayout &r = *layout.residual;
  for (int64_t extent :
       {r.blockN, r.blockK, r.tileN, r.tileK, r.tilesN, r.tilesK, r.pieceN, r.pieceK, r.pieceBytes})
    if (extent < 1 || extent > maxExtent)
      return "extents and counts must be positive";
  if (r.tileN % r.pieceN != 0 || r.tileK % r.pieceK != 0 || r.blockN % r.pieceN != 0 ||
      r.blockK % r.pieceK != 0 || r.rowsOfPieces() > ResidualLayout::mostPieces ||
      r.piecesAlongK() > BandWord::storedBits ||
      r.rowsOfPieces() * r.piecesAlongK() > ResidualLayout::mostPieces)
    return "tiles and blocks have whole pieces, a tile at most " +
           std::to_string(ResidualLayout::mostPieces);
  if (r.tileN * r.tilesN < layout.n || r.tileK * r.tilesK < layout.k)
    return "its tiles do not cover the weight";
  int64_t words = 0;
  if (__builtin_mul_overflow(r.tilesN * r.rowsOfPieces(), r.tilesK, &words) || words > maxBytes / 4)
    return "its tiles have more words than memory";
  if (r.pieces < 0 || r.pieces > maxExtent || r.pieceBytes % partAlignment != 0)
    return "its pieces have no possible place";
  for (int64_t offset : {r.wordsOffset, r.firstsOffset, r.pieceOffset})
    if (offset < 0 || offset % sectionAlignment != 0 || offset > maxBytes)
      return "its pieces have no possible place";
  for (const std::string &problem :
       {eachProblem(r.parts, partAlignment), eachProblem(r.sections, sectionAlignment),
        layout.isRefined() ? "" : sectionsProblem({&r.parts, &r.sections})})
    if (!problem.empty())
      return problem;
  Ranges inPiece;
  appendRanges(r.parts, inPiece);
  if (collide(std::move(inPiece), r.pieceBytes))
    return "parts overlap or end past " + std::to_string(r.pieceBytes) + " bytes";
  return {};
}

std::string layoutProblem(const WeightLayout &layout) {
  if (layout.n < 1 || layout.n > maxExtent || layout.k < 1 || layout.k > maxExtent)
    return "n and k must be positive";
  for (const std::string &problem :
       {eachProblem(layout.sections, sectionAlignment),
        layout.isRefined() ? sectionsProblem({&layout.sections, &layout.residual->parts})
                           : sectionsProblem({&layout.sections})})
    if (!problem.empty())
      return problem;
  Ranges ranges;
  appendRanges(layout.sections, ranges);
  if (layout.residual) {
    if (std::string problem = residualProblem(layout); !problem.empty())
      return "residual: " + problem;
    const ResidualLayout &r = *layout.residual;
    appendRanges(r.sections, ranges);
    ranges.emplace_back(r.wordsOffset, r.wordsOffset + r.wordsBytes());
    ranges.emplace_back(r.firstsOffset, r.firstsOffset + r.firstsBytes());
    ranges.emplace_back(r.pieceOffset, r.pieceOffset + r.pieces * r.pieceBytes);
  }
  if (collide(std::move(ranges), layout.bytes))
    return "sections overlap or end past " + std::to_string(layout.bytes) + " bytes";
  if (layout.bytes < 0 || layout.bytes > maxBytes)
    return "its size is not possible";
  return {};
}

std::string printOrder(const std::vector<AxisBit> &order) {
  std::string text;
  for (AxisBit bit : order) {
    text += text.empty() ? "" : ",";
    text += (bit.axis == AxisBit::Axis::N ? "n" : "k") + std::to_string(bit.bit);
  }
  return text.empty() ? "-" : text;
}

std::optional<std::vector<AxisBit>> parseOrder(std::string_view text) {
  std::vector<AxisBit> order;
  if (text == "-")
    return order;
  for (std::string_view item : dsl::split(text, ',')) {
    if (item.empty() || (item[0] != 'n' && item[0] != 'k'))
      return std::nullopt;
    std::optional<int64_t> bit = readNumber(item.substr(1), 0, maxTileBits);
    if (!bit)
      return std::nullopt;
    order.push_back(
        {item[0] == 'n' ? AxisBit::Axis::N : AxisBit::Axis::K, static_cast<uint8_t>(*bit)});
  }
  return order;
}

// The numbers that a section's line begins with.
constexpr NumberField<LayoutSection> sectionFields[] = {
    {"component", &LayoutSection::component, 0, 255},
    {"offset", &LayoutSection::offset, 0, maxBytes},
    {"bytes", &LayoutSection::bytes, 0, maxBytes},
    {"shift", &LayoutSection::shift, 0, 31},
    {"bits", &LayoutSection::codeBits, 1, 32},
    {"tile_n", &LayoutSection::tileN, 1, maxExtent},
    {"tile_k", &LayoutSection::tileK, 1, maxExtent},
    {"unit_k", &LayoutSection::unitK, 1, maxExtent},
    {"unit_n", &LayoutSection::unitN, 1, maxExtent},
    {"tiles_n", &LayoutSection::tilesN, 1, maxExtent},
    {"tiles_k", &LayoutSection::tilesK, 1, maxExtent},
    {"negated_by", &LayoutSection::negatedBy, 0, 255},
    {"negated_bit", &LayoutSection::negatedBit, 0, 31},
};

std::string printSection(const char *head, const LayoutSection &section) {
  return head + printFields(sectionFields, section) + " xor=" + hexadecimal(section.codeXor) +
         " table=" + printNumbers(section.codeTable) + " unit=" + printNumbers(section.unitBits) +
         " no_sign=" + std::to_string(int(section.noSign)) +
         " sum=" + (section.sumType.empty() ? "-" : section.sumType) +
         " order=" + printOrder(section.order) + "\n";
}

// Fills `section` and says what is wrong with its line, which begins with `head`; empty: nothing.
std::string parseSection(std::string_view line, const char *head, int64_t alignment,
                         LayoutSection &section) {
  FieldReader fields(line);
  fields.word(head);
  readFields(sectionFields, fields, section);
  section.codeXor = static_cast<uint32_t>(fields.number("xor", 0, UINT32_MAX));
  std::optional<std::vector<uint8_t>> table = parseNumbers(fields.text("table"));
  std::optional<std::vector<uint8_t>> unit = parseNumbers(fields.text("unit"));
  section.noSign = fields.number("no_sign", 0, 1) != 0;
  section.sumType = fields.text("sum");
  if (section.sumType == "-")
    section.sumType.clear();
  std::optional<std::vector<AxisBit>> order = parseOrder(fields.text("order"));
  fields.end();
  if (!fields.ok())
    return fields.problem();
  if (!order)
    return "'order' is not a list such as k0,k1,n0";
  if (!table || !unit)
    return "'table' and 'unit' are not lists such as 1,0";
  section.codeTable = *std::move(table);
  section.unitBits = *std::move(unit);
  section.order = *std::move(order);
  return sectionProblem(section, alignment);
}

// The numbers of a residual's line.
constexpr NumberField<ResidualLayout> residualFields[] = {
    {"block_n", &ResidualLayout::blockN, 1, maxExtent},
    {"block_k", &ResidualLayout::blockK, 1, maxExtent},
    {"tile_n", &ResidualLayout::tileN, 1, maxExtent},
    {"tile_k", &ResidualLayout::tileK, 1, maxExtent},
    {"tiles_n", &ResidualLayout::tilesN, 1, maxExtent},
    {"tiles_k", &ResidualLayout::tilesK, 1, maxExtent},
    {"piece_n", &ResidualLayout::pieceN, 1, maxExtent},
    {"piece_k", &ResidualLayout::pieceK, 1, maxExtent},
    {"words", &ResidualLayout::wordsOffset, 0, maxBytes},
    {"firsts", &ResidualLayout::firstsOffset, 0, maxBytes},
    {"offset", &ResidualLayout::pieceOffset, 0, maxBytes},
    {"pieces", &ResidualLayout::pieces, 0, maxExtent},
    {"piece_bytes", &ResidualLayout::pieceBytes, 1, maxExtent},
};

std::string printResidual(const ResidualLayout &residual) {
  std::string text = "residual" + printFields(residualFields, residual) + "\n";
  for (const LayoutSection &part : residual.parts)
    text += printSection("part", part);
  for (const LayoutSection &section : residual.sections)
    text += printSection("shared", section);
  return text;
}

// Says what is wrong with the line; empty: nothing.
std::string parseResidual(std::string_view line, ResidualLayout &residual) {
  FieldReader fields(line);
  fields.word("residual");
  readFields(residualFields, fields, residual);
  fields.end();
  return fields.problem();
}

// One line of a layout after the first.
std::string parseLine(std::string_view line, WeightLayout &layout) {
  if (line.starts_with("residual ") && !layout.residual)
    return parseResidual(line, layout.residual.emplace());
  bool part = line.starts_with("part "), shared = line.starts_with("shared ");
  if ((part || shared) && !layout.residual)
    return "it stands before the residual's";
  const char *head = part ? "part" : shared ? "shared" : "section";
  Sections &sections = part     ? layout.residual->parts
                       : shared ? layout.residual->sections
                                : layout.sections;
  return parseSection(line, head, part ? partAlignment : sectionAlignment, sections.emplace_back());
}

} // namespace

Format refinedWeight(const Format &weight) {
  const dsl::Part &part = weight.residual->part;
  int bits = weight.element().type.bits() + part.format->element().type.bits();
  return withElement(weight, dsl::ElementType::get("s" + std::to_string(bits)),
                     1 / static_cast<double>(part.divisor), weight.name);
}

dsl::BlockGrid storedGrid(const LayoutSection &section, const Component &component, int64_t rows,
                          int64_t k) {
  dsl::BlockGrid grid = codeGrid(component, rows, k);
  if (component.extent == Extent::Group)
    grid.columns = divideUp(k, section.unitK);
  return grid;
}

namespace {

// What keeps blocks of elements from being stored negated; empty: nothing.
std::string negationProblem(const WeightLayout &layout, const LayoutSection &section,
                            const Format &format) {
  if (section.negatedBy == 0)
    return {};
  if (section.component != 0 || layout.residual)
    return "only elements of a weight without a residual are negated";
  if (section.negatedBy >= static_cast<int>(format.components.size()))
    return "the format has no component " + std::to_string(section.negatedBy) + " to be negated by";
  const Component &by = format.components[section.negatedBy];
  if (section.negatedBit >= by.type.bits())
    return "it is negated by bit " + std::to_string(section.negatedBit) + ", '" + by.name +
           "' has " + std::to_string(by.type.bits());
  return negatedCodes(format).empty() ? "its numbers have no opposites" : "";
}

// What of a format without parts these sections, which hold all of its components, do not fit.
std::string mismatchOf(const WeightLayout &layout, std::initializer_list<const Sections *> all,
                       const Format &format) {
  std::vector<int> bits(format.components.size());
  for (const Sections *sections : all)
    for (const LayoutSection &section : *sections) {
      std::string where = "section of component " + std::to_string(section.component) + ": ";
      if (section.component < 0 || section.component >= static_cast<int>(format.components.size()))
        return where + "the format has no such component";
      const Component &component = format.components[section.component];
      if (component.host >= 0)
        return where + "'" + component.name + "' lies in spare bits of '" +
               format.components[component.host].name + "'";
      if (section.shift >= component.type.bits())
        return where + "it begins at bit " + std::to_string(section.shift) + ", '" +
               component.name + "' has " + std::to_string(component.type.bits());
      const int typeBits = component.type.bits();
      if (!section.unitBits.empty() &&
          (typeBits > mostScatteredBits ||
           (!section.codeTable.empty() && section.codeTable.size() != size_t{1} << typeBits)))
        return where + "'" + component.name + "' has codes of " + std::to_string(typeBits) +
               " bits";
      if (std::string problem = negationProblem(layout, section, format); !problem.empty())
        return where + problem;
      bits[section.component] += section.codeBits;
      int64_t unit = component.extent == Extent::Element ? 1 : component.group;
      if (component.extent <= Extent::Group && unit % section.unitK != 0)
        return where + "one code stands for " + std::to_string(section.unitK) + " columns, of '" +
               component.name + "' for " + std::to_string(unit);
      dsl::BlockGrid grid = storedGrid(section, component, layout.n, layout.k);
      if (section.unitN > 1 && divideUp(layout.n, section.unitN) != grid.rows)
        return where + "one code stands for " + std::to_string(section.unitN) + " rows, '" +
               component.name + "' has " + std::to_string(grid.rows) + " for " +
               std::to_string(layout.n);
      if (section.tileN * section.tilesN < storedRows(section, grid, layout.n) ||
          section.tileK * section.tilesK < grid.columns)
        return where + "its tiles do not cover '" + component.name + "'";
    }
  for (size_t i = 0; i < bits.size(); ++i) {
    int needed = format.storedBits(static_cast<int>(i));
    if (bits[i] < needed)
      return "it has " + std::to_string(bits[i]) + " bits of each code of '" +
             format.components[i].name + "', which has " + std::to_string(needed);
  }
  return {};
}

} // namespace

int64_t ActivationLayout::placeOf(int64_t column) const {
  int64_t place = column >> columnBits.size() << columnBits.size();
  for (size_t bit = 0; bit < columnBits.size(); ++bit)
    place |= (column >> columnBits[bit] & 1) << bit;
  return place;
}

std::vector<StoredComponent> storedComponents(const Format &activation) {
  std::vector<StoredComponent> result;
  auto append = [&](size_t part, const Format &format) {
    for (size_t i = 0; i < format.components.size(); ++i)
      result.push_back({part, &format, static_cast<int>(i)});
  };
  if (!activation.partition)
    append(0, activation);
  else
    for (size_t part = 0; part < activation.partition->parts.size(); ++part)
      append(part, *activation.partition->parts[part].format);
  return result;
}

std::vector<uint32_t> negatedCodes(const Format &format) {
  const Component &element = format.element();
  if (element.type.bits() > 8 || element.type.isCodebook())
    return {};
  const uint32_t count = 1U << element.type.bits();
  auto isRemapped = [&](uint32_t code) { return element.remap && element.remap->code == code; };
  std::vector<uint32_t> result;
  for (uint32_t code = 0; code < count; ++code) {
    uint32_t other = code;
    for (; !isRemapped(code); ++other) {
      if (other - code == count)
        return {};
      if (!isRemapped(other % count) &&
          element.type.decode(other % count) == -element.type.decode(code))
        break;
    }
    result.push_back(other % count);
  }
  return result;
}

std::string mismatch(const WeightLayout &layout, const Format &format) {
  if (std::string problem = layoutProblem(layout); !problem.empty())
    return problem;
  if (layout.residual.has_value() != format.residual.has_value())
    return layout.residual ? "the format has no residual" : "the format has a residual";
  if (!layout.residual)
    return mismatchOf(layout, {&layout.sections}, format);
  const ResidualLayout &residual = *layout.residual;
  if (residual.blockN != format.residual->blocks.rows ||
      residual.blockK != format.residual->blocks.k)
    return "its residual has other blocks";
  if (layout.isRefined() && format.residual->part.divisor == 0)
    return "the format's residual has scales of its own";
  std::string problem = layout.isRefined() ? "" : mismatchOf(layout, {&layout.sections}, format);
  if (!problem.empty())
    return problem;
  // Of each piece's parts one tile each, those of all of the weight.
  Sections parts = residual.parts;
  for (LayoutSection &part : parts) {
    int64_t unitsOfPiece = std::max<int64_t>(1, residual.pieceK / part.unitK);
    if (part.tilesN != 1 || part.tilesK != 1 || part.tileN != residual.pieceN ||
        part.tileK != unitsOfPiece)
      return "a part of the residual is no tile of a piece";
    part.tilesN = divideUp(layout.n, part.tileN);
    part.tilesK = divideUp(layout.k, part.tileK * part.unitK);
  }
  if (layout.isRefined())
    return mismatchOf(layout, {&layout.sections, &parts}, refinedWeight(format));
  const Format &part = *format.residual->part.format;
  problem = mismatchOf(layout, {&parts, &residual.sections}, part);
  if (!problem.empty())
    return problem;
  for (const LayoutSection &section : parts)
    if (const Component &component = part.components[section.component];
        component.extent == Extent::Group && section.unitK != component.group)
      return "a part of the residual divides groups";
  return "";
}

std::string WeightLayout::print() const {
  std::string text = "weight n=" + std::to_string(n) + " k=" + std::to_string(k) +
                     " bytes=" + std::to_string(bytes) + "\n";
  for (const LayoutSection &section : sections)
    text += printSection("section", section);
  if (residual)
    text += printResidual(*residual);
  return text;
}

Result<WeightLayout> WeightLayout::parse(std::string_view text) {
  auto fail = [](int line, const std::string &problem) {
    return makeError(DiagId::layout_text_invalid, {std::to_string(line), problem});
  };
  WeightLayout layout;
  int number = 1;
  std::string_view rest = text;
  std::optional<std::string_view> line = takeLine(rest);
  FieldReader head(line.value_or(""));
  head.word("weight");
  layout.n = head.number("n", 1, maxExtent);
  layout.k = head.number("k", 1, maxExtent);
  layout.bytes = head.number("bytes", 0, maxBytes);
  head.end();
  if (!head.ok())
    return fail(number, head.problem());
  for (line = takeLine(rest); line; line = takeLine(rest)) {
    ++number;
    std::string problem = parseLine(*line, layout);
    if (!problem.empty())
      return fail(number, problem);
  }
  if (!rest.empty())
    return fail(number + 1, "the line does not end");
  std::string problem = layoutProblem(layout);
  if (!problem.empty())
    return fail(1, problem);
  return layout;
}

} // namespace rho::compiler
