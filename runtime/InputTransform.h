// What the inputs of a layer go through before they are quantized: smoothing, another order of
// channels, a rotation. Public, as Rho.h. A file of `rho quantize` says what the inputs of its
// weights need: WeightFile::inputTransform. Gemm::makeActivations takes one.
#pragma once

#include "runtime/Rho.h"

#include <optional>

namespace rho {

// In this order; what is empty is left out.
struct InputSteps {
  // k numbers, finite and not 0: x[i] becomes x[i] / divisors[i].
  std::vector<float> divisors = {};
  // A permutation of k channels: number i becomes that of channels[i].
  std::vector<int32_t> channels = {};
  // Each factors.size() numbers become H (factors * numbers), all of k together a multiple of them.
  // H is the Kronecker product of Sylvester's matrix and a core [c][c] of +1 and -1, c at most
  // mostCore (of order 1 it is 1): factors.size() is c * 2^p. With factors of +-1 /
  // sqrt(factors.size()) and a Hadamard matrix for a core it is a rotation.
  struct Rotation {
    static constexpr int64_t mostCore = 1024;
    std::vector<float> factors;
    std::vector<int8_t> core{1};
    friend bool operator==(const Rotation &, const Rotation &) = default;
  };
  std::optional<Rotation> rotation = {};
  friend bool operator==(const InputSteps &, const InputSteps &) = default;
};

// On a device, ready for launches. Cheap to copy. All steps are done in f32, sums of a core in the
// order of its columns, then those of Sylvester's matrix from near numbers to far ones.
class InputTransform {
public:
  // Of rows of k numbers. Gets its kernels through the engine's caches. Errors: bad_input_steps,
  // out_of_memory, kernel_refused by the driver.
  static Result<InputTransform> create(const Engine &engine, int64_t k, const InputSteps &steps);
  int64_t k() const;
  const std::vector<CompileReport> &reports() const; // of its kernels, which have no plan
  bool valid() const { return pimpl != nullptr; }

  struct Impl;
  const Impl &impl() const { return *pimpl; }

private:
  friend class Gemm;
  std::shared_ptr<const Impl> pimpl;
};

} // namespace rho
