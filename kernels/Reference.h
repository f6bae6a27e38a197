// The oracle: any gemm in double on the CPU, from the value expressions alone.
#pragma once

#include "dsl/Format.h"
#include "dsl/Quantize.h"

namespace rho::kernels {

// y[m,n] = sum_k x[m,k] * w[n,k], evaluated from codes. For integer paths every term and sum is an
// integer that double holds exactly (|sum| < 2^53) times scales.
struct ReferenceOutput {
  int64_t m = 0, n = 0;
  std::vector<double> y; // [m][n], not rounded to the output type
  // [m][n], sum over k of the magnitudes of x * w (dsl::magnitude): what error bounds are relative
  // to
  std::vector<double> magnitude;
};
ReferenceOutput reference(const dsl::QuantizedMatrix &activation,
                          const dsl::QuantizedMatrix &weight);

// Only chosen outputs (row, column), for problems too large to do whole.
struct Sample {
  int64_t m, n;
};
struct SampleOutput {
  std::vector<double> y, magnitude; // one entry per sample
};
SampleOutput referenceAt(const dsl::QuantizedMatrix &activation, const dsl::QuantizedMatrix &weight,
                         const std::vector<Sample> &samples);

} // namespace rho::kernels
