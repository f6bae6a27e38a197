// Parts of quantized weights, and several of them in one.
#pragma once

#include "dsl/Quantize.h"
#include "kernels/WeightFile.h"

#include <span>

namespace rho::kernels {

// Errors: slice_out_of_range, slice_divides_block.
Result<dsl::QuantizedMatrix> sliceOf(const dsl::QuantizedMatrix &weight,
                                     const WeightFile::Slice &slice);
// One below the other; `slices` are what they were made by. Error slices_differ for other formats,
// columns, or numbers that all rows share, and for rows that end inside a block.
Result<dsl::QuantizedMatrix> stackOf(std::span<const dsl::QuantizedMatrix> weights,
                                     std::span<const WeightFile::Slice> slices);

} // namespace rho::kernels
