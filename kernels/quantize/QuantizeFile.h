// Whole models in .safetensors files to quantized ones, a tensor at a time.
#pragma once

#include "kernels/CheckpointWriter.h"
#include "kernels/quantize/EncodeLayer.h"
#include "kernels/quantize/EncodingError.h"
#include "kernels/quantize/TensorChoice.h"

#include <memory>

namespace rho::kernels {

struct FormatOfWeights {
  std::string pattern; // as of TensorChoice
  std::shared_ptr<const dsl::Format> format;
};

// Weights that are encoded as one, the rows of all below each other in the order of the file: they
// have the steps' transform and numbers per tensor in common, so that slices of them can be one
// weight (WeightFile::pack). See namedTensors; the weight of that name is the first of them.
struct WeightsTogether {
  std::string name, others;
};

struct QuantizeFileOptions {
  std::shared_ptr<const dsl::Format> format;
  std::vector<FormatOfWeights> formats; // in place of it: the first whose pattern a weight matches
  std::vector<WeightsTogether> together;
  TensorChoice tensors;
  LayerSteps steps; // before and while weights are encoded; their transforms are stored
  // Inputs of the layers, m x k, by the names of the weights, and what they are quantized to when
  // the layers run; null: none, not quantized. See encodeLayer.
  std::shared_ptr<const SafetensorsFile> activations;
  std::shared_ptr<const dsl::Format> activationFormat;
  Metadata metadata;    // added to the file's own
  unsigned threads = 0; // 0 is one for each core; no byte depends on it
  TensorProgress progress;
};

struct QuantizeFileSummary {
  int64_t quantized = 0, copied = 0; // tensors
  int64_t copiedBytes = 0;
  int64_t numbers = 0;                     // of the quantized
  int64_t weightBytes = 0;                 // of these before
  int64_t storedBytes = 0;                 // and after
  int64_t inputBytes = 0, outputBytes = 0; // of the files
  OutlierBlocks blocks;                    // with permute, of the quantized
  LostGroups lost;                         // of the quantized
  int64_t mostLost = 0;                    // of one tensor
  std::string mostLostTensor;
  int64_t residualBlocks = 0, storedBlocks = 0; // of a format with a residual
};

// Encodes the chosen matrices of a file, or of those that an index joins, and copies all other
// tensors. To an index each file becomes one (CheckpointWriter.h), to a file all become one. The
// tensors are read once, in the order of their data. Memory: beside what of the file the system
// keeps, the codes of one matrix (dsl::CodeArray; for each number 1 byte, 2 beyond 8 bits) and 32
// MiB; with activations 8 bytes for each of its numbers, with steps 12, with refinement 16, and 12
// for each of the inputs; of weights that are encoded as one for all of them; of a format with
// parts 13 bytes a number and the codes of each part. The output appears when it is complete and
// may be the input itself.
//
// Errors: those of SafetensorsFile, CheckpointWriter and checkOutput, chooseTensors,
// already_quantized, nothing_to_quantize, format_pattern_unused, formats_share_name, weights_apart,
// those of namedTensors, output_name_taken, activations_missing and activations_do_not_fit for a
// weight's, tensor_not_encoded with the reason of the encoder or of a step.
Result<QuantizeFileSummary> quantizeFile(const std::string &from, const std::string &to,
                                         const QuantizeFileOptions &options);

} // namespace rho::kernels
