#include "compiler/Layout.h"

#include "compiler/LayoutMap.h"
#include "compiler/TextFields.h"

#include <algorithm>
#include <cstdio>
#include <set>

namespace rho::compiler {

using dsl::Component;
using dsl::Extent;
using dsl::Format;

namespace {

// Bounds that keep every product of a layout's numbers inside int64.
constexpr int64_t maxExtent = int64_t(1) << 31;
constexpr int64_t maxBytes = int64_t(1) << 46;
constexpr int maxTileBits = 24;

std::string hexadecimal(uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", value);
  return text;
}

// What is wrong with a section by itself; empty: nothing.
std::string sectionProblem(const LayoutSection &section) {
  if (section.codeBits < 1 || section.codeBits > 32)
    return "codes have " + std::to_string(section.codeBits) + " bits, from 1 to 32 are possible";
  if (section.codeBits < 32 && (section.codeXor >> section.codeBits) != 0)
    return "xor " + hexadecimal(section.codeXor) + " is wider than a code";
  if (section.tileN < 1 || section.tileK < 1 || section.unitK < 1 || section.tilesN < 1 ||
      section.tilesK < 1 || section.unitK > maxExtent || section.tilesN > maxExtent ||
      section.tilesK > maxExtent)
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
  if (seen[0] + 1 != static_cast<uint64_t>(section.tileN) ||
      seen[1] + 1 != static_cast<uint64_t>(section.tileK))
    return "the order does not name each bit of a " + std::to_string(section.tileN) + " x " +
           std::to_string(section.tileK) + " tile once";
  if (section.offset < 0 || section.offset % 256 != 0 || section.offset > maxBytes)
    return "offset " + std::to_string(section.offset) + " is not a multiple of 256";
  int64_t bytes = 0;
  if (__builtin_mul_overflow(section.tilesN, section.tilesK, &bytes) ||
      __builtin_mul_overflow(bytes, tileBytes(section), &bytes) || section.bytes < bytes ||
      section.bytes > maxBytes)
    return "its tiles have " + std::to_string(bytes) + " bytes, the section has " +
           std::to_string(section.bytes);
  return {};
}

std::string layoutProblem(const WeightLayout &layout) {
  if (layout.n < 1 || layout.n > maxExtent || layout.k < 1 || layout.k > maxExtent)
    return "n and k must be positive";
  std::vector<std::pair<int64_t, int64_t>> ranges;
  std::set<int> components;
  for (const LayoutSection &section : layout.sections) {
    std::string problem = sectionProblem(section);
    if (!problem.empty())
      return "section of component " + std::to_string(section.component) + ": " + problem;
    if (!components.insert(section.component).second)
      return "component " + std::to_string(section.component) + " has two sections";
    ranges.emplace_back(section.offset, section.offset + section.bytes);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 0; i < ranges.size(); ++i)
    if ((i > 0 && ranges[i].first < ranges[i - 1].second) || ranges[i].second > layout.bytes)
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
  while (true) {
    size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    if (item.empty() || (item[0] != 'n' && item[0] != 'k'))
      return std::nullopt;
    std::optional<int64_t> bit = readNumber(item.substr(1), 0, maxTileBits);
    if (!bit)
      return std::nullopt;
    order.push_back(
        {item[0] == 'n' ? AxisBit::Axis::N : AxisBit::Axis::K, static_cast<uint8_t>(*bit)});
    if (comma == std::string_view::npos)
      return order;
    text.remove_prefix(comma + 1);
  }
}

// Fills `section` and says what is wrong with its line; empty: nothing.
std::string parseSection(std::string_view line, LayoutSection &section) {
  FieldReader fields(line);
  fields.word("section");
  section.component = static_cast<int>(fields.number("component", 0, 255));
  section.offset = fields.number("offset", 0, maxBytes);
  section.bytes = fields.number("bytes", 0, maxBytes);
  section.codeBits = static_cast<int>(fields.number("bits", 1, 32));
  section.tileN = fields.number("tile_n", 1, maxExtent);
  section.tileK = fields.number("tile_k", 1, maxExtent);
  section.unitK = fields.number("unit_k", 1, maxExtent);
  section.tilesN = fields.number("tiles_n", 1, maxExtent);
  section.tilesK = fields.number("tiles_k", 1, maxExtent);
  section.codeXor = static_cast<uint32_t>(fields.number("xor", 0, UINT32_MAX));
  std::optional<std::vector<AxisBit>> order = parseOrder(fields.text("order"));
  fields.end();
  if (!fields.ok())
    return fields.problem();
  if (!order)
    return "'order' is not a list such as k0,k1,n0";
  section.order = *std::move(order);
  return sectionProblem(section);
}

} // namespace

NaturalShape naturalShape(const Component &component, int64_t rows, int64_t k) {
  switch (component.extent) {
  case Extent::Element:
    return {rows, k};
  case Extent::Group:
    return {divideUp(rows, component.rows), divideUp(k, component.group)};
  case Extent::Row:
    return {rows, 1};
  case Extent::Tensor:
    return {1, 1};
  }
  return {1, 1};
}

std::string mismatch(const WeightLayout &layout, const Format &format) {
  std::string problem = layoutProblem(layout);
  if (!problem.empty())
    return problem;
  if (layout.sections.size() != format.components.size())
    return "it has " + std::to_string(layout.sections.size()) + " sections, the format has " +
           std::to_string(format.components.size()) + " components";
  for (const LayoutSection &section : layout.sections) {
    std::string where = "section of component " + std::to_string(section.component) + ": ";
    if (section.component < 0 || section.component >= static_cast<int>(format.components.size()))
      return where + "the format has no such component";
    const Component &component = format.components[section.component];
    if (section.codeBits != component.type.bits())
      return where + "codes have " + std::to_string(section.codeBits) + " bits, '" +
             component.name + "' has " + std::to_string(component.type.bits());
    int64_t unit = component.extent == Extent::Element ? 1 : component.group;
    if (component.extent <= Extent::Group && section.unitK != unit)
      return where + "one code stands for " + std::to_string(section.unitK) + " columns, of '" +
             component.name + "' for " + std::to_string(unit);
    NaturalShape shape = naturalShape(component, layout.n, layout.k);
    if (section.tileN * section.tilesN < shape.rows || section.tileK * section.tilesK < shape.units)
      return where + "its tiles do not cover '" + component.name + "'";
  }
  return {};
}

std::string WeightLayout::print() const {
  std::string text = "weight n=" + std::to_string(n) + " k=" + std::to_string(k) +
                     " bytes=" + std::to_string(bytes) + "\n";
  for (const LayoutSection &section : sections)
    text +=
        "section component=" + std::to_string(section.component) +
        " offset=" + std::to_string(section.offset) + " bytes=" + std::to_string(section.bytes) +
        " bits=" + std::to_string(section.codeBits) + " tile_n=" + std::to_string(section.tileN) +
        " tile_k=" + std::to_string(section.tileK) + " unit_k=" + std::to_string(section.unitK) +
        " tiles_n=" + std::to_string(section.tilesN) +
        " tiles_k=" + std::to_string(section.tilesK) + " xor=" + hexadecimal(section.codeXor) +
        " order=" + printOrder(section.order) + "\n";
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
    LayoutSection section;
    std::string problem = parseSection(*line, section);
    if (!problem.empty())
      return fail(number, problem);
    layout.sections.push_back(std::move(section));
  }
  if (!rest.empty())
    return fail(number + 1, "the line does not end");
  std::string problem = layoutProblem(layout);
  if (!problem.empty())
    return fail(1, problem);
  return layout;
}

} // namespace rho::compiler
