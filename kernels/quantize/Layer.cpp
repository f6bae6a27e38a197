#include "kernels/quantize/Layer.h"

#include "dsl/Division.h"
#include "dsl/Numbers.h"
#include "dsl/Parallel.h"
#include "kernels/quantize/Products.h"

#include <algorithm>
#include <cmath>

namespace rho::kernels {

Status checkNumbers(const Matrix &matrix, DiagId id) {
  if (matrix.rows < 1 || matrix.k < 1)
    return makeError(DiagId::empty_matrix, {std::to_string(matrix.rows), std::to_string(matrix.k)});
  for (int64_t row = 0; row < matrix.rows; ++row)
    for (int64_t column = 0; column < matrix.k; ++column)
      if (float value = matrix.row(row)[column]; !std::isfinite(value))
        return makeError(
            id, {dsl::nameOfNonFinite(value), std::to_string(row), std::to_string(column)});
  return Done();
}

dsl::MatrixView Matrix::view() const {
  return {values.data(), dsl::MatrixView::Type::F32, rows, k, k};
}

Matrix matrixOf(const dsl::MatrixView &view, unsigned threads) {
  Matrix matrix{view.rows, view.k, std::vector<float>(static_cast<size_t>(view.rows * view.k))};
  dsl::parallelFor(view.rows, threads, [&](int64_t row) {
    std::vector<double> numbers(static_cast<size_t>(view.k));
    view.readRow(row, numbers.data());
    std::copy(numbers.begin(), numbers.end(), matrix.row(row));
  });
  return matrix;
}

Matrix valuesOf(const dsl::QuantizedMatrix &codes, unsigned threads) {
  Matrix matrix{codes.rows, codes.k, std::vector<float>(static_cast<size_t>(codes.rows * codes.k))};
  dsl::parallelFor(codes.rows, threads, [&](int64_t row) {
    std::vector<double> values = codes.rowValues(row);
    for (int64_t column = 0; column < codes.k; ++column)
      matrix.row(row)[column] = static_cast<float>(values[static_cast<size_t>(column)]);
  });
  return matrix;
}

Status checkLayer(const Matrix &weight, const Matrix &activation) {
  if (Status finite = checkNumbers(weight, DiagId::non_finite_input); !finite)
    return finite;
  if (activation.k != weight.k)
    return makeError(DiagId::activation_width,
                     {std::to_string(activation.k), std::to_string(weight.k)});
  return checkActivation(activation);
}

Status checkActivation(const Matrix &activation) {
  return checkNumbers(activation, DiagId::activation_not_finite);
}

std::vector<double> hessianDiagonal(const Matrix &activation) {
  std::vector<double> sums(static_cast<size_t>(activation.k), 0);
  for (int64_t row = 0; row < activation.rows; ++row)
    for (int64_t column = 0; column < activation.k; ++column) {
      double x = activation.row(row)[column];
      sums[static_cast<size_t>(column)] += x * x;
    }
  for (double &sum : sums)
    sum /= static_cast<double>(activation.rows);
  return sums;
}

std::vector<double> layerOutputs(const Matrix &activation, const Matrix &weight, unsigned threads) {
  const int64_t m = activation.rows, n = weight.rows, k = weight.k;
  std::vector<double> y(static_cast<size_t>(m * n));
  dsl::parallelFor(divideUp(n, rowsAtOnce), threads, [&](int64_t part) {
    const int64_t first = part * rowsAtOnce, rows = std::min(rowsAtOnce, n - first);
    const std::vector<double> w(weight.row(first), weight.row(first + rows));
    std::vector<double> outputs(static_cast<size_t>(rows * m));
    products(activation.row(0), m, w.data(), rows, k, outputs.data());
    for (int64_t token = 0; token < m; ++token)
      for (int64_t row = 0; row < rows; ++row)
        y[static_cast<size_t>(token * n + first + row)] =
            outputs[static_cast<size_t>(row * m + token)];
  });
  return y;
}

double relativeSquaredError(const std::vector<double> &y,
                            const std::vector<double> &approximation) {
  double error = 0, all = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    double difference = y[i] - approximation[i];
    error += difference * difference;
    all += y[i] * y[i];
  }
  return error == 0 ? 0 : error / all;
}

Result<Matrix> seenActivation(Matrix activation, const std::shared_ptr<const dsl::Format> &format,
                              unsigned threads) {
  if (!format)
    return activation;
  Result<dsl::QuantizedMatrix> codes = dsl::quantize(format, activation.view(), false, threads);
  if (!codes)
    return codes.error();
  return valuesOf(*codes, threads);
}

Result<std::vector<double>> quantizedOutputs(const Matrix &weight, const Matrix &activation,
                                             const LayerFormats &formats,
                                             const dsl::QuantizeOptions &options) {
  if (Status layer = checkLayer(weight, activation); !layer)
    return layer.error();
  Result<dsl::QuantizedMatrix> w = dsl::quantize(formats.weight, weight.view(), options);
  if (!w)
    return w.error();
  Result<Matrix> x = seenActivation(activation, formats.activation, options.threads);
  if (!x)
    return x.error();
  return layerOutputs(*x, valuesOf(*w, options.threads), options.threads);
}

} // namespace rho::kernels
