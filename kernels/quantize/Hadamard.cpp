#include "kernels/quantize/Hadamard.h"

#include "dsl/Lasting.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <optional>

namespace rho::kernels {

namespace {

struct PrimePower {
  int64_t prime, exponent;
};

std::optional<PrimePower> primePower(int64_t q) {
  if (q < 2)
    return std::nullopt;
  int64_t prime = 2;
  while (q % prime != 0)
    ++prime;
  PrimePower power{prime, 0};
  for (; q % prime == 0; q /= prime)
    ++power.exponent;
  return q == 1 ? std::optional(power) : std::nullopt;
}

// GF(p^e), a number for each element: the digits in base p are the coefficients of a polynomial.
class Field {
public:
  explicit Field(PrimePower power) : p(power.prime), e(power.exponent), q(1) {
    for (int64_t i = 0; i < e; ++i)
      q *= p;
    // A polynomial whose root generates the multiplicative group: its even powers are the squares.
    for (int64_t polynomial = 1; !generates(polynomial); ++polynomial) {
    }
  }

  int64_t size() const { return q; }
  // Of a - b: 1 for a square, -1 for another element, 0 for 0.
  int character(int64_t a, int64_t b) const {
    int64_t difference = 0;
    for (int64_t digit = 1; digit < q; digit *= p)
      difference += (a / digit % p + p - b / digit % p) % p * digit;
    return characters[static_cast<size_t>(difference)];
  }

private:
  // Whether the powers of X modulo X^e - polynomial are all elements but 0.
  bool generates(int64_t polynomial) {
    characters.assign(static_cast<size_t>(q), 0);
    int64_t power = 1;
    for (int64_t i = 0; i < q - 1; ++i) {
      int &character = characters[static_cast<size_t>(power)];
      if (power == 0 || character != 0)
        return false;
      character = i % 2 == 0 ? 1 : -1;
      int64_t top = power / (q / p), shifted = power % (q / p) * p;
      power = 0;
      for (int64_t digit = 1; digit < q; digit *= p)
        power += (shifted / digit + polynomial / digit * top) % p * digit;
    }
    return true;
  }

  int64_t p, e, q;
  std::vector<int> characters; // by element
};

class SquareMatrix {
public:
  explicit SquareMatrix(int64_t m) : m(m), entries(static_cast<size_t>(m * m)) {}
  void set(int64_t row, int64_t column, int entry) {
    entries[static_cast<size_t>(row * m + column)] = static_cast<int8_t>(entry);
  }
  std::vector<int8_t> take() { return std::move(entries); }

private:
  int64_t m;
  std::vector<int8_t> entries;
};

// I + S, S skew with a border of ones around the characters of differences.
std::vector<int8_t> firstPaley(const Field &field) {
  int64_t m = field.size() + 1;
  SquareMatrix core(m);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < m; ++j)
      core.set(i, j, i == j || i == 0 ? 1 : j == 0 ? -1 : field.character(i - 1, j - 1));
  return core.take();
}

// The symmetric conference matrix with 2 x 2 blocks in place of its entries.
std::vector<int8_t> secondPaley(const Field &field) {
  int64_t half = field.size() + 1;
  SquareMatrix core(2 * half);
  for (int64_t i = 0; i < half; ++i)
    for (int64_t j = 0; j < half; ++j) {
      int sign = i == j ? 0 : i == 0 || j == 0 ? 1 : field.character(i - 1, j - 1);
      core.set(2 * i, 2 * j, sign == 0 ? 1 : sign);
      core.set(2 * i, 2 * j + 1, sign == 0 ? -1 : sign);
      core.set(2 * i + 1, 2 * j, sign == 0 ? -1 : sign);
      core.set(2 * i + 1, 2 * j + 1, sign == 0 ? -1 : -sign);
    }
  return core.take();
}

std::optional<std::vector<int8_t>> paley(int64_t m) {
  if (auto power = primePower(m - 1); power && (m - 1) % 4 == 3)
    return firstPaley(Field(*power));
  if (auto power = primePower(m / 2 - 1); power && (m / 2 - 1) % 4 == 1)
    return secondPaley(Field(*power));
  return std::nullopt;
}

} // namespace

Hadamard::Core::Core(int64_t m, std::vector<int8_t> given)
    : m(m), entries(std::move(given)), transposed(entries.size()) {
  for (int64_t row = 0; row < m; ++row)
    for (int64_t column = 0; column < m; ++column)
      transposed[static_cast<size_t>(column * m + row)] =
          entries[static_cast<size_t>(row * m + column)];
}

std::shared_ptr<const Hadamard::Core> Hadamard::coreOf(int64_t m) {
  static std::mutex mutex;
  static auto &known = dsl::lasting(std::map<int64_t, std::shared_ptr<const Core>>());
  std::lock_guard lock(mutex);
  auto [entry, isNew] = known.try_emplace(m);
  if (isNew) {
    std::optional<std::vector<int8_t>> entries = m == 1 ? std::vector<int8_t>{1} : paley(m);
    if (entries)
      entry->second = std::make_shared<const Core>(m, std::move(*entries));
  }
  return entry->second;
}

Result<Hadamard> Hadamard::ofOrder(int64_t n) {
  if (n >= 1) {
    int64_t odd = n >> std::countr_zero(static_cast<uint64_t>(n));
    if (odd == 1)
      return Hadamard(n, coreOf(1));
    for (int64_t m = 4 * std::min(odd, maxCore); m <= std::min(n, maxCore) && n % m == 0; m *= 2)
      if (std::shared_ptr<const Core> core = coreOf(m))
        return Hadamard(n, std::move(core));
  }
  return makeError(DiagId::no_hadamard_order, {std::to_string(n), std::to_string(maxCore)});
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
