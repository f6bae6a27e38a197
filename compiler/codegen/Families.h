// The families of instructions that multiply, one file each. Each lowers one kernel of the tile
// dialect.
#pragma once

#include "compiler/ir/Dialects.h"

namespace rho::compiler {

mlir::LogicalResult lowerToMmaSync(tile::KernelOp op); // MmaSync.cpp: sm_80 and later
mlir::LogicalResult lowerToWgmma(tile::KernelOp op);   // Wgmma.cpp: sm_90a
mlir::LogicalResult lowerToGemv(tile::KernelOp op);    // Gemv.cpp: CUDA cores, sm_80 and later

} // namespace rho::compiler
