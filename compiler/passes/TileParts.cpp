// Activations whose k tiles are each stored in one of several formats: a loop over the k tiles of
// each part, with its own instructions and decode, one after the other into the same sums. Which
// k tiles a part has is data: a table lists them part by part.
#include "compiler/passes/KernelBuilder.h"
#include "compiler/passes/TileOrder.h"

namespace rho::compiler {

using mlir::Value;
namespace arith = mlir::arith;

Value KernelBuilder::tableEntry(Value index) {
  return tile::LoadEntryOp::create(builder, at("schedule"), builder.getI32Type(), partTiles, index);
}

void KernelBuilder::enterPart(size_t part) {
  context = contextOfPart(whole, part);
  chain = wholeChain.parts[part];
  tileValues = {};
  decodedUnits.clear();
  unitPrograms.clear();
}

std::vector<Value> KernelBuilder::scaledBy(const std::vector<Value> &sums, double factor) {
  if (factor == 1)
    return sums;
  mlir::Location loc = at("gemm");
  Value times = arith::ConstantFloatOp::create(builder, loc, builder.getF32Type(),
                                               llvm::APFloat(static_cast<float>(factor)));
  std::vector<Value> result;
  for (Value sum : sums)
    result.push_back(tile::ScaleOp::create(builder, loc, accumulatorType(false), sum,
                                           mlir::ValueRange(), Value(), times, Value(), false,
                                           mlir::ValueRange()));
  return result;
}

std::vector<Value> KernelBuilder::finishPart(const std::vector<Value> &own,
                                             const std::vector<Value> &others) {
  EpilogueFactors factors = buildFactors();
  std::vector<Value> result;
  for (size_t i = 0; i < own.size(); ++i) {
    size_t j = i % static_cast<size_t>(g.batchTiles());
    result.push_back(tile::ScaleOp::create(
        builder, at("gemm"), accumulatorType(false), own[i], mlir::ValueRange(),
        factors.columns.empty() ? Value() : factors.columns[j], factors.all,
        others.empty() ? Value() : others[i], false, mlir::ValueRange()));
  }
  return result;
}

std::vector<Value> KernelBuilder::startsOfParts() {
  std::vector<Value> starts;
  for (size_t part = 0; part <= whole.parts(); ++part)
    starts.push_back(tableEntry(i32(static_cast<int64_t>(part))));
  return starts;
}

std::vector<Value> KernelBuilder::tilesOfParts(const std::vector<Value> &starts) {
  std::vector<Value> counts;
  for (size_t part = 0; part + 1 < starts.size(); ++part)
    counts.push_back(
        arith::SubIOp::create(builder, at("schedule"), starts[part + 1], starts[part]));
  return counts;
}

// Share i of s begins at the first k tile before which the tiles cost at least all * i / s.
Value KernelBuilder::startOfShare(const std::vector<Value> &starts, Value number) {
  ScalarBuilder scalar{builder, at("schedule")};
  llvm::SmallVector<PartTiles, 3> parts;
  Value all = i32(0);
  for (auto [count, cost] : llvm::zip(tilesOfParts(starts), context.plan.schedule.tileCosts)) {
    parts.push_back({count, i32(cost)});
    all = scalar.add(all, scalar.mul(count, parts.back().cost));
  }
  return tilesBefore(scalar, parts, divide(scalar.mul(all, number), context.plan.schedule.splitK));
}

// Of each part, its k tiles of this share as places in the lists of all parts.
std::vector<std::pair<Value, Value>> KernelBuilder::rangesOfParts() {
  mlir::Location loc = at("schedule");
  std::vector<Value> starts = startsOfParts();
  if (!context.plan.schedule.tileCosts.empty() && !g.streamK) {
    firstK = startOfShare(starts, share);
    lastK = startOfShare(starts, add(share, i32(1)));
  }
  std::vector<std::pair<Value, Value>> ranges;
  for (size_t part = 0; part < whole.parts(); ++part) {
    Value first = arith::MaxUIOp::create(builder, loc, starts[part], firstK);
    Value last = arith::MinUIOp::create(builder, loc, starts[part + 1], lastK);
    ranges.emplace_back(first, arith::MaxUIOp::create(builder, loc, first, last));
  }
  return ranges;
}

// The lists come from the kernel ahead.
void KernelBuilder::waitForLists() {
  mlir::OpBuilder::InsertionGuard guard(builder);
  mlir::Operation *around = builder.getBlock()->getParentOp();
  if (llvm::isa<tile::ForTilesOp>(around)) // before the loop over tiles
    builder.setInsertionPoint(around);
  if (!g.specialized())
    tile::LaunchDependentsOp::create(builder, at("schedule"));
  tile::WaitDependencyOp::create(builder, at("schedule"));
}

std::vector<Value> KernelBuilder::buildParts() {
  if (context.plan.schedule.dependent && !balancesStream())
    waitForLists();
  std::vector<std::pair<Value, Value>> ranges = rangesOfParts();
  std::vector<Value> sums;
  for (size_t part = 0; part < whole.parts(); ++part) {
    enterPart(part);
    std::tie(firstK, lastK) = ranges[part];
    double factor = wholeChain.parts[part].factor;
    if (addsToSums(context.placed))
      sums = scaledBy(buildPipeline(scaledBy(sums, 1 / factor)), factor);
    else
      sums = finishPart(buildPipeline(), sums);
  }
  context = whole;
  chain = wholeChain;
  return g.specialized() ? totalOf(sums) : sums;
}

std::vector<Value> KernelBuilder::totalOf(const std::vector<Value> &sums) {
  auto total = tile::TotalOp::create(builder, at("gemm"), mlir::ValueRange(sums).getTypes(), sums);
  return {total.getResults().begin(), total.getResults().end()};
}

} // namespace rho::compiler
