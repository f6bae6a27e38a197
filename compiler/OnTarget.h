// What a target multiplies where it has no instructions for a gemm as it is declared.
#pragma once

#include "dsl/Format.h"

#include <string>
#include <string_view>

namespace rho::compiler {

// A gemm with kernels on a target. Activations whose codes are operands of no instruction there, or
// of none beside this weight, are stored as the numbers that they stand for (dsl::valuesAs), of f16
// or bf16: exactly where one of the two holds them, with group scales beside the elements where
// sums can be scaled, else rounded. Of a partition each part by itself. So are a weight's scales
// where no kernel takes their codes. Codes are stored as numbers, too, where that is exact and
// faster: beside weights with groups of 16 or 32, on targets whose CUDA cores are slow, and in
// blocks that are shorter than the k tiles of kernels whose warps have roles.
struct TargetGemm {
  dsl::Gemm gemm;
  std::string reason = {}; // why not the activation's codes; empty: these
  double roundoff = 0;     // of the numbers, relative; 0: they are exact
  bool saturates = false;  // numbers beyond what the type holds become its largest
  // Of a weight with scales that no kernel computes from their codes (dsl::plainFactors): which
  // hold numbers, and the roundoff of those. Empty: the weight is as declared.
  std::string weightFactors = {};
  double weightRoundoff = 0;
  // Whether `gemm` is the declared one.
  bool isAsDeclared() const { return reason.empty() && weightFactors.empty(); }
};
TargetGemm onTarget(const dsl::Gemm &gemm, std::string_view target);

// What its activation is stored as: "codes", "bf16", of parts "f16, s8".
std::string storedAs(const TargetGemm &target);

} // namespace rho::compiler
