// A layer's weight to codes, by the offline algorithms that are asked for.
#pragma once

#include "kernels/quantize/EncodingError.h"
#include "kernels/quantize/LayerTransform.h"
#include "kernels/quantize/Refinement.h"

namespace rho::kernels {

struct LayerSteps {
  bool smooth = false;                 // searched, judged after the rotation
  bool refine = false;                 // formats that refine() takes
  std::optional<int64_t> permute = {}; // outlier channels first; blocks of so many are counted
  std::optional<uint64_t> rotate = {}; // the seed of a rotation of the whole k

  bool needCalibration() const { return smooth || permute || refine; }
};

// Blocks of channels of the smoothed inputs.
struct OutlierBlocks {
  int64_t all = 0;
  int64_t before = 0, after = 0; // the order: those without outliers
};

struct EncodedLayer {
  LayerTransform transform; // of both; the codes are those of the transformed weight
  dsl::QuantizedMatrix weight;
  LostGroups lost = {};                     // of the transformed weight
  std::optional<OutlierBlocks> blocks = {}; // with permute
};

// With activations the encoder counts squared errors by the layer's sensitivity
// (hessianDiagonal); their format is what smoothing and refinement reckon with. Without activations
// (null) only rotate can be asked for: error calibration_needed. Errors: those of checkLayer,
// dsl::quantize, Rotation::ofSize and refine, bad_block.
Result<EncodedLayer> encodeLayer(const Matrix &weight, const Matrix *activation,
                                 const LayerFormats &formats, const LayerSteps &steps,
                                 unsigned threads = 0);

// The relative squared error of the outputs of an encoded layer for these inputs, which are not
// transformed yet. Errors: those of checkLayer and dsl::quantize.
Result<double> encodedLayerError(const EncodedLayer &layer, const Matrix &weight,
                                 const Matrix &activation,
                                 const std::shared_ptr<const dsl::Format> &activationFormat,
                                 unsigned threads = 0);

} // namespace rho::kernels
