#include "kernels/quantize/Smoothing.h"

#include "kernels/quantize/ChannelRange.h"

#include <cmath>

namespace rho::kernels {

namespace {

template <class Change>
Result<Matrix> changed(const Matrix &matrix, const SmoothingScales &scales, const Change &change) {
  if (static_cast<int64_t>(scales.factors.size()) != matrix.k)
    return makeError(DiagId::transform_width,
                     {"smoothing of " + std::to_string(scales.factors.size()),
                      std::to_string(matrix.k) + " channels", "the same"});
  Matrix out = matrix;
  for (int64_t row = 0; row < matrix.rows; ++row)
    for (int64_t column = 0; column < matrix.k; ++column)
      out.row(row)[column] =
          change(matrix.row(row)[column], scales.factors[static_cast<size_t>(column)]);
  return out;
}

// Whether what is normal in f32 still is when factors were multiplied in.
bool holdsScaled(const Matrix &matrix, const Matrix &scaled) {
  for (size_t i = 0; i < matrix.values.size(); ++i)
    if (std::isnormal(matrix.values[i]) && !std::isnormal(scaled.values[i]))
      return false;
  return true;
}

} // namespace

Result<SmoothingScales> smoothingScales(const Matrix &weight, const Matrix &activation,
                                        double alpha) {
  if (Status layer = checkLayer(weight, activation); !layer)
    return layer.error();
  std::vector<float> x = channelMaxima(activation), w = channelMaxima(weight);
  SmoothingScales scales{alpha, std::vector<float>(x.size(), 1)};
  for (size_t i = 0; i < x.size(); ++i) {
    auto factor = static_cast<float>(std::pow(x[i], alpha) / std::pow(w[i], 1 - alpha));
    if (x[i] > 0 && w[i] > 0 && std::isnormal(factor))
      scales.factors[i] = factor;
  }
  return scales;
}

Result<Matrix> smoothActivation(const Matrix &activation, const SmoothingScales &scales) {
  return changed(activation, scales, [](float x, float factor) { return x / factor; });
}

Result<Matrix> smoothWeight(const Matrix &weight, const SmoothingScales &scales) {
  return changed(weight, scales, [](float w, float factor) { return w * factor; });
}

Result<SmoothingSearch> searchSmoothing(const Matrix &weight, const Matrix &activation,
                                        const LayerFormats &formats,
                                        const SmoothingOptions &options) {
  if (Status layer = checkLayer(weight, activation); !layer)
    return layer.error();
  const std::vector<double> meant = layerOutputs(activation, weight, options.threads);
  SmoothingSearch search;
  double least = 0;
  for (int step = -1; step <= options.steps; ++step) {
    SmoothingScales scales{std::nullopt, std::vector<float>(static_cast<size_t>(weight.k), 1)};
    if (step >= 0) {
      Result<SmoothingScales> found = smoothingScales(
          weight, activation, static_cast<double>(step) / std::max(1, options.steps));
      if (!found)
        return found.error();
      scales = std::move(*found);
    }
    Result<Matrix> w = smoothWeight(weight, scales), x = smoothActivation(activation, scales);
    if (step >= 0 && w && x && (!holdsScaled(weight, *w) || !holdsScaled(activation, *x)))
      continue;
    if (options.rotation && w && x) {
      w = rotateInputs(*w, *options.rotation, options.threads);
      x = rotateActivation(*x, *options.rotation, options.threads);
    }
    if (!w)
      return w.error();
    if (!x)
      return x.error();
    std::vector<double> diagonal = options.hessian ? hessianDiagonal(*x) : std::vector<double>();
    Result<std::vector<double>> outputs =
        quantizedOutputs(*w, *x, formats, {.threads = options.threads, .columnWeights = diagonal});
    if (!outputs)
      return outputs.error();
    const double error = relativeSquaredError(meant, *outputs);
    search.points.push_back({scales.alpha, error});
    if (step < 0 || error < least) {
      least = error;
      search.best = std::move(scales);
    }
  }
  return search;
}

} // namespace rho::kernels
