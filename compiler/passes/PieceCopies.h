// What a loading thread does for a residual: stored pieces to their ring.
#pragma once

#include "compiler/ir/Dialects.h"
#include "compiler/passes/StageRing.h"

#include "mlir/IR/IRMapping.h"

namespace rho::compiler {

// Places of the ring are counted on through all k tiles of a CTA, whatever output tile they are of.
// The loader notes the place of each stage's first piece and so finds what is free.
class PieceCopies : private ScalarBuilder {
public:
  // `pipeline` has pieces; `empty` are the barriers of its stages, `slots` has the notes.
  PieceCopies(const ScalarBuilder &at, tile::PipelineOp pipeline, Value empty, Value slots);

  // Which pieces are those of a k tile; of one past `last` (exclusive) those of the last. Starts a
  // load.
  struct Range {
    Value first, end;
  };
  Range find(const mlir::IRMapping &head, Value kTile, Value last);

  // Starts the copies to a slot when their places are free: waits for those before it, from the
  // oldest on that may have pieces of a k tile before. Returns the next place.
  Value copyWhenFree(Range pieces, Value slot, Value place, Cursor oldest);

private:
  tile::PipelineOp pipeline;
  tile::FindPiecesOp found;
  tile::CopyPiecesOp copied;
  Value empty, slots;
  int64_t places;
};

} // namespace rho::compiler
