#include "dsl/ElementType.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace rho::dsl {

namespace {

// What the largest exponent field means.
enum class Special : uint8_t {
  None,    // finite numbers only (e2m1)
  NanOnly, // all ones is NaN, the rest finite (e4m3)
  Ieee,    // infinity and NaN
};

struct Encoding {
  std::string_view name;
  ElementType::Kind kind;
  int bits;
  int exponentBits = 0, mantissaBits = 0, bias = 0;
  Special special = Special::None;
  uint32_t maxCode = 0; // code of the largest finite value
  uint32_t nanCode = 0; // 0 where the type has none
};

constexpr auto signedInt = ElementType::Kind::Signed;
constexpr auto unsignedInt = ElementType::Kind::Unsigned;
constexpr auto floating = ElementType::Kind::Float;

// Sources: OCP Microscaling Formats 1.0 (e2m1), OCP 8-bit Floating Point 1.0 (e4m3), IEEE 754 (f16,
// f32); bf16 is the upper half of an f32.
constexpr Encoding encodings[] = {
    {"s2", signedInt, 2},
    {"s3", signedInt, 3},
    {"s4", signedInt, 4},
    {"s5", signedInt, 5},
    {"s6", signedInt, 6},
    {"s7", signedInt, 7},
    {"s8", signedInt, 8},
    {"u2", unsignedInt, 2},
    {"u3", unsignedInt, 3},
    {"u4", unsignedInt, 4},
    {"u5", unsignedInt, 5},
    {"u6", unsignedInt, 6},
    {"u7", unsignedInt, 7},
    {"u8", unsignedInt, 8},
    {"e2m1", floating, 4, 2, 1, 1, Special::None, 0x7, 0},
    {"e4m3", floating, 8, 4, 3, 7, Special::NanOnly, 0x7e, 0x7f},
    {"f16", floating, 16, 5, 10, 15, Special::Ieee, 0x7bff, 0x7e00},
    {"bf16", floating, 16, 8, 7, 127, Special::Ieee, 0x7f7f, 0x7fc0},
    {"f32", floating, 32, 8, 23, 127, Special::Ieee, 0x7f7fffff, 0x7fc00000},
};

// 2^e for a normal double.
double powerOfTwo(int e) { return std::bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52); }

// Magnitude of a float code without its sign bit.
double decodeMagnitude(const Encoding &t, uint32_t magnitude) {
  uint32_t exponent = magnitude >> t.mantissaBits;
  uint32_t mantissa = magnitude & ((1u << t.mantissaBits) - 1);
  uint32_t allOnes = (1u << t.exponentBits) - 1;
  if (t.special == Special::Ieee && exponent == allOnes)
    return mantissa ? std::nan("") : HUGE_VAL;
  if (t.special == Special::NanOnly && magnitude == t.nanCode)
    return std::nan("");
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

uint32_t encodeFloat(const Encoding &t, double value) {
  if (std::isnan(value))
    return t.nanCode;
  uint64_t bits = std::bit_cast<uint64_t>(value);
  uint32_t sign = static_cast<uint32_t>(bits >> 63) << (t.bits - 1);
  double magnitude = std::fabs(value);
  if (std::isinf(value))
    return sign | (t.special == Special::Ieee ? t.maxCode + 1 : t.maxCode);
  if (magnitude >= decodeMagnitude(t, t.maxCode))
    return sign | t.maxCode;
  int minExponent = 1 - t.bias;
  int exponent = static_cast<int>((bits >> 52) & 0x7ff) - 1023;
  if (exponent < minExponent)
    exponent = minExponent;
  double rounded = roundToMultiple(magnitude, exponent - t.mantissaBits);
  if (rounded < powerOfTwo(minExponent)) // subnormal or zero: the mantissa counts quanta
    return sign | static_cast<uint32_t>(rounded * powerOfTwo(t.mantissaBits - minExponent));
  uint64_t r = std::bit_cast<uint64_t>(rounded);
  uint32_t field = static_cast<uint32_t>(static_cast<int>(r >> 52) - 1023 + t.bias);
  uint32_t mantissa =
      static_cast<uint32_t>(r >> (52 - t.mantissaBits)) & ((1u << t.mantissaBits) - 1);
  return sign | field << t.mantissaBits | mantissa;
}

double maxOf(const Encoding &t) {
  switch (t.kind) {
  case ElementType::Kind::Signed:
    return (1 << (t.bits - 1)) - 1;
  case ElementType::Kind::Unsigned:
    return (1 << t.bits) - 1;
  case ElementType::Kind::Float:
    break;
  }
  return decodeMagnitude(t, t.maxCode);
}

double minOf(const Encoding &t) {
  switch (t.kind) {
  case ElementType::Kind::Signed:
    return -(1 << (t.bits - 1));
  case ElementType::Kind::Unsigned:
    return 0;
  case ElementType::Kind::Float:
    break;
  }
  return -maxOf(t);
}

} // namespace

std::optional<ElementType> ElementType::fromName(std::string_view name) {
  for (size_t i = 0; i < std::size(encodings); ++i)
    if (encodings[i].name == name)
      return ElementType(static_cast<uint8_t>(i));
  return std::nullopt;
}

std::vector<std::string_view> ElementType::allNames() {
  std::vector<std::string_view> names;
  for (const Encoding &encoding : encodings)
    names.push_back(encoding.name);
  return names;
}

ElementType ElementType::get(std::string_view name) {
  if (std::optional<ElementType> type = fromName(name))
    return *type;
  // A name that is part of the program, not of its input.
  std::fprintf(stderr, "no element type '%.*s'\n", static_cast<int>(name.size()), name.data());
  std::abort();
}

std::string_view ElementType::name() const { return encodings[index].name; }
ElementType::Kind ElementType::kind() const { return encodings[index].kind; }
int ElementType::bits() const { return encodings[index].bits; }
int ElementType::exponentBits() const { return encodings[index].exponentBits; }
int ElementType::mantissaBits() const { return encodings[index].mantissaBits; }
double ElementType::maxFinite() const { return maxOf(encodings[index]); }
double ElementType::minFinite() const { return minOf(encodings[index]); }

double ElementType::decode(uint32_t code) const {
  const Encoding &t = encodings[index];
  uint32_t mask = t.bits == 32 ? UINT32_MAX : (1u << t.bits) - 1;
  uint32_t signBit = 1u << (t.bits - 1);
  code &= mask;
  switch (t.kind) {
  case Kind::Unsigned:
    return code;
  case Kind::Signed:
    return static_cast<int32_t>(code ^ signBit) - static_cast<int32_t>(signBit);
  case Kind::Float:
    break;
  }
  double magnitude = decodeMagnitude(t, code & ~signBit);
  return code & signBit ? -magnitude : magnitude;
}

uint32_t ElementType::encode(double value) const {
  const Encoding &t = encodings[index];
  if (t.kind == Kind::Float)
    return encodeFloat(t, value);
  if (std::isnan(value))
    return 0;
  double low = minOf(t), high = maxOf(t);
  double clamped = value < low ? low : value > high ? high : value;
  auto integer = static_cast<int32_t>(roundToMultiple(clamped, 0));
  return static_cast<uint32_t>(integer) & ((1u << t.bits) - 1);
}

} // namespace rho::dsl
