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

enum class Copies { Weight, Activation, All };

// Clones the producer's body for one k tile and slot, without the copies that are not asked for.
inline void cloneProduce(mlir::OpBuilder &builder, tile::PipelineOp pipeline, mlir::IRMapping map,
                         mlir::Value kTile, mlir::Value slot, Copies which) {
  mlir::Block &body = pipeline.getProduce().front();
  map.map(body.getArgument(0), kTile);
  map.map(body.getArgument(1), slot);
  for (mlir::Operation &inner : body.without_terminator()) {
    bool weight = llvm::isa<tile::CopyTileOp>(inner);
    bool activation = llvm::isa<tile::CopyRowsOp, tile::CopyBoxOp>(inner);
    if ((weight && which == Copies::Activation) || (activation && which == Copies::Weight))
      continue;
    builder.clone(inner, map);
  }
}

} // namespace rho::compiler
