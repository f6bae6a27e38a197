// The copies of a pipeline's producer, all or those of one operand: a kernel that may start before
// its predecessor ends starts weights, waits, then starts activations.
#pragma once

#include "compiler/ir/Dialects.h"

#include "mlir/IR/IRMapping.h"

namespace rho::compiler {

// Whether a kernel waits for the one ahead of it before all else.
inline bool waitsFirst(tile::KernelOp kernel) {
  return !kernel.getBody().getOps<tile::WaitDependencyOp>().empty();
}

// Sets of copies. Those of a residual's pieces must read first which there are.
enum Copies : unsigned {
  weightCopies = 1,
  activationCopies = 2,
  denseCopies = weightCopies | activationCopies,
  pieceReads = 4,
  pieceCopies = 8,
  allCopies = denseCopies | pieceReads | pieceCopies
};

// Clones the producer's body for one k tile and slot, without the copies that are not asked for.
// Returns what its values became.
inline mlir::IRMapping cloneProduce(mlir::OpBuilder &builder, tile::PipelineOp pipeline,
                                    mlir::IRMapping map, mlir::Value kTile, mlir::Value slot,
                                    unsigned which) {
  mlir::Block &body = pipeline.getProduce().front();
  map.map(body.getArgument(0), kTile);
  map.map(body.getArgument(1), slot);
  for (mlir::Operation &inner : body.without_terminator()) {
    unsigned kind = llvm::isa<tile::CopyPanelOp>(inner)                   ? weightCopies
                    : llvm::isa<tile::FindPiecesOp>(inner)                ? pieceReads
                    : llvm::isa<tile::CopyPiecesOp>(inner)                ? pieceCopies
                    : llvm::isa<tile::CopyRowsOp, tile::CopyBoxOp>(inner) ? activationCopies
                                                                          : which;
    if ((kind & which) != 0)
      builder.clone(inner, map);
  }
  return map;
}

} // namespace rho::compiler
