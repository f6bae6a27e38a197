#include "kernels/quantize/EncodeLayer.h"

#include "dsl/Division.h"

namespace rho::kernels {

namespace {

Status checkCalibration(const Matrix &weight, const Matrix *activation, const LayerSteps &steps) {
  if (activation)
    return checkLayer(weight, *activation);
  if (steps.rotate) // which spreads what is not finite over its row
    if (Status finite = checkNumbers(weight, DiagId::non_finite_input); !finite)
      return finite;
  if (steps.needCalibration())
    return makeError(DiagId::calibration_needed, {steps.smooth    ? "smoothing"
                                                  : steps.permute ? "the order of channels"
                                                                  : "refinement"});
  return Done();
}

// The transform and what comes with it; the weight is still to be encoded.
Result<EncodedLayer> findTransform(const Matrix &weight, const Matrix *activation,
                                   const LayerFormats &formats, const LayerSteps &steps,
                                   unsigned threads) {
  EncodedLayer layer;
  LayerTransform &transform = layer.transform;
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
    Result<std::vector<int64_t>> outliers = detectOutliers(*smoothed);
    if (!outliers)
      return outliers.error();
    Result<ChannelOrder> order = clusterOutliers(*smoothed);
    if (!order)
      return order.error();
    Result<int64_t> before =
        blocksWithoutOutliers(ChannelOrder::identity(weight.k), *outliers, *steps.permute);
    if (!before)
      return before.error();
    Result<int64_t> after = blocksWithoutOutliers(*order, *outliers, *steps.permute);
    if (!after)
      return after.error();
    layer.blocks = {divideUp(weight.k, *steps.permute), *before, *after};
    transform.order = std::move(*order);
  }
  return layer;
}

} // namespace

Result<EncodedLayer> encodeLayer(const Matrix &weight, const Matrix *activation,
                                 const LayerFormats &formats, const LayerSteps &steps,
                                 unsigned threads) {
  if (Status calibrated = checkCalibration(weight, activation, steps); !calibrated)
    return calibrated.error();
  Result<EncodedLayer> layer = findTransform(weight, activation, formats, steps, threads);
  if (!layer)
    return layer;
  Result<Matrix> w = transformWeight(weight, layer->transform, threads);
  if (!w)
    return w.error();
  std::optional<Matrix> x;
  std::vector<double> diagonal;
  if (activation) {
    Result<Matrix> transformed = transformActivation(*activation, layer->transform, threads);
    if (!transformed)
      return transformed.error();
    x = std::move(*transformed);
    diagonal = hessianDiagonal(*x);
  }
  Result<dsl::QuantizedMatrix> codes =
      dsl::quantize(formats.weight, w->view(),
                    {.rejectNonFinite = true, .threads = threads, .columnWeights = diagonal});
  if (!codes)
    return codes.error();
  layer->weight = std::move(*codes);
  layer->lost = lostGroups(w->view(), layer->weight, threads); // refinement clips where that pays
  if (steps.refine) {
    Result<Matrix> quantized = seenActivation(*x, formats.activation, threads);
    if (!quantized)
      return quantized.error();
    Result<Refinement> refined = refine(layer->weight, *w, *x, *quantized, {.threads = threads});
    if (!refined)
      return refined.error();
    layer->weight = std::move(refined->matrix);
  }
  return layer;
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
  Result<Matrix> quantized = seenActivation(std::move(*x), activationFormat, threads);
  if (!quantized)
    return quantized.error();
  return relativeSquaredError(layerOutputs(activation, weight, threads),
                              layerOutputs(*quantized, valuesOf(layer.weight, threads), threads));
}

} // namespace rho::kernels
