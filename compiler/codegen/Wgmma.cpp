// The wgmma family (sm_90a): bulk copies and tensor maps that complete on barriers in shared
// memory, and matrix instructions of warpgroups with operand A in registers.
#include "compiler/codegen/Families.h"
#include "compiler/codegen/KernelLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

namespace {

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
  void namedBarrier(int64_t id, int64_t threads);

  Value sharedAddress(Value byteOffset); // as the 32-bit number that PTX takes
  Value barrierAt(Value barriers, Value slot, bool full);
  void lowerInitBarriers(tile::InitBarriersOp init);
  void lowerBarrierWait(tile::BarrierWaitOp wait);
  void lowerBarrierExpect(tile::BarrierExpectOp expect);
  void lowerBarrierArrive(tile::BarrierArriveOp arrive);
  void lowerTurn(tile::TurnOp turn);
  void lowerRegisters(tile::RegistersOp registers);
  void lowerCopyTile(tile::CopyTileOp copy);
  void lowerCopyBox(tile::CopyBoxOp copy);
  void lowerMma(tile::WarpgroupMmaOp mma);
  void lowerWait(tile::WarpgroupWaitOp wait);
  // The matrix descriptor of operand B from byte `column` of its rows on.
  Value descriptor(Value buffer, Value slot, int64_t column);

  Value sharedStart; // of dynamic shared memory, as a number
  Value barriers;    // of the kernel
  Value isFirstLane;
  Value never; // false, which ptxas does not know
};

void WgmmaLowering::computeFamilyValues() {
  sharedStart = LLVM::PtrToIntOp::create(builder, loc, builder.getI32Type(), shared);
  isFirstLane = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, lane, i32(0));
  Value m = entry->getArguments().back();
  never = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, m, i32(0));
  for (tile::AllocSharedOp alloc : entry->getOps<tile::AllocSharedOp>())
    if (alloc.getOrigin() == "schedule")
      barriers = alloc.getBuffer();
}

bool WgmmaLowering::lowerFamily(mlir::Operation *inner) {
  return llvm::TypeSwitch<mlir::Operation *, bool>(inner)
      .Case<tile::InitBarriersOp>([&](auto o) { return lowerInitBarriers(o), true; })
      .Case<tile::BarrierWaitOp>([&](auto o) { return lowerBarrierWait(o), true; })
      .Case<tile::BarrierExpectOp>([&](auto o) { return lowerBarrierExpect(o), true; })
      .Case<tile::BarrierArriveOp>([&](auto o) { return lowerBarrierArrive(o), true; })
      .Case<tile::TurnOp>([&](auto o) { return lowerTurn(o), true; })
      .Case<tile::RegistersOp>([&](auto o) { return lowerRegisters(o), true; })
      .Case<tile::CopyTileOp>([&](auto o) { return lowerCopyTile(o), true; })
      .Case<tile::CopyBoxOp>([&](auto o) { return lowerCopyBox(o), true; })
      .Case<tile::WarpgroupMmaOp>([&](auto o) { return lowerMma(o), true; })
      .Case<tile::WarpgroupWaitOp>([&](auto o) { return lowerWait(o), true; })
      .Default([](auto) { return false; });
}

// Barrier 0 is that of the whole CTA.
void WgmmaLowering::namedBarrier(int64_t id, int64_t threads) {
  ptx("bar.sync " + number(id) + ", " + number(threads) + ";", "", mlir::TypeRange(),
      mlir::ValueRange());
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
  Value isFirst = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, thread, i32(0));
  auto once = mlir::scf::IfOp::create(builder, loc, isFirst);
  {
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&once.getThenRegion().front());
    for (int64_t stage = 0; stage < init.getBarriers().getType().getStages(); ++stage)
      for (bool full : {true, false})
        ptx("mbarrier.init.shared::cta.b64 [$0], $1;", "r,r", mlir::TypeRange(),
            {barrierAt(init.getBarriers(), i32(stage), full),
             i32(full ? 1 : static_cast<int64_t>(init.getConsumers()))});
    ptx("fence.mbarrier_init.release.cluster;", "", mlir::TypeRange(), mlir::ValueRange());
  }
  NVVM::Barrier0Op::create(builder, loc);
}

void WgmmaLowering::lowerBarrierWait(tile::BarrierWaitOp wait) {
  ptx("{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n"
      "@!done bra again;\n}",
      "r,r", mlir::TypeRange(),
      {barrierAt(wait.getBarriers(), wait.getSlot(), wait.getFull()), wait.getParity()});
}

void WgmmaLowering::lowerBarrierExpect(tile::BarrierExpectOp expect) {
  ptx("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r", mlir::TypeRange(),
      {barrierAt(expect.getBarriers(), expect.getSlot(), true),
       i32(static_cast<int64_t>(expect.getBytes()))});
}

// The other lanes of the warp have read what they needed once the warp meets.
void WgmmaLowering::lowerBarrierArrive(tile::BarrierArriveOp arrive) {
  ptx("bar.warp.sync 0xffffffff;\n@$1 mbarrier.arrive.shared::cta.b64 _, [$0];", "r,b",
      mlir::TypeRange(), {barrierAt(arrive.getBarriers(), arrive.getSlot(), false), isFirstLane});
}

// Barriers 3 and 4 are the turns of the first and the second warpgroup: one waits, the other only
// arrives.
void WgmmaLowering::lowerTurn(tile::TurnOp turn) {
  constexpr int64_t firstTurn = 3, both = 2 * Geometry::warpgroup;
  Value warpgroup = div(thread, Geometry::warpgroup);
  if (turn.getStep() == "open") {
    Value second = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, warpgroup, i32(1));
    auto once = mlir::scf::IfOp::create(builder, loc, second);
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&once.getThenRegion().front());
    ptx("bar.arrive " + number(firstTurn) + ", " + number(both) + ";", "", mlir::TypeRange(),
        mlir::ValueRange());
    return;
  }
  bool take = turn.getStep() == "take";
  Value id = take ? add(warpgroup, firstTurn)
                  : arith::SubIOp::create(builder, loc, i32(firstTurn + 1), warpgroup).getResult();
  ptx(std::string(take ? "bar.sync" : "bar.arrive") + " $0, " + number(both) + ";", "r",
      mlir::TypeRange(), {id});
}

void WgmmaLowering::lowerRegisters(tile::RegistersOp registers) {
  std::string direction = registers.getMore() ? "inc" : "dec";
  ptx("setmaxnreg." + direction + ".sync.aligned.u32 " +
          number(static_cast<int64_t>(registers.getCount())) + ";",
      "", mlir::TypeRange(), mlir::ValueRange());
}

void WgmmaLowering::lowerCopyTile(tile::CopyTileOp copy) {
  int64_t bytes = copy.getBuffer().getType().getBytes();
  Value from = globalAt(copy.getSource(), add(mul(widen(copy.getTile()), bytes),
                                              static_cast<int64_t>(copy.getBase())));
  ptx("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
      "r,l,r,r", mlir::TypeRange(),
      {sharedAddress(partOf(copy.getBuffer(), copy.getSlot())), from, i32(bytes),
       barrierAt(barriers, copy.getSlot(), true)});
}

void WgmmaLowering::lowerCopyBox(tile::CopyBoxOp copy) {
  int64_t rowBytes = static_cast<int64_t>(copy.getRowBytes());
  int64_t boxBytes = static_cast<int64_t>(copy.getBoxBytes());
  int64_t rows = static_cast<int64_t>(copy.getRows());
  Value part = partOf(copy.getBuffer(), copy.getSlot());
  Value barrier = barrierAt(barriers, copy.getSlot(), true);
  for (int64_t column = 0; column < rowBytes; column += boxBytes)
    ptx("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[$0], [$1, {$2, $3}], [$4];",
        "r,l,r,r,r", mlir::TypeRange(),
        {sharedAddress(add(part, column * rows)), copy.getMap(), add(copy.getColumn(), column),
         copy.getRow(), barrier});
}

// PTX ISA, "matrix descriptor": rows of 128 bytes along k, eight of them 1024 bytes apart, 128-byte
// swizzle; addresses in units of 16 bytes. The swizzle is on address bits, so a start within the
// row is an offset like any other.
WgmmaLowering::Value WgmmaLowering::descriptor(Value buffer, Value slot, int64_t column) {
  constexpr int64_t high = (int64_t(1) << 62) | (int64_t(1024 / 16) << 32) | (int64_t(1) << 16);
  int64_t atom = column / Geometry::swizzleBytes, inner = column % Geometry::swizzleBytes;
  Value start = div(sharedAddress(partOf(buffer, slot)), 16);
  start = add(start, (atom * g.tileM * Geometry::swizzleBytes + inner) / 16);
  return arith::OrIOp::create(builder, loc, widen(start), i64(high));
}

// One text for the whole batch: what it reads in registers is written before its fence, and nothing
// comes between its instructions.
void WgmmaLowering::lowerMma(tile::WarpgroupMmaOp mma) {
  llvm::StringRef type = mma.getElement();
  bool integer = type == "s8";
  bool wide = type == "f16" || type == "bf16"; // these may be transposed
  int64_t steps = static_cast<int64_t>(mma.getSteps());
  int64_t rowTiles = static_cast<int64_t>(mma.getA().size()) / (4 * steps);
  int64_t perTile = 4 * static_cast<int64_t>(mma.getResults().size()) / rowTiles;
  int64_t sums = perTile * rowTiles;
  bool fresh = mma.getC().empty();

  std::string constraints, tied;
  llvm::SmallVector<Value> operands;
  mlir::Type sumType = integer ? mlir::Type(builder.getI32Type()) : f32();
  for (int64_t i = 0; i < sums; ++i) {
    constraints += integer ? "=r," : "=f,";
    if (fresh)
      continue;
    tied += number(i) + ",";
    operands.push_back(element(mma.getC()[static_cast<unsigned>(i / 4)], i % 4));
  }
  constraints += tied;
  int64_t firstA = sums + static_cast<int64_t>(operands.size());
  for (Value a : mma.getA()) {
    constraints += "r,";
    operands.push_back(a);
  }
  int64_t firstB = firstA + static_cast<int64_t>(mma.getA().size());
  for (int64_t step = 0; step < steps; ++step) {
    constraints += "l,";
    operands.push_back(descriptor(mma.getBuffer(), mma.getSlot(),
                                  (static_cast<int64_t>(mma.getFirst()) + step) * 32));
  }
  constraints.pop_back();

  std::string shape = "m64n" + number(g.tileM) + "k" + number(g.mmaK);
  std::string types = (integer ? ".s32." : ".f32.") + type.str() + "." + type.str();
  auto list = [](int64_t first, int64_t count) {
    std::string text = "{";
    for (int64_t i = 0; i < count; ++i)
      text += (i == 0 ? "$" : ",$") + number(first + i);
    return text + "}";
  };
  std::string text = "{\n.reg .pred add;\nsetp.ne.b32 add, " + number(fresh ? 0 : 1) +
                     ", 0;\nwgmma.fence.sync.aligned;\n";
  for (int64_t step = 0; step < steps; ++step) {
    if (fresh && step == 1)
      text += "setp.ne.b32 add, 1, 0;\n";
    for (int64_t t = 0; t < rowTiles; ++t)
      text += "wgmma.mma_async.sync.aligned." + shape + types + " " + list(t * perTile, perTile) +
              ", " + list(firstA + 4 * (step * rowTiles + t), 4) + ", $" + number(firstB + step) +
              ", add" + (integer ? "" : ", 1, 1") + (wide ? ", 0" : "") + ";\n";
  }
  text += "wgmma.commit_group.sync.aligned;\n}";
  llvm::SmallVector<mlir::Type> resultTypes(static_cast<size_t>(sums), sumType);
  llvm::SmallVector<Value> results = ptx(text, constraints, resultTypes, operands);
  for (auto [i, result] : llvm::enumerate(mma.getResults()))
    result.replaceAllUsesWith(vectorOf(llvm::ArrayRef<Value>(results).slice(4 * i, 4)));
}

// Takes what it waits for as operands, so that no use of it can be moved ahead and no register of
// it can be given to something else.
void WgmmaLowering::lowerWait(tile::WarpgroupWaitOp wait) {
  std::string text =
      "wgmma.wait_group.sync.aligned " + number(static_cast<int64_t>(wait.getPending())) + ";";
  std::string constraints, tied;
  llvm::SmallVector<Value> operands;
  llvm::SmallVector<mlir::Type> types;
  for (Value value : wait.getValues())
    for (int64_t i = 0; i < 4; ++i) {
      operands.push_back(element(value, i));
      types.push_back(operands.back().getType());
      constraints += types.back().isInteger() ? "=r," : "=f,";
      tied += (tied.empty() ? "" : ",") + number(static_cast<int64_t>(types.size()) - 1);
    }
  int64_t firstHeld = static_cast<int64_t>(2 * operands.size());
  for (Value held : wait.getHeld()) {
    operands.push_back(held);
    tied += tied.empty() ? "r" : ",r";
  }
  if (!wait.getHeld().empty()) {
    int64_t count = static_cast<int64_t>(wait.getHeld().size());
    for (int64_t i = 0; i < count; i += 4)
      text += "\n@$" + number(firstHeld + count) + " st.shared.v4.b32 [$" +
              number(firstHeld + count + 1) + "], {$" + number(firstHeld + i) + ", $" +
              number(firstHeld + i + 1) + ", $" + number(firstHeld + i + 2) + ", $" +
              number(firstHeld + i + 3) + "};";
    tied += ",b,r";
    operands.push_back(never);
    operands.push_back(sharedAddress(i32(0)));
  }
  llvm::SmallVector<Value> results = ptx(text, constraints + tied, types, operands);
  for (auto [i, result] : llvm::enumerate(wait.getResults()))
    result.replaceAllUsesWith(vectorOf(llvm::ArrayRef<Value>(results).slice(4 * i, 4)));
}

} // namespace

mlir::LogicalResult lowerToWgmma(tile::KernelOp op) { return WgmmaLowering(op).run(); }

} // namespace rho::compiler
