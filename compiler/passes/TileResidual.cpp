// The stored blocks of a residual. A k tile's list of pieces comes with the tile; what this warp
// needs of the first one is loaded before the tile is multiplied, and each further one while the
// one before it is multiplied. Products go to sums of their own, by mma.sync in every family:
// wgmma's accumulators of a warp are those of mma.sync.
#include "compiler/passes/KernelBuilder.h"

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
  residual->tileN = tileN;
  residual->tileM = tileM;
  residual->kernelTileK = g.tileK;
  for (const LayoutSection &section : layout.residual->sections)
    residual->layout.sections[static_cast<size_t>(section.component)].offset = section.offset;
}

Value KernelBuilder::groupsBeforePiece(int64_t group) {
  if (!pieceInTile || group >= kernelTileK)
    return {};
  return group >= g.tileK ? divide(pieceInTile, group / g.tileK)
                          : mul(pieceInTile, g.tileK / group);
}

std::vector<KernelBuilder::PieceLoad> KernelBuilder::pieceLoads() {
  std::vector<PieceLoad> loads;
  for (const LayoutSection &part : layout.residual->parts) {
    if (part.component == 0) { // a plane of the codes
      int64_t words = residual->g.planeWords(part.codeBits);
      for (int64_t t = 0; t < g.rowTiles(); ++t)
        loads.push_back({words, part.offset + t * 32 * 4 * words, std::nullopt});
      continue;
    }
    int64_t words = std::max<int64_t>(1, g.rowsPerThread() * part.codeBits / 32);
    for (int64_t unit = 0; unit < part.tileK; ++unit)
      loads.push_back({words, part.offset + unit * part.tileN * part.codeBits / 8, part.codeBits});
  }
  return loads;
}

std::vector<Value> KernelBuilder::loadPieceIf(Value exists, Value piece) {
  mlir::Location loc = at(context.residual->weightOrigin);
  std::vector<PieceLoad> loads = pieceLoads();
  std::vector<mlir::Type> types;
  for (const PieceLoad &load : loads)
    types.push_back(vectorOf(load.words, true));
  auto loaded = scf::IfOp::create(builder, loc, types, exists, /*withElseRegion=*/true);
  mlir::OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&loaded.getThenRegion().front());
  std::vector<Value> words;
  for (auto [load, type] : llvm::zip(loads, types)) {
    mlir::IntegerAttr bits = load.rowBits ? builder.getI64IntegerAttr(*load.rowBits) : nullptr;
    words.push_back(tile::LoadPieceOp::create(
        builder, loc, type, weight, builder.getI64IntegerAttr(layout.residual->pieceOffset), piece,
        builder.getI64IntegerAttr(layout.residual->pieceBytes),
        builder.getI64IntegerAttr(load.offset), bits));
  }
  scf::YieldOp::create(builder, loc, words);
  builder.setInsertionPointToStart(&loaded.getElseRegion().front());
  words.clear();
  for (mlir::Type type : types)
    words.push_back(arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type)));
  scf::YieldOp::create(builder, loc, words);
  return {loaded.getResults().begin(), loaded.getResults().end()};
}

Value KernelBuilder::isNotZero(Value bits) {
  return arith::CmpIOp::create(builder, at(context.residual->weightOrigin),
                               arith::CmpIPredicate::ne, bits, i32(0));
}

KernelBuilder::StoredPieces KernelBuilder::startResidual(Value tileK, Value slot) {
  mlir::Location loc = at(context.residual->weightOrigin);
  Value list = buffers[{true, StageBuffer::blockList}];
  auto pieces =
      tile::LoadBlockListOp::create(builder, loc, builder.getI32Type(), builder.getI32Type(), list,
                                    slot, static_cast<uint64_t>(piecesOfWarp(g, residual->g)));
  Value isFirst = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, tileK, firstK);
  tile::PrefetchBlocksOp::create(builder, loc, weight, layout.residual->pieceOffset, list, slot,
                                 layout.residual->pieceBytes, isFirst);
  Value any = isNotZero(pieces.getStored());
  return {pieces.getStored(), pieces.getFirst(), loadPieceIf(any, pieces.getFirst())};
}

std::vector<Value> KernelBuilder::addResidual(Value slot, const StoredPieces &pieces,
                                              std::vector<Value> sums) {
  mlir::Location loc = at(context.residual->weightOrigin);
  Value count = mlir::math::CtPopOp::create(builder, loc, pieces.stored);
  std::vector<Value> inits{pieces.stored};
  inits.insert(inits.end(), pieces.words.begin(), pieces.words.end());
  inits.insert(inits.end(), sums.begin(), sums.end());
  auto loop = scf::ForOp::create(builder, loc, i32(0), count, i32(1), inits);
  mlir::OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(loop.getBody());
  Value stored = loop.getRegionIterArg(0);
  auto carried = loop.getRegionIterArgs().drop_front(1);
  size_t words = pieces.words.size();
  Value inTile = mlir::math::CountTrailingZerosOp::create(builder, loc, stored);
  Value rest = arith::AndIOp::create(builder, loc, stored, add(stored, i32(-1)));
  Value next = add(add(pieces.first, loop.getInductionVar()), i32(1));
  std::vector<Value> after{rest};
  for (Value word : loadPieceIf(isNotZero(rest), next))
    after.push_back(word);
  std::vector<Value> sumsAfter =
      buildPieceProducts(slot, inTile, {carried.begin(), carried.begin() + words},
                         {carried.begin() + words, carried.end()});
  after.insert(after.end(), sumsAfter.begin(), sumsAfter.end());
  scf::YieldOp::create(builder, loc, after);
  return {loop.getResults().begin() + 1 + words, loop.getResults().end()};
}

// What the residual's builder knows of a k tile is what was loaded of one piece.
std::vector<Value> KernelBuilder::buildPieceProducts(Value slot, Value inTile,
                                                     const std::vector<Value> &words,
                                                     std::vector<Value> sums) {
  KernelBuilder &piece = *residual;
  piece.builder.restoreInsertionPoint(builder.saveInsertionPoint());
  piece.pieceInTile = inTile;
  piece.parameterCache.clear();
  piece.rowVectors.clear();
  piece.rowWords.clear();
  piece.componentNumbers.clear();
  std::vector<Chunk> codes(static_cast<size_t>(g.rowTiles()));
  auto word = words.begin();
  for (const LayoutSection &part : layout.residual->parts) {
    for (int64_t t = 0; t < g.rowTiles() && part.component == 0; ++t)
      codes[static_cast<size_t>(t)].push_back(*word++);
    for (int64_t unit = 0; unit < part.tileK && part.component != 0; ++unit)
      piece.rowVectors[{part.component, unit}] = *word++;
  }
  piece.codes = {{0, std::move(codes)}};
  return piece.buildWarpProducts(slot, std::move(sums));
}

} // namespace rho::compiler
