// Rotations of a layer's inputs, which spread outliers over all channels and leave the outputs as
// they are (QuaRot; APEX4, section 3.1).
#pragma once

#include "kernels/quantize/Hadamard.h"
#include "kernels/quantize/Layer.h"

#include <optional>

namespace rho::kernels {

// Q = H diag(s) / sqrt(size), Q Q^T = I, s the signs +1 and -1 that a seed draws; without a seed
// all are +1 (the exact transform of a head, APEX4, equation 6). A row of a multiple of `size`
// numbers is taken as columns of `size`, each of which is multiplied.
class Rotation {
public:
  // Error no_hadamard_order.
  static Result<Rotation> ofSize(int64_t size, std::optional<uint64_t> seed);

  int64_t size() const { return hadamard.order(); }
  std::optional<uint64_t> seed() const { return drawnFrom; }
  const Hadamard &matrix() const { return hadamard; }
  const std::vector<double> &signedFactors() const { return factors; } // s / sqrt(size)
  void apply(std::span<double> row) const;                             // by Q
  void apply(std::span<float> row) const;

private:
  Rotation(Hadamard hadamard, std::optional<uint64_t> seed);
  template <class Number> void multiply(std::span<Number> row) const;

  Hadamard hadamard;
  std::optional<uint64_t> drawnFrom;
  std::vector<double> factors; // s / sqrt(size)
};

// Along k, of activations and weight alike: x w^T stays. A weight in double, rounded to f32 at the
// end; activations in f32, as runtime/InputTransform.h has it. Errors: transform_width for a k that
// is no multiple of the rotation's size, rotation_beyond_f32 for sums of finite numbers.
Result<Matrix> rotateInputs(const Matrix &weight, const Rotation &rotation, unsigned threads = 0);
Result<Matrix> rotateActivation(const Matrix &activation, const Rotation &rotation,
                                unsigned threads = 0);
// The same of a weight in double, row after row of k numbers, in place. Error transform_width.
Status rotateInputsInPlace(std::span<double> weight, int64_t k, const Rotation &rotation,
                           unsigned threads = 0);
// Along the rows of such a weight: its outputs are those that the next layer takes when its inputs
// are rotated. Error transform_width.
Status rotateOutputsInPlace(std::span<double> weight, int64_t k, const Rotation &rotation,
                            unsigned threads = 0);

} // namespace rho::kernels
