#include "runtime/emulator/Numbers.h"

#include <algorithm>
#include <limits>

namespace rho::emulator {

double roundTo(double x, const FloatFormat &format, Rounding mode) {
  if (x == 0 || !std::isfinite(x))
    return x;
  int exponent = std::max(std::ilogb(x), format.minExponent);
  int scale = format.precision - 1 - exponent;
  double scaled = std::ldexp(std::fabs(x), scale); // exact: below 2^precision
  double whole = std::floor(scaled), rest = scaled - whole;
  bool negative = std::signbit(x);
  bool up = false;
  switch (mode) {
  case Rounding::Nearest:
    up = rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2.0) != 0);
    break;
  case Rounding::Zero:
    break;
  case Rounding::Down:
    up = negative && rest > 0;
    break;
  case Rounding::Up:
    up = !negative && rest > 0;
    break;
  }
  double magnitude = std::ldexp(whole + (up ? 1 : 0), -scale);
  if (magnitude > format.maxFinite) {
    bool toInfinity = mode == Rounding::Nearest || (mode == Rounding::Down && negative) ||
                      (mode == Rounding::Up && !negative);
    magnitude = toInfinity ? std::numeric_limits<double>::infinity() : format.maxFinite;
  }
  return negative ? -magnitude : magnitude;
}

namespace {
float decodeFp8(uint8_t code, int mantissaBits, int bias) {
  int exponent = (code & 0x7f) >> mantissaBits;
  int mantissa = code & ((1 << mantissaBits) - 1);
  float value = exponent == 0 ? std::ldexp(float(mantissa), 1 - bias - mantissaBits)
                              : std::ldexp(float(mantissa + (1 << mantissaBits)),
                                           exponent - bias - mantissaBits);
  return code & 0x80 ? -value : value;
}

uint8_t encodeFp8(double value, const FloatFormat &format, int bias) {
  int mantissaBits = format.precision - 1;
  uint8_t sign = std::signbit(value) ? 0x80 : 0;
  double rounded = std::fabs(roundTo(value, format, Rounding::Nearest));
  rounded = std::min(rounded, format.maxFinite);
  if (rounded == 0)
    return sign;
  int exponent = std::max(std::ilogb(rounded), format.minExponent);
  int significand = int(std::ldexp(rounded, mantissaBits - exponent));
  // A subnormal has no hidden bit: its significand alone is the code.
  int code = significand + ((exponent + bias - 1) << mantissaBits);
  return uint8_t(sign | code);
}
} // namespace

float e4m3ToF32(uint8_t code) {
  if ((code & 0x7f) == 0x7f)
    return std::numeric_limits<float>::quiet_NaN();
  return decodeFp8(code, 3, 7);
}

float e5m2ToF32(uint8_t code) {
  if ((code & 0x7f) > 0x7c)
    return std::numeric_limits<float>::quiet_NaN();
  if ((code & 0x7f) == 0x7c)
    return code & 0x80 ? -std::numeric_limits<float>::infinity()
                       : std::numeric_limits<float>::infinity();
  return decodeFp8(code, 2, 15);
}

uint8_t toE4m3(double value) { return std::isnan(value) ? 0x7f : encodeFp8(value, formatE4m3, 7); }
uint8_t toE5m2(double value) { return std::isnan(value) ? 0x7f : encodeFp8(value, formatE5m2, 15); }

} // namespace rho::emulator
