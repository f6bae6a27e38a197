// tile.for_tiles with its pipelines to programs that run apart and meet at the barriers of each
// stage: one for the warp that loads, one for the warps that multiply, and where these do not
// decode themselves a third, whose warps leave operand A in a ring of stages of its own.
#include "compiler/ir/Dialects.h"
#include "compiler/passes/Copies.h"
#include "compiler/passes/DependentLaunch.h"
#include "compiler/passes/Passes.h"
#include "compiler/passes/PieceCopies.h"
#include "compiler/passes/StageRing.h"
#include "compiler/passes/TileOrder.h"
#include "compiler/plan/Geometry.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"

#include "llvm/ADT/SetVector.h"

#include <functional>

namespace rho::compiler {

#define GEN_PASS_DEF_SPECIALIZEWARPS
#include "compiler/passes/Passes.h.inc"

namespace {

using mlir::Value;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;
namespace scf = mlir::scf;

// One for each ring that a role uses: of the stages that are loaded, of decoded operands.
using Cursors = llvm::SmallVector<Cursor, 2>;

llvm::SmallVector<Value> flatten(const Cursors &cursors) {
  llvm::SmallVector<Value> values;
  for (const Cursor &cursor : cursors)
    values.append({cursor.slot, cursor.parity});
  return values;
}
Cursors cursorsOf(mlir::ValueRange values) {
  Cursors cursors;
  for (unsigned i = 0; i < values.size(); i += 2)
    cursors.push_back({values[i], values[i + 1]});
  return cursors;
}

class Specialization : private ScalarBuilder {
public:
  Specialization(tile::ForTilesOp op, mlir::OpBuilder &builder)
      : ScalarBuilder{builder, op.getLoc()}, op(op), kernel(op->getParentOfType<tile::KernelOp>()) {
    for (tile::PipelineOp pipeline : op.getBody().getOps<tile::PipelineOp>())
      loops.push_back(loopOf(pipeline));
    for (tile::TotalOp inner : op.getBody().getOps<tile::TotalOp>())
      total = inner;
    depth = loops[0].pipeline.getDepth();
    tile::GeometryAttr a = kernel.getGeometry();
    groups = a.getWarpsK();
    mathWarps = a.getWarpsM() * a.getWarpsN() * groups;
    decodeThreads = loops[0].pipeline.getDecode().empty() ? 0 : Geometry::warpgroup;
    mathRoleThreads = roundUp(32 * mathWarps, Geometry::warpgroup);
    registers = divideRegisters(mathRoleThreads, decodeThreads, kernel.getCtasPerSm());
    clusterN = a.getClusterN();
    clusterK = a.getClusterK();
    mlir::Block &body = kernel.getBody().front();
    barriers = tile::findShared(body, tile::shared_labels::barriers);
    sumsBuffer = tile::findShared(body, tile::shared_labels::sums);
    operandBarriers = tile::findShared(body, tile::shared_labels::operandBarriers);
    pieceSlots = tile::findShared(body, tile::shared_labels::piecePlaces);
    waits = kernel.getDependent() && !waitsFirst(kernel);
    op.getBody().walk([&](tile::CopyBoxOp copy) { maps.insert(copy.getMap()); });
    op.getBody().walk([&](tile::StoreBoxOp store) {
      storesBoxes = true;
      maps.insert(store.getMap());
    });
  }

  void run() {
    Value thread = NVVM::ThreadIdXOp::create(builder, loc, builder.getI32Type());
    {
      mlir::OpBuilder::InsertionGuard guard(builder);
      const int64_t firstLoader = mathRoleThreads + decodeThreads;
      fromThread(firstLoader, thread, [&] { buildLoaders(i32(firstLoader), thread); });
      // Not by who loads: copies are under way meanwhile.
      for (auto fill : llvm::to_vector(kernel.getBody().getOps<tile::FillPairTablesOp>()))
        fill->moveBefore(builder.getInsertionBlock(), builder.getInsertionPoint());
      tile::BarriersMadeOp::create(builder, loc, /*waits=*/true);
      if (operandBarriers)
        fromThread(mathRoleThreads, thread, [&] {
          tile::RegistersOp::create(builder, loc, registers.decode,
                                    registers.decode > registers.start);
          buildDecoder();
        });
      tile::RegistersOp::create(builder, loc, registers.math, true);
      if (mathRoleThreads > 32 * mathWarps) // the rest of the last warpgroup
        fromThread(32 * mathWarps, thread, [&] { leaveClusterIdle(); });
      buildMath();
      if (!op.getOneEach())
        leaveCluster();
    }
    if (clusterN * clusterK > 1)
      NVVM::ClusterWaitOp::create(builder, loc, mlir::UnitAttr());
    op.erase();
  }

private:
  // By `thread` where it is one from `first` on; what is built behind it is for those below.
  void fromThread(int64_t first, Value thread, const std::function<void()> &body) {
    Value isFrom = compare(arith::CmpIPredicate::uge, thread, i32(first));
    auto branch = scf::IfOp::create(builder, loc, isFrom, /*withElseRegion=*/true);
    builder.setInsertionPointToStart(&branch.getThenRegion().front());
    body();
    builder.setInsertionPointToStart(&branch.getElseRegion().front());
  }

  void buildLoaders(Value firstLoader, Value thread) {
    Value isLoader = compare(arith::CmpIPredicate::eq, thread, firstLoader);
    when(isLoader, [&] { makeBarriers(); });
    NVVM::SyncWarpOp::create(builder, loc, i32(-1));
    tile::BarriersMadeOp::create(builder, loc, /*waits=*/static_cast<bool>(pieceSlots));
    tile::RegistersOp::create(builder, loc, registers.loader, false);
    auto loader = scf::IfOp::create(builder, loc, isLoader);
    leaveClusterIdle();
    if (pieceSlots) {
      builder.setInsertionPointAfter(loader);
      Value isNext = compare(arith::CmpIPredicate::eq, thread, add(firstLoader, i32(32)));
      when(isNext, [&] { buildPieceLoader(); });
    }
    builder.setInsertionPointToStart(&loader.getThenRegion().front());
    buildLoader();
    if (kernel.getDependent()) // of a CTA that loads nothing, or too little
      tile::LaunchDependentsOp::create(builder, loc);
  }

  // By the thread that loads, which so starts its first copies before any other thread is there.
  void makeBarriers() {
    for (Value map : maps)
      tile::PrefetchMapOp::create(builder, loc, map);
    int64_t decodeWarps = decodeThreads / 32;
    auto consumers = mathWarps / groups * clusterN + decodeWarps;
    tile::InitBarriersOp::create(builder, loc, barriers, consumers, pieceSlots ? 2 : 1);
    if (operandBarriers)
      tile::InitBarriersOp::create(builder, loc, operandBarriers, mathWarps, decodeWarps);
  }

  tile::ForTilesOp op;
  tile::KernelOp kernel;
  // One after the other, each goes on through the stages where the one before it ended.
  struct Loop {
    tile::PipelineOp pipeline;
    Value stageBytes;         // that the copies of one stage bring
    int64_t weightBytes = 0;  // of them
    bool waitsInside = false; // for its sums, in every k tile
  };
  llvm::SmallVector<Loop> loops;
  tile::TotalOp total; // of several loops or chains of sums
  llvm::SetVector<Value> maps;
  Value barriers, sumsBuffer;
  Value operandBarriers; // of the ring of decoded operands, where there is one
  Value pieceSlots;      // notes on each stage's pieces of a residual, where there is one
  Value ringOffset;      // what makes places in their ring of numbers of pieces
  int64_t depth = 0, mathWarps = 0, groups = 1;
  int64_t mathRoleThreads = 0, decodeThreads = 0; // of whole warpgroups
  int64_t clusterN = 1, clusterK = 1;
  RegisterShares registers{};
  bool storesBoxes = false;
  bool waits = false; // for the kernel ahead, each role where it needs what that writes

  static Loop loopOf(tile::PipelineOp pipeline) {
    Loop loop;
    loop.pipeline = pipeline;
    pipeline.getProduce().walk(
        [&](tile::CopyPanelOp copy) { loop.weightBytes += copy.copiedBytes(); });
    loop.waitsInside = !pipeline.getConsume()
                            .walk([](tile::ReleaseOp) { return mlir::WalkResult::interrupt(); })
                            .wasInterrupted();
    return loop;
  }

  // At most depth stages on.
  Cursor next(Cursor now, Value stages) { return advance(*this, now, stages, depth); }
  // Of the ring of decoded operands.
  int64_t operandDepth() {
    return llvm::cast<tile::SharedType>(operandBarriers.getType()).getStages();
  }

  // This thread uses no shared memory of another CTA any more. A CTA's own must stay until all of
  // its cluster have said so: the kernel ends with the wait for that.
  void leaveCluster() {
    if (clusterN * clusterK > 1)
      NVVM::ClusterArriveOp::create(builder, loc, mlir::UnitAttr());
  }

  // The same by a thread that adds no sums, but takes part in the barrier of tile.group_sum.
  void leaveClusterIdle() {
    if (clusterK > 1) {
      NVVM::ClusterArriveOp::create(builder, loc, mlir::UnitAttr());
      NVVM::ClusterWaitOp::create(builder, loc, mlir::UnitAttr());
    }
    leaveCluster();
  }

  using CursorBody = std::function<Cursors(const TileShare &share, const Cursors &cursors)>;
  void forEachShare(const Cursors &start, const CursorBody &body) {
    forEachTile(*this, op, flatten(start), [&](const TileShare &share, mlir::ValueRange carried) {
      return flatten(body(share, cursorsOf(carried)));
    });
  }

  // Clones what stands before the pipelines: all roles need the coordinates.
  mlir::IRMapping cloneHead(const TileShare &share) {
    mlir::IRMapping map;
    mlir::Block &body = op.getBody().front();
    map.map(body.getArguments(), share.arguments);
    for (mlir::Operation &inner : body) {
      if (&inner == loops[0].pipeline)
        break;
      builder.clone(inner, map);
    }
    return map;
  }

  void buildLoader() {
    for (Loop &loop : loops) {
      loop.stageBytes = i32(loop.weightBytes);
      loop.pipeline.getProduce().walk([&](tile::CopyBoxOp copy) {
        Value rows = copy.getTrimmed() ? Value(copy.getTrimmed()) : i32(copy.getRows());
        loop.stageBytes = add(loop.stageBytes, mul(rows, i32(copy.getRowBytes())));
      });
    }
    // The first round through the ring finds the slots empty: parity 1 is that of the phase before
    // the first.
    Cursors start{{i32(0), i32(1)}};
    forEachShare(start, [&](const TileShare &share, const Cursors &cursors) {
      mlir::IRMapping head = cloneHead(share);
      Cursors now = cursors;
      for (const Loop &loop : loops)
        now = buildLoads(loop, head, share, now[0]);
      return now;
    });
  }

  Cursors buildLoads(const Loop &of, const mlir::IRMapping &head, const TileShare &share,
                     Cursor cursor) {
    tile::PipelineOp pipeline = of.pipeline;
    Value first = head.lookupOrDefault(pipeline.getFirst());
    Value last = head.lookupOrDefault(pipeline.getLast());
    // Weights of the first k tiles are started first: activations wait for the kernel ahead.
    Value ahead = i32(0);
    if (waits) {
      int64_t tiles = tilesAhead(kernel.getGeometry(), op.getTilesK(), depth);
      Value count = arith::MinUIOp::create(builder, loc, sub(last, first), i32(tiles));
      ahead = select(share.isFirst, count, i32(0));
      startAhead(of, head, first, ahead, weightCopies);
      when(share.isFirst, [&] { tile::WaitDependencyOp::create(builder, loc); });
      startAhead(of, head, first, ahead, activationCopies);
      // Those rounds end in slot `ahead`, or in slot 0 of the next round.
      Value whole = compare(arith::CmpIPredicate::eq, ahead, i32(depth));
      cursor.slot = select(share.isFirst, select(whole, i32(0), ahead), cursor.slot);
      cursor.parity = select(whole, i32(0), cursor.parity);
    }
    Value start = add(first, ahead);
    Value launching; // the k tile at which the next kernel may start
    if (kernel.getDependent() && &of == &loops.back()) {
      Value early = sub(last, i32(tilesInLaunch(of.weightBytes)));
      launching = select(share.isLast, arith::MaxSIOp::create(builder, loc, early, start), i32(-1));
    }
    mlir::ValueRange after =
        loop(start, last, i32(1), {cursor.slot, cursor.parity},
             [&](Value kTile, mlir::ValueRange carried) {
               if (launching)
                 when(compare(arith::CmpIPredicate::eq, kTile, launching),
                      [&] { tile::LaunchDependentsOp::create(builder, loc); });
               Cursor now{carried[0], carried[1]};
               tile::BarrierWaitOp::create(builder, loc, barriers, now.slot, now.parity, false);
               tile::BarrierExpectOp::create(builder, loc, barriers, now.slot, of.stageBytes);
               cloneProduce(builder, pipeline, head, kTile, now.slot, denseCopies);
               return flatten({next(now, i32(1))});
             });
    return cursorsOf(after);
  }

  // Copies of one set into the first slots, which are empty; with weights the bytes of all sets are
  // announced.
  void startAhead(const Loop &of, const mlir::IRMapping &head, Value first, Value ahead,
                  unsigned copies) {
    forEach(i32(0), ahead, i32(1), [&](Value i) {
      if ((copies & weightCopies) != 0)
        tile::BarrierExpectOp::create(builder, loc, barriers, i, of.stageBytes);
      cloneProduce(builder, of.pipeline, head, add(first, i), i, copies);
    });
  }

  // Of a residual, by a thread of another warp: it reads which pieces a k tile has, one k tile
  // ahead, and waits for their places while dense copies go on. They do not wait for the kernel
  // ahead.
  void buildPieceLoader() {
    tile::PipelineOp pipeline = loops[0].pipeline;
    PieceCopies pieces(*this, pipeline, barriers, pieceSlots);
    for (int64_t slot = 0; slot < depth; ++slot)
      tile::StorePlaceOp::create(builder, loc, i32(0), pieceSlots, i32(slot));
    llvm::SmallVector<Value> start{i32(0), i32(1), i32(0)}; // the slots are empty at first
    forEachTile(*this, op, start, [&](const TileShare &share, mlir::ValueRange state) {
      mlir::IRMapping head = cloneHead(share);
      Value first = head.lookupOrDefault(pipeline.getFirst());
      Value last = head.lookupOrDefault(pipeline.getLast());
      PieceCopies::Range found = pieces.find(head, first, last);
      llvm::SmallVector<Value> inits(state.begin(), state.end());
      inits.append({found.first, found.end});
      mlir::ValueRange after =
          loop(first, last, i32(1), inits, [&](Value kTile, mlir::ValueRange carried) {
            Cursor now{carried[0], carried[1]}, following = next(now, i32(1));
            PieceCopies::Range nextPieces = pieces.find(head, add(kTile, i32(1)), last);
            tile::BarrierWaitOp::create(builder, loc, barriers, now.slot, now.parity, false);
            Value place =
                pieces.copyWhenFree({carried[3], carried[4]}, now.slot, carried[2], following);
            return llvm::SmallVector<Value>{following.slot, following.parity, place,
                                            nextPieces.first, nextPieces.end};
          });
      return llvm::SmallVector<Value>(after.take_front(3));
    });
  }

  void buildDecoder() {
    tile::PipelineOp pipeline = loops[0].pipeline;
    Cursors start{{i32(0), i32(0)}, {i32(0), i32(1)}}; // the second ring is empty at first
    forEachShare(start, [&](const TileShare &share, const Cursors &cursors) {
      mlir::IRMapping head = cloneHead(share);
      mlir::ValueRange after =
          loop(head.lookupOrDefault(pipeline.getFirst()), head.lookupOrDefault(pipeline.getLast()),
               i32(1), flatten(cursors), [&](Value kTile, mlir::ValueRange carried) {
                 return flatten(decode(head, kTile, cursorsOf(carried)));
               });
      return cursorsOf(after);
    });
  }

  Cursors decode(const mlir::IRMapping &head, Value kTile, const Cursors &now) {
    Cursor loaded = now[0], operand = now[1];
    tile::BarrierWaitOp::create(builder, loc, barriers, loaded.slot, loaded.parity, true);
    tile::BarrierWaitOp::create(builder, loc, operandBarriers, operand.slot, operand.parity, false);
    mlir::IRMapping map = head;
    mlir::Block &body = loops[0].pipeline.getDecode().front();
    map.map(body.getArguments(), mlir::ValueRange{kTile, loaded.slot, operand.slot});
    for (mlir::Operation &inner : body.without_terminator())
      builder.clone(inner, map);
    tile::BarrierArriveOp::create(builder, loc, operandBarriers, operand.slot, true,
                                  mlir::ValueRange());
    tile::BarrierArriveOp::create(builder, loc, barriers, loaded.slot, false, mlir::ValueRange());
    return {next(loaded, i32(1)), advance(*this, operand, i32(1), operandDepth())};
  }

  void buildMath() {
    if (waits) // for scales of activations, and the kernel ahead may still read the outputs
      tile::WaitDependencyOp::create(builder, loc);
    Value group = groups > 1
                      ? tile::GroupIndexOp::create(builder, loc, builder.getI32Type()).getResult()
                      : i32(0);
    Cursors start(operandBarriers ? 2 : 1, Cursor{i32(0), i32(0)});
    llvm::SmallVector<Value> inits = flatten(start);
    if (pieceSlots) // pieces that came before
      inits.push_back(i32(0));
    forEachTile(*this, op, inits, [&](const TileShare &share, mlir::ValueRange state) {
      mlir::IRMapping head = cloneHead(share);
      Cursors now = cursorsOf(state.take_front(2 * start.size()));
      Value pieces = pieceSlots ? countPieces(head, state.back()) : Value();
      for (const Loop &of : loops) {
        now = multiply(of, head, group, now);
        mlir::Operation *inner = of.pipeline->getNextNode();
        for (; total && inner != total && !llvm::isa<tile::PipelineOp>(inner);
             inner = inner->getNextNode())
          builder.clone(*inner, head);
      }
      finishTile(head, share.exists);
      // Bounds of the output part the threads of a warp; the next tile's instructions need them
      // together.
      NVVM::SyncWarpOp::create(builder, loc, i32(-1));
      llvm::SmallVector<Value> following = flatten(now);
      if (pieces)
        following.push_back(pieces);
      return following;
    });
    if (storesBoxes)
      tile::WaitStoresOp::create(builder, loc);
  }

  // Sets `ringOffset` for an output tile where `before` pieces came before. Returns those that will
  // have come with it.
  Value countPieces(const mlir::IRMapping &head, Value before) {
    tile::PipelineOp pipeline = loops[0].pipeline;
    Value first = head.lookupOrDefault(pipeline.getFirst());
    Value last = head.lookupOrDefault(pipeline.getLast());
    PieceCopies pieces(*this, pipeline, barriers, pieceSlots);
    Value number = pieces.find(head, first, last).first;
    Value count = sub(pieces.find(head, sub(last, i32(1)), last).end, number);
    ringOffset = sub(before, number);
    Value any = compare(arith::CmpIPredicate::ult, first, last);
    return add(before, select(any, count, i32(0)));
  }

  // One loop over k tiles; its sums are waited for and known to `head`.
  Cursors multiply(const Loop &of, mlir::IRMapping &head, Value group, const Cursors &cursors) {
    tile::PipelineOp pipeline = of.pipeline;
    auto cursorValues = static_cast<unsigned>(2 * cursors.size());
    Value first = head.lookupOrDefault(pipeline.getFirst());
    Value last = head.lookupOrDefault(pipeline.getLast());
    Cursors own = cursors;
    if (groups > 1) { // a stage is the same group's in every tile
      Value turn = arith::RemUIOp::create(builder, loc, cursors[0].slot, i32(groups));
      Value ahead =
          arith::RemUIOp::create(builder, loc, add(sub(group, turn), i32(groups)), i32(groups));
      first = add(first, ahead);
      own[0] = next(cursors[0], ahead);
    }
    llvm::SmallVector<Value> inits = flatten(own);
    unsigned words = pieceSlots ? 1 : 0; // what is stored of a k tile is read a tile ahead
    if (pieceSlots)
      inits.push_back(bandWord(head, first, 0));
    for (Value init : pipeline.getInits())
      inits.push_back(head.lookupOrDefault(init));
    mlir::ValueRange after =
        loop(first, last, i32(groups), inits, [&](Value kTile, mlir::ValueRange carried) {
          Value word, nextWord;
          if (pieceSlots) {
            word = carried[cursorValues];
            nextWord = bandWord(head, kTile, groups);
          }
          llvm::SmallVector<Value> next =
              consume(of, head, first, kTile, cursorsOf(carried.take_front(cursorValues)), word,
                      carried.drop_front(cursorValues + words));
          if (nextWord)
            next.insert(next.begin() + cursorValues, nextWord);
          return next;
        });
    Cursors following = cursorsOf(after.take_front(cursorValues));
    Cursors lastUsed = before(following);
    if (groups > 1) {
      Value kTiles = sub(last, head.lookupOrDefault(pipeline.getFirst()));
      following[0] = skip(*this, cursors[0], kTiles, depth);
    }
    collect(of, head, compare(arith::CmpIPredicate::ult, first, last), lastUsed,
            after.drop_front(cursorValues + words));
    return following;
  }

  // What is stored of a k tile. Starts a load, of one past the last too: other tables follow.
  Value bandWord(const mlir::IRMapping &head, Value kTile, int64_t ahead) {
    tile::PipelineOp pipeline = loops[0].pipeline;
    mlir::Block &body = pipeline.getConsume().front();
    mlir::IRMapping map = head;
    map.map(body.getArgument(0), kTile);
    tile::BandWordOp word = *body.getOps<tile::BandWordOp>().begin();
    auto load = llvm::cast<tile::BandWordOp>(builder.clone(*word, map));
    load.setAhead(ahead);
    return load;
  }

  // The sums of a loop: `any` says whether this group had a k tile, `last` where.
  void collect(const Loop &of, mlir::IRMapping &head, Value any, const Cursors &last,
               mlir::ValueRange carried) {
    llvm::SmallVector<Value> sums, held;
    for (Value value : carried)
      (isOperand(value) ? held : sums).push_back(value);
    if (!of.waitsInside) {
      llvm::SmallVector<mlir::Type> types(mlir::ValueRange(sums).getTypes());
      auto wait = tile::WarpgroupWaitOp::create(builder, loc, types, 0, sums, held);
      sums.assign(wait.getResults().begin(), wait.getResults().end());
      when(any, [&] { release(last); });
    }
    for (auto [result, sum] : llvm::zip(of.pipeline->getResults(), sums))
      head.map(result, sum);
  }

  static bool isOperand(Value carried) { return carried.getType().isInteger(); }

  // What comes after a tile's last k tile. `stores`: whether there are outputs to store; null:
  // there are.
  void finishTile(mlir::IRMapping &head, Value stores) {
    llvm::SmallVector<Value> results, sums;
    for (Value result : total ? mlir::ValueRange(total.getSums())
                              : mlir::ValueRange(loops[0].pipeline.getResults()))
      if (!isOperand(result))
        results.push_back(result);
    for (auto [i, result] : llvm::enumerate(results))
      sums.push_back(head.lookup(total ? total.getValues()[static_cast<unsigned>(i)] : result));
    if (groups > 1 || clusterK > 1) {
      llvm::SmallVector<mlir::Type> types(mlir::ValueRange(sums).getTypes());
      auto sum =
          tile::GroupSumOp::create(builder, loc, builder.getI1Type(), types, sumsBuffer, sums);
      Value first = sum.getFirst();
      stores = stores ? arith::AndIOp::create(builder, loc, stores, first).getResult() : first;
      sums.assign(sum.getSums().begin(), sum.getSums().end());
    }
    if (op.getOneEach())
      leaveCluster();
    for (auto [result, sum] : llvm::zip(results, sums))
      head.map(result, sum);
    mlir::Operation *end = total ? total.getOperation() : loops[0].pipeline.getOperation();
    auto epilogue = [&] {
      for (mlir::Operation *inner = end->getNextNode(); inner; inner = inner->getNextNode())
        builder.clone(*inner, head);
    };
    if (stores)
      when(stores, epilogue);
    else
      epilogue();
  }

  // The stages that this group used before these.
  Cursors before(const Cursors &now) {
    Cursors result;
    for (size_t ring = 0; ring < now.size(); ++ring)
      result.push_back(goBack(*this, now[ring], groups, ring == 0 ? depth : operandDepth()));
    return result;
  }

  // `after`: what was loaded from the first ring's slot.
  void release(const Cursors &at, mlir::ValueRange after = {}) {
    for (size_t ring = 0; ring < at.size(); ++ring)
      tile::BarrierArriveOp::create(builder, loc, ring == 0 ? barriers : operandBarriers,
                                    at[ring].slot, false, ring == 0 ? after : mlir::ValueRange());
  }

  // What a k tile loads from its slot, none of which a wait for matrix instructions has awaited:
  // all where warps multiply by themselves, else the scales that its sums are multiplied with.
  llvm::SmallVector<Value> loadsOf(mlir::Block &body, const mlir::IRMapping &map) {
    const bool warpsMultiply = !body.getOps<tile::LoadActivationOp>().empty();
    llvm::SmallVector<Value> loads;
    for (mlir::Operation &inner : body) {
      bool scalesRows = llvm::isa<tile::LoadRowCodesOp>(inner) &&
                        llvm::any_of(inner.getUsers(), [](mlir::Operation *user) {
                          return llvm::isa<tile::ConvertScalesOp>(user);
                        });
      bool isOperand =
          llvm::isa<tile::LoadActivationOp, tile::LoadCodesOp, tile::LoadRowCodesOp>(inner);
      if (scalesRows || llvm::isa<tile::LoadColumnScalesOp>(inner) || (warpsMultiply && isOperand))
        loads.push_back(map.lookup(inner.getResult(0)));
    }
    return loads;
  }

  llvm::SmallVector<Value> consume(const Loop &of, const mlir::IRMapping &head, Value first,
                                   Value kTile, const Cursors &now, Value word,
                                   mlir::ValueRange carriedIn) {
    tile::BarrierWaitOp::create(builder, loc, barriers, now[0].slot, now[0].parity, true);
    if (operandBarriers)
      tile::BarrierWaitOp::create(builder, loc, operandBarriers, now[1].slot, now[1].parity, true);
    mlir::IRMapping map = head;
    tile::PipelineOp pipeline = of.pipeline;
    mlir::Block &body = pipeline.getConsume().front();
    llvm::SmallVector<Value> arguments{kTile};
    for (const Cursor &cursor : now)
      arguments.push_back(cursor.slot);
    arguments.append(carriedIn.begin(), carriedIn.end());
    map.map(body.getArguments(), arguments);
    for (mlir::Operation &inner : body.without_terminator()) {
      if (llvm::isa<tile::BandWordOp>(inner))
        map.map(inner.getResult(0), word);
      else if (auto place = llvm::dyn_cast<tile::PiecePlaceOp>(inner))
        map.map(place.getPlace(), add(map.lookup(place.getNumber()), ringOffset));
      else
        builder.clone(inner, map)->walk([&](tile::ReleaseOp op) {
          mlir::OpBuilder::InsertionGuard guard(builder);
          builder.setInsertionPoint(op);
          when(compare(arith::CmpIPredicate::ugt, kTile, first), [&] { release(before(now)); });
          op.erase();
        });
    }
    if (of.waitsInside)
      release(now, loadsOf(body, map));
    Cursors following{next(now[0], i32(groups))};
    if (operandBarriers)
      following.push_back(advance(*this, now[1], i32(groups), operandDepth()));
    llvm::SmallVector<Value> carried = flatten(following);
    for (Value value : body.getTerminator()->getOperands())
      carried.push_back(map.lookupOrDefault(value));
    return carried;
  }
};

struct SpecializeWarpsPass : impl::SpecializeWarpsBase<SpecializeWarpsPass> {
  void runOnOperation() override {
    llvm::SmallVector<tile::ForTilesOp> loops;
    getOperation().walk([&](tile::ForTilesOp op) {
      std::string_view roles = op->getParentOfType<tile::KernelOp>().getGeometry().getRoles();
      if (roles != dsl::name(dsl::ScheduleDecl::Roles::Uniform))
        loops.push_back(op);
    });
    for (tile::ForTilesOp op : loops) {
      mlir::OpBuilder builder(op);
      Specialization(op, builder).run();
    }
  }
};

} // namespace
} // namespace rho::compiler
