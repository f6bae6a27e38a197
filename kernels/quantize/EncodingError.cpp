#include "kernels/quantize/EncodingError.h"

#include "dsl/Division.h"
#include "dsl/Parallel.h"
#include "kernels/quantize/CodeStreams.h"
#include "kernels/quantize/Products.h"

#include <algorithm>
#include <cmath>

namespace rho::kernels {

namespace {

// NaN where one is.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

int64_t storedBitsOf(const dsl::QuantizedMatrix &matrix) {
  int64_t bits = 0;
  for (const CodeStream &stream : streamsOf("", *matrix.format, matrix.rows, matrix.k)) {
    const dsl::Format &format = *partOf(matrix, stream).format;
    bits += storedCount(stream, matrix) *
            (stream.component < 0 ? stream.type.bits() : format.storedBits(stream.component));
  }
  return bits;
}

// Calls work(row, numbers, values) for every row, in any order.
template <class Work>
void forEachRow(const dsl::MatrixView &weight, const dsl::QuantizedMatrix &quantized,
                unsigned threads, const Work &work) {
  dsl::parallel(weight.rows, threads, [&](const auto &next) {
    std::vector<double> w(static_cast<size_t>(weight.k)), q(w.size());
    for (int64_t row = next(); row < weight.rows; row = next()) {
      weight.readRow(row, w.data());
      quantized.valuesOf(row, 0, weight.k, q.data());
      work(row, w, q);
    }
  });
}

// Whether a stream is what a residual adds to numbers that are stored without it.
bool isOfResidual(const CodeStream &stream, const dsl::QuantizedMatrix &matrix) {
  const dsl::QuantizedMatrix *outer = &matrix;
  for (int part : stream.path) {
    if (outer->format->residual && part == 1)
      return true;
    outer = &outer->parts[static_cast<size_t>(part)];
  }
  return false;
}

// The first of the largest numbers in magnitude, eight maxima at a time; `count` where all are NaN.
int64_t largestOf(const double *numbers, int64_t count) {
  constexpr int64_t lanes = 8;
  double most[lanes] = {};
  const int64_t whole = count - count % lanes;
  for (int64_t i = 0; i < whole; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane)
      most[lane] = std::max(most[lane], std::fabs(numbers[i + lane]));
  for (int64_t i = whole; i < count; ++i)
    most[0] = std::max(most[0], std::fabs(numbers[i]));
  const double largest = *std::max_element(most, most + lanes);
  return std::find_if(numbers, numbers + count,
                      [&](double number) { return std::fabs(number) == largest; }) -
         numbers;
}

// Sums of a row, added up row by row afterwards: threads do not matter.
template <class Sums> Sums total(const std::vector<Sums> &ofRows) {
  Sums all;
  for (const Sums &row : ofRows)
    all += row;
  return all;
}

} // namespace

double EncodingError::bitsPerWeight() const {
  return static_cast<double>(storedBits) / static_cast<double>(numbers);
}
double EncodingError::meanSquaredError() const {
  return squaredErrors / static_cast<double>(numbers);
}
double EncodingError::sqnrDecibels() const {
  return squaredErrors == 0 ? HUGE_VAL : 10 * std::log10(squares / squaredErrors);
}
double EncodingError::cosine() const {
  if (squares == 0 || valueSquares == 0)
    return squares == valueSquares ? 1 : 0;
  return products / (std::sqrt(squares) * std::sqrt(valueSquares));
}

EncodingError &EncodingError::operator+=(const EncodingError &other) {
  numbers += other.numbers;
  storedBits += other.storedBits;
  squares += other.squares;
  valueSquares += other.valueSquares;
  products += other.products;
  squaredErrors += other.squaredErrors;
  largest = larger(largest, other.largest);
  return *this;
}

EncodingError encodingError(const dsl::MatrixView &weight, const dsl::QuantizedMatrix &quantized,
                            unsigned threads) {
  std::vector<EncodingError> rows(static_cast<size_t>(weight.rows));
  forEachRow(weight, quantized, threads,
             [&](int64_t row, const std::vector<double> &w, const std::vector<double> &q) {
               EncodingError &sums = rows[static_cast<size_t>(row)];
               for (size_t i = 0; i < w.size(); ++i) {
                 double error = w[i] - q[i];
                 sums.squares += w[i] * w[i];
                 sums.valueSquares += q[i] * q[i];
                 sums.products += w[i] * q[i];
                 sums.squaredErrors += error * error;
                 sums.largest = larger(sums.largest, std::fabs(error));
               }
             });
  EncodingError all = total(rows);
  all.numbers = weight.rows * weight.k;
  all.storedBits = storedBitsOf(quantized);
  return all;
}

LostGroups &LostGroups::operator+=(const LostGroups &other) {
  groups += other.groups;
  lost += other.lost;
  return *this;
}

// Whether q, the value of a group's largest number, is another one.
static bool isLost(double number, double q, const dsl::Format &format) {
  const double off = std::fabs(number - q);
  const dsl::ElementType &type = format.element().type;
  const bool isBeyond = isPlain(format) && // by more than half of the last digit
                        off > std::ldexp(type.maxFinite(), -type.significantBits() - 1);
  return off > std::fabs(number) / 2 || isBeyond;
}

// Of the numbers whose elements lie in one stream.
static LostGroups lostGroups(const CodeStream &element, const dsl::MatrixView &weight,
                             const dsl::QuantizedMatrix &quantized, unsigned threads) {
  const dsl::Format &format = *partOf(quantized, element).format;
  const int64_t group = dsl::finestGroup(format, weight.k);
  std::vector<LostGroups> rows(static_cast<size_t>(weight.rows));
  dsl::parallel(weight.rows, threads, [&](const auto &next) {
    std::vector<double> w(static_cast<size_t>(weight.k));
    for (int64_t row = next(); row < weight.rows; row = next()) {
      LostGroups &sums = rows[static_cast<size_t>(row)];
      weight.readRow(row, w.data());
      if (element.isSelective())
        for (int64_t column = 0; column < weight.k; ++column)
          if (!isStored(element, quantized, row, column))
            w[static_cast<size_t>(column)] = std::nan("");
      for (int64_t begin = 0; begin < weight.k; begin += group) {
        const int64_t end = std::min(begin + group, weight.k);
        const int64_t largest = begin + largestOf(w.data() + begin, end - begin);
        if (largest == end) // all of them lie elsewhere
          continue;
        const double number = w[static_cast<size_t>(largest)];
        sums += {1, isLost(number, quantized.value(row, largest), format) ? 1 : 0};
      }
    }
  });
  return total(rows);
}

LostGroups lostGroups(const dsl::MatrixView &weight, const dsl::QuantizedMatrix &quantized,
                      unsigned threads) {
  LostGroups all;
  for (const CodeStream &stream : streamsOf("", *quantized.format, weight.rows, weight.k))
    if (stream.extent == dsl::Extent::Element && !isOfResidual(stream, quantized))
      all += lostGroups(stream, weight, quantized, threads);
  return all;
}

double OutputError::relative() const {
  return squaredErrors == 0 ? 0 : std::sqrt(squaredErrors / squares);
}

OutputError &OutputError::operator+=(const OutputError &other) {
  squares += other.squares;
  squaredErrors += other.squaredErrors;
  return *this;
}

OutputError outputError(const dsl::MatrixView &weight, const dsl::QuantizedMatrix &quantized,
                        const std::vector<double> &x, unsigned threads,
                        const std::vector<double> &seen) {
  const int64_t k = weight.k, tokens = static_cast<int64_t>(x.size()) / k;
  std::vector<OutputError> sums(static_cast<size_t>(weight.rows));
  dsl::parallelFor(divideUp(weight.rows, rowsAtOnce), threads, [&](int64_t part) {
    const int64_t first = part * rowsAtOnce, rows = std::min(rowsAtOnce, weight.rows - first);
    std::vector<double> w(static_cast<size_t>(rows * k)), q(w.size());
    for (int64_t row = 0; row < rows; ++row) {
      weight.readRow(first + row, w.data() + row * k);
      quantized.valuesOf(first + row, 0, k, q.data() + row * k);
    }
    std::vector<double> y(static_cast<size_t>(rows * tokens)), off(y.size());
    products(x.data(), tokens, w.data(), rows, k, y.data());
    if (seen.empty()) {
      for (size_t i = 0; i < w.size(); ++i)
        w[i] -= q[i];
      products(x.data(), tokens, w.data(), rows, k, off.data());
    } else {
      products(seen.data(), tokens, q.data(), rows, k, off.data());
      for (size_t i = 0; i < y.size(); ++i)
        off[i] = y[i] - off[i];
    }
    for (size_t i = 0; i < y.size(); ++i) {
      OutputError &ofRow = sums[static_cast<size_t>(first) + i / static_cast<size_t>(tokens)];
      ofRow.squares += y[i] * y[i];
      ofRow.squaredErrors += off[i] * off[i];
    }
  });
  return total(sums);
}

} // namespace rho::kernels
