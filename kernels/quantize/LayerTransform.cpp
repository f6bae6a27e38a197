#include "kernels/quantize/LayerTransform.h"

namespace rho::kernels {

namespace {

Result<Matrix> withoutSmoothing(Matrix matrix, const LayerTransform &transform, unsigned threads) {
  if (transform.order) {
    Result<Matrix> permuted = permuteChannels(matrix, *transform.order);
    if (!permuted)
      return permuted;
    matrix = std::move(*permuted);
  }
  if (transform.rotation)
    return rotateInputs(matrix, *transform.rotation, threads);
  return matrix;
}

} // namespace

Result<Matrix> transformWeight(Matrix weight, const LayerTransform &transform, unsigned threads) {
  if (transform.smoothing) {
    Result<Matrix> smoothed = smoothWeight(weight, *transform.smoothing);
    if (!smoothed)
      return smoothed;
    weight = std::move(*smoothed);
  }
  return withoutSmoothing(std::move(weight), transform, threads);
}

Result<Matrix> transformActivation(Matrix activation, const LayerTransform &transform,
                                   unsigned threads) {
  if (transform.smoothing) {
    Result<Matrix> smoothed = smoothActivation(activation, *transform.smoothing);
    if (!smoothed)
      return smoothed;
    activation = std::move(*smoothed);
  }
  return withoutSmoothing(std::move(activation), transform, threads);
}

} // namespace rho::kernels
