// The nearest code of a number where the value is no plain product.
#pragma once

#include "dsl/Codebook.h"
#include "dsl/Format.h"

#include <cstdint>
#include <vector>

namespace rho::dsl {

// Wider elements have no table of values to search.
inline constexpr int maxSearchedElementBits = 8;

// The values of all codes of an element that may be chosen, sorted.
class ValueSearch {
public:
  explicit ValueSearch(const Format &format) : format(format) {}

  // Prepares for numbers whose other components have these codes (codes[0] is overwritten). False
  // where no code fulfils the requirements.
  bool prepare(std::vector<uint32_t> &codes);

  // See Quantize.h, step 3.
  uint32_t nearest(double x) const;
  double valueOf(uint32_t code) const { return table[code]; }

private:
  const Format &format;
  std::vector<double> table;
  std::vector<CodedValue> entries;
  std::vector<double> values;  // of the entries
  std::vector<uint32_t> order; // all codes, by value as far as is known
  int64_t fallback = -1;
};

} // namespace rho::dsl
