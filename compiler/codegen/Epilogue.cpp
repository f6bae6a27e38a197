// From accumulators to global memory: the sum over splits of k, scales that are constant along k,
// and the stores.
#include "compiler/codegen/KernelLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <numeric>

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

// Workspace: one counter per output tile, then for each tile and split the accumulators of all
// threads (KernelImage::workspaceBytes). Whoever counts last adds all splits in their order.
void KernelLowering::lowerSplitSum(tile::SplitSumOp op) {
  mlir::Type type = builder.getI32Type();
  Value gridN = NVVM::GridDimXOp::create(builder, loc, type);
  Value gridM = NVVM::GridDimYOp::create(builder, loc, type);
  Value split = NVVM::BlockIdZOp::create(builder, loc, type);
  Value tile = add(mul(op.getTileM(), gridN), op.getTileN());
  Value counters = mul(mul(gridM, gridN), 4);
  counters = arith::AndIOp::create(builder, loc, add(counters, 255), i32(~int64_t(255)));
  int64_t values = static_cast<int64_t>(op.getValues().size());
  int64_t partBytes = values * g.groupThreads() * 16;
  Value mine = add(mul(tile, splits), split);
  auto part = [&](Value index, int64_t value) {
    Value offset = add(add(mul(widen(index), partBytes), widen(counters)),
                       widen(add(mul(thread, 16), value * g.groupThreads() * 16)));
    return globalAt(op.getWorkspace(), offset);
  };
  for (int64_t i = 0; i < values; ++i)
    store(op.getValues()[static_cast<unsigned>(i)], part(mine, i), 16);

  // Release: every thread's stores, then the CTA's arrival. Shared memory is free by now: all
  // warps have left the pipeline when they meet here.
  NVVM::MembarOp::create(builder, loc, NVVM::MemScopeKind::GPU);
  sumBarrier();
  Value counter = globalAt(op.getWorkspace(), widen(mul(tile, 4)));
  Value isFirst = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, thread, i32(0));
  auto arrive = mlir::scf::IfOp::create(builder, loc, isFirst);
  {
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&arrive.getThenRegion().front());
    Value before = LLVM::AtomicRMWOp::create(builder, loc, LLVM::AtomicBinOp::add, counter, i32(1),
                                             LLVM::AtomicOrdering::monotonic);
    store(before, sharedAt(i32(0)), 4);
  }
  sumBarrier();
  Value arrived = load(type, sharedAt(i32(0)), 4);
  Value last =
      arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, arrived, i32(splits - 1));
  llvm::SmallVector<mlir::Type> types(op.getSums().getTypes());
  auto sum = mlir::scf::IfOp::create(builder, loc, types, last, true);
  {
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&sum.getThenRegion().front());
    NVVM::MembarOp::create(builder, loc, NVVM::MemScopeKind::GPU);
    llvm::SmallVector<Value> zeros;
    for (mlir::Type each : types)
      zeros.push_back(arith::ConstantOp::create(builder, loc, builder.getZeroAttr(each)));
    auto loop = mlir::scf::ForOp::create(builder, loc, i32(0), i32(splits), i32(1), zeros);
    {
      mlir::OpBuilder::InsertionGuard inLoop(builder);
      builder.setInsertionPointToEnd(loop.getBody());
      Value index = add(mul(tile, splits), loop.getInductionVar());
      llvm::SmallVector<Value> next;
      for (int64_t i = 0; i < values; ++i) {
        Value addend = load(types[static_cast<size_t>(i)], part(index, i), 16);
        Value before = loop.getRegionIterArg(static_cast<unsigned>(i));
        next.push_back(sumOf(before, addend));
      }
      mlir::scf::YieldOp::create(builder, loc, next);
    }
    // The counter is left at zero for the next launch.
    auto reset = mlir::scf::IfOp::create(builder, loc, isFirst);
    {
      mlir::OpBuilder::InsertionGuard inReset(builder);
      builder.setInsertionPointToStart(&reset.getThenRegion().front());
      store(i32(0), counter, 4);
    }
    mlir::scf::YieldOp::create(builder, loc, loop.getResults());
    builder.setInsertionPointToStart(&sum.getElseRegion().front());
    mlir::scf::YieldOp::create(builder, loc, op.getValues());
  }
  op.getLast().replaceAllUsesWith(last);
  for (auto [old, now] : llvm::zip(op.getSums(), sum.getResults()))
    old.replaceAllUsesWith(now);
}

// All groups but the first leave their sums in shared memory, which the first adds in order. The
// second barrier keeps the buffer until they are read.
void KernelLowering::lowerGroupSum(tile::GroupSumOp sum) {
  int64_t values = static_cast<int64_t>(sum.getValues().size());
  Value first = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, warpK, i32(0));
  Value inGroup =
      mul(arith::SubIOp::create(builder, loc, thread, mul(warpK, g.groupThreads())), 16);
  auto place = [&](Value group, int64_t value) {
    Value part = add(mul(group, values), value);
    return sharedAt(
        add(add(mul(part, g.groupThreads() * 16), inGroup), offsets.lookup(sum.getBuffer())));
  };
  llvm::SmallVector<mlir::Type> types(sum.getSums().getTypes());
  auto leave = mlir::scf::IfOp::create(builder, loc, first, /*withElseRegion=*/true);
  {
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&leave.getElseRegion().front());
    Value group = arith::SubIOp::create(builder, loc, warpK, i32(1));
    for (int64_t i = 0; i < values; ++i)
      store(sum.getValues()[static_cast<unsigned>(i)], place(group, i), 16);
  }
  mathBarrier();
  auto gather = mlir::scf::IfOp::create(builder, loc, types, first, /*withElseRegion=*/true);
  {
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&gather.getThenRegion().front());
    llvm::SmallVector<Value> sums(sum.getValues());
    for (int64_t group = 0; group + 1 < g.warpsK; ++group)
      for (int64_t i = 0; i < values; ++i) {
        Value &total = sums[static_cast<size_t>(i)];
        Value more = load(types[static_cast<size_t>(i)], place(i32(group), i), 16);
        total = sumOf(total, more);
      }
    mlir::scf::YieldOp::create(builder, loc, sums);
    builder.setInsertionPointToStart(&gather.getElseRegion().front());
    mlir::scf::YieldOp::create(builder, loc, sum.getValues());
  }
  mathBarrier();
  sum.getFirst().replaceAllUsesWith(first);
  for (auto [old, now] : llvm::zip(sum.getSums(), gather.getResults()))
    old.replaceAllUsesWith(now);
}

void KernelLowering::lowerLoadRowScales(tile::LoadRowScalesOp op) {
  int64_t bytes = dsl::ElementType::get(op.getElement().str()).bits() / 8;
  Value row = add(mul(op.getTileN(), g.tileN), firstRow);
  Value at =
      globalAt(op.getSource(), add(mul(widen(row), bytes), static_cast<int64_t>(op.getBase())));
  int64_t count = g.rowsPerThread();
  op.replaceAllUsesWith(vectorOf(toF32(loadWords(at, count * bytes), op.getElement(), count)));
}

// This thread's batch rows of an n8 tile are columns 2 c and 2 c + 1 of the instruction.
void KernelLowering::lowerLoadTokenScales(tile::LoadTokenScalesOp op) {
  int64_t bytes = dsl::ElementType::get(op.getElement().str()).bits() / 8;
  Value first = add(add(mul(op.getTileM(), g.tileM), firstBatch),
                    static_cast<int64_t>(op.getBatchTile()) * g.batchStep());
  std::vector<Value> scales;
  for (int64_t i = 0; i < 2; ++i) {
    Value row = add(first, i);
    row = arith::SelectOp::create(builder, loc, less(row, op.getRows()), row, i32(0));
    Value at = globalAt(op.getSource(), mul(widen(row), bytes));
    scales.push_back(toF32(loadWords(at, bytes), op.getElement(), 1)[0]);
  }
  op.replaceAllUsesWith(vectorOf(scales));
}

void KernelLowering::lowerLoadTensorScale(tile::LoadTensorScaleOp op) {
  int64_t bytes = dsl::ElementType::get(op.getElement().str()).bits() / 8;
  Value at = globalAt(op.getSource(), i64(static_cast<int64_t>(op.getBase())));
  op.replaceAllUsesWith(toF32(loadWords(at, bytes), op.getElement(), 1)[0]);
}

// A thread's weight rows are consecutive, so its outputs of one batch row are too: they are stored
// in the widest pieces that the row length keeps aligned. A piece never straddles the row's end.
void KernelLowering::lowerStoreOutput(tile::StoreOutputOp op) {
  dsl::ElementType type = dsl::ElementType::get(op.getElement().str());
  int64_t bytes = type.bits() / 8;
  int64_t columns = static_cast<int64_t>(op.getColumns());
  int64_t width = std::gcd(std::gcd(columns, g.rowsPerThread()), 16 / bytes);
  mlir::Type element = op.getElement() == "f32"    ? f32()
                       : op.getElement() == "bf16" ? mlir::Type(builder.getBF16Type())
                                                   : builder.getF16Type();
  Value firstColumn = add(mul(op.getTileN(), g.tileN), firstRow);
  Value firstToken = add(mul(op.getTileM(), g.tileM), firstBatch);
  mlir::OpBuilder::InsertionGuard guard(builder);
  for (int64_t j = 0; j < g.batchTiles(); ++j)
    for (int64_t c = 0; c < 2; ++c) {
      if (g.batchStep() * j + c >= g.tileM) // a tile of one row
        continue;
      builder.setInsertionPoint(op);
      Value row = add(firstToken, g.batchStep() * j + c);
      auto inRows = mlir::scf::IfOp::create(builder, loc, less(row, op.getRows()));
      builder.setInsertionPointToStart(&inRows.getThenRegion().front());
      Value line = mul(widen(row), columns);
      for (int64_t r = 0; r < g.rowsPerThread(); r += width) {
        mlir::OpBuilder::InsertionGuard inPiece(builder);
        Value column = add(firstColumn, r);
        if (columns % g.tileN != 0) {
          auto inColumns = mlir::scf::IfOp::create(builder, loc, less(column, i32(columns)));
          builder.setInsertionPointToStart(&inColumns.getThenRegion().front());
        }
        std::vector<Value> values;
        for (int64_t i = r; i < r + width; ++i) {
          Value accumulator = op.getValues()[static_cast<unsigned>(i / 2 * g.batchTiles() + j)];
          Value value = this->element(accumulator, 2 * (i % 2) + c);
          values.push_back(bytes == 4
                               ? value
                               : arith::TruncFOp::create(builder, loc, element, value).getResult());
        }
        Value at = globalAt(op.getTarget(), mul(add(line, widen(column)), bytes));
        if (width == 1)
          store(values[0], at, bytes);
        else
          store(vectorOf(values), at, width * bytes);
      }
    }
}

} // namespace rho::compiler
