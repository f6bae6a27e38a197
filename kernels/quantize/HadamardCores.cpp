#include "kernels/quantize/HadamardCores.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string_view>

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

// q = 3 mod 4 of a matrix of order q + 1.
std::optional<PrimePower> firstPaleyPower(int64_t m) {
  return (m - 1) % 4 == 3 ? primePower(m - 1) : std::nullopt;
}
// q = 1 mod 4 of a matrix of order 2 (q + 1).
std::optional<PrimePower> secondPaleyPower(int64_t m) {
  return m % 2 == 0 && (m / 2 - 1) % 4 == 1 ? primePower(m / 2 - 1) : std::nullopt;
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

// Four sequences of t signs whose periodic autocorrelations add up to 0 at every shift but 0. A bit
// for each, the first is the highest of the first hexadecimal digit; set: -1.
struct FourSequences {
  int64_t t;
  std::array<std::string_view, 4> signs;
};

// For each odd t up to 127 where Paley's constructions do not give 4 t. Of 47, 59, 89 and 107: made
// of Turyn-type sequences (Best, Djokovic, Kharaghani, Ramp, arXiv:1206.4107; of 107 those of
// Kharaghani and Tayfeh-Rezaie, J. Combin. Des. 13, 2005), of 65 and 81 of Golay's, of 103, 109 and
// 127 Djokovic's difference sets (1994, 2008, 1992). The others: signs that are the same all over
// an orbit of a group of units modulo t, found by search.
constexpr FourSequences known[] = {
    {23, {"1cc338", "6542a6", "6c7e36", "6a0056"}},
    {29, {"334fcb30", "14e85ca0", "4117a208", "194fca60"}},
    {39, {"649e9a0f98", "2e2b304f98", "7747e314b6", "7efdeb528a"}},
    {43, {"6efbcdc7a8c", "47f0d90aad2", "67d8110e0d2", "34acea36f20"}},
    {47, {"0d530cac0660", "0d530cadf99e", "0d53f3521b7c", "0d53f353e482"}},
    {59, {"0bcd908e960c6a8", "0bcd908e97f3956", "0bcd9f716805314", "0bcd9f7169facea"}},
    {65, {"121d12e2090ef68e8", "121d12e276f109710", "ede2ed1d090ef68e8", "ede2ed1d76f109710"}},
    {67, {"7b228e54bd8ecbf60", "718dd9ed4d2903b28", "46bd970fdff530d2a", "7161faa6ff0c8cfb6"}},
    {73,
     {"68d5a6278c79196ac58", "125937d21a6be24c578", "7faad988e7868591a80", "7ffbbf8a8feb81c8c58"}},
    {81,
     {"2b0832b37c15841ea6418", "2b0832b37c6a7be159be0", "d4f7cd4c8315841ea6418",
      "d4f7cd4c836a7be159be0"}},
    {89,
     {"034c7aa40d9c956048e27a0", "034c7aa40d9c957fb71d858", "034c7aa7f2636a8061b4c50",
      "034c7aa7f2636a9f9e4b3a8"}},
    {93,
     {"176a3dcc4be2f0f5319eac58", "173e1ee902e8ecd21158b880", "7bcab5cd9a27b0f6869c4d78",
      "7bdfb2fbdb09be9ba2ca1080"}},
    {101,
     {"48753f02df7dd14e863e6d97a0", "334274f004a37ab158cad0ca68", "770ecb7f298a2a19d7c1bd5998",
      "778ae08d282034b079c11b6378"}},
    {103,
     {"1d9fa5aadd710f7144aa5a0646", "23e7dd7d299ca81d928531e9a0", "71765d6871b7f9e5601e927ec6",
      "785a7c61373b76cdfc12ebbb8e"}},
    {107,
     {"41611316e17cd1a8843caf8487a", "41611316e17cd1a885c3507b784", "41611316ee832e577a835b30872",
      "41611316ee832e577b7ca4cf78c"}},
    {109,
     {"67a6e117ceadba892a305de26860", "18150565b39062f813f1b9042960",
      "4a4caadc308fd9e7e106525113a8", "5a89bc38625d990f79fdea5c06d0"}},
    {113,
     {"06e71a71579937543bfec24783090", "46eb953f079967507b77c04483270",
      "2f0c37548440198ed98394d5f8428", "36185594ac2681a95d03a96cb4d20"}},
    {119,
     {"69c7f06aea112d99bc8853560de396", "34dd4d41fa39df680e67ac6d6f0452",
      "7febecdbb8f4e68f9ad4ea34e86880", "7febecdbb8f4e68f9ad4ea34e86880"}},
    {127,
     {"68d5f663be69680e8fe96982399054e8", "6997927b92087b9b974d40d57b8fd3de",
      "6ce1ec13ece1131fa9a5a957131f57fe", "05321f5846eb73d5347ca9df6e1fa736"}},
};

std::vector<int> signsOf(std::string_view digits, int64_t t) {
  std::vector<int> signs;
  for (int64_t i = 0; i < t; ++i) {
    const char digit = digits[static_cast<size_t>(i / 4)];
    const int value = digit <= '9' ? digit - '0' : digit - 'a' + 10;
    signs.push_back((value >> (3 - i % 4) & 1) != 0 ? -1 : 1);
  }
  return signs;
}

// Goethals and Seidel's array (Canad. J. Math. 19, 1967) of circulants A, B, C, D and R, which
// reverses columns:
//
//    A    B R    C R    D R
//   -B R  A      D'R   -C'R
//   -C R -D'R    A      B'R
//   -D R  C'R   -B'R    A
std::vector<int8_t> goethalsSeidel(const FourSequences &given) {
  struct Block {
    int sequence, sign;
    bool transposed;
  };
  constexpr Block blocks[4][4] = {
      {{0, 1, false}, {1, 1, false}, {2, 1, false}, {3, 1, false}},
      {{1, -1, false}, {0, 1, false}, {3, 1, true}, {2, -1, true}},
      {{2, -1, false}, {3, -1, true}, {0, 1, false}, {1, 1, true}},
      {{3, -1, false}, {2, 1, true}, {1, -1, true}, {0, 1, false}},
  };
  const int64_t t = given.t;
  std::array<std::vector<int>, 4> sequences;
  std::transform(given.signs.begin(), given.signs.end(), sequences.begin(),
                 [&](std::string_view digits) { return signsOf(digits, t); });
  SquareMatrix core(4 * t);
  for (int64_t row = 0; row < 4 * t; ++row)
    for (int64_t column = 0; column < 4 * t; ++column) {
      const Block &block = blocks[row / t][column / t];
      const int64_t i = row % t, j = column % t;
      // Of A; of X R and X'R with columns from the last to the first.
      const int64_t index = block.sequence == 0 ? j - i : block.transposed ? i + j + 1 : -1 - i - j;
      core.set(row, column,
               block.sign * sequences[static_cast<size_t>(block.sequence)]
                                     [static_cast<size_t>((index + 2 * t) % t)]);
    }
  return core.take();
}

const FourSequences *fourSequences(int64_t m) {
  const auto *found = std::find_if(std::begin(known), std::end(known),
                                   [&](const FourSequences &four) { return 4 * four.t == m; });
  return found == std::end(known) ? nullptr : found;
}

} // namespace

int64_t hadamardCoreOrder(int64_t n) {
  if (n < 1)
    return 0;
  const int64_t odd = n >> std::countr_zero(static_cast<uint64_t>(n));
  if (odd == 1)
    return 1;
  // Paley's first: a file tells a rotation by its seed and its order alone.
  auto isPaley = [](int64_t m) { return firstPaleyPower(m) || secondPaleyPower(m); };
  auto isOfFour = [](int64_t m) { return fourSequences(m) != nullptr; };
  for (bool (*isKnown)(int64_t) : {+isPaley, +isOfFour})
    for (int64_t m = 4 * std::min(odd, mostHadamardCore);
         m <= std::min(n, mostHadamardCore) && n % m == 0; m *= 2)
      if (isKnown(m))
        return m;
  return 0;
}

std::vector<int8_t> hadamardCore(int64_t m) {
  if (auto power = firstPaleyPower(m))
    return firstPaley(Field(*power));
  if (auto power = secondPaleyPower(m))
    return secondPaley(Field(*power));
  const FourSequences *four = fourSequences(m);
  return four != nullptr ? goethalsSeidel(*four) : std::vector<int8_t>{1};
}

} // namespace rho::kernels
