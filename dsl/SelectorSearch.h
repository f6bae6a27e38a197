// How far numbers are from the nearest values of a format with a remapped code, for all codes of
// its selector at once: the other codes of the element stand for the same whichever it is.
#pragma once

#include "dsl/Format.h"
#include "dsl/KeptByCodes.h"
#include "dsl/Lanes.h"

#include <cstdint>
#include <vector>

namespace rho::dsl {

// For one thread.
class SelectorSearch {
public:
  // Of a format that it covers: a remapped code and no requirements.
  explicit SelectorSearch(const Format &format);
  static bool covers(const Format &format);

  // Prepares for numbers whose other components but the selector have these codes (codes[0] and the
  // selector's are overwritten). False where other codes than the remapped one depend on the
  // selector, too, or stand for nothing finite.
  bool prepare(std::vector<uint32_t> &codes);

  // Adds, in the order of the numbers, the squared distance of each to the nearest value with
  // selector s, times its weight where there are weights, to errors[s]; `errors` has selectors()
  // numbers.
  RHO_LANES void addErrors(const double *x, const double *weights, int64_t count,
                           double *errors) const;
  size_t selectors() const { return padded; }

private:
  struct Prepared {
    bool usable = false;
    std::vector<double> values;   // finite, in order, between infinities
    std::vector<double> remapped; // by selector
  };
  void fill(Prepared &made, std::vector<uint32_t> &codes) const;

  const Format &format;
  size_t padded; // codes of the selector, to a multiple of the lanes
  KeptByCodes<Prepared> kept;
  const Prepared *prepared = nullptr;
};

} // namespace rho::dsl
