// A layer's weight to codes, by the offline algorithms that are asked for.
#pragma once

#include "kernels/quantize/LayerTransform.h"
#include "kernels/quantize/Refinement.h"

namespace rho::kernels {

struct LayerEncoding {
  LayerFormats formats;                // of activations: what smoothing and refinement reckon with
  bool smooth = false;                 // searched, judged after the rotation
  bool permute = false;                // outlier channels first
  bool refine = false;                 // formats that refine() takes
  std::optional<uint64_t> rotate = {}; // the seed of a rotation of the whole k
  unsigned threads = 0;
};

struct EncodedLayer {
  LayerTransform transform; // of both; the codes are those of the transformed weight
  dsl::QuantizedMatrix weight;
};

// With activations the encoder counts squared errors by the layer's sensitivity
// (hessianDiagonal). Without them (null) only rotate does anything: error calibration_needed for
// the others. Errors: those of checkLayer, dsl::quantize, Rotation::ofSize and refine.
Result<EncodedLayer> encodeLayer(const Matrix &weight, const Matrix *activation,
                                 const LayerEncoding &encoding);

// The relative squared error of the outputs of an encoded layer for these inputs, which are not
// transformed yet. Errors: those of checkLayer and dsl::quantize.
Result<double> encodedLayerError(const EncodedLayer &layer, const Matrix &weight,
                                 const Matrix &activation,
                                 const std::shared_ptr<const dsl::Format> &activationFormat,
                                 unsigned threads = 0);

} // namespace rho::kernels
