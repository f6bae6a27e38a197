#include "kernels/quantize/LayerTransform.h"

namespace rho::kernels {

namespace {

template <class Smooth, class Rotate>
Result<Matrix> transformed(Matrix matrix, const LayerTransform &transform, const Smooth &smooth,
                           const Rotate &rotate, unsigned threads) {
  if (transform.smoothing) {
    Result<Matrix> smoothed = smooth(matrix, *transform.smoothing);
    if (!smoothed)
      return smoothed;
    matrix = std::move(*smoothed);
  }
  if (transform.order) {
    Result<Matrix> permuted = permuteChannels(matrix, *transform.order);
    if (!permuted)
      return permuted;
    matrix = std::move(*permuted);
  }
  if (transform.rotation)
    return rotate(matrix, *transform.rotation, threads);
  return matrix;
}

} // namespace

Result<Matrix> transformWeight(Matrix weight, const LayerTransform &transform, unsigned threads) {
  return transformed(std::move(weight), transform, smoothWeight, rotateInputs, threads);
}

Result<Matrix> transformActivation(Matrix activation, const LayerTransform &transform,
                                   unsigned threads) {
  return transformed(std::move(activation), transform, smoothActivation, rotateActivation, threads);
}

} // namespace rho::kernels
