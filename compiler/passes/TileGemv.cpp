// A product with few batch rows, without matrix instructions: every warp streams its codes into
// registers, several k tiles ahead, and multiplies on the CUDA cores.
#include "compiler/passes/KernelBuilder.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace rho::compiler {

using mlir::Value;
namespace scf = mlir::scf;

// Codes of a k tile, chunk by chunk, row tile by row tile, dense planes innermost; then those of
// the row parameters.
std::vector<Value> KernelBuilder::streamTile(Value tileK) {
  std::vector<Value> words;
  Value tile = sectionTile(0, tileK);
  std::vector<CodePlane> planes = g.densePlanes();
  for (int64_t chunk = 0; chunk < g.chunks(); ++chunk)
    for (int64_t t = 0; t < g.rowTiles(); ++t)
      for (size_t plane = 0; plane < planes.size(); ++plane)
        words.push_back(tile::StreamCodesOp::create(
            builder, at(true, 0), vectorOf(g.planeWords(planes[plane].bits), true), weight,
            section(planeSection(context.gemm, plane)).offset, tile, chunk, t));
  for (size_t i = 1; i < context.gemm.weight.components.size(); ++i) {
    int index = static_cast<int>(i);
    const dsl::Component &part = context.gemm.weight.components[i];
    if (!context.placed.streamed[i] || part.host >= 0)
      continue;
    int64_t group = extentK(part), bits = unitBits(index), spread = g.groupsPerChunk(group);
    mlir::VectorType type = vectorOf(wordsOfRows(bits), true);
    Value partTile = sectionTile(index, tileK);
    for (int64_t k = 0; k < g.tileK; k += g.parameterK(group))
      words.push_back(tile::StreamRowCodesOp::create(builder, at(true, index), type, weight,
                                                     section(index).offset, partTile,
                                                     groupIn(k, group), spread, bits));
  }
  return words;
}

// Makes the words of a k tile, those of its stored pieces behind them, the ones that decodes and
// scales take.
void KernelBuilder::takeTile(const std::vector<Value> &words) {
  forgetTile();
  auto next = words.begin();
  auto planes = static_cast<std::ptrdiff_t>(g.densePlanes().size());
  for (int64_t chunk = 0; chunk < g.chunks(); ++chunk)
    for (int64_t t = 0; t < g.rowTiles(); ++t) {
      codes[chunk].emplace_back(next, next + planes);
      next += planes;
    }
  for (size_t i = 1; i < context.gemm.weight.components.size(); ++i) {
    int index = static_cast<int>(i);
    const dsl::Component &part = context.gemm.weight.components[i];
    if (context.placed.streamed[i] && part.host < 0)
      for (int64_t k = 0; k < g.tileK; k += g.parameterK(extentK(part)))
        rowVectors[{index, groupIn(k, extentK(part))}] = *next++;
  }
  if (g.sparseBits > 0)
    for (auto &[chunk, ofRowTiles] : codes)
      for (Chunk &chunkWords : ofRowTiles)
        chunkWords.push_back(*next++);
}

std::vector<Value> KernelBuilder::buildDotProducts(Value tileK, std::vector<Value> sums) {
  bool integer = context.placed.integerAccumulator;
  bool grouped = !chain.accumulator.empty();
  int64_t flush = flushK();
  Value zero = tile::ZeroOp::create(builder, at("gemm"), accumulatorType(integer));
  std::vector<Value> partial = grouped ? std::vector<Value>(sums.size(), zero) : sums;
  int64_t numbers = g.chunkK() / (integer ? 16 : 4); // of a run: words, or f32
  for (int64_t chunk = 0; chunk < g.chunks(); ++chunk) {
    std::vector<Value> b;
    for (int64_t row = 0; row < g.tileM; ++row)
      b.push_back(tile::LoadBatchRowOp::create(builder, at(false, 0), vectorOf(numbers, integer),
                                               buffers[{false, 0}], tileK, chunk, row,
                                               context.placed.mmaType));
    int64_t k = chunk * g.chunkK();
    for (int64_t step = 0; step < g.stepsPerChunk(); ++step)
      for (int64_t t = 0; t < g.rowTiles(); ++t) {
        std::vector<Value> a = decodeStep(codes[chunk][static_cast<size_t>(t)], step, k, t, tileK);
        for (int64_t half = 0; half < 2; ++half)
          for (int64_t j = 0; j < g.batchTiles(); ++j) {
            auto first = static_cast<size_t>(j * g.batchStep());
            mlir::ValueRange rows(b);
            rows = rows.slice(first, std::min<size_t>(b.size() - first, 2));
            Value &sum = partial[static_cast<size_t>(t * g.batchTiles() + j)];
            sum = tile::DotOp::create(builder, at("gemm"), accumulatorType(integer),
                                      mlir::ValueRange(a).slice(static_cast<size_t>(2 * half), 2),
                                      rows, static_cast<uint64_t>(2 * step + half), sum,
                                      context.placed.mmaType);
          }
      }
    if (grouped && (k + g.chunkK()) % flush == 0) {
      flushGroup(sums, partial, k, tileK);
      std::fill(partial.begin(), partial.end(), zero);
    }
  }
  return grouped ? sums : partial;
}

// Warps along k take k tiles in turn. Each keeps `pipeline` of them in registers: the loads of the
// tile that many turns ahead start as soon as a tile has been consumed, into its registers. Which
// pieces of a residual that tile has is known by then: its word has been loaded with the codes of
// the tile before, and is kept behind them.
void KernelBuilder::buildGemv() {
  const Schedule &s = context.plan.schedule;
  mlir::Location loc = at("schedule");
  int64_t tilesK = bufferStages(g, s, context.plan.problem.k);
  int64_t depth = s.pipeline;
  Value first = tile::GroupIndexOp::create(builder, loc, builder.getI32Type());
  Value end = i32(tilesK);
  auto exists = [&](Value tileK) {
    return mlir::arith::CmpIOp::create(builder, loc, mlir::arith::CmpIPredicate::ult, tileK, end);
  };
  // What `body` makes where there is such a k tile, else `otherwise`.
  auto ifExists = [&](Value tileK, const std::vector<Value> &otherwise, auto body) {
    auto guarded = scf::IfOp::create(builder, loc, mlir::ValueRange(otherwise).getTypes(),
                                     exists(tileK), /*withElseRegion=*/true);
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&guarded.getThenRegion().front());
    scf::YieldOp::create(builder, loc, body());
    builder.setInsertionPointToStart(&guarded.getElseRegion().front());
    scf::YieldOp::create(builder, loc, otherwise);
    return std::vector<Value>(guarded.getResults().begin(), guarded.getResults().end());
  };

  // Of those that not all warps have any tile does.
  auto tileAhead = [&](int64_t ahead) {
    Value tileK = add(first, i32(ahead * g.warpsK));
    if ((ahead + 1) * g.warpsK > tilesK)
      tileK = mlir::arith::MinUIOp::create(builder, loc, tileK, i32(tilesK - 1));
    return tileK;
  };

  if (s.dependent)
    tile::LaunchDependentsOp::create(builder, loc);
  std::vector<Value> bands;
  for (int64_t ahead = 0; layout.residual && ahead < 2 * depth; ++ahead)
    bands.push_back(loadBandWord(tileAhead(ahead)));
  std::vector<std::vector<Value>> tiles;
  for (int64_t ahead = 0; ahead < depth; ++ahead)
    tiles.push_back(streamTile(tileAhead(ahead)));
  std::vector<Value> carried;
  for (int64_t ahead = 0; ahead < depth; ++ahead) {
    llvm::append_range(carried, tiles[static_cast<size_t>(ahead)]);
    if (!layout.residual)
      continue;
    llvm::append_range(carried, streamPieces(bands[static_cast<size_t>(ahead)]));
    carried.push_back(bands[static_cast<size_t>(depth + ahead)]);
  }
  loadFactors(/*ofWeight=*/true);
  loadTensorNumbers();
  if (s.dependent)
    tile::WaitDependencyOp::create(builder, loc);
  auto copies = scf::ForOp::create(builder, loc, first, end, i32(g.warpsK));
  {
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(copies.getBody()->getTerminator());
    for (const auto &[key, buffer] : buffers)
      buildActivationCopy(key.second, copies.getInductionVar(), copies.getInductionVar());
  }
  loadFactors(/*ofWeight=*/false); // what is late hides behind the first weights
  mlir::NVVM::CpAsyncCommitGroupOp::create(builder, loc);
  mlir::NVVM::CpAsyncWaitGroupOp::create(builder, loc, 0);
  mlir::NVVM::Barrier0Op::create(builder, loc);

  size_t perTile = carried.size() / static_cast<size_t>(depth);
  bool integer = context.placed.integerAccumulator && chain.accumulator.empty();
  Value zero = tile::ZeroOp::create(builder, at("gemm"), accumulatorType(integer));
  carried.resize(carried.size() + static_cast<size_t>(g.rowTiles() * g.batchTiles()), zero);
  auto loop = scf::ForOp::create(builder, loc, first, end, i32(depth * g.warpsK), carried);
  {
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(loop.getBody());
    auto args = loop.getRegionIterArgs();
    std::vector<Value> next;
    std::vector<Value> sums(args.begin() + static_cast<std::ptrdiff_t>(perTile) * depth,
                            args.end());
    for (int64_t turn = 0; turn < depth; ++turn) {
      auto begin = args.begin() + static_cast<std::ptrdiff_t>(perTile) * turn;
      std::vector<Value> words(begin, begin + static_cast<std::ptrdiff_t>(perTile));
      Value tileK = add(loop.getInductionVar(), i32(turn * g.warpsK));
      auto consume = [&] {
        takeTile(words);
        return buildDotProducts(tileK, sums);
      };
      bool always = turn == 0 || tilesK % (depth * g.warpsK) == 0;
      sums = always ? consume() : ifExists(tileK, sums, consume);
      auto computed =
          tile::ComputedOp::create(builder, at("gemm"), mlir::ValueRange(sums).getTypes(), sums);
      sums.assign(computed.getSums().begin(), computed.getSums().end());
      Value later = add(tileK, i32(depth * g.warpsK));
      words = ifExists(later, words, [&] {
        std::vector<Value> loaded = streamTile(later);
        if (layout.residual) {
          llvm::append_range(loaded, streamPieces(words.back()));
          Value next = add(later, i32(depth * g.warpsK));
          loaded.push_back(
              loadBandWord(mlir::arith::MinUIOp::create(builder, loc, next, i32(tilesK - 1))));
        }
        return loaded;
      });
      next.insert(next.end(), words.begin(), words.end());
    }
    next.insert(next.end(), sums.begin(), sums.end());
    scf::YieldOp::create(builder, loc, next);
  }
  auto results = loop.getResults().drop_front(perTile * static_cast<size_t>(depth));
  std::vector<Value> sums(results.begin(), results.end());
  mlir::OpBuilder::InsertionGuard guard(builder);
  if (g.warpsK > 1) {
    auto group = tile::GroupSumOp::create(builder, at("output"), builder.getI1Type(),
                                          mlir::ValueRange(sums).getTypes(), sumsBuffer, sums);
    sums.assign(group.getSums().begin(), group.getSums().end());
    auto firstGroup = scf::IfOp::create(builder, loc, group.getFirst());
    builder.setInsertionPointToStart(&firstGroup.getThenRegion().front());
  }
  auto quad = tile::QuadSumOp::create(builder, at("output"), builder.getI1Type(),
                                      mlir::ValueRange(sums).getTypes(), sums);
  sums.assign(quad.getSums().begin(), quad.getSums().end());
  auto firstThread = scf::IfOp::create(builder, loc, quad.getFirst());
  builder.setInsertionPointToStart(&firstThread.getThenRegion().front());
  buildEpilogue(sums);
}

} // namespace rho::compiler
