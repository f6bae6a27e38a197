// Encodes formats with parts: see Quantize.h.
#pragma once

#include "dsl/Quantize.h"

namespace rho::dsl {

// The elements alone of a product, by division; `matrix` has the codes of all other components, and
// S is theirs times `factor`.
Result<QuantizedMatrix> quantizeElements(QuantizedMatrix matrix, const MatrixView &input,
                                         double factor, const QuantizeOptions &options);

// `input` has numbers.
Result<QuantizedMatrix> quantizeParts(const Format &format, const MatrixView &input,
                                      const QuantizeOptions &options);

} // namespace rho::dsl
