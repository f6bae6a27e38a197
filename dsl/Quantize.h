// Encoding derived from a format: real matrices to codes and back, on the CPU. Deterministic for
// any number of threads.
#pragma once

#include "dsl/Error.h"
#include "dsl/Format.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace rho::dsl {

// Codes of one component in natural order, one code per 1, 2 or 4 bytes (type.bits() <= 8, 16, 32):
//   Element [rows][k]   Group [rows][ceil(k/G)]   Row [rows]   Tensor [1]
class CodeArray {
public:
  CodeArray() = default;
  CodeArray(int bits, int64_t count);
  int64_t size() const { return count; }
  int width() const { return bytesPerCode; }
  uint32_t get(int64_t i) const;
  void set(int64_t i, uint32_t code);
  const uint8_t *data() const { return bytes.data(); }
  uint8_t *data() { return bytes.data(); }

private:
  int bytesPerCode = 1;
  int64_t count = 0;
  std::vector<uint8_t> bytes;
};

// A matrix in a format: rows x k (rows are n of a weight, m of an activation).
struct QuantizedMatrix {
  std::shared_ptr<const Format> format;
  int64_t rows = 0, k = 0;
  std::vector<CodeArray> components; // as Format::components

  double value(int64_t row, int64_t column) const; // the value expression at one place
  std::vector<double> rowValues(int64_t row) const;
};

// Input numbers, row-major with `stride` elements between rows.
struct MatrixView {
  enum class Type : uint8_t { F32, F16, BF16 };
  const void *data = nullptr;
  Type type = Type::F32;
  int64_t rows = 0, k = 0, stride = 0;
  double at(int64_t row, int64_t column) const;
};

// Encodes coarse components first (their encode rules), then each element as the code whose value
// is nearest (ties to the even code). Reductions propagate NaN. With `rejectNonFinite` (weights) a
// NaN or infinity in the input is the error non_finite_input with its row and column; without
// (activations) it goes through the rules: its element code is 0 and its scale is not finite, so
// that every output that it touches is NaN.
Result<QuantizedMatrix> quantize(std::shared_ptr<const Format> format, const MatrixView &input,
                                 bool rejectNonFinite);

} // namespace rho::dsl
