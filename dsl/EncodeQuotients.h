// ElementType::encode of many quotients at once. Internal to dsl/.
#pragma once

#include "dsl/ElementType.h"

#include <cstdint>
#include <optional>

namespace rho::dsl {

class QuotientEncoder {
public:
  // Of at most 8 bits.
  explicit QuotientEncoder(ElementType type);
  // to[i] = type.encode(x[i] / scale), for a scale that is not 0.
  void encode(const double *x, int64_t count, double scale, uint8_t *to) const;

  // A float type of normal and subnormal numbers, without infinity.
  struct Float {
    double largest, leastNormal;
    double rounding;    // times a power of two: what rounds numbers of that exponent when added
    int shift;          // from a double's mantissa to the code's
    uint64_t bias;      // of a code made so
    uint64_t negatives; // without sign all ones: they become 0
    uint64_t signMask;  // of the code, 0 without sign
    int signShift;
  };

private:
  ElementType type;
  double low, high; // of an integer type
  std::optional<Float> shape;
};

} // namespace rho::dsl
