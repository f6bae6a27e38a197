// The output tiles of one CTA, in their order.
#pragma once

#include "compiler/ir/Dialects.h"
#include "compiler/passes/ScalarBuilder.h"

namespace rho::compiler {

// What the body of tile.for_tiles takes, whether the tile is the CTA's first or its last, and
// whether it exists: null where every CTA of a cluster has one.
struct TileShare {
  llvm::SmallVector<mlir::Value, 7> arguments;
  mlir::Value isFirst, isLast, exists;
};

// Of CTAs that share an output's k tiles along the grid's z: which share this one has, its k tiles
// and where among all sums of the gemm those of the output's shares begin.
struct SplitShare {
  mlir::Value share, firstK, lastK, firstPlace;
};
SplitShare splitShare(ScalarBuilder &at, mlir::Value tileM, mlir::Value tileN, int64_t tilesN,
                      int64_t tilesK, int64_t splitK);

// Of a list of k tiles, part by part: how many there are of a part, and what one of them costs.
struct PartTiles {
  mlir::Value count, cost;
};
// The k tiles before the first one that begins with at least `work` done.
mlir::Value tilesBefore(ScalarBuilder &at, llvm::ArrayRef<PartTiles> parts, mlir::Value work);

// Builds the walk over the tiles of `op` that this CTA takes: one, each so manieth, or with equal
// shares of k a row of them from the last to the first. `body` gets values from tile to tile.
using TileBody =
    std::function<llvm::SmallVector<mlir::Value>(const TileShare &share, mlir::ValueRange carried)>;
void forEachTile(ScalarBuilder &builder, tile::ForTilesOp op, mlir::ValueRange inits,
                 const TileBody &body);

} // namespace rho::compiler
