// Views of input numbers, arrays of codes, and the numbers that codes stand for.
#include "dsl/Division.h"
#include "dsl/Evaluate.h"
#include "dsl/Quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace rho::dsl {

CodeArray::CodeArray(int bits, int64_t count)
    : bytesPerCode(bits <= 8    ? 1
                   : bits <= 16 ? 2
                                : 4),
      count(count), bytes(static_cast<size_t>(count * bytesPerCode)) {}

// Little-endian, as on every host that has a GPU of ours.
uint32_t CodeArray::get(int64_t i) const {
  const uint8_t *at = bytes.data() + i * bytesPerCode;
  if (bytesPerCode == 1)
    return *at;
  uint32_t code = 0;
  std::memcpy(&code, at, 2);
  if (bytesPerCode == 4)
    std::memcpy(&code, at, 4);
  return code;
}

void CodeArray::set(int64_t i, uint32_t code) {
  uint8_t *at = bytes.data() + i * bytesPerCode;
  if (bytesPerCode == 1)
    *at = static_cast<uint8_t>(code);
  else if (bytesPerCode == 2)
    std::memcpy(at, &code, 2);
  else
    std::memcpy(at, &code, 4);
}

namespace {

// ElementType::decode of f16 without its branches, so that it is vectorised. A float with these
// bits is 2^112 times too small, exactly.
float decodeHalf(uint16_t code) {
  uint32_t magnitude = (code & 0x7fffU) << 13;
  auto bits = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  bits = magnitude >= 0x7c00U << 13 ? magnitude | 0x7f800000U : bits; // infinity and NaN
  return std::bit_cast<float>(bits | (code & 0x8000U) << 16);
}

float decodeBFloat(uint16_t code) {
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
}

// A user's buffer may be aligned to nothing.
template <class Stored, class Decode>
void readAs(const void *data, int64_t begin, int64_t count, double *values, Decode decode) {
  const char *from = static_cast<const char *>(data) + begin * static_cast<int64_t>(sizeof(Stored));
  for (int64_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, from + i * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
    values[i] = decode(stored);
  }
}

void readNumbers(const MatrixView &view, int64_t begin, int64_t count, double *values) {
  switch (view.type) {
  case MatrixView::Type::F32:
    return readAs<float>(view.data, begin, count, values, [](float value) { return value; });
  case MatrixView::Type::F16:
    return readAs<uint16_t>(view.data, begin, count, values, decodeHalf);
  case MatrixView::Type::BF16:
    return readAs<uint16_t>(view.data, begin, count, values, decodeBFloat);
  }
}

} // namespace

double MatrixView::at(int64_t row, int64_t column) const {
  double value = 0;
  readNumbers(*this, row * stride + column, 1, &value);
  return value;
}

void MatrixView::readRow(int64_t row, double *values) const {
  readNumbers(*this, row * stride, k, values);
}

QuantizedMatrix emptyMatrix(std::shared_ptr<const Format> format, int64_t rows, int64_t k) {
  QuantizedMatrix matrix;
  matrix.rows = rows;
  matrix.k = k;
  if (format->hasParts())
    matrix.choice = CodeArray(8, blockGrid(format->choiceBlocks(), rows, k).size());
  if (format->residual) {
    auto base = std::make_shared<const Format>(withoutResidual(*format));
    matrix.parts.push_back(emptyMatrix(std::move(base), rows, k));
    matrix.parts.push_back(emptyMatrix(format->residual->part.format, rows, k));
  } else if (format->partition) {
    for (const Part &part : format->partition->parts)
      matrix.parts.push_back(emptyMatrix(part.format, rows, k));
  } else {
    for (const Component &component : format->components)
      matrix.components.emplace_back(component.type.bits(), codeGrid(component, rows, k).size());
  }
  matrix.format = std::move(format);
  return matrix;
}

BlockGrid blockGrid(const Blocks &blocks, int64_t rows, int64_t k) {
  return {blocks.rows == 0 ? 1 : divideUp(rows, blocks.rows),
          blocks.k == 0 ? 1 : divideUp(k, blocks.k)};
}

int64_t blockIndex(const Blocks &blocks, int64_t k, int64_t row, int64_t column) {
  const int64_t blockRow = blocks.rows == 0 ? 0 : row / blocks.rows;
  return blocks.k == 0 ? blockRow : blockRow * divideUp(k, blocks.k) + column / blocks.k;
}

Blocks blocksOf(const Component &component) {
  const bool isElement = component.extent == Extent::Element;
  const bool isTensor = component.extent == Extent::Tensor;
  return {isTensor ? 0 : component.rows, isElement ? 1 : component.group, component.perToken};
}

BlockGrid codeGrid(const Component &component, int64_t rows, int64_t k) {
  return blockGrid(blocksOf(component), rows, k);
}

int64_t codeIndex(const Component &component, int64_t k, int64_t row, int64_t column) {
  return component.extent == Extent::Element ? row * k + column
                                             : blockIndex(blocksOf(component), k, row, column);
}

int64_t finestGroup(const Format &format, int64_t k) {
  for (const Component &component : format.components)
    if (component.extent == Extent::Group)
      k = std::min(k, component.group);
  return k;
}

int64_t bandRows(const Format &format) {
  int64_t rows = 1;
  for (const Component &component : format.components)
    rows = std::max(rows, component.rows);
  return rows;
}

static uint32_t choiceAt(const QuantizedMatrix &matrix, int64_t row, int64_t column) {
  return matrix.choice.get(blockIndex(matrix.format->choiceBlocks(), matrix.k, row, column));
}

// Of numbers of each part those of the one which stores the block, or the sum of two.
static void combineParts(const QuantizedMatrix &matrix, int64_t row, int64_t begin, int64_t end,
                         const std::vector<std::vector<double>> &parts, double *values) {
  for (int64_t column = begin; column < end; ++column) {
    auto i = static_cast<size_t>(column - begin);
    uint32_t choice = choiceAt(matrix, row, column);
    values[i] =
        matrix.format->residual ? parts[0][i] + (choice ? parts[1][i] : 0) : parts[choice][i];
  }
}

static void partValues(const QuantizedMatrix &matrix, int64_t row, int64_t begin, int64_t end,
                       double *values) {
  std::vector<std::vector<double>> parts(matrix.parts.size(),
                                         std::vector<double>(static_cast<size_t>(end - begin)));
  for (size_t p = 0; p < parts.size(); ++p)
    matrix.parts[p].valuesOf(row, begin, end, parts[p].data());
  combineParts(matrix, row, begin, end, parts, values);
}

double QuantizedMatrix::value(int64_t row, int64_t column) const {
  double value = 0;
  valuesOf(row, column, column + 1, &value);
  return value;
}

std::vector<double> QuantizedMatrix::rowValues(int64_t row) const {
  std::vector<double> values(static_cast<size_t>(k));
  valuesOf(row, 0, k, values.data());
  return values;
}

// What `one` says of the codes of each column. Those of one run share all but the element's; where
// a run has as many columns as there are elements, `all` fills a table over these.
template <class One, class All>
static void ofColumns(const QuantizedMatrix &matrix, int64_t row, int64_t begin, int64_t end,
                      const One &one, const All &all, double *numbers) {
  const Format &format = *matrix.format;
  const std::vector<CodeArray> &components = matrix.components;
  const int64_t run = finestGroup(format, matrix.k);
  int bits = format.element().type.bits();
  bool tabled = bits <= 8 && (int64_t(1) << bits) <= std::min(run, end - begin);
  std::vector<uint32_t> codes(components.size());
  std::vector<double> table(tabled ? size_t(1) << bits : 0);
  for (int64_t from = begin; from < end;) {
    int64_t to = std::min(end, (from / run + 1) * run);
    for (size_t c = 1; c < components.size(); ++c)
      codes[c] = components[c].get(codeIndex(format.components[c], matrix.k, row, from));
    if (tabled)
      all(codes.data(), table.data());
    for (int64_t column = from; column < to; ++column) {
      codes[0] = components[0].get(row * matrix.k + column);
      numbers[column - begin] = tabled ? table[codes[0] & ((1u << bits) - 1)] : one(codes.data());
    }
    from = to;
  }
}

void QuantizedMatrix::valuesOf(int64_t row, int64_t begin, int64_t end, double *values) const {
  if (format->hasParts())
    return partValues(*this, row, begin, end, values);
  ofColumns(
      *this, row, begin, end, [&](const uint32_t *codes) { return evaluate(*format, codes); },
      [&](const uint32_t *codes, double *table) { valueTable(*format, codes, table); }, values);
}

std::vector<double> QuantizedMatrix::rowMagnitudes(int64_t row) const {
  std::vector<double> result;
  if (format->hasParts()) {
    std::vector<std::vector<double>> ofParts;
    for (const QuantizedMatrix &part : parts)
      ofParts.push_back(part.rowMagnitudes(row));
    result.resize(static_cast<size_t>(k));
    combineParts(*this, row, 0, k, ofParts, result.data());
    return result;
  }
  if (!isRealSum(*format->value, *format)) {
    result = rowValues(row);
    for (double &value : result)
      value = std::fabs(value);
    return result;
  }
  result.resize(static_cast<size_t>(k));
  auto one = [&](const uint32_t *codes) { return magnitude(*format, codes); };
  auto all = [&](uint32_t *codes, double *table) {
    const uint32_t count = 1u << format->element().type.bits();
    for (codes[0] = 0; codes[0] < count; ++codes[0])
      table[codes[0]] = one(codes);
  };
  ofColumns(*this, row, 0, k, one, all, result.data());
  return result;
}

} // namespace rho::dsl
