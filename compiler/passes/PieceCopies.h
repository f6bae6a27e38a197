// The loading warp's part of a residual: stored pieces to their ring.
#pragma once

#include "compiler/ir/Dialects.h"
#include "compiler/passes/StageRing.h"

#include "mlir/IR/IRMapping.h"

namespace rho::compiler {

// Places of the ring are counted on through all k tiles of a CTA, whatever output tile they are of.
// The place of each stage's first piece is beside its barrier: consumers read it there, and the
// loader what is free.
class PieceCopies : private ScalarBuilder {
public:
  // `pipeline` has pieces; `empty` are the barriers of its stages.
  PieceCopies(const ScalarBuilder &at, tile::PipelineOp pipeline, Value empty, Value barriers);

  // Which pieces are those of a k tile. Starts a load.
  struct Range {
    Value first, end;
  };
  Range find(const mlir::IRMapping &head, Value kTile);

  // Whether there are places for them, when the first `place` have been taken and none given back.
  Value fits(Range pieces, Value place);

  // Starts the copies of pieces to a stage, from `place` on. Returns the next place.
  Value copy(Range pieces, Cursor stage, Value place);

  // The same when their places are free: waits for stages before this one, from the oldest on. The
  // wait for this stage itself has ended.
  Value copyWhenFree(Range pieces, Cursor stage, Value place);

private:
  tile::PipelineOp pipeline;
  tile::FindPiecesOp found;
  tile::CopyPiecesOp copied;
  Value empty, barriers;
  int64_t places;

  Value start(Range pieces, Cursor stage, Value place);
};

} // namespace rho::compiler
