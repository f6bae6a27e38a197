#include "compiler/passes/PieceCopies.h"

#include "compiler/passes/Copies.h"

namespace rho::compiler {

using mlir::Value;
namespace arith = mlir::arith;

PieceCopies::PieceCopies(const ScalarBuilder &at, tile::PipelineOp pipeline, Value empty,
                         Value slots)
    : ScalarBuilder(at), pipeline(pipeline), empty(empty), slots(slots) {
  mlir::Block &produce = pipeline.getProduce().front();
  found = *produce.getOps<tile::FindPiecesOp>().begin();
  copied = *produce.getOps<tile::CopyPiecesOp>().begin();
  places = copied.getBuffer().getType().getStages();
}

PieceCopies::Range PieceCopies::find(const mlir::IRMapping &head, Value kTile, Value last) {
  kTile = arith::MinUIOp::create(builder, loc, kTile, sub(last, i32(1)));
  mlir::IRMapping map = cloneProduce(builder, pipeline, head, kTile, i32(0), pieceReads);
  return {map.lookup(found.getFirst()), map.lookup(found.getEnd())};
}

Value PieceCopies::copyWhenFree(Range pieces, Value slot, Value place, Cursor oldest) {
  auto depth = pipeline.getDepth();
  auto placeOf = [&](Cursor of) -> Value {
    return tile::LoadPlaceOp::create(builder, loc, builder.getI32Type(), slots, of.slot);
  };
  // This slot's own word ends the walk: nothing is in use then.
  tile::StorePlaceOp::create(builder, loc, place, slots, slot);
  Value following = add(place, sub(pieces.end, pieces.first));
  loopWhile(
      {oldest.slot, oldest.parity, placeOf(oldest)},
      [&](mlir::ValueRange carried) {
        return compare(arith::CmpIPredicate::ugt, sub(following, carried[2]), i32(places));
      },
      [&](mlir::ValueRange carried) {
        Cursor now{carried[0], carried[1]};
        tile::BarrierWaitOp::create(builder, loc, empty, now.slot, now.parity, false);
        Cursor next = advance(*this, now, i32(1), depth);
        return llvm::SmallVector<Value>{next.slot, next.parity, placeOf(next)};
      });
  tile::CopyPiecesOp::create(builder, loc, copied.getSource(), copied.getBase(), pieces.first,
                             pieces.end, copied.getPieceBytes(), copied.getBuffer(), slot, place);
  return following;
}

} // namespace rho::compiler
