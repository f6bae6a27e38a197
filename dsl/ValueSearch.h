// The nearest code of a number where the value is no plain product.
#pragma once

#include "dsl/Codebook.h"
#include "dsl/Format.h"
#include "dsl/Lanes.h"

#include <cstdint>
#include <vector>

namespace rho::dsl {

// Wider elements have no table of values to search.
inline constexpr int maxSearchedElementBits = 8;

// The values of all codes of an element that may be chosen, sorted. What was found for the codes of
// other components is kept: few of them occur, mostly. For one thread.
class ValueSearch {
public:
  explicit ValueSearch(const Format &format) : format(format) {}

  // Prepares for numbers whose other components have these codes (codes[0] is overwritten). False
  // where no code fulfils the requirements.
  bool prepare(std::vector<uint32_t> &codes);

  // The code of each of `count` numbers: Quantize.h, step 3.
  RHO_LANES void nearest(const double *x, int64_t count, uint8_t *codes) const;
  uint32_t nearest(double x) const;
  double valueOf(uint32_t code) const { return kept[prepared].byCode[code]; }

private:
  struct Prepared {
    std::vector<uint32_t> others; // codes, without the element's
    std::vector<double> byCode;   // none before something is prepared here
    // The finite values in order, between infinities whose codes are the first's and the last's;
    // prefersNext where a number as near to the next is the next's.
    std::vector<double> values;
    std::vector<uint8_t> codes, prefersNext;
    int64_t fallback = -1;
  };
  void fill(Prepared &made, std::vector<uint32_t> &codes);

  const Format &format;
  std::vector<Prepared> kept;      // by a hash of `others`, the last of equal hashes
  size_t prepared = 0;             // the one that is searched
  std::vector<CodedValue> entries; // of fill()
  std::vector<uint32_t> order;     // all codes, by value as far as is known
};

} // namespace rho::dsl
