// The ways in which the bits of one code, put somewhere into a lane of an operand register, are its
// value, or its value after one multiply-add.
#pragma once

#include "dsl/ElementType.h"

#include <cstdint>
#include <vector>

namespace rho::compiler {

// The code's bits at `places` of the lane, in an order of their own, beside the bits `constant`,
// are a number of the lane's type. That number is value * 2^log2, or with `affine` the value is
// slope * number + offset.
struct LaneForm {
  uint32_t places = 0;
  uint32_t constant = 0;
  // Not 0: the code's last bit lies at none of `places`; where it is set, the lane is larger by
  // `weight` as an integer.
  uint32_t weight = 0;
  bool affine = false;
  int log2 = 0;
  double slope = 1, offset = 0;
  // stored[code]: the code's bits as the search orders them, a permutation of all codes. Bit
  // `bitOf[i]` of stored[code] lies at the i-th lowest of `places`, the last one may be weighted.
  std::vector<uint8_t> stored;
  std::vector<int> bitOf;

  bool operator==(const LaneForm &) const = default;
};

// Every form for codes with these values (2^b of them; NaN where packing refuses the code), b from
// 1 to 8, one for each choice of `places`, `weight`, `stored`, `affine` and `log2`. Found by
// running through all places and constants of a lane, and in lanes of 8 bits all weights;
// `arithmetic` admits affine forms.
std::vector<LaneForm> laneForms(const std::vector<double> &values, dsl::ElementType lane,
                                bool arithmetic);

} // namespace rho::compiler
