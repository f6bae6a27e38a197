// Matrices in .safetensors and .npy files: f32, f16 and bf16, two dimensions, row-major.
#pragma once

#include "dsl/Error.h"
#include "dsl/Quantize.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace rho::kernels {

// A matrix in a file. The view lives as long as `owner`; the file is mapped, not read into memory.
struct Tensor {
  std::string name; // in the file; empty for .npy
  dsl::MatrixView view;
  std::shared_ptr<const void> owner;
};

// `reference` is FILE.npy, FILE.safetensors:NAME, or FILE.safetensors if that file has one tensor;
// an index FILE.safetensors.index.json stands for the files that it joins. The file must not be cut
// short by others while it is in use. Errors: file_not_readable, tensor_file_kind,
// tensor_file_invalid, tensor_not_found, tensor_name_needed, tensor_type_unsupported,
// tensor_shape_unsupported.
Result<Tensor> readTensor(std::string_view reference);

// Writes a matrix with `rows` x `k` elements without gaps between rows, as .npy or .safetensors by
// the path's ending; the file appears whole (OutputFile). bf16 in .npy is the raw
// type '<V2', as ml_dtypes writes it. Errors: file_not_writable, tensor_file_kind.
Status writeTensor(const std::string &path, std::string_view name, const dsl::MatrixView &matrix);

} // namespace rho::kernels
