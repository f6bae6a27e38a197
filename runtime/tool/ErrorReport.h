// What `rho error` prints of its measurements.
#pragma once

#include "kernels/quantize/EncodingError.h"

#include <optional>
#include <string>
#include <vector>

namespace rho::tool {

// One tensor, or all of them, in one format.
struct ErrorRow {
  std::string tensor; // "all" of all of them
  std::string format;
  std::string file;        // quantized, whose codes it has
  int64_t rows = 0, k = 0; // 0 of all
  kernels::EncodingError error;
  kernels::LostGroups lost;
  std::optional<kernels::OutputError> output; // of those that activations were given for
};

// The rows and, behind those of several tensors, one of all for each format, and for each file that
// has several formats.
std::vector<ErrorRow> withTotals(std::vector<ErrorRow> rows);

std::string errorTable(const std::vector<ErrorRow> &rows);
std::string errorCsv(const std::vector<ErrorRow> &rows);
// Bars of the signal to noise ratio; what is exact has none.
std::string errorPlot(const std::vector<ErrorRow> &rows);

} // namespace rho::tool
