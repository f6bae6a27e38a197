// How far quantized weights are from what they were, and outputs from what they would be.
#pragma once

#include "dsl/Quantize.h"

#include <vector>

namespace rho::kernels {

// Sums over the numbers w of a matrix and the values q of their codes. Of several matrices they add
// up. The same for any number of threads.
struct EncodingError {
  int64_t numbers = 0;
  int64_t storedBits = 0;   // of all codes, scales and choices; those that share a byte with others
                            // count once
  double squares = 0;       // sum of w^2
  double valueSquares = 0;  // of q^2
  double products = 0;      // of w q
  double squaredErrors = 0; // of (w - q)^2
  double largest = 0;       // |w - q|

  double bitsPerWeight() const;
  double meanSquaredError() const;
  double sqnrDecibels() const; // 10 log10 of squares / squaredErrors; infinity without error
  double cosine() const;       // of the angle between w and q; 1 where both are 0
  EncodingError &operator+=(const EncodingError &other);
};
EncodingError encodingError(const dsl::MatrixView &weight, const dsl::QuantizedMatrix &quantized,
                            unsigned threads = 0);

// Groups of numbers along k that share all components (of a format without k[G] whole rows; of one
// with parts those that a part stores), and those of them that lost their largest number: its value
// is off by more than half of it, as where a scale is too small or too large for its type, or it is
// beyond a plain type.
struct LostGroups {
  int64_t groups = 0, lost = 0;
  LostGroups &operator+=(const LostGroups &other);
};
LostGroups lostGroups(const dsl::MatrixView &weight, const dsl::QuantizedMatrix &quantized,
                      unsigned threads = 0);

// Of the outputs y = x w^T of a layer on activations x [m][k], row-major: sums over all of them.
// The layer itself gets s, x or what is left of it in codes.
struct OutputError {
  double squares = 0;       // of y^2
  double squaredErrors = 0; // of (x w^T - s q^T)^2
  double relative() const;  // the root of their ratio; 0 where both are 0
  OutputError &operator+=(const OutputError &other);
};
OutputError outputError(const dsl::MatrixView &weight, const dsl::QuantizedMatrix &quantized,
                        const std::vector<double> &x, unsigned threads = 0,
                        const std::vector<double> &seen = {}); // s; none: x

} // namespace rho::kernels
