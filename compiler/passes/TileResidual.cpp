// The stored blocks of a residual. A list of which pieces there are comes with the k tile, the
// pieces of warps with roles through a ring of their own. Products go to sums of their own: by
// mma.sync, since each warp may have other pieces (wgmma's accumulators of a warp are those of
// mma.sync), or by wgmma where those of a warpgroup have the same.
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
  const ResidualLayout &stored = *layout.residual;
  mlir::Location loc = at(context.residual->weightOrigin);
  mlir::Type type = builder.getI32Type();
  auto found = tile::FindPiecesOp::create(builder, loc, type, type, weight, stored.firstsOffset,
                                          add(mul(tileN, stored.tilesK), tileK));
  tile::CopyPiecesOp::create(builder, loc, weight, stored.pieceOffset, found.getFirst(),
                             found.getEnd(), stored.pieceBytes,
                             buffers[{true, StageBuffer::pieces}], slot, Value(), Value());
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
        loads.push_back({words, part.offset + t * 32 * 4 * words, std::nullopt});
      continue;
    }
    int64_t bits = residual->unitBits(part.component);
    for (int64_t unit = 0; unit < part.tileK * part.codeBits / bits; ++unit)
      loads.push_back({wordsOfRows(bits), part.offset + unit * part.tileN * bits / 8, bits});
  }
  return loads;
}

std::vector<Value> KernelBuilder::loadPiece(Value slot, Value piece) {
  mlir::Location loc = at(context.residual->weightOrigin);
  Value buffer = buffers[{true, StageBuffer::pieces}];
  if (g.specialized()) {
    int64_t places = llvm::cast<tile::SharedType>(buffer.getType()).getStages();
    slot = arith::RemUIOp::create(builder, loc, piece, i32(places));
    piece = i32(0);
  }
  std::vector<Value> words;
  for (const PieceLoad &load : pieceLoads()) {
    mlir::IntegerAttr bits = load.rowBits ? builder.getI64IntegerAttr(*load.rowBits) : nullptr;
    words.push_back(
        tile::LoadPieceOp::create(builder, loc, vectorOf(load.words, true), buffer, slot, piece,
                                  builder.getI64IntegerAttr(layout.residual->pieceBytes),
                                  builder.getI64IntegerAttr(load.offset), bits));
  }
  return words;
}

KernelBuilder::StoredPieces KernelBuilder::loadBlockList(Value slot) {
  mlir::Location loc = at(context.residual->weightOrigin);
  auto list =
      tile::LoadBlockListOp::create(builder, loc, builder.getI32Type(), builder.getI32Type(),
                                    buffers[{true, StageBuffer::blockList}], slot,
                                    static_cast<uint64_t>(piecesOfWarp(g, residual->g)));
  return {list.getStored(), list.getFirst()};
}

int64_t KernelBuilder::heldOfPieces() const {
  bool awaited =
      residual->grouped() || !carries() || !warpgroupsShareBlocks(*context.gemm.weight.residual, g);
  return awaited ? 0 : 4 * g.rowTiles() * residual->g.tileK / g.mmaK;
}

// Products of a k tile's first piece wait for none before them. Its last piece's run on, as the
// dense tile's last batch does, until the next tile's first batch has been started.
std::vector<Value> KernelBuilder::addResidual(Value slot, const StoredPieces &pieces,
                                              std::vector<Value> sums) {
  mlir::Location loc = at(context.residual->weightOrigin);
  auto held = static_cast<size_t>(heldOfPieces());
  sums.insert(sums.end(), held, held > 0 ? i32(0) : Value());
  auto whole = tile::AddPiecesOp::create(builder, loc, mlir::ValueRange(sums).getTypes(), slot,
                                         pieces.stored, pieces.first, sums);
  mlir::OpBuilder::InsertionGuard guard(builder);
  mlir::Block &body = whole.getBody().emplaceBlock();
  for (Value operand : whole->getOperands())
    body.addArgument(operand.getType(), loc);
  builder.setInsertionPointToEnd(&body);
  slot = body.getArgument(0);
  Value stored = body.getArgument(1), first = body.getArgument(2);
  Value count = mlir::math::CtPopOp::create(builder, loc, stored);
  std::vector<Value> inits(body.args_begin() + 3, body.args_end());
  // The piece of the lowest bit of `stored`; returns the other bits, then what products return.
  auto multiply = [&](Value stored, Value piece, std::vector<Value> before) {
    Value inTile = mlir::math::CountTrailingZerosOp::create(builder, loc, stored);
    Value rest = arith::AndIOp::create(builder, loc, stored, add(stored, i32(-1)));
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
                         multiply(loop.getRegionIterArg(0), add(first, loop.getInductionVar()),
                                  {before.begin(), before.end()}));
    return loop.getResults().drop_front(1);
  };
  if (held == 0) {
    inits.insert(inits.begin(), stored);
    tile::YieldOp::create(builder, loc, multiplyFrom(0, inits));
    return {whole.getResults().begin(), whole.getResults().end()};
  }
  Value any = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, stored, i32(0));
  auto some = scf::IfOp::create(builder, loc, mlir::ValueRange(inits).getTypes(), any, true);
  tile::YieldOp::create(builder, loc, some.getResults());
  builder.setInsertionPointToEnd(some.thenBlock());
  scf::YieldOp::create(builder, loc, multiplyFrom(1, multiply(stored, first, inits)));
  builder.setInsertionPointToEnd(some.elseBlock());
  scf::YieldOp::create(builder, loc, inits);
  return {whole.getResults().begin(), whole.getResults().end()};
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
    int64_t bits = part.component == 0 ? 0 : piece.unitBits(part.component);
    for (int64_t unit = 0; bits != 0 && unit < part.tileK * part.codeBits / bits; ++unit)
      piece.rowVectors[{part.component, unit}] = *word++;
  }
  piece.codes = {{0, std::move(codes)}};
  if (!warpgroupsShareBlocks(*context.gemm.weight.residual, g))
    return piece.buildWarpProducts(slot, std::move(sums));
  if (piece.grouped())
    return piece.buildGroupedProducts(slot, std::move(sums));
  piece.lastOperand = piece.decodeBatch(0, piece.g.tileK, slot);
  sums = piece.startBatch(0, piece.g.tileK, piece.lastOperand, slot, sums);
  if (heldOfPieces() == 0)
    return piece.awaitBatch(sums);
  llvm::append_range(sums, piece.lastOperand);
  return sums;
}

} // namespace rho::compiler
