// Scales and codes that lower the error of a layer's outputs. APEX4 (section 3.3, algorithm 1)
// optimises both for each transformer block by gradients; there are no blocks here, so each layer
// is refined for itself, by coordinate descent on the squared error of its outputs.
#pragma once

#include "kernels/quantize/Layer.h"

namespace rho::kernels {

struct RefineOptions {
  int sweeps = 3; // over all scales, then all codes; fewer where one changes nothing
  // The weight's own squared error counts by this share of the mean of the Hessian's diagonal:
  // directions that the calibration does not excite keep the weight.
  double damping = 0.3;
  unsigned threads = 0;
};

struct Refinement {
  dsl::QuantizedMatrix matrix;
  double before = 0, after = 0; // relative squared errors of the outputs on the calibration
};

// Error refine_format: the format has parts, or elements of more than 8 bits.
Status checkRefinable(const dsl::Format &format);

// `start` are codes of `weight`; `activation` are the inputs x of the layer and `quantized` those
// that its kernel sees (x itself where activations are not quantized). Minimised is, row by row,
// the sum over m of (quantized[m] . value of codes - x[m] . w)^2 and the damping. A step is taken
// when it lowers that:
//   - a scale of a group or channel of k times 0.6, 0.65, ..., 1.15, an integer component one more
//     or less, its elements rounded anew; and the scale that is best for the codes as they are;
//   - the code of an element nearest to the minimum along its coordinate.
// What a whole tensor shares stays. Requirements of the format hold for every code. Rows that share
// a component keep the codes of `start` where the outputs' error would be larger. Work: sweeps * n
// * k * about 20 m; of a scale of groups of G < m along k about 4 m + 7 G. Errors: those of
// checkLayer, refine_format, refine_shape for codes or quantized activations of another shape.
Result<Refinement> refine(const dsl::QuantizedMatrix &start, const Matrix &weight,
                          const Matrix &activation, const Matrix &quantized,
                          const RefineOptions &options = {});

} // namespace rho::kernels
