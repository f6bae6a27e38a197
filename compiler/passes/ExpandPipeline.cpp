// tile.pipeline to a prologue that starts depth - 1 tiles and a loop that, for each tile, waits for
// it, starts the tile depth - 1 ahead into the slot that was just freed, and consumes. Where the
// kernel may start before the one ahead of it has ended, the prologue starts weights first, which
// do not depend on that kernel, and then waits for it. Tables of pairs are filled behind the
// prologue, in front of the loop's first barrier. Around it, where CTAs have equal shares of k, the
// loop over a CTA's tiles.
#include "compiler/ir/Dialects.h"
#include "compiler/passes/Copies.h"
#include "compiler/passes/Passes.h"
#include "compiler/passes/TileOrder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"

namespace rho::compiler {

#define GEN_PASS_DEF_EXPANDPIPELINE
#include "compiler/passes/Passes.h.inc"

namespace {

using mlir::Value;

class Expansion : private ScalarBuilder {
public:
  Expansion(tile::PipelineOp op, mlir::OpBuilder &at, bool follows)
      : ScalarBuilder{at, op.getLoc()}, op(op), follows(follows) {}

  void run() {
    int64_t depth = op.getDepth();
    Value one = i32(1);
    auto kernel = op->getParentOfType<tile::KernelOp>();
    bool dependent = kernel.getDependent() && !waitsFirst(kernel);
    if (follows) // all are done with the slots of the pipeline before
      mlir::NVVM::Barrier0Op::create(builder, loc);
    if (dependent) {
      tile::LaunchDependentsOp::create(builder, loc);
      for (int64_t ahead = 0; ahead < depth - 1; ++ahead)
        produceIfAny(add(op.getFirst(), i32(ahead)), i32(ahead),
                     weightCopies | pieceReads | pieceCopies);
      tile::WaitDependencyOp::create(builder, loc);
    }
    for (int64_t ahead = 0; ahead < depth - 1; ++ahead) {
      produceIfAny(add(op.getFirst(), i32(ahead)), i32(ahead),
                   dependent ? activationCopies : allCopies);
      mlir::NVVM::CpAsyncCommitGroupOp::create(builder, loc);
    }
    // While these are under way.
    for (auto fill : llvm::to_vector(op->getBlock()->getOps<tile::FillPairTablesOp>()))
      fill->moveBefore(builder.getInsertionBlock(), builder.getInsertionPoint());
    llvm::SmallVector<Value> inits{i32(0), i32(depth - 1)}; // slots to read and to fill
    inits.append(op.getInits().begin(), op.getInits().end());
    auto loop = mlir::scf::ForOp::create(builder, loc, op.getFirst(), op.getLast(), one, inits);
    {
      mlir::OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToEnd(loop.getBody());
      mlir::NVVM::CpAsyncWaitGroupOp::create(builder, loc, static_cast<uint32_t>(depth - 2));
      // All threads see the tile, and all are done with the slot that is filled next.
      mlir::NVVM::Barrier0Op::create(builder, loc);
      Value read = loop.getRegionIterArg(0), fill = loop.getRegionIterArg(1);
      produceIfAny(add(loop.getInductionVar(), i32(depth - 1)), fill, allCopies);
      mlir::NVVM::CpAsyncCommitGroupOp::create(builder, loc);
      mlir::IRMapping map;
      mlir::Block &consume = op.getConsume().front();
      map.map(consume.getArgument(0), loop.getInductionVar());
      map.map(consume.getArgument(1), read);
      for (size_t i = 0; i < op.getInits().size(); ++i)
        map.map(consume.getArgument(2 + i), loop.getRegionIterArg(2 + i));
      for (mlir::Operation &inner : consume.without_terminator())
        builder.clone(inner, map);
      llvm::SmallVector<Value> carried{next(read, depth), next(fill, depth)};
      for (Value value : consume.getTerminator()->getOperands())
        carried.push_back(map.lookupOrDefault(value));
      mlir::scf::YieldOp::create(builder, loc, carried);
    }
    op.replaceAllUsesWith(loop.getResults().drop_front(2));
    op.erase();
  }

private:
  tile::PipelineOp op;
  bool follows; // another pipeline of the kernel

  Value next(Value slot, int64_t depth) {
    Value after = add(slot, i32(1));
    return select(compare(mlir::arith::CmpIPredicate::eq, after, i32(depth)), i32(0), after);
  }
  // Every tile has a copy group of its own, also one past the last, so that counting them is
  // enough. Of the first tiles of a dependent kernel, all weights belong to the first group.
  void produceIfAny(Value tile, Value slot, unsigned which) {
    when(compare(mlir::arith::CmpIPredicate::ult, tile, op.getLast()),
         [&] { cloneProduce(builder, op, mlir::IRMapping(), tile, slot, which); });
  }
};

// tile.for_tiles of warps without roles: its body, tile after tile. All warps have left a tile's
// stages when those of the next are filled.
void expandTiles(tile::ForTilesOp op) {
  mlir::OpBuilder builder(op);
  ScalarBuilder at{builder, op.getLoc()};
  forEachTile(at, op, {}, [&](const TileShare &share, mlir::ValueRange) {
    // Threads that store nothing of the tile before come here ahead of those of their warp.
    mlir::NVVM::SyncWarpOp::create(builder, op.getLoc(), at.i32(-1));
    mlir::NVVM::Barrier0Op::create(builder, op.getLoc());
    mlir::IRMapping map;
    mlir::Block &body = op.getBody().front();
    map.map(body.getArguments(), share.arguments);
    for (mlir::Operation &inner : body)
      builder.clone(inner, map);
    return llvm::SmallVector<Value>();
  });
  op.erase();
}

struct ExpandPipelinePass : impl::ExpandPipelineBase<ExpandPipelinePass> {
  void runOnOperation() override {
    llvm::SmallVector<tile::ForTilesOp> loops;
    getOperation().walk([&](tile::ForTilesOp op) { loops.push_back(op); });
    for (tile::ForTilesOp op : loops)
      expandTiles(op);
    llvm::SmallVector<tile::PipelineOp> pipelines;
    getOperation().walk([&](tile::PipelineOp op) { pipelines.push_back(op); });
    tile::KernelOp last;
    for (tile::PipelineOp op : pipelines) {
      auto kernel = op->getParentOfType<tile::KernelOp>();
      mlir::OpBuilder builder(op);
      Expansion(op, builder, kernel == last).run();
      last = kernel;
    }
  }
};

} // namespace
} // namespace rho::compiler
