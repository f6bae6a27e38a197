// The range of each channel of a matrix.
#pragma once

#include "kernels/quantize/Layer.h"

#include <algorithm>
#include <cmath>

namespace rho::kernels {

// The largest |x| of each column.
inline std::vector<float> channelMaxima(const Matrix &matrix) {
  std::vector<float> largest(static_cast<size_t>(matrix.k), 0);
  for (int64_t row = 0; row < matrix.rows; ++row)
    for (int64_t column = 0; column < matrix.k; ++column) {
      float &most = largest[static_cast<size_t>(column)];
      most = std::max(most, std::fabs(matrix.row(row)[column]));
    }
  return largest;
}

} // namespace rho::kernels
