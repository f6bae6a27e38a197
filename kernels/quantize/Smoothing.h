// Smoothing of SmoothQuant (arXiv:2211.10438, equation 4): activations are divided and weights
// multiplied by a factor for each channel, which moves outliers into the weight. LiquidGEMM
// ("Offline Quantization") searches the factors on a grid, MosaicQuant (appendix C.1) the exponent.
#pragma once

#include "kernels/quantize/Rotation.h"

namespace rho::kernels {

// s_k = max|x_k|^a / max|w_k|^(1-a), 1 where a maximum is 0 or the factor no normal f32 number.
struct SmoothingScales {
  std::optional<double> alpha; // none: all factors are 1
  std::vector<float> factors;  // k
};
// Errors: those of checkLayer.
Result<SmoothingScales> smoothingScales(const Matrix &weight, const Matrix &activation,
                                        double alpha);

// x / s and w * s, rounded to f32. Error transform_width.
Result<Matrix> smoothActivation(const Matrix &activation, const SmoothingScales &scales);
Result<Matrix> smoothWeight(const Matrix &weight, const SmoothingScales &scales);

// No smoothing, then each exponent of the grid 0, 1 / steps, ..., 1, with the relative squared
// error of the quantized layer's outputs.
struct SmoothingSearch {
  struct Point {
    std::optional<double> alpha;
    double error;
  };
  std::vector<Point> points;
  SmoothingScales best; // of the least error; of equal ones the first
};
struct SmoothingOptions {
  int steps = 20;
  bool hessian = false;               // quantize the weight with hessianDiagonal of the inputs
  const Rotation *rotation = nullptr; // that follows smoothing
  unsigned threads = 0;
};
// Exponents whose factors bring numbers beyond f32, or out of its normal ones, are left out.
// Errors: those of checkLayer, dsl::quantize and rotateInputs.
Result<SmoothingSearch> searchSmoothing(const Matrix &weight, const Matrix &activation,
                                        const LayerFormats &formats,
                                        const SmoothingOptions &options = {});

} // namespace rho::kernels
