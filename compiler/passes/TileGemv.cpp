// A product with few batch rows, without matrix instructions: every warp streams its codes into
// registers, several k tiles ahead, and multiplies on the CUDA cores.
#include "compiler/passes/KernelBuilder.h"
#include "compiler/passes/ScalarBuilder.h"

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
  tileValues = {};
  auto next = words.begin();
  auto planes = static_cast<std::ptrdiff_t>(g.densePlanes().size());
  for (int64_t chunk = 0; chunk < g.chunks(); ++chunk)
    for (int64_t t = 0; t < g.rowTiles(); ++t) {
      tileValues.codes[chunk].emplace_back(next, next + planes);
      next += planes;
    }
  for (size_t i = 1; i < context.gemm.weight.components.size(); ++i) {
    int index = static_cast<int>(i);
    const dsl::Component &part = context.gemm.weight.components[i];
    if (context.placed.streamed[i] && part.host < 0)
      for (int64_t k = 0; k < g.tileK; k += g.parameterK(extentK(part)))
        tileValues.rowVectors[{index, groupIn(k, extentK(part))}] = *next++;
  }
  if (g.sparseBits > 0)
    for (auto &[chunk, ofRowTiles] : tileValues.codes)
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
        std::vector<Value> a =
            decodeStep(tileValues.codes[chunk][static_cast<size_t>(t)], step, k, t, tileK);
        for (int64_t half = 0; half < 2; ++half)
          for (int64_t j = 0; j < g.batchTiles(); ++j) {
            auto first = static_cast<size_t>(j * g.batchStep());
            mlir::ValueRange rows(b);
            rows = rows.slice(first, std::min<size_t>(b.size() - first, 2));
            Value &sum = partial[static_cast<size_t>(t * g.batchTiles() + j)];
            sum = tile::DotOp::create(builder, at("gemm"), accumulatorType(integer),
                                      mlir::ValueRange(a).slice(static_cast<size_t>(2 * half), 2),
                                      rows, 2 * step + half, sum, context.placed.mmaType);
          }
      }
    if (grouped && (k + g.chunkK()) % flush == 0) {
      flushGroup(sums, partial, k, tileK);
      std::fill(partial.begin(), partial.end(), zero);
    }
  }
  return grouped ? sums : partial;
}

// Warps along k take k tiles in turn. Each keeps those of `depth` turns in registers: the loads of
// the tile that many turns ahead start as soon as a tile has been consumed, into its registers.
// Which pieces of a residual that tile has is known by then: its band word has been loaded with the
// codes of the tile before, and is kept behind them.
class KernelBuilder::GemvLoop {
public:
  explicit GemvLoop(KernelBuilder &kernel)
      : kernel(kernel), g(kernel.g), builder(kernel.builder), loc(kernel.at("schedule")),
        tilesK(bufferStages(g, kernel.context.plan.schedule, kernel.context.plan.problem.k)),
        depth(kernel.context.plan.schedule.pipeline), stride(depth * g.warpsK),
        first(tile::GroupIndexOp::create(builder, loc, builder.getI32Type())), end(i32(tilesK)) {}

  void build();

private:
  using Values = std::vector<Value>;

  KernelBuilder &kernel;
  const Geometry &g;
  mlir::OpBuilder &builder;
  const mlir::Location loc;
  const int64_t tilesK, depth, stride; // the latter from a tile to that of `depth` turns later
  const Value first, end;              // this warp's first k tile, and the end of all

  Value i32(int64_t value) { return kernel.i32(value); }
  Value tileAhead(int64_t turns);
  Values ifExists(Value tileK, const Values &otherwise, llvm::function_ref<Values()> body);
  std::vector<Values> firstWords();
  void startActivations();
  void awaitActivations();
  Values sumOverTiles(const std::vector<Values> &wordsOfTurns);
  Values multiply(Value tileK, bool always, const Values &words, const Values &sums);
  Values wordsAfter(Value tileK, const Values &words);
  Values sumOverThreads(Values sums);
};

void KernelBuilder::GemvLoop::build() {
  const bool dependent = kernel.context.plan.schedule.dependent;
  if (dependent)
    tile::LaunchDependentsOp::create(builder, loc);
  std::vector<Values> words = firstWords();
  kernel.loadFactors(/*ofWeight=*/true);
  kernel.loadTensorNumbers();
  if (dependent)
    tile::WaitDependencyOp::create(builder, loc);
  startActivations();
  kernel.loadFactors(/*ofWeight=*/false); // what is late hides behind the first weights
  awaitActivations();
  Values sums = sumOverTiles(words);
  mlir::OpBuilder::InsertionGuard guard(builder);
  kernel.buildEpilogue(sumOverThreads(std::move(sums)));
}

// Past the last tile, which some warps may be, the last one: loads need a tile that exists.
Value KernelBuilder::GemvLoop::tileAhead(int64_t turns) {
  Value tileK = kernel.add(first, i32(turns * g.warpsK));
  if ((turns + 1) * g.warpsK > tilesK)
    tileK = mlir::arith::MinUIOp::create(builder, loc, tileK, i32(tilesK - 1));
  return tileK;
}

// What `body` makes where there is such a k tile, else `otherwise`.
std::vector<Value> KernelBuilder::GemvLoop::ifExists(Value tileK, const Values &otherwise,
                                                     llvm::function_ref<Values()> body) {
  Value exists =
      mlir::arith::CmpIOp::create(builder, loc, mlir::arith::CmpIPredicate::ult, tileK, end);
  auto guarded = scf::IfOp::create(builder, loc, mlir::ValueRange(otherwise).getTypes(), exists,
                                   /*withElseRegion=*/true);
  mlir::OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(guarded.thenBlock());
  scf::YieldOp::create(builder, loc, body());
  builder.setInsertionPointToStart(guarded.elseBlock());
  scf::YieldOp::create(builder, loc, otherwise);
  return {guarded.getResults().begin(), guarded.getResults().end()};
}

// Words of each of the first `depth` turns. Pieces wait for their band words, which are therefore
// loaded ahead of all codes.
std::vector<std::vector<Value>> KernelBuilder::GemvLoop::firstWords() {
  const bool hasPieces = kernel.layout.residual.has_value();
  Values bands;
  for (int64_t ahead = 0; hasPieces && ahead < 2 * depth; ++ahead)
    bands.push_back(kernel.loadBandWord(tileAhead(ahead)));
  std::vector<Values> words;
  for (int64_t ahead = 0; ahead < depth; ++ahead)
    words.push_back(kernel.streamTile(tileAhead(ahead)));
  for (size_t ahead = 0; hasPieces && ahead < words.size(); ++ahead) {
    llvm::append_range(words[ahead], kernel.streamPieces(bands[ahead]));
    words[ahead].push_back(bands[words.size() + ahead]);
  }
  return words;
}

void KernelBuilder::GemvLoop::startActivations() {
  ScalarBuilder{builder, loc}.forEach(first, end, i32(g.warpsK), [&](Value tileK) {
    for (const auto &[key, buffer] : kernel.buffers)
      kernel.buildActivationCopy(key.second, tileK, tileK);
  });
}

void KernelBuilder::GemvLoop::awaitActivations() {
  mlir::NVVM::CpAsyncCommitGroupOp::create(builder, loc);
  mlir::NVVM::CpAsyncWaitGroupOp::create(builder, loc, 0);
  mlir::NVVM::Barrier0Op::create(builder, loc);
}

// This thread's sums over the k tiles of its warp.
std::vector<Value> KernelBuilder::GemvLoop::sumOverTiles(const std::vector<Values> &wordsOfTurns) {
  const bool integer = kernel.context.placed.integerAccumulator && !kernel.grouped();
  Value zero = tile::ZeroOp::create(builder, kernel.at("gemm"), kernel.accumulatorType(integer));
  Values inits;
  for (const Values &words : wordsOfTurns)
    llvm::append_range(inits, words);
  const size_t held = inits.size(), ofTurn = wordsOfTurns[0].size();
  inits.resize(held + static_cast<size_t>(g.rowTiles() * g.batchTiles()), zero);

  auto turns = [&](Value firstTileK, mlir::ValueRange carried) {
    Values sums(carried.begin() + held, carried.end());
    llvm::SmallVector<Value> next;
    for (int64_t turn = 0; turn < depth; ++turn) {
      mlir::ValueRange own = carried.slice(static_cast<size_t>(turn) * ofTurn, ofTurn);
      Values words(own.begin(), own.end());
      Value tileK = kernel.add(firstTileK, i32(turn * g.warpsK));
      sums = multiply(tileK, turn == 0 || tilesK % stride == 0, words, sums);
      llvm::append_range(next, wordsAfter(tileK, words));
    }
    llvm::append_range(next, sums);
    return next;
  };
  mlir::ValueRange results =
      ScalarBuilder{builder, loc}.loop(first, end, i32(stride), inits, turns).drop_front(held);
  return {results.begin(), results.end()};
}

// Adds a k tile's products to the sums. `always`: every warp has such a tile, and none asks.
std::vector<Value> KernelBuilder::GemvLoop::multiply(Value tileK, bool always, const Values &words,
                                                     const Values &sums) {
  auto products = [&] {
    kernel.takeTile(words);
    return kernel.buildDotProducts(tileK, sums);
  };
  Values after = always ? products() : ifExists(tileK, sums, products);
  auto computed = tile::ComputedOp::create(builder, kernel.at("gemm"),
                                           mlir::ValueRange(after).getTypes(), after);
  return {computed.getSums().begin(), computed.getSums().end()};
}

// Words of the tile that is multiplied `depth` turns later, to take the place of `words`.
std::vector<Value> KernelBuilder::GemvLoop::wordsAfter(Value tileK, const Values &words) {
  Value later = kernel.add(tileK, i32(stride));
  return ifExists(later, words, [&] {
    Values loaded = kernel.streamTile(later);
    if (!kernel.layout.residual)
      return loaded;
    llvm::append_range(loaded, kernel.streamPieces(words.back()));
    Value next = kernel.add(later, i32(stride));
    loaded.push_back(
        kernel.loadBandWord(mlir::arith::MinUIOp::create(builder, loc, next, i32(tilesK - 1))));
    return loaded;
  });
}

// Sums over the threads of a quad and groups of warps. Leaves the builder where only threads come
// that have them.
std::vector<Value> KernelBuilder::GemvLoop::sumOverThreads(Values sums) {
  if (g.warpsK > 1) {
    auto group =
        tile::GroupSumOp::create(builder, kernel.at("output"), builder.getI1Type(),
                                 mlir::ValueRange(sums).getTypes(), kernel.sumsBuffer, sums);
    sums.assign(group.getSums().begin(), group.getSums().end());
    auto firstGroup = scf::IfOp::create(builder, loc, group.getFirst());
    builder.setInsertionPointToStart(firstGroup.thenBlock());
  }
  auto quad = tile::QuadSumOp::create(builder, kernel.at("output"), builder.getI1Type(),
                                      mlir::ValueRange(sums).getTypes(), sums);
  auto firstThread = scf::IfOp::create(builder, loc, quad.getFirst());
  builder.setInsertionPointToStart(firstThread.thenBlock());
  return {quad.getSums().begin(), quad.getSums().end()};
}

void KernelBuilder::buildGemv() { GemvLoop(*this).build(); }

} // namespace rho::compiler
