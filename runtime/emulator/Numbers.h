// Small floating point formats: exact widening, and narrowing in one rounding.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace rho::emulator {

enum class Rounding : uint8_t { Nearest, Zero, Down, Up };

// Significand bits (with the hidden one), smallest normal exponent, largest finite magnitude.
struct FloatFormat {
  int precision;
  int minExponent;
  double maxFinite;
};
inline constexpr FloatFormat formatF16{11, -14, 65504.0};
inline constexpr FloatFormat formatBf16{8, -126, 0x1.fep127};
inline constexpr FloatFormat formatF32{24, -126, 0x1.fffffep127};
inline constexpr FloatFormat formatE4m3{4, -6, 448.0};
inline constexpr FloatFormat formatE5m2{3, -14, 57344.0};

// What .ftz makes zero: results that, rounded to the format's digits as if exponents had no least,
// are below its smallest normal number. So an H200 has it: of sums and products that round to that
// number it keeps those nearer than half a unit of its predecessors.
inline constexpr double tinyF16 = 0x1.ffep-15, tinyF32 = 0x1.ffffffp-127;

// A source of .ftz.
inline float flushF32(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

// x rounded once to a multiple of the format's spacing; magnitudes above maxFinite become infinity
// or maxFinite as the rounding mode says (IEEE 754 section 7.4).
double roundTo(double x, const FloatFormat &format, Rounding mode);

inline float f16ToF32(uint16_t half) {
  // Shift exponent and significand into place, then rescale: the multiplication normalises
  // subnormals; infinities and NaNs keep an all-ones exponent.
  uint32_t magnitude = uint32_t(half & 0x7fff) << 13;
  float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  uint32_t bits = std::bit_cast<uint32_t>(scaled);
  bits |= (half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
  return std::bit_cast<float>(bits | uint32_t(half & 0x8000) << 16);
}

// Round to nearest, ties to even; NaN becomes 0x7fff as on the hardware.
inline uint16_t f32ToF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  // Subnormal results: the addition of 0.5 aligns and rounds the significand.
  uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + 0.5f) - 0x3f000000u;
  uint32_t normal = (bits + 0xc8000fffu + (bits >> 13 & 1)) >> 13;
  uint32_t result = bits < 0x38800000u ? small : normal;
  result = bits >= 0x477ff000u ? 0x7c00u : result;
  result = bits > 0x7f800000u ? 0x7fffu : result;
  return uint16_t(result > 0x7c00u ? result : (sign | result));
}

inline float bf16ToF32(uint16_t value) { return std::bit_cast<float>(uint32_t(value) << 16); }

inline uint16_t f32ToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return uint16_t((bits & 0x7fffffff) > 0x7f800000u ? 0x7fffu : rounded);
}

// a + b rounded to odd in double: rounding the result again to 51 bits or fewer equals rounding
// the exact sum once (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
inline double addToOdd(double a, double b) {
  double sum = a + b;
  double bVirtual = sum - a;
  double error = (a - (sum - bVirtual)) + (b - bVirtual);
  uint64_t bits = std::bit_cast<uint64_t>(sum);
  bool inexact = error != 0 && error - error == 0 && sum - sum == 0;
  // An even inexact sum moves one step towards the lost part; odd ones already tell.
  uint64_t away = (error > 0) == (sum > 0) ? 1 : uint64_t(-1);
  bits += inexact && !(bits & 1) ? away : 0;
  return std::bit_cast<double>(bits);
}

// Narrowing that keeps a sticky bit: rounding the result to 22 bits or fewer, in float's range,
// equals rounding x once.
inline float toFloatOdd(double x) {
  float rounded = float(x);
  double back = double(rounded);
  uint32_t bits = std::bit_cast<uint32_t>(rounded);
  bool inexact = back != x && x == x && back - back == 0;
  bool grew = (x > 0) ? back > x : back < x;
  bits = inexact ? (grew ? bits - 1 : bits) | 1u : bits;
  return std::bit_cast<float>(bits);
}

inline uint16_t f64ToF16(double x) { return f32ToF16(toFloatOdd(x)); }
inline uint16_t f64ToBf16(double x) { return f32ToBf16(toFloatOdd(x)); }

float e4m3ToF32(uint8_t code);
float e5m2ToF32(uint8_t code);
// Round to nearest even, saturating to the largest finite value; NaN becomes the format's NaN.
uint8_t toE4m3(double value);
uint8_t toE5m2(double value);

} // namespace rho::emulator
