// Numbers of the types that inputs and outputs have.
#pragma once

#include "dsl/Quantize.h"
#include "runtime/Rho.h"

namespace rho {

inline int64_t scalarBytes(ScalarType type) { return type == ScalarType::F32 ? 4 : 2; }

inline dsl::MatrixView::Type viewType(ScalarType type) {
  using Type = dsl::MatrixView::Type;
  return type == ScalarType::F32 ? Type::F32 : type == ScalarType::F16 ? Type::F16 : Type::BF16;
}

} // namespace rho
