// The two dialects of our own. Include this, not the generated files.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "compiler/ir/RhoDialect.h.inc"
#include "compiler/ir/TileDialect.h.inc"

#define GET_TYPEDEF_CLASSES
#include "compiler/ir/RhoTypes.h.inc"
#define GET_TYPEDEF_CLASSES
#include "compiler/ir/TileTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/ir/TileAttrs.h.inc"
#define GET_OP_CLASSES
#include "compiler/ir/RhoOps.h.inc"
#define GET_OP_CLASSES
#include "compiler/ir/TileOps.h.inc"

namespace rho::tile {

// What biased sums start at (tile.scale): from here on the bits of f32 count in steps of one, both
// ways for 2^22 steps.
inline constexpr float sumBias = 0x1.8p23F;

// Labels of the shared buffers that passes find; those of others are for people.
namespace shared_labels {
inline constexpr llvm::StringLiteral barriers = "schedule", operandBarriers = "operand.schedule",
                                     piecePlaces = "pieces.schedule", sums = "output";
} // namespace shared_labels
// Of a kernel's body; null: it has none.
mlir::Value findShared(mlir::Block &body, llvm::StringRef label);

} // namespace rho::tile
