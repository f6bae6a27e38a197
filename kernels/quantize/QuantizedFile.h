// Quantized matrices in .safetensors files. docs/CLI.md, rho quantize, states the layout.
#pragma once

#include "kernels/SafetensorsFile.h"

namespace rho::kernels {

inline constexpr const char *versionKey = "rho.version";
inline constexpr const char *formatKey = "rho.format";  // dsl::printModule
inline constexpr const char *tensorKey = "rho.tensor."; // and the tensor's name

// The tensors that a rows x k matrix of that name becomes. Of a format with parts their sizes are
// the largest possible.
std::vector<TensorEntry> planQuantized(const std::string &name, const dsl::Format &format,
                                       int64_t rows, int64_t k);
// What the metadata says of it; `type`: of its numbers before, as .safetensors names it.
std::string describeQuantized(const dsl::Format &format, int64_t rows, int64_t k,
                              std::string_view type);
// Writes these tensors, which come next in the writer's plan.
Status writeQuantized(SafetensorsWriter &writer, const dsl::QuantizedMatrix &matrix,
                      unsigned threads = 0);

// Names of the quantized matrices of a file, in order of name.
std::vector<std::string> quantizedNames(const SafetensorsFile &file);
// What the metadata says of one. Errors: not_quantized, quantized_file_invalid, also for a shape
// that the file is too short for.
struct QuantizedShape {
  std::string format;
  int64_t rows = 0, k = 0;
};
Result<QuantizedShape> quantizedShape(const SafetensorsFile &file, const std::string &name);
// The matrix as it was written, bit for bit; of a format with parts the codes of numbers that a
// part does not store are 0. Errors: not_quantized, quantized_file_invalid, those of the format's
// text.
Result<dsl::QuantizedMatrix> readQuantized(const SafetensorsFile &file, const std::string &name);
// What FILE.safetensors:NAME, or FILE.safetensors of one quantized matrix, stands for; none where
// the file, or what has that name in it, is not quantized. Errors: tensor_name_needed,
// tensor_not_found, those of SafetensorsFile.
struct QuantizedReference {
  SafetensorsFile file;
  std::string name;
};
Result<std::optional<QuantizedReference>> findQuantized(std::string_view reference);

} // namespace rho::kernels
