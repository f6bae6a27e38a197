// From accumulators to global memory: the sum over splits of k, scales that are constant along k,
// and the stores.
#include "compiler/KernelImage.h"
#include "compiler/codegen/KernelLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <numeric>

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

// Workspace: counters, one for an output tile, then the accumulators of all threads for each share
// of a tile (KernelImage::workspaceBytes). Shares are summed in an order that does not depend on
// when they come; the counter is left at zero for the next launch.
void KernelLowering::lowerSplitSum(tile::SplitSumOp op) {
  SplitWorkspace space;
  space.values = static_cast<int64_t>(op.getValues().size());
  space.pointer = op.getWorkspace();
  space.counter = globalAt(op.getWorkspace(), widen(mul(op.getTile(), 4)));
  space.isFirstThread = equal(thread, i32(0));
  llvm::SmallVector<Value> results = g.streamK ? gatherShares(op, space) : sumLast(op, space);
  for (auto [old, now] : llvm::zip(op.getResults(), results))
    old.replaceAllUsesWith(now);
}

KernelLowering::Value KernelLowering::shareAt(const SplitWorkspace &space, Value place,
                                              int64_t value) {
  return globalAt(space.pointer,
                  add(sumAt(widen(place), space.values, value), KernelImage::counterBytes));
}

// Leaves this CTA's share and counts it: every thread's stores, then the CTA's arrival. Gives how
// many came before, to the first thread, which alone waits until the stores are seen.
KernelLowering::Value KernelLowering::leaveShare(tile::SplitSumOp op, const SplitWorkspace &space) {
  Value place = add(op.getFirst(), op.getShare());
  for (int64_t i = 0; i < space.values; ++i)
    store(op.getValues()[static_cast<unsigned>(i)], shareAt(space, place, i), 16);
  sumBarrier();
  auto arrive = [&]() -> llvm::SmallVector<Value> {
    NVVM::MembarOp::create(builder, loc, NVVM::MemScopeKind::GPU);
    return {LLVM::AtomicRMWOp::create(builder, loc, LLVM::AtomicBinOp::add, space.counter, i32(1),
                                      LLVM::AtomicOrdering::monotonic)};
  };
  auto zero = [&]() -> llvm::SmallVector<Value> { return {i32(0)}; };
  return either(space.isFirstThread, builder.getI32Type(), arrive, zero)[0];
}

// `start` and the shares at `first` .. `first + count`, in this order.
llvm::SmallVector<KernelLowering::Value> KernelLowering::addShares(const SplitWorkspace &space,
                                                                   Value first, Value count,
                                                                   mlir::ValueRange start) {
  auto loop = mlir::scf::ForOp::create(builder, loc, i32(0), count, i32(1), start);
  mlir::OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(loop.getBody());
  Value place = add(first, loop.getInductionVar());
  llvm::SmallVector<Value> next;
  for (auto [i, before] : llvm::enumerate(loop.getRegionIterArgs()))
    next.push_back(
        sumOf(before, load(before.getType(), shareAt(space, place, static_cast<int64_t>(i)), 16)));
  mlir::scf::YieldOp::create(builder, loc, next);
  return llvm::SmallVector<Value>(loop.getResults());
}

// Shares that end at one time: the last to come adds all of them.
llvm::SmallVector<KernelLowering::Value> KernelLowering::sumLast(tile::SplitSumOp op,
                                                                 const SplitWorkspace &space) {
  // Shared memory is free by now: all warps have left the pipeline when they meet here.
  Value before = leaveShare(op, space);
  when(space.isFirstThread, [&] { store(before, sharedAt(i32(0)), 4); });
  sumBarrier();
  Value arrived = load(builder.getI32Type(), sharedAt(i32(0)), 4);
  Value last = equal(add(arrived, 1), op.getShares());
  llvm::SmallVector<mlir::Type> types(op.getSums().getTypes());
  auto addAll = [&] {
    NVVM::MembarOp::create(builder, loc, NVVM::MemScopeKind::GPU);
    llvm::SmallVector<Value> zeros;
    for (mlir::Type each : types)
      zeros.push_back(arith::ConstantOp::create(builder, loc, builder.getZeroAttr(each)));
    llvm::SmallVector<Value> sums = addShares(space, op.getFirst(), op.getShares(), zeros);
    resetCounter(space);
    return sums;
  };
  auto asTheyAre = [&] { return llvm::SmallVector<Value>(op.getValues()); };
  llvm::SmallVector<Value> results{last};
  llvm::append_range(results, either(last, types, addAll, asTheyAre));
  return results;
}

// Equal shares: a CTA takes its tiles from the last to the first, so that what it leaves to others
// is early and what it waits for is long there. It waits only for CTAs before it.
llvm::SmallVector<KernelLowering::Value> KernelLowering::gatherShares(tile::SplitSumOp op,
                                                                      const SplitWorkspace &space) {
  Value others = sub(op.getShares(), i32(1));
  Value gathers = equal(op.getShare(), others);
  auto gather = [&] {
    Value any = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, others, i32(0));
    when(any, [&] {
      effect("{\n.reg .pred more;\n.reg .b32 count;\nagain:\n"
             "ld.acquire.gpu.global.b32 count, [$0];\nsetp.ne.b32 more, count, $1;\n"
             "@more bra again;\n}",
             "l,r", {space.counter, others});
      sumBarrier();
      resetCounter(space);
    });
    return addShares(space, op.getFirst(), others, op.getValues());
  };
  auto leave = [&] {
    leaveShare(op, space);
    return llvm::SmallVector<Value>(op.getValues());
  };
  llvm::SmallVector<Value> results{gathers};
  llvm::append_range(results, either(gathers, op.getSums().getTypes(), gather, leave));
  return results;
}

void KernelLowering::resetCounter(const SplitWorkspace &space) {
  when(space.isFirstThread, [&] { store(i32(0), space.counter, 4); });
}

KernelLowering::Value KernelLowering::sumPlace(Value buffer, Value part, int64_t values,
                                               int64_t value) {
  return sharedAt(add(sumAt(part, values, value), offsets.lookup(buffer)));
}

void KernelLowering::leaveSums(Value has, Value buffer, Value part, mlir::ValueRange sums) {
  when(has, [&] {
    auto values = static_cast<int64_t>(sums.size());
    for (auto [i, value] : llvm::enumerate(sums))
      store(value, sumPlace(buffer, part, values, static_cast<int64_t>(i)), 16);
  });
}

llvm::SmallVector<KernelLowering::Value> KernelLowering::addParts(Value has, mlir::ValueRange sums,
                                                                  int64_t parts, Parts pointer) {
  auto addAll = [&] {
    llvm::SmallVector<Value> totals(sums);
    for (int64_t part = 0; part < parts; ++part)
      for (auto [i, total] : llvm::enumerate(totals))
        total = sumOf(total, load(total.getType(), pointer(part, static_cast<int64_t>(i)), 16));
    return totals;
  };
  return either(has, sums.getTypes(), addAll, [&] { return llvm::SmallVector<Value>(sums); });
}

// All groups but the first leave their sums in shared memory, which the first adds in order. The
// second barrier keeps the buffer until they are read.
void KernelLowering::lowerGroupSum(tile::GroupSumOp sum) {
  llvm::SmallVector<Value> sums(sum.getValues());
  auto values = static_cast<int64_t>(sums.size());
  Value buffer = sum.getBuffer();
  Value first = equal(warpK, i32(0));
  if (isOverStages(buffer))
    mathBarrier(); // no warp reads a stage any more
  if (g.warpsK > 1) {
    leaveSums(less(i32(0), warpK), buffer, sub(warpK, i32(1)), sums);
    mathBarrier();
    sums = addParts(first, sums, g.warpsK - 1, [&](int64_t part, int64_t value) {
      return sumPlace(buffer, i32(part), values, value);
    });
    mathBarrier();
  }
  first = sumCluster(buffer, first, sums);
  sum.getFirst().replaceAllUsesWith(first);
  for (auto [old, now] : llvm::zip(sum.getSums(), sums))
    old.replaceAllUsesWith(now);
}

void KernelLowering::lowerLoadRowScales(tile::LoadRowScalesOp op) {
  int64_t bytes = op.getUnit() / 8;
  Value row = add(mul(op.getTileN(), g.tileN), firstRow);
  int64_t rows = op.getRows();
  if (rows % g.tileN != 0)
    row = arith::MinUIOp::create(builder, loc, row, i32(rows - g.rowsPerThread()));
  Value at = globalAt(op.getSource(), add(mul(widen(row), bytes), op.getBase()));
  op.replaceAllUsesWith(vectorOf(loadWords(at, g.rowsPerThread() * bytes)));
}

KernelLowering::Value KernelLowering::tokenScale(Value source, Value row, Value rows,
                                                 llvm::StringRef element) {
  int64_t bytes = dsl::unitBits(dsl::ElementType::get(element.str())) / 8;
  row = select(less(row, rows), row, i32(0));
  Value at = globalAt(source, mul(widen(row), bytes));
  return inputToF32(loadWords(at, bytes), element, 1)[0];
}

// This thread's batch rows of an n8 tile are columns 2 c and 2 c + 1 of the instruction.
void KernelLowering::lowerLoadTokenScales(tile::LoadTokenScalesOp op) {
  Value first =
      add(add(mul(op.getTileM(), g.tileM), firstBatch), op.getBatchTile() * g.batchStep());
  std::vector<Value> scales;
  for (int64_t i = 0; i < 2; ++i)
    scales.push_back(tokenScale(op.getSource(), add(first, i), op.getRows(), op.getElement()));
  op.replaceAllUsesWith(vectorOf(scales));
}

void KernelLowering::lowerLoadTensorScale(tile::LoadTensorScaleOp op) {
  int64_t unit = op.getUnit();
  Value at = globalAt(op.getSource(), i64(op.getBase()));
  op.replaceAllUsesWith(
      inputToF32(loadWords(at, unit / 8), op.getElement(), 1, unit, op.getShift())[0]);
}

KernelLowering::Value KernelLowering::outputs(mlir::ValueRange accumulators,
                                              llvm::StringRef element, int64_t first, int64_t count,
                                              int64_t j, int64_t c) {
  mlir::Type type = halfType(element);
  std::vector<Value> values;
  for (int64_t i = first; i < first + count; ++i) {
    Value accumulator = accumulators[static_cast<unsigned>(i / 2 * g.batchTiles() + j)];
    Value value = this->element(accumulator, 2 * (i % 2) + c);
    values.push_back(
        element == "f32" ? value : arith::TruncFOp::create(builder, loc, type, value).getResult());
  }
  return count == 1 ? values[0] : vectorOf(values);
}

// A thread's weight rows are consecutive, so its outputs of one batch row are too: they are stored
// in the widest pieces that the row length keeps aligned. A piece never straddles the row's end.
void KernelLowering::lowerStoreOutput(tile::StoreOutputOp op) {
  dsl::ElementType type = dsl::ElementType::get(op.getElement().str());
  int64_t bytes = type.bits() / 8;
  int64_t columns = op.getColumns();
  int64_t width = std::gcd(std::gcd(columns, g.rowsPerThread()), 16 / bytes);
  Value firstColumn = add(mul(op.getTileN(), g.tileN), firstRow);
  Value firstToken = add(mul(op.getTileM(), g.tileM), firstBatch);
  auto storeRow = [&](Value row, int64_t j, int64_t c) {
    Value line = mul(widen(row), columns);
    for (int64_t r = 0; r < g.rowsPerThread(); r += width) {
      Value column = add(firstColumn, r);
      auto storePiece = [&] {
        Value at = globalAt(op.getTarget(), mul(add(line, widen(column)), bytes));
        store(outputs(op.getValues(), op.getElement(), r, width, j, c), at, width * bytes);
      };
      if (columns % g.tileN != 0)
        when(less(column, i32(columns)), storePiece);
      else
        storePiece();
    }
  };
  for (int64_t j = 0; j < g.batchTiles(); ++j)
    for (int64_t c = 0; c < 2; ++c) {
      if (g.batchStep() * j + c >= g.tileM) // a tile of one row
        continue;
      Value row = add(firstToken, g.batchStep() * j + c);
      when(less(row, op.getRows()), [&] { storeRow(row, j, c); });
    }
}

} // namespace rho::compiler
