#include "kernels/quantize/CodeStreams.h"

#include "kernels/quantize/PackedCodes.h"

#include <algorithm>
#include <array>
#include <bit>

namespace rho::kernels {

namespace {

// Types of .safetensors with the same numbers.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> twins = {{
    {"f32", "F32"},
    {"f16", "F16"},
    {"bf16", "BF16"},
    {"e4m3", "F8_E4M3"},
    {"e5m2", "F8_E5M2"},
    {"e8m0", "F8_E8M0"},
    {"s8", "I8"},
    {"u8", "U8"},
}};

class Collector {
public:
  Collector(int64_t rows, int64_t k) : rows(rows), k(k) {}

  void collect(const std::string &prefix, const dsl::Format &format) {
    if (format.residual) {
      path.push_back(0);
      collect(prefix, withoutResidual(format));
      path.pop_back();
      bool isTaken = std::any_of(streams.begin(), streams.end(), [&](const CodeStream &stream) {
        return stream.name == prefix + "choice";
      });
      choice(prefix + "choice" + (isTaken ? "." + format.residual->part.name : ""),
             format.residual->blocks, 2);
      part(prefix, format.residual->part, 1);
      return;
    }
    if (format.partition) {
      const std::vector<dsl::Part> &parts = format.partition->parts;
      choice(prefix + "choice", format.partition->blocks, static_cast<int>(parts.size()));
      for (size_t i = 0; i < parts.size(); ++i)
        part(prefix, parts[i], static_cast<int>(i));
      return;
    }
    for (size_t i = 0; i < format.components.size(); ++i)
      component(prefix, format.components[i], static_cast<int>(i));
  }

  std::vector<CodeStream> streams;

private:
  void part(const std::string &prefix, const dsl::Part &part, int index) {
    path.push_back(index);
    bool outer = selective;
    selective = true;
    if (part.divisor != 0) // the others are those of the rest
      component(prefix + part.name + ".", part.format->element(), 0);
    else
      collect(prefix + part.name + ".", *part.format);
    selective = outer;
    path.pop_back();
  }

  void choice(const std::string &name, const dsl::Blocks &blocks, int choices) {
    std::string type = "u" + std::to_string(std::bit_width(static_cast<unsigned>(choices - 1)));
    streams.push_back({.name = name,
                       .type = dsl::ElementType::get(type),
                       .extent = dsl::Extent::Group,
                       .grid = blockGrid(blocks, rows, k),
                       .rows = blocks.rows == 0 ? rows : blocks.rows,
                       .columns = blocks.k,
                       .path = path,
                       .choices = choices,
                       .selective = selective});
  }

  void component(const std::string &prefix, const dsl::Component &component, int index) {
    bool group = component.extent == dsl::Extent::Group;
    streams.push_back({.name = prefix + component.name,
                       .type = component.type,
                       .extent = component.extent,
                       .grid = codeGrid(component, rows, k),
                       .rows = component.rows,
                       .columns = group ? component.group : 1,
                       .path = path,
                       .component = index,
                       .selective = selective});
  }

  const int64_t rows, k;
  std::vector<int> path;
  bool selective = false;
};

} // namespace

std::vector<CodeStream> streamsOf(const std::string &name, const dsl::Format &format, int64_t rows,
                                  int64_t k) {
  Collector collector(rows, k);
  collector.collect(name + ".", format);
  return std::move(collector.streams);
}

TensorEntry entryOf(const CodeStream &stream) {
  TensorEntry entry;
  entry.name = stream.name;
  entry.type = "U8";
  int bits = stream.type.bits();
  entry.bytes = packedBytes(stream.grid.size(), bits);
  const auto *twin = std::find_if(twins.begin(), twins.end(), [&](const auto &each) {
    return each.first == stream.type.name();
  });
  if (stream.isSelective() || (twin == twins.end() && stream.grid.columns * bits % 8 != 0)) {
    entry.shape = {entry.bytes};
    return entry;
  }
  int64_t across = stream.grid.columns;
  if (twin != twins.end())
    entry.type = twin->second;
  else
    across = across * bits / 8;
  bool matrix = stream.extent == dsl::Extent::Element || stream.extent == dsl::Extent::Group;
  entry.shape = matrix ? std::vector{stream.grid.rows, across} : std::vector{stream.grid.rows};
  if (!matrix && twin == twins.end())
    entry.shape[0] *= across;
  return entry;
}

void shareCodes(dsl::QuantizedMatrix &matrix) {
  for (dsl::QuantizedMatrix &part : matrix.parts)
    shareCodes(part);
  if (!matrix.format->residual || matrix.format->residual->part.divisor == 0)
    return;
  std::vector<dsl::CodeArray> &own = matrix.parts[1].components;
  std::copy(matrix.parts[0].components.begin() + 1, matrix.parts[0].components.end(),
            own.begin() + 1);
}

const dsl::QuantizedMatrix &partOf(const dsl::QuantizedMatrix &matrix, const CodeStream &stream) {
  const dsl::QuantizedMatrix *inner = &matrix;
  for (int part : stream.path)
    inner = &inner->parts[static_cast<size_t>(part)];
  return *inner;
}

const dsl::CodeArray &codesOf(const dsl::QuantizedMatrix &matrix, const CodeStream &stream) {
  const dsl::QuantizedMatrix &part = partOf(matrix, stream);
  return stream.component < 0 ? part.choice
                              : part.components[static_cast<size_t>(stream.component)];
}

dsl::CodeArray &codesOf(dsl::QuantizedMatrix &matrix, const CodeStream &stream) {
  return const_cast<dsl::CodeArray &>(codesOf(std::as_const(matrix), stream));
}

bool isStored(const CodeStream &stream, const dsl::QuantizedMatrix &matrix, int64_t row,
              int64_t column) {
  const dsl::QuantizedMatrix *outer = &matrix;
  for (int part : stream.path) {
    const dsl::Format &format = *outer->format;
    bool base = format.residual && part == 0; // which stores every number
    const int64_t block = blockIndex(format.choiceBlocks(), outer->k, row, column);
    if (!base && outer->choice.get(block) != static_cast<uint32_t>(part))
      return false;
    outer = &outer->parts[static_cast<size_t>(part)];
  }
  return true;
}

int64_t storedCount(const CodeStream &stream, const dsl::QuantizedMatrix &matrix) {
  if (!stream.isSelective())
    return stream.grid.size();
  int64_t count = 0;
  forEachStored(stream, matrix, [&](int64_t) { ++count; });
  return count;
}

} // namespace rho::kernels
