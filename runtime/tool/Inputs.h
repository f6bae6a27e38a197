// The numbers that a gemm runs on: from files, or synthetic.
#pragma once

#include "kernels/TensorFile.h"
#include "kernels/quantize/LayerTransform.h"
#include "runtime/Rho.h"
#include "runtime/tool/Options.h"

#include <optional>

namespace rho::tool {

ScalarType scalarType(dsl::MatrixView::Type type);

// What the command line says about operands. Sizes of synthetic operands come from --m --n --k,
// of others from their files; both must agree.
struct Sources {
  std::optional<kernels::Tensor> weight, activation;
  std::optional<dsl::QuantizedMatrix> codes; // of the weight, from a quantized file, in its place
  kernels::LayerTransform transform;         // of the inputs, which that file has beside them
  GemmShape shape;
  int64_t seed = 1;
};
// Errors: those of readTensor, readQuantized and readTransform, shape_conflict, option_missing.
Result<Sources> openSources(const Options &options);

// A matrix of host numbers and what keeps them alive.
struct HostMatrix {
  dsl::MatrixView view;
  std::shared_ptr<const void> owner;
  std::string description;
};
HostMatrix weightOf(const Sources &sources);
// Transformed as the weight's file says. Errors: transform_width.
Result<HostMatrix> activationOf(const Sources &sources);

// Whether the host has room for the numbers of one run; error problem_too_large.
Status checkHostMemory(const GemmShape &shape);

} // namespace rho::tool
