// Weights that are encoded as one.
#pragma once

#include "kernels/quantize/QuantizeFile.h"

namespace rho::kernels {

// Each group's places in file.tensors(), in their order; `formats` has that of each tensor, null
// for those that are not encoded. Errors: those of namedTensors, weights_apart for what is not
// encoded, stands in two groups, has another format, k or activations, a format with parts, or rows
// that end inside a block.
Result<std::vector<std::vector<size_t>>>
weightGroups(const SafetensorsFile &file,
             const std::vector<std::shared_ptr<const dsl::Format>> &formats,
             const QuantizeFileOptions &options);

} // namespace rho::kernels
