#include "kernels/quantize/Products.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

namespace rho::kernels {

namespace {

constexpr int64_t lanes = 8;
using Doubles = double __attribute__((vector_size(lanes * sizeof(double))));
using Floats = float __attribute__((vector_size(lanes * sizeof(float))));

[[gnu::always_inline]] inline void load(const double *from, Doubles &to) {
  std::memcpy(&to, from, sizeof(to));
}
[[gnu::always_inline]] inline void load(const float *from, Doubles &to) {
  Floats floats;
  std::memcpy(&floats, from, sizeof(floats));
  to = __builtin_convertvector(floats, Doubles);
}

// From the sums of lanes over the first count - count % lanes products.
template <class A>
[[gnu::always_inline]] inline double finish(const double *sums, const A *a, const double *b,
                                            int64_t count) {
  double sum = 0;
  for (int64_t i = count - count % lanes; i < count; ++i)
    sum += static_cast<double>(a[i]) * b[i];
  for (int64_t lane = 0; lane < lanes; ++lane)
    sum += sums[lane];
  return sum;
}

template <class A>
[[gnu::always_inline]] inline double dotOf(const A *a, const double *b, int64_t count) {
  Doubles sums = {}, x, y;
  for (int64_t i = 0; i + lanes <= count; i += lanes) {
    load(a + i, x);
    load(b + i, y);
    sums += x * y;
  }
  double parts[lanes];
  std::memcpy(parts, &sums, sizeof(parts));
  return finish(parts, a, b, count);
}

// What registers hold of the sums at a time.
constexpr int tileRows = 2, tileTokens = 3;
using Lanes = std::array<double, lanes>;
struct Tile {
  const double *w[tileRows];
  const double *x[tileTokens];
  Lanes *sums[tileRows][tileTokens];
};

// Adds `count` products, a multiple of the lanes, to each sum. Sums that are one are added to once.
RHO_LANES void addProducts(const Tile &tile, int64_t count) {
  Doubles sums[tileRows][tileTokens], w[tileRows], x;
  for (int row = 0; row < tileRows; ++row)
    for (int token = 0; token < tileTokens; ++token)
      load(tile.sums[row][token]->data(), sums[row][token]);
  for (int64_t i = 0; i < count; i += lanes) {
    for (int row = 0; row < tileRows; ++row)
      load(tile.w[row] + i, w[row]);
    for (int token = 0; token < tileTokens; ++token) {
      load(tile.x[token] + i, x);
      for (int row = 0; row < tileRows; ++row)
        sums[row][token] += w[row] * x;
    }
  }
  for (int row = 0; row < tileRows; ++row)
    for (int token = 0; token < tileTokens; ++token)
      std::memcpy(tile.sums[row][token]->data(), &sums[row][token], sizeof(Lanes));
}

// Of few tokens, whose numbers stay in the cache while the rows go by.
template <class X>
void productsOfFew(const X *x, int64_t tokens, const double *w, int64_t rows, int64_t k, double *y,
                   int64_t allTokens) {
  constexpr int64_t depth = 512;
  const int64_t whole = k - k % lanes;
  std::vector<Lanes> sums(static_cast<size_t>(rows * tokens));
  constexpr bool converts = !std::is_same_v<X, double>;
  std::vector<double> converted(static_cast<size_t>(converts ? tokens * depth : 0));
  std::vector<const double *> numbers(static_cast<size_t>(tokens)); // of a token
  for (int64_t begin = 0; begin < whole; begin += depth) {
    const int64_t count = std::min(depth, whole - begin);
    for (int64_t token = 0; token < tokens; ++token) {
      const X *from = x + token * k + begin;
      if constexpr (converts)
        numbers[static_cast<size_t>(token)] =
            std::copy_n(from, count, converted.data() + token * depth) - count;
      else
        numbers[static_cast<size_t>(token)] = from;
    }
    for (int64_t token = 0; token < tokens; token += tileTokens)
      for (int64_t row = 0; row < rows; row += tileRows) {
        Tile tile;
        for (int t = 0; t < tileTokens; ++t)
          tile.x[t] = numbers[static_cast<size_t>(std::min(token + t, tokens - 1))];
        for (int r = 0; r < tileRows; ++r) {
          const int64_t here = std::min(row + r, rows - 1);
          tile.w[r] = w + here * k + begin;
          for (int t = 0; t < tileTokens; ++t)
            tile.sums[r][t] =
                &sums[static_cast<size_t>(here * tokens + std::min(token + t, tokens - 1))];
        }
        addProducts(tile, count);
      }
  }
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t token = 0; token < tokens; ++token)
      y[row * allTokens + token] = finish(sums[static_cast<size_t>(row * tokens + token)].data(),
                                          x + token * k, w + row * k, k);
}

template <class X>
void productsOf(const X *x, int64_t tokens, const double *w, int64_t rows, int64_t k, double *y) {
  constexpr int64_t few = 48;
  for (int64_t token = 0; token < tokens; token += few)
    productsOfFew(x + token * k, std::min(few, tokens - token), w, rows, k, y + token, tokens);
}

} // namespace

RHO_LANES double dot(const double *a, const double *b, int64_t count) { return dotOf(a, b, count); }
RHO_LANES double dot(const float *a, const double *b, int64_t count) { return dotOf(a, b, count); }

RHO_LANES void addScaled(const double *factors, int64_t columns, const float *x, int64_t count,
                         double *sums) {
  constexpr int held = 4; // vectors of sums in registers
  int64_t i = 0;
  for (; i + held * lanes <= count; i += held * lanes) {
    Doubles all[held], numbers;
    for (int part = 0; part < held; ++part)
      load(sums + i + part * lanes, all[part]);
    for (int64_t j = 0; j < columns; ++j)
      for (int part = 0; part < held; ++part) {
        load(x + j * count + i + part * lanes, numbers);
        all[part] += factors[j] * numbers;
      }
    std::memcpy(sums + i, all, sizeof(all));
  }
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t last = i; last < count; ++last)
      sums[last] += factors[j] * static_cast<double>(x[j * count + last]);
}

void products(const float *x, int64_t tokens, const double *w, int64_t rows, int64_t k, double *y) {
  productsOf(x, tokens, w, rows, k, y);
}
void products(const double *x, int64_t tokens, const double *w, int64_t rows, int64_t k,
              double *y) {
  productsOf(x, tokens, w, rows, k, y);
}

} // namespace rho::kernels
