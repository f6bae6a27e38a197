// The nearest code of a number where the value is no plain product.
#pragma once

#include "dsl/Codebook.h"
#include "dsl/Format.h"
#include "dsl/KeptByCodes.h"
#include "dsl/Lanes.h"

#include <cstdint>
#include <vector>

namespace rho::dsl {

// Wider elements have no table of values to search.
inline constexpr int maxSearchedElementBits = 8;

// The values of all codes of an element that may be chosen, sorted. For one thread.
class ValueSearch {
public:
  explicit ValueSearch(const Format &format);

  // Prepares for numbers whose other components have these codes (codes[0] is overwritten). False
  // where no code fulfils the requirements.
  bool prepare(std::vector<uint32_t> &codes);

  // The code of each of `count` numbers: Quantize.h, step 3.
  RHO_LANES void nearest(const double *x, int64_t count, uint8_t *codes) const;
  uint32_t nearest(double x) const;
  double valueOf(uint32_t code) const { return prepared->byCode[code]; }

private:
  struct Prepared {
    std::vector<double> byCode;
    // The finite values in order, between infinities whose codes are the first's and the last's;
    // prefersNext where a number as near to the next is the next's.
    std::vector<double> values;
    std::vector<uint8_t> codes, prefersNext;
    int64_t fallback = -1;
  };
  void fill(Prepared &made, std::vector<uint32_t> &codes);

  const Format &format;
  KeptByCodes<Prepared> kept;
  const Prepared *prepared = nullptr;
  std::vector<CodedValue> entries; // of fill()
  std::vector<uint32_t> order;     // all codes, by value as far as is known
};

} // namespace rho::dsl
