// One k tile: operands to matrix instructions, and partial sums of groups to scaled sums.
#include "compiler/passes/KernelBuilder.h"

#include <bit>
#include <functional>

namespace rho::compiler {

using mlir::Value;

int64_t KernelBuilder::flushK() const {
  int64_t flush = g.tileK;
  for (ir::ComponentOp named : chain.accumulator)
    flush = std::min(flush, g.parameterK(extentK(sourceOf(named).component)));
  return flush;
}

// A word serves two row tiles, or four batch tiles, and as much of k as four blocks.
Value KernelBuilder::blockScalesOf(bool ofWeight, int64_t word, int64_t tile, Value slot) {
  const BlockScaling &scaling = *context.placed.blockScaling;
  int component = ofWeight ? scaling.weight : scaling.activation;
  if (component == BlockScaling::none)
    return i32(scaling.wordOfOnes());
  int64_t first = tile / (ofWeight ? 2 : 4) * (ofWeight ? 2 : 4);
  Value &words = tileValues.scaleWords[{ofWeight, word, first}];
  if (!words)
    words = withoutGuests(ofWeight, component,
                          tile::LoadBlockScalesOp::create(
                              builder, at(ofWeight, component), builder.getI32Type(),
                              bufferOf(ofWeight, component), slot, word, first, ofWeight));
  return words;
}

Value KernelBuilder::multiply(const std::vector<Value> &a, Value b, int64_t step, Value sum,
                              int64_t k, int64_t rowTile, int64_t batchTile, Value slot) {
  if (!context.placed.blockScaling)
    return tile::MmaOp::create(builder, at("gemm"), sum.getType(), a, b, step, sum,
                               context.placed.mmaType);
  const BlockScaling &scaling = *context.placed.blockScaling;
  int64_t block = k / scaling.block;
  int64_t word = block / BlockScaling::perWord, byte = block % BlockScaling::perWord;
  Value ofWeight = blockScalesOf(true, word, rowTile, slot);
  Value ofActivation = blockScalesOf(false, word, batchTile, slot);
  return tile::BlockMmaOp::create(builder, at("gemm"), sum.getType(), a, b, step, sum, ofWeight,
                                  ofActivation, byte, rowTile % 2, batchTile % 4,
                                  g.mmaK / scaling.block, context.placed.mmaType, scaling.type);
}

size_t KernelBuilder::carriedChains() const {
  if (grouped() || !g.warpsMultiply || g.gemv() || layout.residual || whole.parts() > 1)
    return 1;
  return static_cast<size_t>(std::min(mmaChains(g), g.tileK / g.mmaK));
}

std::vector<Value> KernelBuilder::buildWarpProducts(Value slot, std::vector<Value> sums) {
  int64_t steps = g.stepsPerChunk();
  bool grouped = this->grouped();
  int64_t flush = flushK();
  mlir::VectorType mmaType = accumulatorType(context.placed.integerAccumulator);
  Value zero = tile::ZeroOp::create(builder, at("gemm"), mmaType);
  Value start =
      biased() ? mlir::arith::ConstantOp::create(
                     builder, at("gemm"),
                     mlir::DenseElementsAttr::get(mmaType, std::bit_cast<int32_t>(tile::sumBias)))
                     .getResult()
               : zero;
  // Matrix instructions that add to the same accumulator wait for each other; few accumulators
  // are split into several chains, summed at the end of the group or tile. For each group that is
  // more than it saves where other warps have products meanwhile.
  // Groups of half an instruction's k take its two halves one after the other.
  int64_t extent = std::min<int64_t>(flush, g.mmaK), halves = g.mmaK / extent;
  int64_t chains = grouped && g.specialized() ? 1 : std::min(mmaChains(g), flush / extent);
  auto count = static_cast<size_t>(g.rowTiles() * g.batchTiles());
  std::vector<std::vector<Value>> partial(static_cast<size_t>(chains),
                                          std::vector<Value>(count, zero));
  bool carried = sums.size() > count; // all chains, one after the other
  if (grouped)
    partial[0].assign(count, start);
  else
    for (size_t i = 0; i < sums.size(); ++i)
      partial[i / count][i % count] = sums[i];
  mlir::IntegerAttr rowBytes; // where parts differ in it
  if (whole.parts() > 1)
    rowBytes = builder.getI64IntegerAttr(g.activationRowBytes());
  for (int64_t chunk = 0; chunk < g.chunks(); ++chunk) {
    std::vector<std::vector<Value>> b; // by batch tile: operands whose sum it is
    for (int64_t j = 0; j < g.batchTiles(); ++j) {
      Value words = tile::LoadActivationOp::create(builder, at(false, 0), vectorOf(2 * steps, true),
                                                   bufferOf(false, 0), slot, chunk, j, pieceInTile,
                                                   rowBytes, g.hasRuns, trimmed);
      b.push_back(splitActivation(words, chunk, j, slot));
    }
    const std::vector<Chunk> &words = codesOf(chunk, slot);
    std::vector<std::vector<Value>> a(static_cast<size_t>(g.rowTiles()));
    for (int64_t part = 0; part < steps * halves; ++part) {
      int64_t step = part / halves, k = chunk * g.chunkK() + part * extent;
      std::vector<Value> &chain = partial[k / extent % chains];
      for (int64_t t = 0; t < g.rowTiles(); ++t) {
        if (part % halves == 0)
          a[t] = decodeStep(words[t], step, k, t, slot);
        auto first = a[t].begin() + part % halves * 2;
        std::vector<Value> registers(first, halves == 1 ? a[t].end() : first + 2);
        for (const std::vector<Value> &ofWeight : splitRegisters(true, registers, k, t, slot))
          for (int64_t j = 0; j < g.batchTiles(); ++j)
            for (Value ofActivation : b[j]) {
              Value &sum = chain[t * g.batchTiles() + j];
              sum = multiply(ofWeight, ofActivation, part, sum, k, t, j, slot);
            }
      }
      if (grouped && (k + extent) % flush == 0) {
        flushGroup(sums, joinChains(partial), k, slot);
        for (std::vector<Value> &each : partial)
          std::fill(each.begin(), each.end(), &each == &partial[0] ? start : zero);
      }
    }
  }
  if (grouped)
    return sums;
  if (!carried)
    return joinChains(partial);
  sums.clear();
  for (const std::vector<Value> &chain : partial)
    llvm::append_range(sums, chain);
  return sums;
}

int64_t KernelBuilder::batchExtent() const {
  return (grouped() ? groupBatchSteps(g, flushK()) : batchSteps(g)) * g.mmaK;
}

// What a batch needs of shared memory. No load passes an instruction of the warpgroup, and one that
// follows them waits behind all that those of every warpgroup of the SM read.
void KernelBuilder::loadBatch(int64_t first, Value slot) {
  std::vector<Value> needed;
  if (!g.decodesApart())
    llvm::append_range(needed, chain.decode.getParameters());
  llvm::append_range(needed, llvm::make_filter_range(chain.accumulator, isOfWeight));
  // The halves of an instruction's k may have a group each.
  for (int64_t k = first; k < std::min(first + batchExtent(), g.tileK); k += g.mmaK / 2) {
    if (!g.decodesApart())
      codesOf(k / g.chunkK(), slot);
    for (Value value : needed)
      for (int component : componentsOf(value))
        if (context.placed.streamed[component])
          loadRowVector(component, k, slot);
  }
}

// Operand A of the instructions from k on: 4 registers for each step and row tile. None where
// another warpgroup has left it in shared memory.
std::vector<Value> KernelBuilder::decodeBatch(int64_t first, int64_t extent, Value slot) {
  if (g.decodesApart())
    return {};
  std::vector<Value> a;
  for (int64_t k = first; k < first + extent; k += g.mmaK) {
    const std::vector<Chunk> &words = codesOf(k / g.chunkK(), slot);
    for (int64_t t = 0; t < g.rowTiles(); ++t)
      llvm::append_range(a, decodeStep(words[t], k % g.chunkK() / g.mmaK, k, t, slot));
  }
  return a;
}

std::vector<Value> KernelBuilder::startBatch(int64_t first, int64_t extent,
                                             const std::vector<Value> &a, Value slot,
                                             const std::vector<Value> &sums) {
  mlir::VectorType type = accumulatorType(context.placed.integerAccumulator);
  std::vector<mlir::Type> types(static_cast<size_t>(g.rowTiles() * g.batchTiles()), type);
  auto batch = tile::WarpgroupMmaOp::create(builder, at("gemm"), types, a, bufferOf(false, 0), slot,
                                            first / g.mmaK, extent / g.mmaK, context.placed.mmaType,
                                            sums, operandBuffer, operandSlot, stepsBeforePiece());
  return {batch.getResults().begin(), batch.getResults().end()};
}

// A batch of instructions runs while the next one is decoded. The instructions read operand A from
// registers all the while. ptxas sees to that within a k tile; where a tile's last batch goes on
// into the next one it does so by waiting for each instruction (C7513), unless registers are held
// until their batch has ended.
std::vector<Value> KernelBuilder::buildWarpgroupProducts(Value slot, std::vector<Value> carried) {
  auto count = static_cast<std::ptrdiff_t>(g.rowTiles() * g.batchTiles());
  std::vector<Value> sums(carried.begin(), carried.begin() + count);
  std::vector<Value> held(carried.begin() + count, carried.end());
  int64_t extent = batchExtent();
  // The next batch's codes arrive while this one's are decoded. Not those that are operand A as
  // they are: its registers may be read until the batch of the tile before has ended.
  bool ahead =
      llvm::none_of(context.placed.decode.program.instructions, std::mem_fn(&DecodeInstr::isCopy));
  for (int64_t k = 0; k < g.tileK; k += extent) {
    loadBatch(k, slot);
    if (ahead)
      loadBatch(k + extent, slot);
    std::vector<Value> a = decodeBatch(k, extent, slot);
    sums = startBatch(k, extent, a, slot, sums);
    if (k > 0 || carriesBatch(g))
      tile::WarpgroupWaitOp::create(builder, at("gemm"), mlir::TypeRange(), 1, mlir::ValueRange(),
                                    carriesBatch(g) ? held : std::vector<Value>());
    if (k == 0 && carriesBatch(g))
      tile::ReleaseOp::create(builder, at("gemm"));
    held = std::move(a);
  }
  tileValues.rowVectors.clear();
  if (carriesBatch(g))
    llvm::append_range(sums, held);
  return sums;
}

std::vector<Value> KernelBuilder::awaitBatch(const std::vector<Value> &sums,
                                             const std::vector<Value> &held) {
  auto done = tile::WarpgroupWaitOp::create(builder, at("gemm"), mlir::ValueRange(sums).getTypes(),
                                            0, sums, held);
  return {done.getResults().begin(), done.getResults().end()};
}

// The same with partial sums that are scaled after each group, while the instructions of the next
// group run.
std::vector<Value> KernelBuilder::buildGroupedProducts(Value slot, std::vector<Value> sums) {
  int64_t flush = flushK(), extent = batchExtent();
  std::vector<Value> running;
  for (int64_t k = 0; k <= g.tileK; k += extent) {
    bool startsGroup = k % flush == 0;
    std::vector<Value> started;
    if (k < g.tileK) {
      loadBatch(k, slot);
      std::vector<Value> a = decodeBatch(k, extent, slot);
      started = startBatch(k, extent, a, slot, startsGroup ? std::vector<Value>() : running);
    }
    if (k > 0 && startsGroup) {
      auto done =
          tile::WarpgroupWaitOp::create(builder, at("gemm"), mlir::ValueRange(running).getTypes(),
                                        k < g.tileK ? 1 : 0, running, mlir::ValueRange());
      flushGroup(sums, {done.getResults().begin(), done.getResults().end()}, k - extent, slot);
    } else if (k > 0) {
      tile::WarpgroupWaitOp::create(builder, at("gemm"), mlir::TypeRange(), 1, mlir::ValueRange(),
                                    mlir::ValueRange());
    }
    running = std::move(started);
  }
  tileValues.rowVectors.clear();
  return sums;
}

std::vector<Value> KernelBuilder::joinChains(const std::vector<std::vector<Value>> &partial) {
  std::vector<Value> result = partial[0];
  for (size_t chain = 1; chain < partial.size(); ++chain)
    for (size_t i = 0; i < result.size(); ++i) {
      Value other = partial[chain][i];
      if (context.placed.integerAccumulator)
        result[i] = mlir::arith::AddIOp::create(builder, at("gemm"), result[i], other);
      else
        result[i] = mlir::arith::AddFOp::create(builder, at("gemm"), result[i], other);
    }
  return result;
}

// 1.5 adds one significant bit to a scale's.
bool KernelBuilder::rowScalesTimesBiasAreExact() const {
  constexpr int bitsOfF32 = 24;
  int scales = 0, bits = 1;
  for (ir::ComponentOp named : chain.accumulator)
    if (Source scale = sourceOf(named); scale.ofWeight) {
      ++scales;
      bits += scale.component.type.significantBits();
    }
  return scales > 0 && bits <= bitsOfF32;
}

// Two for each row tile.
std::vector<Value> KernelBuilder::rowScales(int64_t k, Value slot) {
  std::vector<Value> rows;
  for (ir::ComponentOp named : chain.accumulator) {
    const auto [ofWeight, index, component] = sourceOf(named);
    if (!ofWeight)
      continue;
    const int64_t group = groupIn(k, extentK(component));
    mlir::Location loc = named.getLoc();
    Value words = rowVectorOf(index, group, 0, slot);
    Value scales = tile::ConvertScalesOp::create(builder, loc, vectorOf(g.rowsPerThread(), false),
                                                 words, component.type.name(), unitBits(index),
                                                 bitInUnit(index, group), signInUnit(index, group));
    rows.resize(static_cast<size_t>(g.rowsPerThread()));
    for (int64_t r = 0; r < g.rowsPerThread(); ++r)
      multiplyInto(loc, rows[r],
                   tile::ExtractOp::create(builder, loc, builder.getF32Type(), scales, r));
  }
  return rows;
}

// A pair for each batch tile.
std::vector<Value> KernelBuilder::columnScales(int64_t k, Value slot) {
  std::vector<Value> columns;
  for (ir::ComponentOp named : chain.accumulator) {
    const auto [ofWeight, index, component] = sourceOf(named);
    if (ofWeight)
      continue;
    const int64_t group = groupIn(k, extentK(component)),
                  spread = g.groupsPerChunk(component.group);
    columns.resize(static_cast<size_t>(g.batchTiles()));
    for (int64_t j = 0; j < g.batchTiles(); ++j)
      multiplyInto(named.getLoc(), columns[j],
                   tile::LoadColumnScalesOp::create(builder, named.getLoc(), vectorOf(2, false),
                                                    bufferOf(false, index), slot, group * spread, j,
                                                    component.type.name(), spread,
                                                    groupsBeforePiece(component.group)));
  }
  return columns;
}

void KernelBuilder::flushGroup(std::vector<Value> &sums, const std::vector<Value> &partial,
                               int64_t k, Value slot) {
  const std::vector<Value> rows = rowScales(k, slot), columns = columnScales(k, slot);
  mlir::Location loc = chain.accumulator[0].getLoc();
  std::vector<Value> rowBiases;
  if (biased() && !columns.empty() && rowScalesTimesBiasAreExact())
    for (Value scale : rows)
      rowBiases.push_back(mlir::arith::MulFOp::create(
          builder, loc, scale,
          mlir::arith::ConstantFloatOp::create(builder, loc, builder.getF32Type(),
                                               llvm::APFloat(-tile::sumBias))));
  for (int64_t t = 0; t < g.rowTiles(); ++t)
    for (int64_t j = 0; j < g.batchTiles(); ++j) {
      int64_t i = t * g.batchTiles() + j;
      std::vector<Value> pair, biases;
      if (!rows.empty())
        pair = {rows[2 * t], rows[2 * t + 1]};
      if (!rowBiases.empty())
        biases = {rowBiases[2 * t], rowBiases[2 * t + 1]};
      sums[i] = tile::ScaleOp::create(builder, loc, accumulatorType(false), partial[i], pair,
                                      columns.empty() ? Value() : columns[j], Value(), sums[i],
                                      biased(), biases);
    }
}

} // namespace rho::compiler
