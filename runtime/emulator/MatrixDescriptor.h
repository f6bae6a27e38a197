// The descriptor of a matrix in shared memory that wgmma takes (PTX ISA, "Matrix Descriptor
// Format"), for operands whose rows are contiguous in K.
#pragma once

#include "runtime/emulator/TensorMap.h"

#include <string>

namespace rho::emulator {

// One instruction reads rows of 32 bytes.
constexpr uint32_t wgmmaRowBytes = 32;

struct MatrixDescriptor {
  uint32_t start = 0;
  uint32_t leadingOffset = 0; // without swizzle: from the first 16 bytes of the rows to the next
  uint32_t strideOffset = 0;  // from 8 rows to the next
  uint32_t baseOffset = 0;
  Swizzle swizzle = Swizzle::None;

  explicit MatrixDescriptor(uint64_t bits);
  // Why an instruction cannot take it; empty: it can.
  std::string problem() const;
  // The shared address of a row's 16 bytes; half is 0 or 1.
  uint64_t piece(uint32_t row, uint32_t half) const;
};

} // namespace rho::emulator
