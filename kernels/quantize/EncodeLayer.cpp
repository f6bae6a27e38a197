#include "kernels/quantize/EncodeLayer.h"

namespace rho::kernels {

namespace {

// Activations as the kernel sees them.
Result<Matrix> seen(Matrix activation, const std::shared_ptr<const dsl::Format> &format,
                    unsigned threads) {
  if (!format)
    return activation;
  Result<dsl::QuantizedMatrix> codes = dsl::quantize(format, activation.view(), false, threads);
  if (!codes)
    return codes.error();
  return valuesOf(*codes, threads);
}

Status checkCalibration(const Matrix &weight, const Matrix *activation, const LayerSteps &steps) {
  if (activation)
    return checkLayer(weight, *activation);
  if (steps.needCalibration())
    return makeError(DiagId::calibration_needed, {steps.smooth    ? "smoothing"
                                                  : steps.permute ? "the order of channels"
                                                                  : "refinement"});
  return Done();
}

Result<LayerTransform> findTransform(const Matrix &weight, const Matrix *activation,
                                     const LayerFormats &formats, const LayerSteps &steps,
                                     unsigned threads) {
  LayerTransform transform;
  if (steps.rotate) {
    Result<Rotation> rotation = Rotation::ofSize(weight.k, steps.rotate);
    if (!rotation)
      return rotation.error();
    transform.rotation = std::move(*rotation);
  }
  if (steps.smooth) {
    Result<SmoothingSearch> search =
        searchSmoothing(weight, *activation, formats,
                        {.hessian = true,
                         .rotation = transform.rotation ? &*transform.rotation : nullptr,
                         .threads = threads});
    if (!search)
      return search.error();
    transform.smoothing = std::move(search->best);
  }
  if (steps.permute) {
    Result<Matrix> smoothed = transformActivation(*activation, {.smoothing = transform.smoothing});
    if (!smoothed)
      return smoothed.error();
    Result<ChannelOrder> order = clusterOutliers(*smoothed);
    if (!order)
      return order.error();
    transform.order = std::move(*order);
  }
  return transform;
}

} // namespace

Result<EncodedLayer> encodeLayer(const Matrix &weight, const Matrix *activation,
                                 const LayerFormats &formats, const LayerSteps &steps,
                                 unsigned threads) {
  if (Status calibrated = checkCalibration(weight, activation, steps); !calibrated)
    return calibrated.error();
  Result<LayerTransform> transform = findTransform(weight, activation, formats, steps, threads);
  if (!transform)
    return transform.error();
  Result<Matrix> w = transformWeight(weight, *transform, threads);
  if (!w)
    return w.error();
  dsl::QuantizeOptions options{.rejectNonFinite = true, .threads = threads};
  if (!activation) {
    Result<dsl::QuantizedMatrix> codes = dsl::quantize(formats.weight, w->view(), options);
    if (!codes)
      return codes.error();
    return EncodedLayer{std::move(*transform), std::move(*codes)};
  }
  Result<Matrix> x = transformActivation(*activation, *transform, threads);
  if (!x)
    return x.error();
  std::vector<double> diagonal = hessianDiagonal(*x);
  options.columnWeights = diagonal;
  Result<dsl::QuantizedMatrix> codes = dsl::quantize(formats.weight, w->view(), options);
  if (!codes)
    return codes.error();
  if (!steps.refine)
    return EncodedLayer{std::move(*transform), std::move(*codes)};
  Result<Matrix> quantized = seen(*x, formats.activation, threads);
  if (!quantized)
    return quantized.error();
  Result<Refinement> refined = refine(*codes, *w, *x, *quantized, {.threads = threads});
  if (!refined)
    return refined.error();
  return EncodedLayer{std::move(*transform), std::move(refined->matrix)};
}

Result<double> encodedLayerError(const EncodedLayer &layer, const Matrix &weight,
                                 const Matrix &activation,
                                 const std::shared_ptr<const dsl::Format> &activationFormat,
                                 unsigned threads) {
  if (Status checked = checkLayer(weight, activation); !checked)
    return checked.error();
  Result<Matrix> x = transformActivation(activation, layer.transform, threads);
  if (!x)
    return x.error();
  Result<Matrix> quantized = seen(std::move(*x), activationFormat, threads);
  if (!quantized)
    return quantized.error();
  return relativeSquaredError(layerOutputs(activation, weight, threads),
                              layerOutputs(*quantized, valuesOf(layer.weight, threads), threads));
}

} // namespace rho::kernels
