#include "kernels/quantize/Hadamard.h"

#include "dsl/Lasting.h"
#include "kernels/quantize/HadamardCores.h"

#include <algorithm>
#include <bit>

namespace rho::kernels {

Hadamard::Core::Core(int64_t m, std::vector<int8_t> given)
    : m(m), entries(std::move(given)), transposed(entries.size()) {
  for (int64_t row = 0; row < m; ++row)
    for (int64_t column = 0; column < m; ++column)
      transposed[static_cast<size_t>(column * m + row)] =
          entries[static_cast<size_t>(row * m + column)];
}

std::shared_ptr<const Hadamard::Core> Hadamard::coreOf(int64_t m) {
  return dsl::knownOr(m, [&] { return std::make_shared<const Core>(m, hadamardCore(m)); });
}

Result<Hadamard> Hadamard::ofOrder(int64_t n) {
  if (const int64_t m = hadamardCoreOrder(n))
    return Hadamard(n, coreOf(m));
  return makeError(DiagId::no_hadamard_order,
                   {std::to_string(n), std::to_string(mostHadamardCore)});
}

int Hadamard::entry(int64_t row, int64_t column) const {
  const int64_t m = core->m;
  bool negative = std::popcount(static_cast<uint64_t>((row / m) & (column / m))) % 2 != 0;
  const bool minus = core->entries[static_cast<size_t>(row % m * m + column % m)] < 0;
  return negative == minus ? 1 : -1;
}

std::vector<int8_t> Hadamard::coreEntries() const { return core->entries; }

template <class Number> void Hadamard::doublings(std::span<Number> x) const {
  for (int64_t half = core->m; half < n; half *= 2)
    for (int64_t begin = 0; begin < n; begin += 2 * half) {
      Number *low = x.data() + begin, *high = low + half;
      for (int64_t i = 0; i < half; ++i) {
        const Number a = low[i], b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
}

// Column by column: a loop without a carried sum.
template <class Number> void Hadamard::cores(std::span<Number> x) const {
  const int64_t m = core->m;
  const std::vector<int8_t> &columns = core->transposed;
  if (m == 1)
    return;
  std::vector<Number> sums(static_cast<size_t>(m));
  for (int64_t begin = 0; begin < n; begin += m) {
    Number *part = x.data() + begin;
    std::fill(sums.begin(), sums.end(), Number(0));
    for (int64_t column = 0; column < m; ++column)
      for (int64_t row = 0; row < m; ++row)
        sums[static_cast<size_t>(row)] +=
            static_cast<Number>(columns[static_cast<size_t>(column * m + row)]) * part[column];
    std::copy(sums.begin(), sums.end(), part);
  }
}

template <class Number> void Hadamard::multiply(std::span<Number> x) const {
  cores(x);
  doublings(x);
}
void Hadamard::apply(std::span<double> x) const { multiply(x); }
void Hadamard::apply(std::span<float> x) const { multiply(x); }

} // namespace rho::kernels
