// The wgmma family (sm_90a): bulk copies and tensor maps that complete on barriers in shared
// memory, and matrix instructions of warpgroups with operand A in registers or in shared memory.
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
  void lowerStoreOperand(tile::StoreOperandOp store);
  void lowerMma(tile::WarpgroupMmaOp mma);
  void lowerWait(tile::WarpgroupWaitOp wait);
  void lowerGroupSum(tile::GroupSumOp sum);
  // Of a part with `rows` rows: where byte `column` of the rows lies.
  static int64_t columnOffset(int64_t rows, int64_t column);
  // The matrix descriptor of what starts `offset` bytes into a part.
  Value descriptor(Value part, int64_t offset);

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
      .Case<tile::StoreOperandOp>([&](auto o) { return lowerStoreOperand(o), true; })
      .Case<tile::WarpgroupMmaOp>([&](auto o) { return lowerMma(o), true; })
      .Case<tile::WarpgroupWaitOp>([&](auto o) { return lowerWait(o), true; })
      .Case<tile::GroupSumOp>([&](auto o) { return lowerGroupSum(o), true; })
      .Case<tile::GroupIndexOp>([&](auto o) { return o.replaceAllUsesWith(warpK), true; })
      .Default([](auto) { return false; });
}

// Barrier 0 is that of the whole CTA.
void WgmmaLowering::namedBarrier(int64_t id, int64_t threads) {
  ptx("bar.sync " + number(id) + ", " + number(threads) + ";", "", mlir::TypeRange(),
      mlir::ValueRange());
}

void WgmmaLowering::sumBarrier() { namedBarrier(2, g.groupThreads()); }

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
             i32(static_cast<int64_t>(full ? init.getProducers() : init.getConsumers()))});
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

// The other lanes of the warp have read what they needed, or written and fenced it, once the warp
// meets.
void WgmmaLowering::lowerBarrierArrive(tile::BarrierArriveOp arrive) {
  std::string fence = arrive.getFull() ? "fence.proxy.async.shared::cta;\n" : "";
  ptx(fence + "bar.warp.sync 0xffffffff;\n@$1 mbarrier.arrive.shared::cta.b64 _, [$0];", "r,b",
      mlir::TypeRange(),
      {barrierAt(arrive.getBarriers(), arrive.getSlot(), arrive.getFull()), isFirstLane});
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

int64_t WgmmaLowering::columnOffset(int64_t rows, int64_t column) {
  return column / Geometry::swizzleBytes * rows * Geometry::swizzleBytes +
         column % Geometry::swizzleBytes;
}

// PTX ISA, "matrix descriptor": rows of 128 bytes along k, eight of them 1024 bytes apart, 128-byte
// swizzle; addresses in units of 16 bytes. The swizzle is on address bits, so a start within the
// row is an offset like any other.
WgmmaLowering::Value WgmmaLowering::descriptor(Value part, int64_t offset) {
  constexpr int64_t high = (int64_t(1) << 62) | (int64_t(1024 / 16) << 32) | (int64_t(1) << 16);
  Value start = add(div(sharedAddress(part), 16), offset / 16);
  return arith::OrIOp::create(builder, loc, widen(start), i64(high));
}

// Rows are 128 bytes of k, whose eight pieces of 16 bytes are permuted by the row's last three
// bits. Lane 8 i + r has the address of row r of register i of the fragment.
void WgmmaLowering::lowerStoreOperand(tile::StoreOperandOp store) {
  int64_t column = static_cast<int64_t>(store.getStep()) * 32;
  int64_t inAtom = column % Geometry::swizzleBytes;
  Value row = add(mul(warpN, 16), mod(lane, 16));
  Value piece = arith::XOrIOp::create(builder, loc, add(mul(div(lane, 16), 16), inAtom),
                                      mul(mod(lane, 8), 16));
  Value inTile = add(mul(row, Geometry::swizzleBytes), piece);
  int64_t offset = columnOffset(g.tileN, column - inAtom) +
                   static_cast<int64_t>(store.getRowTile()) * 64 * Geometry::swizzleBytes;
  Value at = add(add(partOf(store.getBuffer(), store.getSlot()), inTile), offset);
  llvm::SmallVector<Value> operands{sharedAddress(at)};
  operands.append(store.getA().begin(), store.getA().end());
  ptx("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", "r,r,r,r,r",
      mlir::TypeRange(), operands);
}

// One text for the whole batch: what it reads in registers is written before its fence, and nothing
// comes between its instructions.
void WgmmaLowering::lowerMma(tile::WarpgroupMmaOp mma) {
  llvm::StringRef type = mma.getElement();
  bool integer = type == "s8";
  bool wide = type == "f16" || type == "bf16"; // these may be transposed
  int64_t steps = static_cast<int64_t>(mma.getSteps());
  bool apart = static_cast<bool>(mma.getOperand());
  int64_t rowTiles = g.rowTiles();
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
  if (apart) {
    Value rows = mul(div(thread, Geometry::warpgroup), rowTiles * 64 * Geometry::swizzleBytes);
    constraints += "l,";
    operands.push_back(descriptor(add(partOf(mma.getOperand(), mma.getOperandSlot()), rows), 0));
  }
  int64_t firstB = sums + static_cast<int64_t>(operands.size());
  auto columnOf = [&](int64_t step) { return (static_cast<int64_t>(mma.getFirst()) + step) * 32; };
  Value part = partOf(mma.getBuffer(), mma.getSlot());
  for (int64_t step = 0; step < steps; ++step) {
    constraints += "l,";
    operands.push_back(descriptor(part, columnOffset(g.tileM, columnOf(step))));
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
  std::string text = "{\n.reg .pred add;\n" + std::string(apart ? ".reg .b64 rows;\n" : "") +
                     "setp.ne.b32 add, " + number(fresh ? 0 : 1) +
                     ", 0;\nwgmma.fence.sync.aligned;\n";
  for (int64_t step = 0; step < steps; ++step) {
    if (fresh && step == 1)
      text += "setp.ne.b32 add, 1, 0;\n";
    for (int64_t t = 0; t < rowTiles; ++t) {
      int64_t offset = columnOffset(g.tileN, columnOf(step)) + t * 64 * Geometry::swizzleBytes;
      std::string a = apart ? "rows" : list(firstA + 4 * (step * rowTiles + t), 4);
      if (apart)
        text += "add.s64 rows, $" + number(firstA) + ", " + number(offset / 16) + ";\n";
      text += "wgmma.mma_async.sync.aligned." + shape + types + " " + list(t * perTile, perTile) +
              ", " + a + ", $" + number(firstB + step) + ", add" + (integer ? "" : ", 1, 1") +
              (wide ? ", 0" : "") + (wide && apart ? ", 0" : "") + ";\n";
    }
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

// All groups but the first leave their sums in shared memory, which the first adds in order. The
// second barrier keeps the buffer until they are read.
void WgmmaLowering::lowerGroupSum(tile::GroupSumOp sum) {
  int64_t values = static_cast<int64_t>(sum.getValues().size());
  Value first = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, warpK, i32(0));
  Value inGroup =
      mul(arith::SubIOp::create(builder, loc, thread, mul(warpK, g.groupThreads())), 16);
  auto place = [&](Value group, int64_t value) {
    Value part = add(mul(group, values), value);
    return sharedAt(
        add(add(mul(part, g.groupThreads() * 16), inGroup), offsets.lookup(sum.getBuffer())));
  };
  llvm::SmallVector<mlir::Type> types(sum.getSums().getTypes());
  auto leave = mlir::scf::IfOp::create(builder, loc, first, /*withElseRegion=*/true);
  {
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&leave.getElseRegion().front());
    Value group = arith::SubIOp::create(builder, loc, warpK, i32(1));
    for (int64_t i = 0; i < values; ++i)
      store(sum.getValues()[static_cast<unsigned>(i)], place(group, i), 16);
  }
  namedBarrier(1, g.mathThreads());
  auto gather = mlir::scf::IfOp::create(builder, loc, types, first, /*withElseRegion=*/true);
  {
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&gather.getThenRegion().front());
    llvm::SmallVector<Value> sums(sum.getValues());
    for (int64_t group = 0; group + 1 < g.warpsK; ++group)
      for (int64_t i = 0; i < values; ++i) {
        Value &total = sums[static_cast<size_t>(i)];
        Value more = load(types[static_cast<size_t>(i)], place(i32(group), i), 16);
        total = sumOf(total, more);
      }
    mlir::scf::YieldOp::create(builder, loc, sums);
    builder.setInsertionPointToStart(&gather.getElseRegion().front());
    mlir::scf::YieldOp::create(builder, loc, sum.getValues());
  }
  namedBarrier(1, g.mathThreads());
  sum.getFirst().replaceAllUsesWith(first);
  for (auto [old, now] : llvm::zip(sum.getSums(), gather.getResults()))
    old.replaceAllUsesWith(now);
}

} // namespace

mlir::LogicalResult lowerToWgmma(tile::KernelOp op) { return WgmmaLowering(op).run(); }

} // namespace rho::compiler
