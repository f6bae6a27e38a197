// What the headers of both tensor file kinds come down to. Internal to kernels/.
#pragma once

#include "dsl/Error.h"
#include "dsl/Quantize.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rho::kernels {

// One tensor of a file whose header was checked: its bytes lie inside the file.
struct TensorEntry {
  std::string name;
  std::string type; // as the file names it
  std::optional<dsl::MatrixView::Type> supported;
  std::vector<int64_t> shape;
  int64_t begin = 0, bytes = 0; // in the file
};

// A header that was read, or what is wrong with it.
struct TensorHeader {
  std::vector<TensorEntry> tensors; // in order of name
  std::string problem;
};

// `file` is the whole file.
TensorHeader readSafetensorsHeader(std::string_view file);
TensorHeader readNumpyHeader(std::string_view file);

// The bytes before the data; rows * k elements of `type` follow.
std::string writeSafetensorsHeader(std::string_view name, const dsl::MatrixView &matrix);
std::string writeNumpyHeader(const dsl::MatrixView &matrix);

int64_t bytesOf(dsl::MatrixView::Type type);
// Product of the extents, none if it does not fit.
std::optional<int64_t> elementsOf(const std::vector<int64_t> &shape);

} // namespace rho::kernels
