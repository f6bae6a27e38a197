#include "kernels/Reference.h"

#include "compiler/Parallel.h"
#include "dsl/Division.h"
#include "dsl/Evaluate.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace rho::kernels {

namespace {

// Rows of the weight that are dequantized together; bounds the memory of one task.
constexpr int64_t blockN = 16;
// Rows of the activation that are dequantized together.
constexpr int64_t blockM = 512;

struct DotProduct {
  double sum = 0, magnitude = 0;
};

// Independent lanes, added in a fixed order: the same value on every machine and for any number of
// threads, and a loop that compilers vectorize.
constexpr int lanes = 8;

// A row of numbers, and their magnitudes where those are not theirs alone.
struct Row {
  std::vector<double> values, own;
  const std::vector<double> &magnitudes() const { return own.empty() ? values : own; }
};

Row rowOf(const dsl::QuantizedMatrix &matrix, int64_t row) {
  Row result{matrix.rowValues(row), {}};
  const dsl::Format &format = *matrix.format;
  if (format.hasParts() || dsl::isRealSum(*format.value, format))
    result.own = matrix.rowMagnitudes(row);
  return result;
}

DotProduct dotProduct(const Row &activation, const Row &weight, int64_t k) {
  const double *x = activation.values.data(), *w = weight.values.data();
  const double *xSize = activation.magnitudes().data(), *wSize = weight.magnitudes().data();
  double sum[lanes] = {};
  double magnitude[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= k; i += lanes)
    for (int lane = 0; lane < lanes; ++lane) {
      sum[lane] += x[i + lane] * w[i + lane];
      magnitude[lane] += std::fabs(xSize[i + lane] * wSize[i + lane]);
    }
  for (int lane = 0; i < k; ++i, ++lane) {
    sum[lane] += x[i] * w[i];
    magnitude[lane] += std::fabs(xSize[i] * wSize[i]);
  }
  DotProduct dot;
  for (int lane = 0; lane < lanes; ++lane) {
    dot.sum += sum[lane];
    dot.magnitude += magnitude[lane];
  }
  return dot;
}

} // namespace

ReferenceOutput reference(const dsl::QuantizedMatrix &activation,
                          const dsl::QuantizedMatrix &weight) {
  ReferenceOutput output;
  output.m = activation.rows;
  output.n = weight.rows;
  output.y.resize(static_cast<size_t>(output.m * output.n));
  output.magnitude.resize(output.y.size());
  int64_t k = std::min(activation.k, weight.k);
  for (int64_t firstM = 0; firstM < output.m; firstM += blockM) {
    int64_t countM = std::min(blockM, output.m - firstM);
    std::vector<Row> x(static_cast<size_t>(countM));
    parallelFor(countM, [&](int64_t row) { x[row] = rowOf(activation, firstM + row); });
    parallelFor(divideUp(output.n, blockN), [&](int64_t block) {
      int64_t end = std::min(output.n, (block + 1) * blockN);
      std::vector<Row> w;
      for (int64_t n = block * blockN; n < end; ++n)
        w.push_back(rowOf(weight, n));
      for (int64_t m = 0; m < countM; ++m)
        for (int64_t n = block * blockN; n < end; ++n) {
          DotProduct value = dotProduct(x[m], w[n - block * blockN], k);
          output.y[(firstM + m) * output.n + n] = value.sum;
          output.magnitude[(firstM + m) * output.n + n] = value.magnitude;
        }
    });
  }
  return output;
}

SampleOutput referenceAt(const dsl::QuantizedMatrix &activation, const dsl::QuantizedMatrix &weight,
                         const std::vector<Sample> &samples) {
  SampleOutput output;
  output.y.resize(samples.size());
  output.magnitude.resize(samples.size());
  int64_t k = std::min(activation.k, weight.k);
  // Each activation row is dequantized once and dropped after its samples.
  std::map<int64_t, std::vector<size_t>> byRow;
  for (size_t i = 0; i < samples.size(); ++i)
    byRow[samples[i].m].push_back(i);
  // Few activation rows with many samples each are the usual case: spread the samples, not the
  // rows.
  for (const auto &[row, wanted] : byRow) {
    Row x = rowOf(activation, row);
    parallelFor(static_cast<int64_t>(wanted.size()), [&, &wanted = wanted](int64_t i) {
      size_t sample = wanted[i];
      DotProduct value = dotProduct(x, rowOf(weight, samples[sample].n), k);
      output.y[sample] = value.sum;
      output.magnitude[sample] = value.magnitude;
    });
  }
  return output;
}

} // namespace rho::kernels
