// The stored blocks of a residual. A word says which pieces of a warp's rows there are in a k tile;
// those of warps with roles come through a ring of their own, those of a gemv straight to
// registers. Where the residual shares the weight's scales they are low bits of its codes. Else
// products go to sums of their own: by mma.sync, since each warp may have other pieces (wgmma's
// accumulators of a warp are those of mma.sync), or by wgmma where those of a warpgroup have the
// same.
#include "compiler/LayoutMap.h"
#include "compiler/passes/KernelBuilder.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace rho::compiler {

using mlir::Value;
namespace arith = mlir::arith;
namespace scf = mlir::scf;

void KernelBuilder::makeResidual() {
  if (!context.residual)
    return;
  residual = std::make_unique<KernelBuilder>(op, *context.residual, *chain.residual);
  residual->weight = weight;
  residual->activation = activation;
  residual->buffers = buffers;
  residual->m = m;
  residual->trimmed = trimmed;
  residual->tileN = tileN;
  residual->tileM = tileM;
  residual->kernelTileK = g.tileK;
  for (const LayoutSection &section : layout.residual->sections)
    residual->layout.sections[static_cast<size_t>(section.component)].offset = section.offset;
  auto moved = [](ir::ComponentOp scale) { return !isOfWeight(scale); };
  llvm::copy_if(chain.epilogue, std::back_inserter(scalesOfBoth), moved);
  llvm::erase_if(chain.epilogue, moved);
  llvm::erase_if(residual->chain.epilogue, moved);
  if (!g.specialized())
    return;
  residual->builder.restoreInsertionPoint(builder.saveInsertionPoint());
  residual->loadFactors(/*ofWeight=*/true);
}

// From two sets of sums to one in f32, which is all that groups of warps and CTAs exchange. Scales
// of the activation are left to the epilogue.
std::vector<Value> KernelBuilder::joinSums(std::vector<Value> sums) {
  residual->builder.restoreInsertionPoint(builder.saveInsertionPoint());
  EpilogueFactors ofWeight = buildFactors(), ofResidual = residual->buildFactors();
  size_t count = sums.size() / 2;
  for (size_t i = 0; i < count; ++i)
    sums[i] = scaled(ofWeight, i, sums[i], scaled(ofResidual, i, sums[count + i]));
  sums.resize(count);
  chain.epilogue = scalesOfBoth;
  chain.factor = 1;
  return g.specialized() ? totalOf(sums) : sums;
}

void KernelBuilder::buildPieceCopies(Value tileK, Value slot) {
  const ResidualLayout &r = *layout.residual;
  mlir::Location loc = atResidual();
  mlir::Type type = builder.getI32Type();
  auto found = tile::FindPiecesOp::create(builder, loc, type, type, weight, r.firstsOffset,
                                          add(mul(tileN, r.tilesK), tileK));
  tile::CopyPiecesOp::create(builder, loc, weight, r.pieceOffset, found.getFirst(), found.getEnd(),
                             r.pieceBytes, buffers[{true, StageBuffer::pieces}], slot, Value());
}

Value KernelBuilder::loadBandWord(Value tileK) {
  const ResidualLayout &r = *layout.residual;
  return tile::BandWordOp::create(builder, atResidual(), builder.getI32Type(), weight,
                                  r.wordsOffset, r.rowsOfPieces(), r.tilesK, tileN, tileK);
}

void KernelBuilder::takeBandWord(Value word) {
  mlir::Location loc = atResidual();
  storedPieces = arith::AndIOp::create(builder, loc, word, i32(storedMask));
  firstPiece = arith::ShRUIOp::create(builder, loc, word, i32(BandWord::storedBits));
}

// Pieces of a k tile that came to its slot are counted from that tile's first.
void KernelBuilder::findPieces(Value tileK) {
  const ResidualLayout &r = *layout.residual;
  mlir::Location loc = atResidual();
  mlir::Type type = builder.getI32Type();
  takeBandWord(loadBandWord(tileK));
  if (g.specialized()) {
    firstPiece = tile::PiecePlaceOp::create(builder, loc, type, firstPiece);
    return;
  }
  auto found = tile::FindPiecesOp::create(builder, loc, type, type, weight, r.firstsOffset,
                                          add(mul(tileN, r.tilesK), tileK));
  Value inTile = arith::SubIOp::create(builder, loc, firstPiece, found.getFirst());
  firstPiece = arith::AndIOp::create(builder, loc, inTile, i32((1 << BandWord::numberBits) - 1));
}

Value KernelBuilder::groupsBeforePiece(int64_t group) {
  if (!pieceInTile || group >= kernelTileK)
    return {};
  return group >= g.tileK ? divide(pieceInTile, group / g.tileK)
                          : mul(pieceInTile, g.tileK / group);
}

Value KernelBuilder::stepsBeforePiece() {
  return pieceInTile ? mul(pieceInTile, g.tileK / g.mmaK) : Value();
}

std::vector<KernelBuilder::PieceLoad> KernelBuilder::pieceLoads() {
  std::vector<PieceLoad> loads;
  for (const LayoutSection &part : layout.residual->parts) {
    if (part.component == 0) { // a plane of the codes
      int64_t words = residual->g.planeWords(part.codeBits);
      for (int64_t t = 0; t < g.rowTiles(); ++t)
        loads.push_back({0, t, words, part.offset + t * 32 * 4 * words, std::nullopt});
      continue;
    }
    int64_t bits = residual->unitBits(part.component);
    for (int64_t unit = 0; unit < part.tileK * part.codeBits / bits; ++unit)
      loads.push_back({part.component, unit, wordsOfRows(bits),
                       part.offset + unit * part.tileN * bits / 8, bits});
  }
  return loads;
}

void KernelBuilder::takePlace(Value &slot, Value &piece) {
  if (!g.specialized())
    return;
  mlir::Type buffer = buffers[{true, StageBuffer::pieces}].getType();
  int64_t places = llvm::cast<tile::SharedType>(buffer).getStages();
  slot = arith::RemUIOp::create(builder, atResidual(), piece, i32(places));
  piece = i32(0);
}

std::vector<Value> KernelBuilder::loadPiece(Value slot, Value piece) {
  mlir::Location loc = atResidual();
  Value buffer = buffers[{true, StageBuffer::pieces}];
  takePlace(slot, piece);
  std::vector<Value> words;
  for (const PieceLoad &load : pieceLoads()) {
    mlir::IntegerAttr bits = load.rowBits ? builder.getI64IntegerAttr(*load.rowBits) : nullptr;
    words.push_back(
        tile::LoadPieceOp::create(builder, loc, vectorOf(load.words, true), buffer, slot, piece,
                                  builder.getI64IntegerAttr(layout.residual->pieceBytes),
                                  builder.getI64IntegerAttr(load.offset), bits, Value()));
  }
  return words;
}

// Most k tiles of a warpgroup store nothing. They take no words and decode the dense codes alone: a
// branch around all of it leaves ptxas as much to schedule as without a residual. All warps of a
// warpgroup take the same side, since their instructions are common.
std::vector<Value> KernelBuilder::buildEitherProducts(Value slot,
                                                      const std::vector<Value> &carried) {
  mlir::Location loc = atResidual();
  Value some = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, storedPieces, i32(0));
  // All lanes know the same. A vote tells ptxas so, whose branch then is one of the warp.
  Value any = mlir::NVVM::VoteSyncOp::create(builder, loc, builder.getI1Type(), i32(-1), some,
                                             mlir::NVVM::VoteSyncKind::any);
  auto either = scf::IfOp::create(builder, loc, mlir::ValueRange(carried).getTypes(), any,
                                  /*withElseRegion=*/true);
  mlir::OpBuilder::InsertionGuard guard(builder);
  for (bool stored : {true, false}) {
    builder.setInsertionPointToStart(stored ? either.thenBlock() : either.elseBlock());
    someAreStored = stored;
    std::vector<Value> sums = buildProducts(slot, carried);
    scf::YieldOp::create(builder, loc, carriesBatch(g) ? sums : awaitBatch(sums));
    tileValues = {}; // what the other side has loaded and decoded
  }
  return {either.getResults().begin(), either.getResults().end()};
}

// Bit i is chunk i; the pieces of a warp lie one after the other.
KernelBuilder::StoredPiece KernelBuilder::pieceOfChunk(int64_t chunk) {
  mlir::Location loc = atResidual();
  auto bits = [&](int64_t mask) -> Value {
    return arith::AndIOp::create(builder, loc, storedPieces, i32(mask));
  };
  Value stored = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne,
                                       bits(int64_t{1} << chunk), i32(0));
  Value piece = firstPiece;
  if (chunk > 0)
    piece = add(piece, mlir::math::CtPopOp::create(builder, loc, bits((int64_t{1} << chunk) - 1)));
  return {stored, piece};
}

int64_t KernelBuilder::sparseOffset(int64_t rowTile) {
  return layout.residual->parts[0].offset + rowTile * 32 * 4 * g.planeWords(g.sparseBits);
}

// Chunk by chunk, row tile by row tile.
std::vector<Value> KernelBuilder::streamPieces(Value bandWord) {
  const ResidualLayout &r = *layout.residual;
  mlir::VectorType type = vectorOf(g.planeWords(g.sparseBits), true);
  std::vector<Value> words;
  takeBandWord(bandWord);
  for (int64_t chunk = 0; chunk < g.chunks(); ++chunk) {
    auto [stored, piece] = pieceOfChunk(chunk);
    for (int64_t t = 0; t < g.rowTiles(); ++t)
      words.push_back(tile::StreamPieceOp::create(builder, atResidual(), type, weight,
                                                  r.pieceOffset + sparseOffset(t), piece,
                                                  r.pieceBytes, stored));
  }
  return words;
}

Value KernelBuilder::loadSparseWords(int64_t chunk, int64_t rowTile, Value slot) {
  mlir::Location loc = atResidual();
  mlir::VectorType type = vectorOf(g.planeWords(g.sparseBits), true);
  if (!someAreStored)
    return tile::ZeroOp::create(builder, loc, type);
  Value buffer = buffers[{true, StageBuffer::pieces}];
  auto [stored, piece] = pieceOfChunk(chunk);
  takePlace(slot, piece);
  return tile::LoadPieceOp::create(builder, loc, type, buffer, slot, piece,
                                   builder.getI64IntegerAttr(layout.residual->pieceBytes),
                                   builder.getI64IntegerAttr(sparseOffset(rowTile)), nullptr,
                                   stored);
}

int64_t KernelBuilder::heldOfPieces() const {
  bool awaited =
      residual->grouped() || !carries() || !warpgroupsShareBlocks(*context.gemm.weight.residual, g);
  return awaited ? 0 : 4 * g.rowTiles() * residual->g.tileK / g.mmaK;
}

// Products of a k tile's first piece wait for none before them. Its last piece's run on, as the
// dense tile's last batch does, until the next tile's first batch has been started.
std::vector<Value> KernelBuilder::addResidual(Value slot, std::vector<Value> sums) {
  mlir::Location loc = atResidual();
  auto held = static_cast<size_t>(heldOfPieces());
  sums.insert(sums.end(), held, held > 0 ? i32(0) : Value());
  Value count = mlir::math::CtPopOp::create(builder, loc, storedPieces);
  // The piece of the lowest bit of `left`; returns the other bits, then what products return.
  auto multiply = [&](Value left, Value piece, std::vector<Value> before) {
    Value inTile = mlir::math::CountTrailingZerosOp::create(builder, loc, left);
    Value rest = arith::AndIOp::create(builder, loc, left, add(left, i32(-1)));
    before.resize(before.size() - held);
    std::vector<Value> after = buildPieceProducts(slot, inTile, loadPiece(slot, piece), before);
    after.insert(after.begin(), rest);
    return after;
  };
  auto multiplyFrom = [&](int64_t start, const std::vector<Value> &carried) {
    auto loop = scf::ForOp::create(builder, loc, i32(start), count, i32(1), carried);
    mlir::OpBuilder::InsertionGuard inLoop(builder);
    builder.setInsertionPointToEnd(loop.getBody());
    mlir::ValueRange before = loop.getRegionIterArgs().drop_front(1);
    if (held > 0) // the same registers are written again
      tile::WarpgroupWaitOp::create(builder, at("gemm"), mlir::TypeRange(), 0, mlir::ValueRange(),
                                    before.take_back(held));
    scf::YieldOp::create(builder, loc,
                         multiply(loop.getRegionIterArg(0), add(firstPiece, loop.getInductionVar()),
                                  {before.begin(), before.end()}));
    return std::vector<Value>(loop.getResults().begin() + 1, loop.getResults().end());
  };
  if (held == 0) {
    sums.insert(sums.begin(), storedPieces);
    return multiplyFrom(0, sums);
  }
  Value any = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, storedPieces, i32(0));
  auto some = scf::IfOp::create(builder, loc, mlir::ValueRange(sums).getTypes(), any, true);
  mlir::OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(some.thenBlock());
  scf::YieldOp::create(builder, loc, multiplyFrom(1, multiply(storedPieces, firstPiece, sums)));
  builder.setInsertionPointToStart(some.elseBlock());
  scf::YieldOp::create(builder, loc, sums);
  return {some.getResults().begin(), some.getResults().end()};
}

// What the residual's builder knows of a k tile is what was loaded of one piece.
std::vector<Value> KernelBuilder::buildPieceProducts(Value slot, Value inTile,
                                                     const std::vector<Value> &words,
                                                     std::vector<Value> sums) {
  KernelBuilder &piece = *residual;
  piece.builder.restoreInsertionPoint(builder.saveInsertionPoint());
  piece.pieceInTile = inTile;
  piece.tileValues = {};
  std::vector<Chunk> codes(static_cast<size_t>(g.rowTiles()));
  for (auto [load, word] : llvm::zip_equal(pieceLoads(), words))
    if (load.component == 0)
      codes[static_cast<size_t>(load.place)].push_back(word);
    else
      piece.tileValues.rowVectors[{load.component, load.place}] = word;
  piece.tileValues.codes = {{0, std::move(codes)}};
  if (!warpgroupsShareBlocks(*context.gemm.weight.residual, g))
    return piece.buildWarpProducts(slot, std::move(sums));
  if (piece.grouped())
    return piece.buildGroupedProducts(slot, std::move(sums));
  const std::vector<Value> operand = piece.decodeBatch(0, piece.g.tileK, slot);
  sums = piece.startBatch(0, piece.g.tileK, operand, slot, sums);
  if (heldOfPieces() == 0)
    return piece.awaitBatch(sums, operand);
  llvm::append_range(sums, operand);
  return sums;
}

} // namespace rho::compiler
