#include "compiler/passes/TileOrder.h"

#include "dsl/Division.h"
#include "dsl/Format.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

#include <algorithm>

namespace rho::compiler {

using mlir::Value;

namespace {

namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

class TileWalk : private ScalarBuilder {
public:
  TileWalk(const ScalarBuilder &at, tile::ForTilesOp op) : ScalarBuilder(at), op(op) {
    tile::GeometryAttr geometry = op->getParentOfType<tile::KernelOp>().getGeometry();
    splitK = geometry.getSplitK();
    clusterN = geometry.getClusterN();
  }

  void walk(mlir::ValueRange inits, const TileBody &body) {
    mlir::Type type = builder.getI32Type();
    Value blockX = NVVM::BlockIdXOp::create(builder, loc, type);
    Value zero = i32(0), one = i32(1), tilesK = i32(op.getTilesK());
    int64_t tilesN = op.getTilesN();
    Value tilesM = op.getTilesM();
    if (op.getOneEach()) {
      Value tileM = NVVM::BlockIdYOp::create(builder, loc, type);
      Value always = arith::ConstantIntOp::create(builder, loc, builder.getI1Type(), 1);
      TileShare share{{blockX, tileM, zero, tilesK, one, zero, zero}, always, always, Value()};
      if (splitK > 1) {
        const SplitShare own = splitShare(*this, tileM, blockX, tilesN, op.getTilesK(), splitK);
        share.arguments = {blockX,      tileM,     own.firstK,    own.lastK,
                           i32(splitK), own.share, own.firstPlace};
      }
      bound(share);
      body(share, inits);
      return;
    }
    int64_t columns = divideUp(tilesN, clusterN); // of tiles, as wide as a cluster
    Value all = mul(tilesM, i32(columns));
    Value grid = NVVM::GridDimXOp::create(builder, loc, type);
    Value firstTile = perCluster(blockX), endTile = all, step = perCluster(grid), lastTile;
    EqualShares equal;
    Value begin, end; // of this CTA's work, where shares are equal
    Work work;
    if (streams()) {
      work = workOfTile(all, grid);
      equal = equalShares(mul(all, work.whole), grid);
      begin = startOf(equal, blockX);
      end = startOf(equal, add(blockX, one));
      Value pastLast = add(begin, sub(work.last, one)); // a k tile belongs where it begins
      firstTile = arith::DivUIOp::create(builder, loc, pastLast, work.whole);
      endTile = arith::CeilDivUIOp::create(builder, loc, end, work.whole);
      step = one;
      lastTile = sub(add(firstTile, endTile), one);
    }
    loop(firstTile, endTile, step, inits, [&](Value i, mlir::ValueRange carried) {
      Value index = begin ? sub(lastTile, i) : i; // equal shares: the last tile first
      auto [tileN, tileM] = coordinates(index, columns, tilesM);
      if (clusterN > 1)
        tileN = add(mul(tileN, i32(clusterN)),
                    arith::RemUIOp::create(builder, loc, blockX, i32(clusterN)));
      TileShare share{{tileN, tileM, zero, tilesK, one, zero, zero},
                      compare(arith::CmpIPredicate::eq, i, firstTile),
                      compare(arith::CmpIPredicate::uge, add(i, step), endTile),
                      Value()};
      if (begin) {
        Value tileBegin = mul(index, work.whole), tileEnd = add(tileBegin, work.whole);
        Value first = arith::MaxUIOp::create(builder, loc, begin, tileBegin);
        Value last = arith::MinUIOp::create(builder, loc, end, tileEnd);
        Value owner = ownerOf(equal, tileBegin);
        Value shares = add(sub(ownerOf(equal, sub(tileEnd, work.last)), owner), one);
        // Shares in the order of their k tiles: one begins with each CTA and with each tile.
        share.arguments = {tileN,
                           tileM,
                           tilesAt(work, sub(first, tileBegin)),
                           tilesAt(work, sub(last, tileBegin)),
                           shares,
                           sub(blockX, owner),
                           add(owner, index)};
      }
      bound(share);
      return body(share, carried);
    });
  }

private:
  tile::ForTilesOp op;
  int64_t splitK, clusterN;

  // Moves the tile along n of a CTA that is past the last one there.
  void bound(TileShare &share) {
    auto tilesN = op.getTilesN();
    if (tilesN % clusterN == 0)
      return;
    Value &tileN = share.arguments[0];
    share.exists = compare(arith::CmpIPredicate::ult, tileN, i32(tilesN));
    tileN = select(share.exists, tileN, i32(tilesN - 1));
  }

  Value perCluster(Value ctas) {
    return clusterN == 1 ? ctas
                         : arith::DivUIOp::create(builder, loc, ctas, i32(clusterN)).getResult();
  }

  // What an output tile counts as, and the last of its k tiles; of k tiles in parts the number of
  // those of each and what one of them counts as.
  struct Work {
    Value whole, last;
    llvm::SmallVector<PartTiles, 3> parts;
  };
  Work workOfTile(Value tiles, Value ctas) {
    Value one = i32(1), tilesK = i32(op.getTilesK());
    if (op.getOfParts().empty())
      return {tilesK, one, {}};
    llvm::ArrayRef<int64_t> costs = *op.getCosts();
    Work work{i32(0), one, {}};
    for (auto [count, cost] : llvm::zip(op.getOfParts(), costs))
      work.whole = add(work.whole, mul(count, i32(cost)));
    Value share = arith::DivUIOp::create(builder, loc, mul(tiles, work.whole), ctas);
    Value dearest = i32(*std::max_element(costs.begin(), costs.end()));
    Value byCost = compare(arith::CmpIPredicate::uge, share, dearest);
    work.whole = select(byCost, work.whole, tilesK);
    for (auto [count, cost] : llvm::zip(op.getOfParts(), costs)) {
      work.parts.push_back({count, select(byCost, i32(cost), one)});
      Value any = compare(arith::CmpIPredicate::ne, count, i32(0));
      work.last = select(any, work.parts.back().cost, work.last);
    }
    return work;
  }

  // The k tiles of an output tile that begin before so much of its work.
  Value tilesAt(const Work &work, Value before) {
    return work.parts.empty() ? before : tilesBefore(*this, work.parts, before);
  }

  // `all` in as many parts as there are CTAs: the first `longer` of them have one more than `each`.
  struct EqualShares {
    Value each, longer;
  };
  EqualShares equalShares(Value all, Value ctas) {
    return {arith::DivUIOp::create(builder, loc, all, ctas),
            arith::RemUIOp::create(builder, loc, all, ctas)};
  }
  Value startOf(EqualShares shares, Value cta) {
    Value more = arith::MinUIOp::create(builder, loc, cta, shares.longer);
    return add(mul(cta, shares.each), more);
  }
  Value ownerOf(EqualShares shares, Value index) {
    Value each = add(shares.each, i32(1));
    Value inLonger = mul(shares.longer, each);
    Value after =
        add(shares.longer, arith::DivUIOp::create(builder, loc, sub(index, inLonger), shares.each));
    return select(compare(arith::CmpIPredicate::ult, index, inLonger),
                  arith::DivUIOp::create(builder, loc, index, each), after);
  }

  bool streams() const { return splitK == dsl::ScheduleDecl::streamK; }

  // Bands of `bandM` tiles along m, in each of them m innermost: the tiles that run at a time share
  // few rows of either operand.
  std::pair<Value, Value> coordinates(Value index, int64_t tilesN, Value tilesM) {
    constexpr int64_t bandM = 8;
    Value perBand = i32(bandM * tilesN);
    Value band = arith::DivUIOp::create(builder, loc, index, perBand);
    Value inBand = arith::RemUIOp::create(builder, loc, index, perBand);
    Value firstM = arith::MulIOp::create(builder, loc, band, i32(bandM));
    Value height = arith::MinUIOp::create(builder, loc, sub(tilesM, firstM), i32(bandM));
    Value tileN = arith::DivUIOp::create(builder, loc, inBand, height);
    Value tileM = add(firstM, arith::RemUIOp::create(builder, loc, inBand, height));
    return {tileN, tileM};
  }
};

} // namespace

Value tilesBefore(ScalarBuilder &at, llvm::ArrayRef<PartTiles> parts, Value work) {
  auto &[builder, loc] = at;
  Value zero = at.i32(0), result = zero, before = zero;
  for (const PartTiles &part : parts) {
    Value left = arith::MaxSIOp::create(builder, loc, at.sub(work, before), zero);
    Value tiles = arith::CeilDivUIOp::create(builder, loc, left, part.cost);
    tiles = arith::MinUIOp::create(builder, loc, tiles, part.count);
    result = at.add(result, tiles);
    before = at.add(before, at.mul(part.count, part.cost));
  }
  return result;
}

SplitShare splitShare(ScalarBuilder &at, mlir::Value tileM, mlir::Value tileN, int64_t tilesN,
                      int64_t tilesK, int64_t splitK) {
  mlir::Value share = NVVM::BlockIdZOp::create(at.builder, at.loc, at.builder.getI32Type());
  mlir::Value perSplit = at.i32(divideUp(tilesK, splitK)), all = at.i32(tilesK);
  mlir::Value firstK = arith::MinUIOp::create(at.builder, at.loc, at.mul(share, perSplit), all);
  mlir::Value lastK = arith::MinUIOp::create(at.builder, at.loc, at.add(firstK, perSplit), all);
  mlir::Value place = at.add(at.mul(tileM, at.i32(tilesN)), tileN);
  return {share, firstK, lastK, at.mul(place, at.i32(splitK))};
}

void forEachTile(ScalarBuilder &builder, tile::ForTilesOp op, mlir::ValueRange inits,
                 const TileBody &body) {
  TileWalk(builder, op).walk(inits, body);
}

} // namespace rho::compiler
