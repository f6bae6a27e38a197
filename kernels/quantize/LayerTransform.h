// What is done to the inputs of a layer and to its weight, so that the outputs stay and numbers of
// few bits hold both better.
#pragma once

#include "kernels/quantize/ChannelOrder.h"
#include "kernels/quantize/Rotation.h"
#include "kernels/quantize/Smoothing.h"

namespace rho::kernels {

// One after the other; each may be left out.
struct LayerTransform {
  std::optional<SmoothingScales> smoothing = {};
  std::optional<ChannelOrder> order = {};
  std::optional<Rotation> rotation = {};

  bool isIdentity() const { return !smoothing && !order && !rotation; }
};

// Errors: transform_width.
Result<Matrix> transformWeight(Matrix weight, const LayerTransform &transform,
                               unsigned threads = 0);
// What a runtime does to x before it quantizes x, bit for bit what rho::InputTransform makes of it.
// Errors: transform_width.
Result<Matrix> transformActivation(Matrix activation, const LayerTransform &transform,
                                   unsigned threads = 0);

} // namespace rho::kernels
