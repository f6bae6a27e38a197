// Whole .safetensors files to quantized ones, a tensor at a time.
#pragma once

#include "kernels/quantize/TensorChoice.h"

#include <functional>
#include <memory>

namespace rho::kernels {

// What happens to a weight, row-major [rows][k], before it is encoded: a rotation, a smoothing.
using WeightTransform =
    std::function<Status(const std::string &name, float *weight, int64_t rows, int64_t k)>;

struct QuantizeFileOptions {
  std::shared_ptr<const dsl::Format> format;
  TensorChoice tensors;
  std::vector<WeightTransform> transforms; // one after the other; numbers are f32 between them
  Metadata metadata;                       // added to the file's own
  unsigned threads = 0;                    // 0 is one for each core; no byte depends on it
  // Before each tensor, with those of the file that are done.
  std::function<void(int64_t done, int64_t total, const std::string &name)> progress;
};

struct QuantizeFileSummary {
  int64_t quantized = 0, copied = 0;       // tensors
  int64_t numbers = 0;                     // of the quantized
  int64_t weightBytes = 0;                 // of these before
  int64_t storedBytes = 0;                 // and after
  int64_t inputBytes = 0, outputBytes = 0; // of the files
};

// Encodes the chosen matrices of a file and copies all other tensors. The tensors are read once, in
// the order of their data. Memory: beside what of the file the system keeps, the codes of one
// matrix (dsl::CodeArray; for each number 1 byte, 2 beyond 8 bits) and 32 MiB; with transforms 4
// bytes for each of its numbers; of a format with parts 13 bytes a number and the codes of each
// part. The output appears when it is complete and may be the input itself.
//
// Errors: those of SafetensorsFile and SafetensorsWriter, chooseTensors, already_quantized,
// nothing_to_quantize, output_name_taken, tensor_not_encoded with the encoder's reason.
Result<QuantizeFileSummary> quantizeFile(const std::string &from, const std::string &to,
                                         const QuantizeFileOptions &options);

} // namespace rho::kernels
