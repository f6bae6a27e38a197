// Which tensors of a file are weights to work on.
#pragma once

#include "kernels/SafetensorsFile.h"

#include <string>
#include <vector>

namespace rho::kernels {

// Patterns as of a shell: *, ? and [...]; * also stands for dots and slashes. Names are UTF-8, in
// which ? is a character and not a byte, whatever the process' locale is.
bool matches(const std::string &pattern, const std::string &name);

struct TensorChoice {                 // by patterns
  std::vector<std::string> only = {}; // none: all
  std::vector<std::string> skip = {};
  // Whether what `only` names and is no such matrix is an error, unless it is a vector or number,
  // such as the bias beside a weight: else it stays as it is.
  bool wholly = false;
};

// For each of file.tensors() whether it is a matrix (two extents, of f32, f16 or bf16 numbers) that
// is chosen. Errors: pattern_matches_nothing, pattern_matches_no_weight, pattern_matches_other,
// nothing_to_quantize, already_quantized.
Result<std::vector<bool>> chooseTensors(const SafetensorsFile &file, const TensorChoice &choice);
// A tensor that a name stands for, and a pattern for others that go with it.
struct NamedTensor {
  const TensorEntry *tensor = nullptr;
  std::string others;
};
// Of a name with one * at most: what that stands for takes the place of the first * of `others`.
// Errors: name_and_pattern, pattern_matches_nothing.
Result<std::vector<NamedTensor>> namedTensors(const SafetensorsFile &file, const std::string &name,
                                              const std::string &others);
// Errors: pattern_matches_nothing.
Status checkPatterns(const SafetensorsFile &file, const std::vector<std::string> &patterns);

} // namespace rho::kernels
