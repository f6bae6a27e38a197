#include "compiler/codegen/KernelLowering.h"

#include "compiler/codegen/CompileModule.h"
#include "dsl/Division.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/ADT/TypeSwitch.h"

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

KernelLowering::KernelLowering(tile::KernelOp op)
    : DeviceBuilder(op.getContext(), op.getLoc()), op(op) {
  tile::GeometryAttr a = op.getGeometry();
  // The rest, which says how codes are decoded, is lowered by now.
  g = {.tileM = a.getTileM(),
       .tileN = a.getTileN(),
       .tileK = a.getTileK(),
       .warpsM = a.getWarpsM(),
       .warpsN = a.getWarpsN(),
       .warpsK = a.getWarpsK(),
       .mmaK = mmaRowBits / dsl::ElementType::get(a.getMma().str()).bits(),
       .weightBits = static_cast<int>(a.getCodeBits()),
       .roles = *dsl::named<dsl::ScheduleDecl::Roles>(a.getRoles()),
       .streamK = a.getSplitK() == dsl::ScheduleDecl::streamK,
       .clusterN = a.getClusterN(),
       .clusterK = a.getClusterK(),
       .panelWarps = a.getPanelWarps()};
}

mlir::LogicalResult KernelLowering::run() {
  createFunction();
  assignShared();
  computeThreadValues();
  llvm::SmallVector<mlir::Operation *> operations;
  // Decodes are left to their own pass, which also finds those that this lowering adds.
  entry->getParentOp()->walk([&](mlir::Operation *inner) {
    if (llvm::isa_and_present<tile::TileDialect>(inner->getDialect()) &&
        !llvm::isa<tile::DecodeOp>(inner))
      operations.push_back(inner);
  });
  for (mlir::Operation *inner : operations) {
    loc = inner->getLoc();
    builder.setInsertionPoint(inner);
    if (!lowerFamily(inner) && !lowerCommon(inner))
      return inner->emitOpError("has no lowering for this family of instructions");
    if (!llvm::isa<tile::AllocSharedOp>(inner))
      inner->erase();
  }
  for (tile::AllocSharedOp alloc : llvm::make_early_inc_range(entry->getOps<tile::AllocSharedOp>()))
    alloc.erase();
  op.erase();
  return mlir::success();
}

void KernelLowering::createFunction() {
  builder.setInsertionPoint(op);
  mlir::Block &body = op.getBody().front();
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(op.getContext()),
                                          llvm::to_vector(body.getArgumentTypes()));
  std::string name = op.getSymName().str();
  auto function = LLVM::LLVMFuncOp::create(builder, loc, name, type);
  function->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), builder.getUnitAttr());
  function->setAttr(NVVM::NVVMDialect::getReqntidAttrName(),
                    builder.getDenseI32ArrayAttr({static_cast<int32_t>(g.threads()), 1, 1}));
  if (g.specialized()) // ptxas needs a bound at entry to let warps exchange registers
    function->setAttr(
        NVVM::NVVMDialect::getMaxnregAttrName(),
        builder.getI32IntegerAttr(static_cast<int32_t>(
            divideRegisters(g.mathRoleThreads(), g.decodeThreads(), op.getCtasPerSm()).start)));
  if (g.gemv()) // without a bound ptxas trades warps, whose loads hide latency, for registers
    function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                      builder.getI32IntegerAttr(static_cast<int32_t>(op.getCtasPerSm())));
  function->setAttr(targetAttribute, op.getTargetAttr());
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto pointer = llvm::dyn_cast<LLVM::LLVMPointerType>(type.getParamType(i));
    if (!pointer || pointer.getAddressSpace() != 0)
      continue;
    // A tensor map by value: CUtensorMap has 128 bytes.
    function.setArgAttr(i, LLVM::LLVMDialect::getByValAttrName(),
                        mlir::TypeAttr::get(LLVM::LLVMArrayType::get(builder.getI8Type(), 128)));
    function.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(), builder.getI64IntegerAttr(64));
    function.setArgAttr(i, NVVM::NVVMDialect::getGridConstantAttrName(), builder.getUnitAttr());
  }
  function.getBody().takeBody(op.getBody());
  builder.setInsertionPointToEnd(&function.getBody().front());
  LLVM::ReturnOp::create(builder, loc, mlir::ValueRange());
  builder.setInsertionPoint(function);
  auto global =
      LLVM::GlobalOp::create(builder, loc, LLVM::LLVMArrayType::get(builder.getI8Type(), 0), false,
                             LLVM::Linkage::External, name + "_shared", mlir::Attribute(),
                             static_cast<uint64_t>(g.sharedAlignment()), 3);
  builder.setInsertionPointToStart(&function.getBody().front());
  shared = LLVM::AddressOfOp::create(builder, loc, global);
  entry = &function.getBody().front();
}

void KernelLowering::assignShared() {
  int64_t next = 0, overStages = 0;
  for (tile::AllocSharedOp alloc : entry->getOps<tile::AllocSharedOp>()) {
    int64_t &place = alloc.getOverStages() ? overStages : next;
    offsets[alloc.getBuffer()] = place;
    tile::SharedType type = alloc.getBuffer().getType();
    place += roundUp(type.getBytes() * type.getStages(), g.sharedAlignment());
  }
}

void KernelLowering::computeThreadValues() {
  mlir::Type type = builder.getI32Type();
  thread = NVVM::ThreadIdXOp::create(builder, loc, type);
  lane = mod(thread, 32);
  Value warp = div(thread, 32);
  warpN = mod(warp, g.warpsN);
  warpM = mod(div(warp, g.warpsN), g.warpsM);
  warpK = div(warp, g.warpsN * g.warpsM);
  laneRow = div(lane, 4);
  laneColumn = mod(lane, 4);
  firstRow = add(mul(warpN, g.warpN()), mul(laneRow, g.rowsPerThread()));
  bool onePanel = g.panelWarps == g.warpsN;
  panel = onePanel ? i32(0) : div(warpN, g.panelWarps);
  rowInPanel = onePanel ? firstRow : mod(firstRow, g.panelRows());
  Value warpInPanel = onePanel ? warpN : mod(warpN, g.panelWarps);
  Value firstWarp = add(mul(panel, g.chunks() * g.panelWarps), warpInPanel);
  firstCodes = add(mul(firstWarp, g.rowTiles() * 32), lane);
  firstBatch = add(mul(warpM, g.warpM()), mul(laneColumn, 2));
  firstScale = firstBatch;
  copyThread = thread;
  copyThreads = g.threads();
  computeFamilyValues();
}

bool KernelLowering::lowerCommon(mlir::Operation *inner) {
  return llvm::TypeSwitch<mlir::Operation *, bool>(inner)
      .Case<tile::AllocSharedOp>([](auto) { return true; })
      .Case<tile::CopyRowsOp>([&](auto o) { return lowerCopyRows(o), true; })
      .Case<tile::LoadActivationOp>([&](auto o) { return lowerLoadActivation(o), true; })
      .Case<tile::MmaOp>([&](auto o) { return lowerMma(o), true; })
      .Case<tile::BandWordOp>([&](auto o) { return lowerBandWord(o), true; })
      .Case<tile::FindPiecesOp>([&](auto o) { return lowerFindPieces(o), true; })
      .Case<tile::PrefetchOp>([&](auto o) { return lowerPrefetch(o), true; })
      .Case<tile::LoadPieceOp>([&](auto o) { return lowerLoadPiece(o), true; })
      .Case<tile::LoadCodesOp>([&](auto o) { return lowerLoadCodes(o), true; })
      .Case<tile::LoadRowCodesOp>([&](auto o) { return lowerLoadRowCodes(o), true; })
      .Case<tile::LoadColumnScalesOp>([&](auto o) { return lowerLoadColumnScales(o), true; })
      .Case<tile::ConvertScalesOp>([&](auto o) { return lowerConvertScales(o), true; })
      .Case<tile::PairOp>([&](auto o) { return lowerPair(o), true; })
      .Case<tile::FillPairTablesOp>([&](auto o) { return lowerFillPairTables(o), true; })
      .Case<tile::PairTablesOp>([&](tile::PairTablesOp o) {
        Value begin = sharedAt(i32(static_cast<int32_t>(offsets.lookup(o.getBuffer()))));
        o.getLane().replaceAllUsesWith(mul(lane, 4));
        o.getBegin().replaceAllUsesWith(
            LLVM::PtrToIntOp::create(builder, loc, builder.getI32Type(), begin).getResult());
        return true;
      })
      .Case<tile::ScaleOp>([&](auto o) { return lowerScale(o), true; })
      .Case<tile::SplitSumOp>([&](auto o) { return lowerSplitSum(o), true; })
      .Case<tile::GroupSumOp>([&](auto o) { return lowerGroupSum(o), true; })
      .Case<tile::GroupIndexOp>([&](auto o) { return o.replaceAllUsesWith(warpK), true; })
      .Case<tile::LoadRowScalesOp>([&](auto o) { return lowerLoadRowScales(o), true; })
      .Case<tile::LoadTokenScalesOp>([&](auto o) { return lowerLoadTokenScales(o), true; })
      .Case<tile::LoadTensorScaleOp>([&](auto o) { return lowerLoadTensorScale(o), true; })
      .Case<tile::StoreOutputOp>([&](auto o) { return lowerStoreOutput(o), true; })
      .Case<tile::LoadEntryOp>([&](tile::LoadEntryOp o) {
        Value at = globalAt(o.getTable(), mul(widen(o.getIndex()), 4));
        o.replaceAllUsesWith(load(builder.getI32Type(), at, 4));
        return true;
      })
      .Case<tile::LaunchDependentsOp>(
          [&](auto) { return effect("griddepcontrol.launch_dependents;"), true; })
      .Case<tile::WaitDependencyOp>([&](auto) { return effect("griddepcontrol.wait;"), true; })
      .Case<tile::ExtractOp>([&](tile::ExtractOp o) {
        o.replaceAllUsesWith(element(o.getVector(), o.getPosition()));
        return true;
      })
      .Case<tile::JoinOp>([&](tile::JoinOp o) {
        std::vector<Value> words(o.getWords().begin(), o.getWords().end());
        o.replaceAllUsesWith(vectorOf(words));
        return true;
      })
      .Case<tile::LoadTensorCodeOp>([&](tile::LoadTensorCodeOp o) {
        Value at = globalAt(o.getSource(), i64(o.getBase()));
        o.replaceAllUsesWith(loadWords(at, o.getBits() / 8)[0]);
        return true;
      })
      .Case<tile::ZeroOp>([&](tile::ZeroOp o) {
        o.replaceAllUsesWith(
            arith::ConstantOp::create(builder, loc, builder.getZeroAttr(o.getType())).getResult());
        return true;
      })
      .Default([](auto) { return false; });
}

void KernelLowering::sumBarrier() { NVVM::Barrier0Op::create(builder, loc); }
void KernelLowering::mathBarrier() { NVVM::Barrier0Op::create(builder, loc); }
KernelLowering::Value KernelLowering::sumCluster(Value, Value first, llvm::SmallVector<Value> &) {
  return first;
}

KernelLowering::Value KernelLowering::partOf(Value buffer, Value slot) {
  int64_t bytes = llvm::cast<tile::SharedType>(buffer.getType()).getBytes();
  return add(mul(slot, bytes), offsets.lookup(buffer));
}
KernelLowering::Value KernelLowering::sumAt(Value part, int64_t values, int64_t value) {
  int64_t bytes = g.groupThreads() * 16; // of one accumulator of all threads
  Value own = add(mul(mod(thread, g.groupThreads()), 16), value * bytes);
  return add(mul(part, values * bytes), part.getType().isInteger(64) ? widen(own) : own);
}
} // namespace rho::compiler
