// Views of input numbers, arrays of codes, and the numbers that codes stand for.
#include "dsl/Evaluate.h"
#include "dsl/Quantize.h"

#include <algorithm>
#include <cstring>

namespace rho::dsl {

CodeArray::CodeArray(int bits, int64_t count)
    : bytesPerCode(bits <= 8    ? 1
                   : bits <= 16 ? 2
                                : 4),
      count(count), bytes(static_cast<size_t>(count * bytesPerCode)) {}

uint32_t CodeArray::get(int64_t i) const {
  // Little-endian, as on every host that has a GPU of ours.
  uint32_t code = 0;
  std::memcpy(&code, bytes.data() + i * bytesPerCode, static_cast<size_t>(bytesPerCode));
  return code;
}

void CodeArray::set(int64_t i, uint32_t code) {
  std::memcpy(bytes.data() + i * bytesPerCode, &code, static_cast<size_t>(bytesPerCode));
}

double MatrixView::at(int64_t row, int64_t column) const {
  static const ElementType f16 = ElementType::get("f16"), bf16 = ElementType::get("bf16");
  int64_t i = row * stride + column;
  if (type == Type::F32) {
    float value;
    std::memcpy(&value, static_cast<const char *>(data) + i * 4, sizeof(value));
    return value;
  }
  uint16_t code;
  std::memcpy(&code, static_cast<const char *>(data) + i * 2, sizeof(code));
  return (type == Type::F16 ? f16 : bf16).decode(code);
}

// Index of component `c`'s code for the number at (row, column).
static int64_t codeIndex(const QuantizedMatrix &matrix, size_t c, int64_t row, int64_t column) {
  const Component &component = matrix.format->components[c];
  switch (component.extent) {
  case Extent::Element:
    return row * matrix.k + column;
  case Extent::Group:
    return row * ((matrix.k + component.group - 1) / component.group) + column / component.group;
  case Extent::Row:
    return row;
  case Extent::Tensor:
    break;
  }
  return 0;
}

int64_t blockIndex(const Blocks &blocks, const QuantizedMatrix &matrix, int64_t row,
                   int64_t column) {
  int64_t blockRow = blocks.rows == 0 ? 0 : row / blocks.rows;
  return blockRow * ((matrix.k + blocks.k - 1) / blocks.k) + column / blocks.k;
}

static uint32_t choiceAt(const QuantizedMatrix &matrix, int64_t row, int64_t column) {
  const Format &format = *matrix.format;
  const Blocks &blocks = format.residual ? format.residual->blocks : format.partition->blocks;
  return matrix.choice.get(blockIndex(blocks, matrix, row, column));
}

static double partValue(const QuantizedMatrix &matrix, int64_t row, int64_t column) {
  uint32_t choice = choiceAt(matrix, row, column);
  if (matrix.format->residual)
    return matrix.parts[0].value(row, column) + (choice ? matrix.parts[1].value(row, column) : 0);
  return matrix.parts[choice].value(row, column);
}

static std::vector<double> partRowValues(const QuantizedMatrix &matrix, int64_t row) {
  std::vector<std::vector<double>> parts;
  for (const QuantizedMatrix &part : matrix.parts)
    parts.push_back(part.rowValues(row));
  std::vector<double> values(static_cast<size_t>(matrix.k));
  for (size_t column = 0; column < values.size(); ++column) {
    uint32_t choice = choiceAt(matrix, row, static_cast<int64_t>(column));
    values[column] = matrix.format->residual ? parts[0][column] + (choice ? parts[1][column] : 0)
                                             : parts[choice][column];
  }
  return values;
}

double QuantizedMatrix::value(int64_t row, int64_t column) const {
  if (format->hasParts())
    return partValue(*this, row, column);
  std::vector<uint32_t> codes(components.size());
  for (size_t c = 0; c < components.size(); ++c)
    codes[c] = components[c].get(codeIndex(*this, c, row, column));
  return evaluate(*format, codes.data());
}

std::vector<double> QuantizedMatrix::rowValues(int64_t row) const {
  if (format->hasParts())
    return partRowValues(*this, row);
  std::vector<double> values(static_cast<size_t>(k));
  // Numbers of one run share all codes but the element's.
  int64_t run = k;
  for (const Component &component : format->components)
    if (component.extent == Extent::Group)
      run = std::min(run, component.group);
  int bits = format->element().type.bits();
  bool tabled = bits <= 8 && (int64_t(1) << bits) <= run;
  std::vector<uint32_t> codes(components.size());
  std::vector<double> table(tabled ? size_t(1) << bits : 0);
  for (int64_t begin = 0; begin < k; begin += run) {
    for (size_t c = 1; c < components.size(); ++c)
      codes[c] = components[c].get(codeIndex(*this, c, row, begin));
    if (tabled)
      valueTable(*format, codes.data(), table.data());
    for (int64_t column = begin; column < std::min(k, begin + run); ++column) {
      codes[0] = components[0].get(row * k + column);
      values[static_cast<size_t>(column)] =
          tabled ? table[codes[0] & ((1u << bits) - 1)] : evaluate(*format, codes.data());
    }
  }
  return values;
}

} // namespace rho::dsl
