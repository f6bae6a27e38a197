#include "dsl/ElementType.h"

#include "dsl/Codebook.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace rho::dsl {

namespace {

// What the largest exponent field means.
enum class Special : uint8_t {
  None,       // finite numbers only (e2m1)
  NanOnly,    // all ones is NaN, the rest finite (e4m3)
  Ieee,       // infinity and NaN
  PowerOfTwo, // e8m0: the exponent alone, without zero; all ones is NaN
};

struct Encoding {
  char text[8] = {};
  uint8_t length = 0; // of the text; 0: no type
  ElementType::Kind kind = ElementType::Kind::Signed;
  bool hasSign = true;
  int bits = 0;
  int exponentBits = 0, mantissaBits = 0, bias = 0;
  Special special = Special::None;
  uint32_t maxCode = 0; // code of the largest finite value
  uint32_t nanCode = 0; // 0 where the type has none

  constexpr std::string_view name() const { return {text, length}; }
  constexpr void append(char c) { text[length++] = c; }
  constexpr void append(std::string_view more) {
    for (char c : more)
      append(c);
  }
  constexpr void appendNumber(int number) {
    if (number >= 10)
      append(static_cast<char>('0' + number / 10));
    append(static_cast<char>('0' + number % 10));
  }
};

constexpr Encoding integer(bool isSigned, int bits) {
  Encoding t;
  t.kind = isSigned ? ElementType::Kind::Signed : ElementType::Kind::Unsigned;
  t.append(isSigned ? 's' : 'u');
  t.appendNumber(bits);
  t.hasSign = isSigned;
  t.bits = bits;
  return t;
}

constexpr Encoding floating(int exponentBits, int mantissaBits, bool hasSign, Special special) {
  Encoding t;
  t.kind = ElementType::Kind::Float;
  t.hasSign = hasSign;
  t.bits = exponentBits + mantissaBits + (hasSign ? 1 : 0);
  t.exponentBits = exponentBits;
  t.mantissaBits = mantissaBits;
  t.bias = (1 << (exponentBits - 1)) - 1;
  t.special = special;
  uint32_t allOnes = (1u << (exponentBits + mantissaBits)) - 1;
  uint32_t infinity = ((1u << exponentBits) - 1) << mantissaBits;
  switch (special) {
  case Special::None:
    t.maxCode = allOnes;
    break;
  case Special::NanOnly:
  case Special::PowerOfTwo:
    t.maxCode = allOnes - 1;
    t.nanCode = allOnes;
    break;
  case Special::Ieee:
    t.maxCode = infinity - 1;
    t.nanCode = infinity | 1u << (mantissaBits - 1);
    break;
  }
  return t;
}

constexpr Encoding named(Encoding t, std::string_view name) {
  t.append(name);
  return t;
}

// A spelling of eXmY and what stands before and after it.
struct Spelling {
  bool isUnsigned = false;
  int exponentBits = 0, mantissaBits = 0;
  char suffix = 0; // f, i or none
};

constexpr bool is(const Spelling &s, bool isUnsigned, int exponentBits, int mantissaBits) {
  return s.isUnsigned == isUnsigned && s.exponentBits == exponentBits &&
         s.mantissaBits == mantissaBits;
}
constexpr bool isPowerOfTwo(const Spelling &s) {
  return s.exponentBits == 8 && s.mantissaBits == 0 && !s.suffix;
}

// What a spelling without suffix means.
constexpr Special defaultSpecial(const Spelling &s) {
  if (isPowerOfTwo(s))
    return Special::PowerOfTwo;
  if (s.exponentBits == 4 && s.mantissaBits == 3)
    return Special::NanOnly;
  return is(s, false, 5, 2) ? Special::Ieee : Special::None;
}

constexpr bool isValid(const Spelling &s) {
  int bits = s.exponentBits + s.mantissaBits + (s.isUnsigned ? 0 : 1);
  if (s.exponentBits < 1 || s.exponentBits > 8 || s.mantissaBits < 0 || bits < 3 || bits > 16)
    return false;
  if (s.exponentBits == 8 && s.mantissaBits == 0)
    return !s.suffix;
  return s.suffix != 'i' || (s.exponentBits >= 2 && s.mantissaBits >= 1);
}

// The one spelling of a type that is printed.
constexpr Spelling canonical(Spelling s) {
  if (isPowerOfTwo(s))
    s.isUnsigned = false;
  Special plain = defaultSpecial(s);
  if ((s.suffix == 'f' && plain == Special::None) || (s.suffix == 'i' && plain == Special::Ieee))
    s.suffix = 0;
  return s;
}

constexpr Encoding encodingOf(const Spelling &s) {
  Special special = s.suffix == 'f'   ? Special::None
                    : s.suffix == 'i' ? Special::Ieee
                                      : defaultSpecial(s);
  bool hasSign = !s.isUnsigned && special != Special::PowerOfTwo;
  Encoding t = floating(s.exponentBits, s.mantissaBits, hasSign, special);
  if (s.isUnsigned)
    t.append('u');
  t.append('e');
  t.appendNumber(s.exponentBits);
  t.append('m');
  t.appendNumber(s.mantissaBits);
  if (s.suffix)
    t.append(s.suffix);
  return t;
}

// The table: integers, f16, bf16, f32, then every spelling of eXmY at its place.
constexpr size_t u1Index = 7, f16Index = 15, bf16Index = 16, f32Index = 17, firstSpelling = 18;
constexpr size_t mantissaPlaces = 16, spellingCount = 3 * 2 * 8 * mantissaPlaces;
constexpr size_t firstCodebook = firstSpelling + spellingCount;
constexpr char suffixes[] = {0, 'f', 'i'};

constexpr size_t indexOf(const Spelling &s) {
  size_t suffix = s.suffix == 'f' ? 1 : s.suffix == 'i' ? 2 : 0;
  auto exponent = static_cast<size_t>(s.exponentBits - 1);
  return firstSpelling + ((suffix * 2 + (s.isUnsigned ? 1 : 0)) * 8 + exponent) * mantissaPlaces +
         static_cast<size_t>(s.mantissaBits);
}

constexpr std::array<Encoding, firstCodebook> makeEncodings() {
  std::array<Encoding, firstCodebook> table;
  for (size_t i = 0; i < u1Index; ++i)
    table[i] = integer(true, static_cast<int>(i) + 2);
  for (size_t i = u1Index; i < f16Index; ++i)
    table[i] = integer(false, static_cast<int>(i - u1Index) + 1);
  table[f16Index] = named(floating(5, 10, true, Special::Ieee), "f16");
  table[bf16Index] = named(floating(8, 7, true, Special::Ieee), "bf16");
  table[f32Index] = named(floating(8, 23, true, Special::Ieee), "f32");
  for (char suffix : suffixes)
    for (bool isUnsigned : {false, true})
      for (int exponentBits = 1; exponentBits <= 8; ++exponentBits)
        for (int mantissaBits = 0; mantissaBits < static_cast<int>(mantissaPlaces);
             ++mantissaBits) {
          Spelling s{isUnsigned, exponentBits, mantissaBits, suffix};
          if (isValid(s) && indexOf(canonical(s)) == indexOf(s))
            table[indexOf(s)] = encodingOf(s);
        }
  return table;
}

constexpr std::array<Encoding, firstCodebook> encodings = makeEncodings();

std::optional<size_t> indexOfFloat(std::string_view name) {
  Spelling s;
  auto take = [&](char c) {
    bool found = !name.empty() && name.front() == c;
    name.remove_prefix(found ? 1 : 0);
    return found;
  };
  auto number = [&](int &value) {
    size_t length = 0;
    while (length < name.size() && length < 2 && name[length] >= '0' && name[length] <= '9')
      value = 10 * value + (name[length++] - '0');
    bool good = length == 1 || (length == 2 && name[0] != '0');
    name.remove_prefix(length);
    return good;
  };
  s.isUnsigned = take('u');
  if (!take('e') || !number(s.exponentBits) || !take('m') || !number(s.mantissaBits))
    return std::nullopt;
  if (name == "f" || name == "i")
    s.suffix = name.front();
  else if (!name.empty())
    return std::nullopt;
  if (!isValid(s))
    return std::nullopt;
  if (s.suffix == 'i' && is(s, false, 5, 10))
    return f16Index;
  if (s.suffix == 'i' && is(s, false, 8, 7))
    return bf16Index;
  return indexOf(canonical(s));
}

const Codebook &bookOf(size_t index) { return codebookAt(index - firstCodebook); }

// 2^e for a normal double.
double powerOfTwo(int e) { return std::bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52); }

// Magnitude of a float code without its sign bit.
double decodeMagnitude(const Encoding &t, uint32_t magnitude) {
  uint32_t exponent = magnitude >> t.mantissaBits;
  uint32_t mantissa = magnitude & ((1u << t.mantissaBits) - 1);
  uint32_t allOnes = (1u << t.exponentBits) - 1;
  if (t.special == Special::Ieee && exponent == allOnes)
    return mantissa ? std::nan("") : HUGE_VAL;
  if (t.nanCode && magnitude == t.nanCode)
    return std::nan("");
  if (t.special == Special::PowerOfTwo)
    return powerOfTwo(static_cast<int>(magnitude) - t.bias);
  if (exponent == 0)
    return mantissa * powerOfTwo(1 - t.bias - t.mantissaBits);
  uint64_t bits = static_cast<uint64_t>(static_cast<int>(exponent) - t.bias + 1023) << 52 |
                  static_cast<uint64_t>(mantissa) << (52 - t.mantissaBits);
  return std::bit_cast<double>(bits);
}

// Rounds to a multiple of 2^exponent, ties to even, for |value| < 2^(exponent + 51): the sum has
// its last bit exactly there. Default rounding mode; bit for bit what a GPU's double add does.
double roundToMultiple(double value, int exponent) {
  double magic = 1.5 * powerOfTwo(52 + exponent);
  return (value + magic) - magic;
}

// Code of a finite magnitude, as if codes beyond the largest went on.
uint64_t encodeMagnitude(const Encoding &t, double magnitude) {
  const bool isPower = t.special == Special::PowerOfTwo;
  const int minExponent = isPower ? -t.bias : 1 - t.bias;
  if (magnitude < powerOfTwo(minExponent)) { // subnormal or zero: the mantissa counts quanta
    if (isPower)
      return 0;
    const int quantum = minExponent - t.mantissaBits;
    return static_cast<uint64_t>(roundToMultiple(magnitude, quantum) * powerOfTwo(-quantum));
  }
  // Codes count normal numbers as the bits of a double do, from another one on.
  const int dropped = 52 - t.mantissaBits;
  const uint64_t bits = std::bit_cast<uint64_t>(magnitude);
  const uint64_t first = static_cast<uint64_t>(minExponent + (isPower ? 1023 : 1022))
                         << t.mantissaBits;
  const uint64_t odd = ((bits >> dropped) - first) & 1; // rounds a tie up
  return ((bits + (uint64_t{1} << (dropped - 1)) - 1 + odd) >> dropped) - first;
}

uint32_t encodeFloat(const Encoding &t, double value) {
  if (std::isnan(value))
    return t.nanCode;
  if (!t.hasSign && value <= 0)
    return 0;
  const uint32_t sign = t.hasSign && std::signbit(value) ? 1u << (t.bits - 1) : 0;
  if (std::isinf(value))
    return sign | (t.special == Special::Ieee ? t.maxCode + 1 : t.maxCode);
  const uint64_t code = encodeMagnitude(t, std::fabs(value));
  return sign | static_cast<uint32_t>(std::min<uint64_t>(code, t.maxCode));
}

double maxOf(const Encoding &t) {
  if (t.kind == ElementType::Kind::Float)
    return decodeMagnitude(t, t.maxCode);
  return (1 << (t.bits - (t.hasSign ? 1 : 0))) - 1;
}

double minOf(const Encoding &t) {
  if (t.kind != ElementType::Kind::Float)
    return t.hasSign ? -(1 << (t.bits - 1)) : 0;
  return t.hasSign ? -maxOf(t) : decodeMagnitude(t, 0);
}

} // namespace

std::optional<ElementType> ElementType::fromName(std::string_view name) {
  for (size_t i = 0; i < firstSpelling; ++i)
    if (encodings[i].name() == name)
      return ElementType(static_cast<uint16_t>(i));
  if (std::optional<size_t> index = indexOfFloat(name))
    return ElementType(static_cast<uint16_t>(*index));
  if (std::optional<std::vector<double>> values = parseCodebook(name))
    return codebook(*values);
  return std::nullopt;
}

bool ElementType::isCodebookSize(size_t values) {
  return std::has_single_bit(values) && values >= 2 && values <= 256;
}

std::optional<ElementType> ElementType::codebook(const std::vector<double> &values) {
  if (!isCodebookSize(values.size()))
    return std::nullopt;
  for (double value : values)
    if (!std::isfinite(value))
      return std::nullopt;
  std::optional<size_t> index = internCodebook(values, maxCodebooks);
  if (!index)
    return std::nullopt;
  return ElementType(static_cast<uint16_t>(firstCodebook + *index));
}

std::vector<std::string> ElementType::allNames() {
  std::vector<std::string> names;
  for (size_t i = 0; i < f16Index; ++i)
    names.emplace_back(encodings[i].name());
  for (const char *name : {"e2m1", "e2m3", "e3m2", "e4m3", "e5m2", "e8m0", "ue4m3"})
    names.emplace_back(name);
  for (size_t i = f16Index; i < firstSpelling; ++i)
    names.emplace_back(encodings[i].name());
  return names;
}

std::vector<std::string_view> ElementType::everyName() {
  std::vector<std::string_view> names;
  for (const Encoding &encoding : encodings)
    if (encoding.length && fromName(encoding.name())->name() == encoding.name())
      names.push_back(encoding.name());
  return names;
}

ElementType ElementType::get(std::string_view name) {
  if (std::optional<ElementType> type = fromName(name))
    return *type;
  // A name that is part of the program, not of its input.
  std::fprintf(stderr, "no element type '%.*s'\n", static_cast<int>(name.size()), name.data());
  std::abort();
}

std::string_view ElementType::name() const {
  return index < firstCodebook ? encodings[index].name() : bookOf(index).text();
}
ElementType::Kind ElementType::kind() const {
  return index < firstCodebook ? encodings[index].kind : Kind::Codebook;
}
int ElementType::bits() const {
  return index < firstCodebook ? encodings[index].bits : bookOf(index).bits();
}
int ElementType::exponentBits() const {
  return index < firstCodebook ? encodings[index].exponentBits : 0;
}
int ElementType::mantissaBits() const {
  return index < firstCodebook ? encodings[index].mantissaBits : 0;
}
int ElementType::significantBits() const {
  return isFloat() ? mantissaBits() + 1 : kind() == Kind::Signed ? bits() - 1 : bits();
}
bool ElementType::hasSign() const { return index < firstCodebook && encodings[index].hasSign; }
double ElementType::maxFinite() const {
  return index < firstCodebook ? maxOf(encodings[index]) : bookOf(index).max();
}
double ElementType::minFinite() const {
  return index < firstCodebook ? minOf(encodings[index]) : bookOf(index).min();
}
double ElementType::maxMagnitude() const { return std::max(std::abs(minFinite()), maxFinite()); }

double ElementType::decode(uint32_t code) const {
  if (index >= firstCodebook) {
    const Codebook &book = bookOf(index);
    return book.values()[code & (book.values().size() - 1)];
  }
  const Encoding &t = encodings[index];
  code &= t.bits == 32 ? UINT32_MAX : (1u << t.bits) - 1;
  uint32_t signBit = t.hasSign ? 1u << (t.bits - 1) : 0;
  if (t.kind != Kind::Float)
    return static_cast<int32_t>(code ^ signBit) - static_cast<int32_t>(signBit);
  double magnitude = decodeMagnitude(t, code & ~signBit);
  return code & signBit ? -magnitude : magnitude;
}

uint32_t ElementType::encode(double value) const {
  if (index >= firstCodebook)
    return bookOf(index).nearest(std::isnan(value) ? 0 : value);
  const Encoding &t = encodings[index];
  if (t.kind == Kind::Float)
    return encodeFloat(t, value);
  if (std::isnan(value))
    return 0;
  double low = minOf(t), high = maxOf(t);
  double clamped = value < low ? low : value > high ? high : value;
  auto rounded = static_cast<int32_t>(roundToMultiple(clamped, 0));
  return static_cast<uint32_t>(rounded) & ((1u << t.bits) - 1);
}

} // namespace rho::dsl
