// Numbers in place of the codes of scales that kernels do not compute from codes, and components of
// a residual that share no unit.
#pragma once

#include "dsl/Quantize.h"

#include <optional>

namespace rho::dsl {

// A format whose value is a product of the element's part and of components as they are.
struct PlainFactors {
  Format format;
  std::string components =
      {};              // that are stored otherwise, for people: "'s' as f16, 'selector' apart"
  double roundoff = 0; // of these numbers, relative; 0: they are exact
  void add(const std::string &component) {
    components += (components.empty() ? "" : ", ") + component;
  }
};

// Of a format with factors that read one component alone and are not that component, such as
// `1 / s` and `(1 << s)`, or are a codebook: the same with components of f16, bf16 or f32, of the
// first of the three that holds what each factor stands for, else rounded to f32. None where there
// are no such factors, or a requirement or another factor reads their component as well. Of a
// format with a residual of its own components that of both, and the residual's lie in no spare
// bits.
std::optional<PlainFactors> plainFactors(const Format &format);

// Codes of a format as those of plainFactors() of it. Error non_finite_input where a code that is
// there stands for infinity or NaN: 0 of a scale that divides, for one.
Result<QuantizedMatrix> storedFactors(QuantizedMatrix codes, std::shared_ptr<const Format> plain);

} // namespace rho::dsl
