// A linear layer y[m,n] = sum over k of x[m,k] * w[n,k] with calibration data: what the offline
// algorithms of this folder are given and are judged by. They are deterministic for any number of
// threads; 0 threads are one for each core.
#pragma once

#include "dsl/Quantize.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace rho::kernels {

// Row-major f32 without gaps: a weight [n][k] or activations [m][k].
struct Matrix {
  int64_t rows = 0, k = 0;
  std::vector<float> values;

  float *row(int64_t i) { return values.data() + i * k; }
  const float *row(int64_t i) const { return values.data() + i * k; }
  dsl::MatrixView view() const;
};

// The numbers of any matrix; each is exact.
Matrix matrixOf(const dsl::MatrixView &view, unsigned threads = 0);
// The values of codes, rounded to f32.
Matrix valuesOf(const dsl::QuantizedMatrix &matrix, unsigned threads = 0);

// Errors: empty_matrix, `nonFinite` with the first number that is none, row by row.
Status checkNumbers(const Matrix &matrix, DiagId nonFinite);
// Errors: empty_matrix, non_finite_input for the weight, activation_width for activations of
// another k, activation_not_finite.
Status checkLayer(const Matrix &weight, const Matrix &activation);
// Errors: empty_matrix, activation_not_finite.
Status checkActivation(const Matrix &activation);

// mean over m of x[m,k]^2: the diagonal of the layer's Hessian, dsl::QuantizeOptions::columnWeights
// of its weight.
std::vector<double> hessianDiagonal(const Matrix &activation);

// x w^T, [m][n] in double.
std::vector<double> layerOutputs(const Matrix &activation, const Matrix &weight,
                                 unsigned threads = 0);
// sum (y - approximation)^2 / sum y^2; 0 where both are 0.
double relativeSquaredError(const std::vector<double> &y, const std::vector<double> &approximation);

// How a layer is quantized: an activation without a format stays as it is.
struct LayerFormats {
  std::shared_ptr<const dsl::Format> weight, activation;
};
// Inputs as a kernel sees them: the values of their codes in a format; null: as they are. Errors:
// those of dsl::quantize.
Result<Matrix> seenActivation(Matrix activation, const std::shared_ptr<const dsl::Format> &format,
                              unsigned threads = 0);
// The outputs of the quantized layer, [m][n]. `options` are those of the weight. Errors: those of
// checkLayer and dsl::quantize.
Result<std::vector<double>> quantizedOutputs(const Matrix &weight, const Matrix &activation,
                                             const LayerFormats &formats,
                                             const dsl::QuantizeOptions &options = {});

} // namespace rho::kernels
