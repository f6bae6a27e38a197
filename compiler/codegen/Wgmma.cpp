// The wgmma family (sm_90a): bulk copies and tensor maps that complete on barriers in shared
// memory, and matrix instructions of warpgroups with operand A in registers or in shared memory.
#include "compiler/codegen/Families.h"
#include "compiler/codegen/KernelLowering.h"
#include "compiler/codegen/WgmmaText.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

namespace {

constexpr int64_t outputBoxBytes = Geometry::swizzleBytes; // of a row
constexpr int64_t swizzlePiece = 16;                       // bytes that stay together

std::string number(int64_t value) { return std::to_string(value); }

class WgmmaLowering final : public KernelLowering {
public:
  using KernelLowering::KernelLowering;

private:
  static constexpr int64_t barrierBytes = 8; // full, then empty, for each stage

  void computeFamilyValues() override;
  bool lowerFamily(mlir::Operation *inner) override;
  void sumBarrier() override;
  void mathBarrier() override;
  Value sumCluster(Value buffer, Value first, llvm::SmallVector<Value> &sums) override;
  void namedBarrier(int64_t id, int64_t threads);
  // Of all threads of the cluster: what they did to its shared memory before is seen behind it.
  void clusterBarrier();

  Value sharedAddress(Value byteOffset); // as the 32-bit number that PTX takes
  Value barrierAt(Value barriers, Value slot, bool full);
  void lowerInitBarriers(tile::InitBarriersOp init);
  void lowerBarriersMade(tile::BarriersMadeOp made);
  void lowerBarrierWait(tile::BarrierWaitOp wait);
  void lowerBarrierExpect(tile::BarrierExpectOp expect);
  void lowerBarrierArrive(tile::BarrierArriveOp arrive);
  void awaitLoads(mlir::ValueRange vectors);
  void lowerRegisters(tile::RegistersOp registers);
  void lowerCopyPanel(tile::CopyPanelOp copy);
  void lowerCopyPieces(tile::CopyPiecesOp copy);
  void lowerCopyBox(tile::CopyBoxOp copy);
  void lowerStoreOperand(tile::StoreOperandOp store);
  std::vector<std::string> accumulators(AsmCall &call, tile::WarpgroupMmaOp mma);
  Value operandRows(tile::WarpgroupMmaOp mma);
  Value firstColumns(tile::WarpgroupMmaOp mma); // of the activations, a part from there on
  void lowerMma(tile::WarpgroupMmaOp mma);
  std::string useHeld(AsmCall &call, mlir::ValueRange registers);
  void lowerWait(tile::WarpgroupWaitOp wait);
  // Each four values, one accumulator.
  void replaceAccumulators(mlir::ResultRange accumulators, llvm::ArrayRef<Value> values);
  // Outputs of a warpgroup in boxes, and this thread's among them.
  struct OutputBoxes {
    int64_t outputBytes = 0;            // of one
    int64_t rows = 0, boxes = 0;        // of a box, and how many lie along the weight's rows
    int64_t pieces = 0, pieceBytes = 0; // of the thread's outputs of a batch row
    Value warpgroup, leader;
    Value isOdd;                   // the parity of the thread, among those of a column
    Value places[2];               // of the thread's columns of an n8 tile
    Value firstColumn, firstBatch; // of the boxes in memory: byte and row
  };
  OutputBoxes boxesOf(tile::StoreBoxOp store);
  void storeToBoxes(const OutputBoxes &own, tile::StoreBoxOp store, int64_t slice, Value part);
  void copyBoxes(const OutputBoxes &own, tile::StoreBoxOp store, int64_t slice, Value part);
  void lowerStoreBox(tile::StoreBoxOp store);
  void lowerWaitStores();
  void lowerLoadShareOfTokens(tile::LoadShareOfTokensOp load);
  void lowerShareTokens(tile::ShareTokensOp share);
  void warpgroupBarrier();
  Value matrixRowAt(Value part, int64_t batchTile, Value row, Value piece,
                    int64_t rowBytes) override;
  Value isWarpgroupLeader();    // the thread that starts and awaits its warpgroup's stores
  Value descriptor(Value part); // for the matrix instructions

  Value sharedStart; // of dynamic shared memory, as a number
  Value barriers;    // of the kernel
  Value isFirstLane;
  Value columnRank, kRank; // of this CTA in its cluster, along n and along k
  Value never;             // false, which ptxas does not know
};

void WgmmaLowering::computeFamilyValues() {
  sharedStart = LLVM::PtrToIntOp::create(builder, loc, builder.getI32Type(), shared);
  isFirstLane = equal(lane, i32(0));
  columnRank = kRank = i32(0);
  if (g.clusterN > 1)
    columnRank = NVVM::BlockInClusterIdXOp::create(builder, loc, builder.getI32Type());
  if (g.clusterK > 1)
    kRank = NVVM::BlockInClusterIdZOp::create(builder, loc, builder.getI32Type());
  Value m = entry->getArguments().back();
  never = equal(m, i32(0));
  barriers = tile::findShared(*entry, tile::shared_labels::barriers);
}

bool WgmmaLowering::lowerFamily(mlir::Operation *inner) {
  return llvm::TypeSwitch<mlir::Operation *, bool>(inner)
      .Case<tile::InitBarriersOp>([&](auto o) { return lowerInitBarriers(o), true; })
      .Case<tile::BarriersMadeOp>([&](auto o) { return lowerBarriersMade(o), true; })
      .Case<tile::PrefetchMapOp>([&](tile::PrefetchMapOp o) {
        return effect("prefetch.tensormap [$0];", "l", o.getMap()), true;
      })
      .Case<tile::BarrierWaitOp>([&](auto o) { return lowerBarrierWait(o), true; })
      .Case<tile::BarrierExpectOp>([&](auto o) { return lowerBarrierExpect(o), true; })
      .Case<tile::BarrierArriveOp>([&](auto o) { return lowerBarrierArrive(o), true; })
      .Case<tile::RegistersOp>([&](auto o) { return lowerRegisters(o), true; })
      .Case<tile::CopyPanelOp>([&](auto o) { return lowerCopyPanel(o), true; })
      .Case<tile::CopyPiecesOp>([&](auto o) { return lowerCopyPieces(o), true; })
      .Case<tile::StorePlaceOp>([&](tile::StorePlaceOp o) {
        return store(o.getPlace(), sharedAt(partOf(o.getPlaces(), o.getSlot())), 4), true;
      })
      .Case<tile::LoadPlaceOp>([&](tile::LoadPlaceOp o) {
        Value at = sharedAt(partOf(o.getPlaces(), o.getSlot()));
        o.replaceAllUsesWith(load(builder.getI32Type(), at, 4));
        return true;
      })
      .Case<tile::CopyBoxOp>([&](auto o) { return lowerCopyBox(o), true; })
      .Case<tile::StoreOperandOp>([&](auto o) { return lowerStoreOperand(o), true; })
      .Case<tile::WarpgroupMmaOp>([&](auto o) { return lowerMma(o), true; })
      .Case<tile::WarpgroupWaitOp>([&](auto o) { return lowerWait(o), true; })
      .Case<tile::StoreBoxOp>([&](auto o) { return lowerStoreBox(o), true; })
      .Case<tile::LoadShareOfTokensOp>([&](auto o) { return lowerLoadShareOfTokens(o), true; })
      .Case<tile::ShareTokensOp>([&](auto o) { return lowerShareTokens(o), true; })
      .Case<tile::WaitStoresOp>([&](auto) { return lowerWaitStores(), true; })
      .Default([](auto) { return false; });
}

// Barrier 0 is that of the whole CTA.
void WgmmaLowering::namedBarrier(int64_t id, int64_t threads) {
  effect("bar.sync " + number(id) + ", " + number(threads) + ";");
}

// Not aligned: in the loading warp one thread comes from a loop, the others do not.
void WgmmaLowering::clusterBarrier() {
  NVVM::ClusterArriveOp::create(builder, loc, mlir::UnitAttr());
  NVVM::ClusterWaitOp::create(builder, loc, mlir::UnitAttr());
}

void WgmmaLowering::sumBarrier() { namedBarrier(2, g.groupThreads()); }
void WgmmaLowering::mathBarrier() { namedBarrier(1, g.mathThreads()); }

WgmmaLowering::Value WgmmaLowering::sharedAddress(Value byteOffset) {
  return add(sharedStart, byteOffset);
}

WgmmaLowering::Value WgmmaLowering::barrierAt(Value buffer, Value slot, bool full) {
  return sharedAddress(add(partOf(buffer, slot), full ? 0 : barrierBytes));
}

void WgmmaLowering::lowerInitBarriers(tile::InitBarriersOp init) {
  for (int64_t stage = 0; stage < init.getBarriers().getType().getStages(); ++stage)
    for (bool full : {true, false}) {
      int64_t arrivals = full ? init.getProducers() : init.getConsumers();
      effect("mbarrier.init.shared::cta.b64 [$0], $1;", "r,r",
             {barrierAt(init.getBarriers(), i32(stage), full), i32(arrivals)});
    }
  effect("fence.mbarrier_init.release.cluster;");
}

void WgmmaLowering::lowerBarriersMade(tile::BarriersMadeOp made) {
  if (g.clusterN > 1) {
    NVVM::ClusterArriveRelaxedOp::create(builder, loc, mlir::UnitAttr()); // behind the fence
    NVVM::ClusterWaitOp::create(builder, loc, mlir::UnitAttr());
    return;
  }
  if (made.getWaits())
    return namedBarrier(0, g.threads());
  effect("bar.arrive 0, " + number(g.threads()) + ";");
}

void WgmmaLowering::lowerBarrierWait(tile::BarrierWaitOp wait) {
  effect("{\n.reg .pred done;\nagain:\n"
         "mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n"
         "@!done bra again;\n}",
         "r,r", {barrierAt(wait.getBarriers(), wait.getSlot(), wait.getFull()), wait.getParity()});
}

void WgmmaLowering::lowerBarrierExpect(tile::BarrierExpectOp expect) {
  effect("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r",
         {barrierAt(expect.getBarriers(), expect.getSlot(), true), expect.getBytes()});
}

// The load that brings a word of a vector, or the word itself where it is computed.
static mlir::Value loadOf(mlir::Value vector, int64_t position) {
  llvm::APInt at;
  for (auto insert = vector.getDefiningOp<LLVM::InsertElementOp>(); insert;
       insert = insert.getVector().getDefiningOp<LLVM::InsertElementOp>())
    if (mlir::matchPattern(insert.getPosition(), mlir::m_ConstantInt(&at)) && at == position) {
      if (auto extract = insert.getValue().getDefiningOp<LLVM::ExtractElementOp>())
        return extract.getVector();
      if (auto extract = insert.getValue().getDefiningOp<LLVM::ExtractValueOp>())
        return extract.getContainer();
      return insert.getValue();
    }
  return vector;
}

// A store of a word of each load that never runs, but is not issued before they are there.
void WgmmaLowering::awaitLoads(mlir::ValueRange vectors) {
  Value all;
  llvm::SmallPtrSet<void *, 16> loads;
  for (Value vector : vectors)
    for (int64_t i = 0; i < llvm::cast<mlir::VectorType>(vector.getType()).getNumElements(); ++i) {
      if (!loads.insert(loadOf(vector, i).getAsOpaquePointer()).second)
        continue;
      Value word = element(vector, i);
      if (word.getType().isF32())
        word = arith::BitcastOp::create(builder, loc, builder.getI32Type(), word);
      all = all ? arith::XOrIOp::create(builder, loc, all, word).getResult() : word;
    }
  if (all)
    effect("@$0 st.shared.b32 [$1], $2;", "b,r,r", {never, sharedAddress(i32(0)), all});
}

// Once the warp meets, its other lanes have read what they needed, or written and fenced it.
void WgmmaLowering::lowerBarrierArrive(tile::BarrierArriveOp arrive) {
  std::string fence = arrive.getFull() ? "fence.proxy.async.shared::cta;\n" : "";
  awaitLoads(arrive.getAfter());
  Value barrier = barrierAt(arrive.getBarriers(), arrive.getSlot(), arrive.getFull());
  if (g.clusterN == 1) {
    effect(fence + "bar.warp.sync 0xffffffff;\n@$1 mbarrier.arrive.shared::cta.b64 _, [$0];", "r,b",
           {barrier, isFirstLane});
    return;
  }
  // A lane for each CTA that copies into this one's slot. Not of cluster scope, which would take a
  // fence of the GPU: there is nothing to be seen, reads have ended.
  effect(
      "{\n.reg .b32 there;\nbar.warp.sync 0xffffffff;\nmapa.shared::cluster.u32 there, $0, $1;\n"
      "@$2 mbarrier.arrive.shared::cluster.b64 _, [there];\n}",
      "r,r,b",
      {barrier, add(mul(kRank, g.clusterN), mod(lane, g.clusterN)), less(lane, i32(g.clusterN))});
}

void WgmmaLowering::lowerRegisters(tile::RegistersOp registers) {
  std::string direction = registers.getMore() ? "inc" : "dec";
  effect("setmaxnreg." + direction + ".sync.aligned.u32 " + number(registers.getCount()) + ";");
}

void WgmmaLowering::lowerCopyPanel(tile::CopyPanelOp copy) {
  effect("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
         "r,l,r,r",
         {sharedAddress(shareOf(copy)), firstByteOf(copy), i32(copy.copiedBytes()),
          barrierAt(barriers, copy.getSlot(), true)});
}

// Two copies where the pieces go round the end of the ring.
void WgmmaLowering::lowerCopyPieces(tile::CopyPiecesOp copy) {
  int64_t places = copy.getBuffer().getType().getStages();
  int64_t pieceBytes = copy.getPieceBytes();
  Value place = arith::RemUIOp::create(builder, loc, copy.getPlace(), i32(places));
  Value count = sub(copy.getEnd(), copy.getFirst());
  Value toEnd = sub(i32(places), place);
  Value ahead = arith::MinUIOp::create(builder, loc, count, toEnd);
  Value rest = sub(count, ahead);
  Value from = firstByteOf(copy), aheadBytes = mul(ahead, pieceBytes);
  effect(
      "{\n.reg .pred any;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [$3], $2;\n"
      "setp.ne.u32 any, $4, 0;\n@any cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [$0], [$1], $4, [$3];\nsetp.ne.u32 any, $5, 0;\n@any cp.async.bulk.shared::cluster."
      "global.mbarrier::complete_tx::bytes [$6], [$7], $5, [$3];\n}",
      "r,l,r,r,r,r,r,l",
      {sharedAddress(partOf(copy.getBuffer(), place)), from, mul(count, pieceBytes),
       barrierAt(barriers, copy.getSlot(), true), aheadBytes, mul(rest, pieceBytes),
       sharedAddress(partOf(copy.getBuffer(), i32(0))), globalAt(from, widen(aheadBytes))});
}

void WgmmaLowering::lowerCopyBox(tile::CopyBoxOp copy) {
  int64_t rowBytes = copy.getRowBytes();
  int64_t boxBytes = copy.getBoxBytes();
  int64_t rows = copy.getRows();
  Value part = partOf(copy.getBuffer(), copy.getSlot());
  Value barrier = barrierAt(barriers, copy.getSlot(), true);
  Value row = copy.getRow(), to = part;
  llvm::SmallVector<Value> mask;
  if (copy.getMulticast()) {
    Value first = mul(columnRank, rows / g.clusterN);
    row = add(row, first);
    to = add(part, mul(first, boxBytes));
    Value ctas = arith::ShLIOp::create(builder, loc, i32((int64_t(1) << g.clusterN) - 1),
                                       mul(kRank, g.clusterN));
    mask.push_back(arith::TruncIOp::create(builder, loc, builder.getI16Type(), ctas));
  }
  std::string text = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes";
  text += mask.empty() ? " [$0], [$1, {$2, $3}], [$4];"
                       : ".multicast::cluster [$0], [$1, {$2, $3}], [$4], $5;";
  for (int64_t column = 0; column < rowBytes; column += boxBytes) {
    llvm::SmallVector<Value> operands{sharedAddress(add(to, column * rows)), copy.getMap(),
                                      add(copy.getColumn(), column), row, barrier};
    operands.append(mask);
    effect(text, mask.empty() ? "r,l,r,r,r" : "r,l,r,r,r,h", operands);
  }
}

// Boxes of 128 bytes a row, one after the other along k; the swizzle permutes the pieces of eight
// rows.
WgmmaLowering::Value WgmmaLowering::matrixRowAt(Value part, int64_t batchTile, Value row,
                                                Value piece, int64_t /*rowBytes*/) {
  constexpr int64_t pieces = Geometry::swizzleBytes / 16;
  Value box = add(part, mul(div(piece, pieces), g.tileM * Geometry::swizzleBytes));
  Value place = arith::XOrIOp::create(builder, loc, mod(piece, pieces), row);
  return add(add(add(box, mul(row, Geometry::swizzleBytes)), mul(place, 16)),
             batchTile * 8 * Geometry::swizzleBytes);
}

// PTX ISA, "matrix descriptor": rows of 128 bytes along k, eight of them 1024 bytes apart, 128-byte
// swizzle; addresses in units of 16 bytes. The swizzle is on address bits, so a start within the
// row is an offset like any other.
WgmmaLowering::Value WgmmaLowering::descriptor(Value part) {
  constexpr int64_t leading = 1 << 16;
  constexpr int64_t constant = (int64_t(1) << 62) | (int64_t(1024 / 16) << 32) | leading;
  return arith::OrIOp::create(builder, loc, widen(div(sharedAddress(part), 16)), i64(constant));
}

// Rows are 128 bytes of k, whose eight pieces of 16 bytes are permuted by the row's last three
// bits. Lane 8 i + r has the address of row r of register i of the fragment.
void WgmmaLowering::lowerStoreOperand(tile::StoreOperandOp store) {
  int64_t column = store.getStep() * 32;
  int64_t inAtom = column % Geometry::swizzleBytes;
  Value row = add(mul(warpN, 16), mod(lane, 16));
  Value piece = arith::XOrIOp::create(builder, loc, add(mul(div(lane, 16), 16), inAtom),
                                      mul(mod(lane, 8), 16));
  Value inTile = add(mul(row, Geometry::swizzleBytes), piece);
  int64_t offset =
      columnOffset(g.tileN, column - inAtom) + store.getRowTile() * 64 * Geometry::swizzleBytes;
  Value at = add(add(partOf(store.getBuffer(), store.getSlot()), inTile), offset);
  llvm::SmallVector<Value> operands{sharedAddress(at)};
  operands.append(store.getA().begin(), store.getA().end());
  effect("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", "r,r,r,r,r", operands);
}

std::vector<std::string> WgmmaLowering::accumulators(AsmCall &call, tile::WarpgroupMmaOp mma) {
  mlir::Type type = mma.getElement() == "s8" ? mlir::Type(builder.getI32Type()) : f32();
  std::vector<std::string> sums;
  for (size_t i = 0; i < 4 * mma.getResults().size(); ++i)
    sums.push_back(call.result(type));
  size_t next = 0;
  for (Value before : mma.getC())
    for (int64_t i = 0; i < 4; ++i)
      call.tied(sums[next++], element(before, i));
  return sums;
}

// The descriptor of this warpgroup's rows of an operand A in shared memory.
WgmmaLowering::Value WgmmaLowering::operandRows(tile::WarpgroupMmaOp mma) {
  Value rows = mul(div(thread, Geometry::warpgroup), g.rowTiles() * 64 * Geometry::swizzleBytes);
  return descriptor(add(partOf(mma.getOperand(), mma.getOperandSlot()), rows));
}

WgmmaLowering::Value WgmmaLowering::firstColumns(tile::WarpgroupMmaOp mma) {
  Value part = partOf(mma.getBuffer(), mma.getSlot());
  if (!mma.getFurther())
    return part;
  constexpr int64_t stepsOfRow = Geometry::swizzleBytes / 32; // columnOffset()
  Value rows = mul(div(mma.getFurther(), stepsOfRow), g.tileM * Geometry::swizzleBytes);
  return add(part, add(rows, mul(mod(mma.getFurther(), stepsOfRow), 32)));
}

// One text for the whole batch: what it reads in registers is written before its fence, and nothing
// comes between its instructions.
void WgmmaLowering::lowerMma(tile::WarpgroupMmaOp mma) {
  AsmCall call(*this);
  WgmmaBatch batch;
  batch.element = mma.getElement().str();
  batch.tileM = g.tileM;
  batch.tileN = g.tileN;
  batch.rowTiles = g.rowTiles();
  batch.firstStep = mma.getFirst();
  batch.fresh = mma.getC().empty();
  batch.sums = accumulators(call, mma);
  for (Value a : mma.getA())
    batch.registers.push_back(call.input(a));
  if (mma.getOperand())
    batch.rows = call.input(operandRows(mma));
  batch.columns = call.input(descriptor(firstColumns(mma)));
  batch.steps = mma.getSteps();
  replaceAccumulators(mma.getResults(), call.emit(batch.print()));
}

void WgmmaLowering::replaceAccumulators(mlir::ResultRange accumulators,
                                        llvm::ArrayRef<Value> values) {
  for (auto [i, accumulator] : llvm::enumerate(accumulators))
    accumulator.replaceAllUsesWith(vectorOf(values.slice(4 * i, 4)));
}

// A store of the registers that never runs, so that they count as read.
std::string WgmmaLowering::useHeld(AsmCall &call, mlir::ValueRange registers) {
  std::vector<std::string> held;
  for (Value value : registers)
    held.push_back(call.input(value));
  std::string condition = call.input(never), address = call.input(sharedAddress(i32(0)));
  std::string text = "\n{\n@!" + condition + " bra held;";
  for (size_t i = 0; i < held.size(); i += 4)
    text += "\nst.shared.v4.b32 [" + address + "+" + std::to_string(4 * i) + "], {" + held[i] +
            ", " + held[i + 1] + ", " + held[i + 2] + ", " + held[i + 3] + "};";
  return text + "\nheld:\n}";
}

// Takes what it waits for as operands, so that no use of it can be moved ahead and no register of
// it can be given to something else.
void WgmmaLowering::lowerWait(tile::WarpgroupWaitOp wait) {
  AsmCall call(*this);
  llvm::SmallVector<Value> values;
  for (Value vector : wait.getValues())
    for (int64_t i = 0; i < 4; ++i)
      values.push_back(element(vector, i));
  std::vector<std::string> results;
  for (Value value : values)
    results.push_back(call.result(value.getType()));
  for (auto [result, value] : llvm::zip(results, values))
    call.tied(result, value);
  std::string text = "wgmma.wait_group.sync.aligned " + number(wait.getPending()) + ";";
  if (!wait.getHeld().empty())
    text += useHeld(call, wait.getHeld());
  replaceAccumulators(wait.getResults(), call.emit(text));
}

// The first groups of the CTAs share the sums: each warpgroup along n of one CTA, by turns, fetches
// what those of the others have left in their own part.
WgmmaLowering::Value WgmmaLowering::sumCluster(Value buffer, Value first,
                                               llvm::SmallVector<Value> &sums) {
  if (g.clusterK == 1)
    return first;
  auto values = static_cast<int64_t>(sums.size());
  Value turn = mod(div(warpN, 4), g.clusterK);
  Value own = equal(kRank, turn);
  Value others = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, kRank, turn);
  leaveSums(arith::AndIOp::create(builder, loc, first, others), buffer, i32(0), sums);
  clusterBarrier();
  first = arith::AndIOp::create(builder, loc, first, own);
  sums = addParts(first, sums, g.clusterK - 1, [&](int64_t part, int64_t value) -> Value {
    Value left = sumPlace(buffer, i32(0), values, value);
    Value rank = mod(add(kRank, part + 1), g.clusterK);
    return NVVM::MapaOp::create(builder, loc, LLVM::LLVMPointerType::get(op.getContext(), 7), left,
                                add(columnRank, mul(rank, g.clusterN)));
  });
  return first;
}

WgmmaLowering::Value WgmmaLowering::isWarpgroupLeader() {
  return equal(mod(thread, Geometry::warpgroup), i32(0));
}

// Boxes are 128 bytes wide and lie one after the other along the tile's columns. Within a box, a
// pass of a warp's stores touches 4 batch rows of one parity and a pair of 16-byte pieces: under
// the swizzle these are all banks once. A thread with several pieces in a row takes those of a pair
// in the order of its own parity to that end.
WgmmaLowering::OutputBoxes WgmmaLowering::boxesOf(tile::StoreBoxOp store) {
  OutputBoxes own;
  own.outputBytes = dsl::ElementType::get(store.getElement().str()).bits() / 8;
  own.rows = store.getRows();
  own.boxes = 4 * g.warpN() * own.outputBytes / outputBoxBytes;
  const int64_t ownBytes = g.rowsPerThread() * own.outputBytes;
  own.pieceBytes = std::min(swizzlePiece, ownBytes);
  own.pieces = ownBytes / own.pieceBytes;

  own.warpgroup = div(warpN, 4);
  own.leader = isWarpgroupLeader();
  own.isOdd =
      arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, mod(laneRow, 2), i32(0));
  Value ownColumn = mul(firstRow, own.outputBytes);
  Value inBox = mod(ownColumn, outputBoxBytes);
  if (own.pieces > 1)
    inBox = arith::XOrIOp::create(builder, loc, inBox, mul(mod(laneRow, 2), swizzlePiece));
  for (int64_t c = 0; c < 2; ++c) {
    Value row = add(mul(laneColumn, 2), c);
    Value swizzled = arith::XOrIOp::create(builder, loc, inBox, mul(row, swizzlePiece));
    Value box = mul(div(ownColumn, outputBoxBytes), outputBoxBytes * own.rows);
    own.places[c] = add(add(box, mul(row, outputBoxBytes)), swizzled);
  }
  own.firstColumn = add(mul(store.getTileN(), g.tileN * own.outputBytes),
                        mul(own.warpgroup, own.boxes * outputBoxBytes));
  own.firstBatch = mul(store.getTileM(), g.tileM);
  return own;
}

void WgmmaLowering::storeToBoxes(const OutputBoxes &own, tile::StoreBoxOp store, int64_t slice,
                                 Value part) {
  const int64_t outputsOfPiece = own.pieceBytes / own.outputBytes;
  for (int64_t j = 0; j < own.rows / 8; ++j)
    for (int64_t c = 0; c < 2; ++c) {
      llvm::SmallVector<Value> pieces;
      for (int64_t i = 0; i < own.pieces; ++i)
        pieces.push_back(outputs(store.getValues(), store.getElement(), i * outputsOfPiece,
                                 outputsOfPiece, slice * own.rows / 8 + j, c));
      for (int64_t i = 0; i < own.pieces; ++i) {
        Value value = pieces[static_cast<size_t>(i)];
        if (own.pieces > 1)
          value = select(own.isOdd, pieces[static_cast<size_t>(i ^ 1)], value);
        Value place = own.places[c];
        if (i > 0)
          place = arith::XOrIOp::create(builder, loc, place, i32(i * swizzlePiece));
        this->store(value, sharedAt(add(add(part, place), j * 8 * outputBoxBytes)), own.pieceBytes);
      }
    }
}

void WgmmaLowering::copyBoxes(const OutputBoxes &own, tile::StoreBoxOp store, int64_t slice,
                              Value part) {
  for (int64_t box = 0; box < own.boxes; ++box) {
    Value place = add(mul(own.warpgroup, own.boxes), box);
    Value from = add(part, mul(place, outputBoxBytes * own.rows));
    effect("@$0 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [$1, {$2, $3}], [$4];",
           "b,l,r,r,r",
           {own.leader, store.getMap(), add(own.firstColumn, box * outputBoxBytes),
            add(own.firstBatch, slice * own.rows), sharedAddress(from)});
  }
  effect("@$0 cp.async.bulk.commit_group;", "b", {own.leader});
}

void WgmmaLowering::lowerStoreBox(tile::StoreBoxOp store) {
  const OutputBoxes own = boxesOf(store);
  const int64_t slots = store.getBuffer().getType().getStages();
  if (isOverStages(store.getBuffer()) && g.warpsK == 1 && g.clusterK == 1) // else sums met
    mathBarrier();
  for (int64_t slice = 0; slice < g.tileM / own.rows; ++slice) {
    Value part = partOf(store.getBuffer(), i32(slice % slots));
    effect("@$0 cp.async.bulk.wait_group.read " + number(slots - 1) + ";", "b", {own.leader});
    warpgroupBarrier();
    storeToBoxes(own, store, slice, part);
    effect("fence.proxy.async.shared::cta;");
    warpgroupBarrier();
    copyBoxes(own, store, slice, part);
  }
}

// Of one that multiplies.
void WgmmaLowering::warpgroupBarrier() {
  constexpr int64_t first = 8;
  effect("bar.sync $0, " + number(Geometry::warpgroup) + ";", "r", {add(div(warpN, 4), first)});
}

void WgmmaLowering::lowerLoadShareOfTokens(tile::LoadShareOfTokensOp op) {
  Value first = add(mul(op.getTileM(), g.tileM), mod(thread, Geometry::warpgroup));
  std::vector<Value> scales;
  for (int64_t i = 0; i < op.getScales().getType().getNumElements(); ++i)
    scales.push_back(tokenScale(op.getSource(), add(first, i * Geometry::warpgroup), op.getRows(),
                                op.getElement()));
  op.replaceAllUsesWith(vectorOf(scales));
}

void WgmmaLowering::lowerShareTokens(tile::ShareTokensOp op) {
  constexpr int64_t bytes = 4;
  Value part = partOf(op.getBuffer(), div(warpN, 4));
  Value own = mod(thread, Geometry::warpgroup);
  for (int64_t i = 0; i < op.getShare().getType().getNumElements(); ++i)
    store(element(op.getShare(), i),
          sharedAt(add(part, mul(add(own, i * Geometry::warpgroup), bytes))), bytes);
  warpgroupBarrier();
  Value columns = add(part, mul(laneColumn, 2 * bytes));
  for (auto [j, scales] : llvm::enumerate(op.getScales()))
    scales.replaceAllUsesWith(load(
        scales.getType(), sharedAt(add(columns, static_cast<int64_t>(j) * 8 * bytes)), 2 * bytes));
}

void WgmmaLowering::lowerWaitStores() {
  effect("@$0 cp.async.bulk.wait_group 0;", "b", {isWarpgroupLeader()});
}

} // namespace

mlir::LogicalResult lowerToWgmma(tile::KernelOp op) { return WgmmaLowering(op).run(); }

} // namespace rho::compiler
