// The transform of a layer in a .safetensors file, beside its codes, for the runtime that does the
// same to the layer's inputs. docs/CLI.md, rho quantize, states the layout.
#pragma once

#include "kernels/SafetensorsFile.h"
#include "kernels/quantize/EncodeLayer.h"

namespace rho::kernels {

// Of the tensors of factors and of channels, behind that of the weight.
inline constexpr const char *smoothingSuffix = ".smoothing", *orderSuffix = ".order";
inline constexpr const char *transformKey = "rho.transform."; // and the tensor's name

// What the metadata says of a layer's transform: "smoothing", "order" and "rotation K seed SEED"
// with blanks between them, in the order in which they are applied. Empty without steps that change
// inputs.
std::string describeTransform(const LayerSteps &steps, int64_t k);
// The tensors of its factors and channels.
std::vector<TensorEntry> planTransform(const std::string &name, const LayerSteps &steps, int64_t k);
// Writes these tensors, which come next in the writer's plan.
Status writeTransform(SafetensorsWriter &writer, const LayerTransform &transform);

// That of a matrix of the file, as it was written but for what smoothing does not store, the
// exponent. Errors: not_quantized for a name that the file has no quantized matrix of,
// quantized_file_invalid.
Result<LayerTransform> readTransform(const SafetensorsFile &file, const std::string &name);

} // namespace rho::kernels
