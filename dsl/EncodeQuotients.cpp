#include "dsl/EncodeQuotients.h"

#include "dsl/Lanes.h"

#include <bit>
#include <cmath>

namespace rho::dsl {

namespace {

constexpr uint64_t signBit = uint64_t(1) << 63;
constexpr uint64_t exponentBits = uint64_t(0x7ff) << 52;

RHO_LANES void encodeIntegers(double low, double high, uint32_t mask, const double *x,
                              int64_t count, double scale, uint8_t *to) {
  constexpr double magic = 0x1.8p52; // its last bit is 1: adding it rounds to an integer
  for (int64_t i = 0; i < count; ++i) {
    double q = x[i] / scale;
    q = q < low ? low : q;
    q = q > high ? high : q;
    q = q == q ? q : 0; // NaN
    double rounded = (q + magic) - magic;
    to[i] = static_cast<uint8_t>(static_cast<uint32_t>(static_cast<int32_t>(rounded)) & mask);
  }
}

// None of a type that is not such.
std::optional<QuotientEncoder::Float> shapeOf(ElementType type) {
  int mantissa = type.mantissaBits();
  if (!type.isFloat() || type.bits() > 8 || mantissa == 0 ||
      std::isinf(type.decode(type.encode(HUGE_VAL))))
    return std::nullopt;
  int leastExponent = type.leastExponent();
  QuotientEncoder::Float t{};
  t.largest = type.maxFinite();
  t.leastNormal = std::ldexp(1.0, leastExponent);
  t.rounding = std::ldexp(1.5, 52 - mantissa);
  t.shift = 52 - mantissa;
  t.bias = static_cast<uint64_t>(leastExponent + 1023) << mantissa;
  t.negatives = type.hasSign() ? 0 : ~uint64_t(0);
  t.signMask = type.hasSign() ? uint64_t(1) << (type.bits() - 1) : 0;
  t.signShift = 64 - type.bits();
  return t;
}

// False where some quotient is no finite number: to[] is then undefined.
RHO_LANES bool encodeFloats(const QuotientEncoder::Float &type, const double *x, int64_t count,
                            double scale, uint8_t *to) {
  const QuotientEncoder::Float t = type;
  uint64_t unusual = 0;
  for (int64_t i = 0; i < count; ++i) {
    auto q = std::bit_cast<uint64_t>(x[i] / scale);
    unusual |= (q & exponentBits) == exponentBits ? 1 : 0;
    uint64_t dropped = (0 - (q >> 63)) & t.negatives;
    auto magnitude = std::bit_cast<double>(q & ~signBit & ~dropped);
    magnitude = magnitude < t.largest ? magnitude : t.largest;
    double least = magnitude > t.leastNormal ? magnitude : t.leastNormal;
    auto power = std::bit_cast<double>(std::bit_cast<uint64_t>(least) & exponentBits);
    double magic = power * t.rounding;
    double rounded = (magnitude + magic) - magic;
    // Either way the exponent is one more than that of the code.
    double aligned = rounded < t.leastNormal ? rounded + t.leastNormal : rounded + rounded;
    uint64_t code = (std::bit_cast<uint64_t>(aligned) >> t.shift) - t.bias;
    to[i] = static_cast<uint8_t>(code | ((q >> t.signShift) & t.signMask));
  }
  return unusual == 0;
}

} // namespace

QuotientEncoder::QuotientEncoder(ElementType type)
    : type(type), low(type.minFinite()), high(type.maxFinite()), shape(shapeOf(type)) {}

void QuotientEncoder::encode(const double *x, int64_t count, double scale, uint8_t *to) const {
  if (type.isInteger())
    return encodeIntegers(low, high, (1U << type.bits()) - 1, x, count, scale, to);
  if (shape && encodeFloats(*shape, x, count, scale, to))
    return;
  for (int64_t i = 0; i < count; ++i)
    to[i] = static_cast<uint8_t>(type.encode(x[i] / scale));
}

} // namespace rho::dsl
