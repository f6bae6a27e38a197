// Encodes formats with parts: see Quantize.h.
#pragma once

#include "dsl/Quantize.h"

namespace rho::dsl {

// `input` has numbers.
Result<QuantizedMatrix> quantizeParts(const Format &format, const MatrixView &input,
                                      const QuantizeOptions &options);

} // namespace rho::dsl
