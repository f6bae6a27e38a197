// Whole models in .safetensors files with pairs of weights rotated, which leaves what they compute
// as it is: nothing is left to do to activations when the layers run (APEX4, section 3.1).
#pragma once

#include "kernels/CheckpointWriter.h"
#include "kernels/quantize/Rotation.h"

#include <string>
#include <vector>

namespace rho::kernels {

// The gains of norms that lie in front of weights, by patterns of names (TensorChoice.h). What the
// one
// `*` of `norms` stands for takes the place of the first in `weights`.
struct NormFusion {
  std::string norms, weights;
};

struct RotateFileOptions {
  // Of weights n x k, by patterns of names: those that take rotated inputs, w Q, and those that
  // make rotated outputs, Q^T w, with a bias b beside them (`x.weight`, `x.bias`), b Q. An
  // embedding, whose rows are what the first layers take, is among the first.
  std::vector<std::string> inputs, outputs;
  std::vector<NormFusion> fusions; // before: columns times the gains, which become 1
  std::optional<int64_t> block;    // size of Q; none: all inputs' k and outputs' n, which are equal
  std::optional<uint64_t> seed;    // as of Rotation::ofSize
  unsigned threads = 0;            // 0 is one for each core; no byte depends on it
  TensorProgress progress;
};

struct RotateFileSummary {
  int64_t inputs = 0, outputs = 0, biases = 0, norms = 0, copied = 0; // tensors
  int64_t size = 0;                                                   // of Q
  int64_t inputBytes = 0, outputBytes = 0;                            // of the files
};

// Writes the tensors of a file, or of those that an index joins, with their names, types and
// shapes; rotated numbers are computed in double and rounded to their tensor's type. To an index
// each file becomes one, to a file all become one. The output appears when it is complete and may
// be the input itself. Memory: for one tensor 12 bytes for each of its numbers.
//
// Errors: those of SafetensorsFile, CheckpointWriter, checkOutput, chooseTensors and
// Rotation::ofSize, name_and_pattern, fusion_gains, fusion_bias, fused_twice, rotated_bias,
// rotation_sizes, tensor_not_rotated for numbers that are not finite or leave the tensor's type.
Result<RotateFileSummary> rotateFile(const std::string &from, const std::string &to,
                                     const RotateFileOptions &options);

} // namespace rho::kernels
