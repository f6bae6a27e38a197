// From sums to outputs: the sum over parts of k, scales that are constant along k, the store.
#include "compiler/passes/KernelBuilder.h"
#include "dsl/Division.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace rho::compiler {

using mlir::Value;

void KernelBuilder::loadFactors(bool ofWeight) {
  for (ir::ComponentOp component : chain.epilogue)
    if (isOfWeight(component) == ofWeight)
      loadFactor(component);
}

const std::vector<Value> &KernelBuilder::loadFactor(ir::ComponentOp named) {
  auto [found, isNew] = factorLoads.try_emplace(named);
  std::vector<Value> &loads = found->second;
  if (!isNew)
    return loads;
  const auto [ofWeight, index, component] = sourceOf(named);
  mlir::Location loc = named.getLoc();
  Value source = ofWeight ? weight : activationOf(index);
  int64_t base = ofWeight ? section(index).offset : 0;
  int64_t unit = ofWeight ? unitBits(index) : dsl::unitBits(component.type);
  if (component.extent == dsl::Extent::Tensor) {
    loads.push_back(tile::LoadTensorScaleOp::create(builder, loc, builder.getF32Type(), source,
                                                    base, component.type.name(), unit,
                                                    component.shift));
  } else if (ofWeight) {
    loads.push_back(
        tile::LoadRowScalesOp::create(builder, loc, vectorOf(wordsOfRows(unit), true), source, base,
                                      section(index).tilesN * section(index).tileN, tileN, unit));
  } else if (tokensBuffer) {
    loads.push_back(tile::LoadShareOfTokensOp::create(
        builder, loc, vectorOf(divideUp(g.tileM, Geometry::warpgroup), false), source, m, tileM,
        component.type.name()));
  } else {
    for (int64_t j = 0; j < g.batchTiles(); ++j)
      loads.push_back(tile::LoadTokenScalesOp::create(builder, loc, vectorOf(2, false), source, m,
                                                      tileM, j, component.type.name()));
  }
  return loads;
}

void KernelBuilder::multiplyInto(mlir::Location loc, Value &product, Value with) {
  product = product ? mlir::arith::MulFOp::create(builder, loc, product, with).getResult() : with;
}

KernelBuilder::EpilogueFactors KernelBuilder::buildFactors() {
  EpilogueFactors factors;
  auto &[factor, rows, columns] = factors;
  Value shareOfTokens;
  for (ir::ComponentOp named : chain.epilogue) {
    const auto [ofWeight, index, component] = sourceOf(named);
    mlir::Location loc = named.getLoc();
    const std::vector<Value> &loads = loadFactor(named);
    if (component.extent == dsl::Extent::Tensor) {
      multiplyInto(loc, factor, loads[0]);
    } else if (ofWeight) {
      Value scales = tile::ConvertScalesOp::create(builder, loc, vectorOf(g.rowsPerThread(), false),
                                                   loads[0], component.type.name(), unitBits(index),
                                                   component.shift, {});
      rows.resize(g.rowsPerThread());
      for (int64_t r = 0; r < g.rowsPerThread(); ++r)
        multiplyInto(loc, rows[r],
                     tile::ExtractOp::create(builder, loc, builder.getF32Type(), scales, r));
    } else if (tokensBuffer) {
      multiplyInto(loc, shareOfTokens, loads[0]);
    } else {
      columns.resize(g.batchTiles());
      for (size_t j = 0; j < loads.size(); ++j)
        multiplyInto(loc, columns[j], loads[j]);
    }
  }
  if (shareOfTokens) {
    std::vector<mlir::Type> types(static_cast<size_t>(g.batchTiles()), vectorOf(2, false));
    auto shared =
        tile::ShareTokensOp::create(builder, at("output"), types, shareOfTokens, tokensBuffer);
    llvm::append_range(columns, shared.getScales());
  }
  if (chain.factor == 1.0)
    return factors;
  Value constant = mlir::arith::ConstantFloatOp::create(
      builder, at("output"), builder.getF32Type(), llvm::APFloat(static_cast<float>(chain.factor)));
  if (rows.empty())
    multiplyInto(at("output"), factor, constant);
  for (Value &row : rows) // of which a thread has a few, and outputs many
    multiplyInto(at("output"), row, constant);
  return factors;
}

Value KernelBuilder::scaled(const EpilogueFactors &by, size_t i, Value value, Value plus) {
  auto tiles = static_cast<size_t>(g.batchTiles());
  size_t t = i / tiles, j = i % tiles;
  std::vector<Value> pair;
  if (!by.rows.empty())
    pair = {by.rows[2 * t], by.rows[2 * t + 1]};
  return tile::ScaleOp::create(builder, at("output"), accumulatorType(false), value, pair,
                               by.columns.empty() ? Value() : by.columns[j], by.all, plus, false,
                               mlir::ValueRange());
}

void KernelBuilder::buildEpilogue(std::vector<Value> sums) {
  if (workspace) {
    auto split = tile::SplitSumOp::create(
        builder, at("schedule"), builder.getI1Type(), mlir::ValueRange(sums).getTypes(), workspace,
        add(mul(tileM, outputTilesN()), tileN), shares, share, firstPlace, sums);
    auto last = mlir::scf::IfOp::create(builder, at("schedule"), split.getLast());
    sums.assign(split.getSums().begin(), split.getSums().end());
    builder.setInsertionPointToStart(&last.getThenRegion().front());
  }
  EpilogueFactors factors = buildFactors();
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = scaled(factors, i, sums[i]);
  if (slices)
    tile::StoreBoxOp::create(builder, at("output"), output, tileN, tileM, slicesBuffer,
                             slices->rows, context.gemm.output.name(), sums);
  else
    tile::StoreOutputOp::create(builder, at("output"), output, m, context.plan.problem.n, tileN,
                                tileM, context.gemm.output.name(), sums);
}
} // namespace rho::compiler
