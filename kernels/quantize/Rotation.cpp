#include "kernels/quantize/Rotation.h"

#include "compiler/Parallel.h"
#include "dsl/Division.h"
#include "dsl/Numbers.h"
#include "dsl/Parallel.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace rho::kernels {

namespace {

Error wrongWidth(const Rotation &rotation, int64_t width) {
  return makeError(DiagId::transform_width,
                   {"rotation of " + std::to_string(rotation.size()),
                    std::to_string(width) + " channels", "a multiple of it"});
}

template <class Number>
Result<Matrix> rotated(const Matrix &matrix, const Rotation &rotation, unsigned threads) {
  if (matrix.k % rotation.size() != 0)
    return wrongWidth(rotation, matrix.k);
  Matrix out = matrix;
  Least beyond(out.rows * out.k); // the first number that f32 has not
  dsl::parallel(matrix.rows, threads, [&](const auto &next) {
    std::vector<Number> numbers(static_cast<size_t>(matrix.k));
    for (int64_t row = next(); row < matrix.rows; row = next()) {
      std::copy_n(matrix.row(row), matrix.k, numbers.begin());
      rotation.apply(numbers);
      std::transform(numbers.begin(), numbers.end(), out.row(row),
                     [](Number value) { return static_cast<float>(value); });
      for (int64_t i = 0; i < out.k; ++i)
        if (!std::isfinite(out.row(row)[i]))
          beyond.offer(row * out.k + i);
    }
  });
  if (const std::optional<int64_t> at = beyond.get())
    return makeError(DiagId::rotation_beyond_f32,
                     {std::to_string(*at / out.k), std::to_string(*at % out.k),
                      dsl::nameOfNonFinite(out.values[static_cast<size_t>(*at)])});
  return out;
}

} // namespace

Rotation::Rotation(Hadamard given, std::optional<uint64_t> seed)
    : hadamard(std::move(given)), drawnFrom(seed),
      factors(static_cast<size_t>(hadamard.order()),
              1 / std::sqrt(static_cast<double>(hadamard.order()))) {
  if (!seed)
    return;
  std::mt19937_64 random(*seed); // the standard says its numbers
  for (double &factor : factors)
    if (random() >> 63)
      factor = -factor;
}

Result<Rotation> Rotation::ofSize(int64_t size, std::optional<uint64_t> seed) {
  Result<Hadamard> hadamard = Hadamard::ofOrder(size);
  if (!hadamard)
    return hadamard.error();
  return Rotation(std::move(*hadamard), seed);
}

template <class Number> void Rotation::multiply(std::span<Number> row) const {
  for (size_t begin = 0; begin < row.size(); begin += factors.size()) {
    std::span<Number> x = row.subspan(begin, factors.size());
    for (size_t i = 0; i < factors.size(); ++i)
      x[i] *= static_cast<Number>(factors[i]);
    hadamard.apply(x);
  }
}
void Rotation::apply(std::span<double> row) const { multiply(row); }
void Rotation::apply(std::span<float> row) const { multiply(row); }

Result<Matrix> rotateInputs(const Matrix &weight, const Rotation &rotation, unsigned threads) {
  return rotated<double>(weight, rotation, threads);
}

Result<Matrix> rotateActivation(const Matrix &activation, const Rotation &rotation,
                                unsigned threads) {
  return rotated<float>(activation, rotation, threads);
}

Status rotateInputsInPlace(std::span<double> weight, int64_t k, const Rotation &rotation,
                           unsigned threads) {
  if (k % rotation.size() != 0)
    return wrongWidth(rotation, k);
  const auto width = static_cast<size_t>(k);
  dsl::parallelFor(std::ssize(weight) / k, threads, [&](int64_t row) {
    rotation.apply(weight.subspan(static_cast<size_t>(row) * width, width));
  });
  return Done{};
}

Status rotateOutputsInPlace(std::span<double> weight, int64_t k, const Rotation &rotation,
                            unsigned threads) {
  const int64_t rows = std::ssize(weight) / k;
  if (rows % rotation.size() != 0)
    return wrongWidth(rotation, rows);
  constexpr int64_t columns = 8; // at a time: those of a cache line
  dsl::parallel(divideUp(k, columns), threads, [&](const auto &next) {
    std::vector<double> numbers(static_cast<size_t>(columns * rows)); // column by column
    for (int64_t first = columns * next(); first < k; first = columns * next()) {
      const int64_t count = std::min(columns, k - first);
      const auto each = [&](const auto &visit) {
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t i = 0; i < count; ++i)
            visit(numbers[static_cast<size_t>(i * rows + row)],
                  weight[static_cast<size_t>(row * k + first + i)]);
      };
      each([](double &number, double stored) { number = stored; });
      rotation.apply(std::span(numbers).first(static_cast<size_t>(count * rows)));
      each([](double number, double &stored) { stored = number; });
    }
  });
  return Done{};
}

} // namespace rho::kernels
