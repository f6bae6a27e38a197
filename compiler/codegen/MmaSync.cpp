#include "compiler/codegen/MmaSync.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/ADT/TypeSwitch.h"

#include <bit>

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

MmaSyncLowering::MmaSyncLowering(tile::KernelOp op)
    : op(op), builder(op.getContext()), loc(op.getLoc()) {
  tile::GeometryAttr a = op.getGeometry();
  int bits = dsl::ElementType::get(a.getMma().str()).bits();
  g = {a.getTileM(), a.getTileN(), a.getTileK(), a.getWarpsM(), a.getWarpsN(), 256 / bits, bits};
  splits = a.getSplitK();
}

mlir::LogicalResult MmaSyncLowering::run() {
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
  for (mlir::Operation *inner : operations)
    if (mlir::failed(lower(inner)))
      return mlir::failure();
  for (tile::AllocSharedOp alloc : llvm::make_early_inc_range(entry->getOps<tile::AllocSharedOp>()))
    alloc.erase();
  op.erase();
  return mlir::success();
}

void MmaSyncLowering::createFunction() {
  builder.setInsertionPoint(op);
  mlir::Block &body = op.getBody().front();
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(op.getContext()),
                                          llvm::to_vector(body.getArgumentTypes()));
  std::string name = op.getSymName().str();
  auto function = LLVM::LLVMFuncOp::create(builder, loc, name, type);
  function->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), builder.getUnitAttr());
  function->setAttr(NVVM::NVVMDialect::getReqntidAttrName(),
                    builder.getDenseI32ArrayAttr({static_cast<int32_t>(g.threads()), 1, 1}));
  function->setAttr("rho.target", op.getTargetAttr());
  function.getBody().takeBody(op.getBody());
  builder.setInsertionPointToEnd(&function.getBody().front());
  LLVM::ReturnOp::create(builder, loc, mlir::ValueRange());
  builder.setInsertionPoint(function);
  auto global =
      LLVM::GlobalOp::create(builder, loc, LLVM::LLVMArrayType::get(builder.getI8Type(), 0), false,
                             LLVM::Linkage::External, name + "_shared", mlir::Attribute(), 128, 3);
  builder.setInsertionPointToStart(&function.getBody().front());
  shared = LLVM::AddressOfOp::create(builder, loc, global);
  entry = &function.getBody().front();
}

void MmaSyncLowering::assignShared() {
  int64_t next = 0;
  for (tile::AllocSharedOp alloc : entry->getOps<tile::AllocSharedOp>()) {
    offsets[alloc.getBuffer()] = next;
    tile::SharedType type = alloc.getBuffer().getType();
    next += (type.getBytes() * type.getStages() + 127) / 128 * 128;
  }
}

void MmaSyncLowering::computeThreadValues() {
  mlir::Type type = builder.getI32Type();
  thread = NVVM::ThreadIdXOp::create(builder, loc, type);
  tileN = NVVM::BlockIdXOp::create(builder, loc, type);
  tileM = NVVM::BlockIdYOp::create(builder, loc, type);
  lane = mod(thread, 32);
  Value warp = div(thread, 32);
  warpN = mod(warp, g.warpsN);
  warpM = div(warp, g.warpsN);
  laneRow = div(lane, 4);
  laneColumn = mod(lane, 4);
  firstRow = add(mul(warpN, g.warpN()), mul(laneRow, g.rowsPerThread()));
  codesBase = add(mul(warpN, g.chunks() * g.rowTiles() * 512), mul(lane, 16));
  // Rows of at least 128 bytes are permuted by their low three bits; of shorter ones several share
  // 128 bytes, and the permutation uses the bits above.
  int64_t rowBytes = g.activationRowBytes();
  int64_t sharing = std::max<int64_t>(1, 128 / rowBytes);
  int64_t pieces = std::min<int64_t>(rowBytes / 16, 8);
  swizzle = mod(div(mod(lane, 8), sharing), pieces);
  activationBase = mul(add(mul(warpM, g.warpM()), mod(lane, 8)), rowBytes);
}

mlir::LogicalResult MmaSyncLowering::lower(mlir::Operation *inner) {
  loc = inner->getLoc();
  builder.setInsertionPoint(inner);
  bool known =
      llvm::TypeSwitch<mlir::Operation *, bool>(inner)
          .Case<tile::AllocSharedOp>([](auto) { return true; })
          .Case<tile::CopyTileOp>([&](auto o) { return lowerCopyTile(o), true; })
          .Case<tile::CopyRowsOp>([&](auto o) { return lowerCopyRows(o), true; })
          .Case<tile::LoadCodesOp>([&](auto o) { return lowerLoadCodes(o), true; })
          .Case<tile::LoadActivationOp>([&](auto o) { return lowerLoadActivation(o), true; })
          .Case<tile::LoadRowCodesOp>([&](auto o) { return lowerLoadRowCodes(o), true; })
          .Case<tile::LoadColumnScalesOp>([&](auto o) { return lowerLoadColumnScales(o), true; })
          .Case<tile::ConvertScalesOp>([&](auto o) { return lowerConvertScales(o), true; })
          .Case<tile::MmaOp>([&](auto o) { return lowerMma(o), true; })
          .Case<tile::ScaleOp>([&](auto o) { return lowerScale(o), true; })
          .Case<tile::SplitSumOp>([&](auto o) { return lowerSplitSum(o), true; })
          .Case<tile::LoadRowScalesOp>([&](auto o) { return lowerLoadRowScales(o), true; })
          .Case<tile::LoadTokenScalesOp>([&](auto o) { return lowerLoadTokenScales(o), true; })
          .Case<tile::LoadTensorScaleOp>([&](auto o) { return lowerLoadTensorScale(o), true; })
          .Case<tile::StoreOutputOp>([&](auto o) { return lowerStoreOutput(o), true; })
          .Case<tile::ExtractOp>([&](tile::ExtractOp o) {
            o.replaceAllUsesWith(element(o.getVector(), static_cast<int64_t>(o.getPosition())));
            return true;
          })
          .Case<tile::ZeroOp>([&](tile::ZeroOp o) {
            o.replaceAllUsesWith(
                arith::ConstantOp::create(builder, loc, builder.getZeroAttr(o.getType()))
                    .getResult());
            return true;
          })
          .Default([](auto) { return false; });
  if (!known)
    return inner->emitOpError("has no lowering for the mma.sync family");
  if (!llvm::isa<tile::AllocSharedOp>(inner))
    inner->erase();
  return mlir::success();
}

MmaSyncLowering::Value MmaSyncLowering::i32(int64_t value) {
  return arith::ConstantIntOp::create(builder, loc, builder.getI32Type(), value);
}
MmaSyncLowering::Value MmaSyncLowering::i64(int64_t value) {
  return arith::ConstantIntOp::create(builder, loc, builder.getI64Type(), value);
}
MmaSyncLowering::Value MmaSyncLowering::add(Value a, Value b) {
  return arith::AddIOp::create(builder, loc, a, b);
}
MmaSyncLowering::Value MmaSyncLowering::add(Value a, int64_t b) {
  return b == 0 ? a : add(a, a.getType().isInteger(64) ? i64(b) : i32(b));
}
MmaSyncLowering::Value MmaSyncLowering::mul(Value a, Value b) {
  return arith::MulIOp::create(builder, loc, a, b);
}
MmaSyncLowering::Value MmaSyncLowering::mul(Value a, int64_t b) {
  return b == 1 ? a : mul(a, a.getType().isInteger(64) ? i64(b) : i32(b));
}
MmaSyncLowering::Value MmaSyncLowering::div(Value a, int64_t powerOfTwo) {
  if (powerOfTwo == 1)
    return a;
  return arith::ShRUIOp::create(builder, loc, a,
                                i32(std::countr_zero(static_cast<uint64_t>(powerOfTwo))));
}
MmaSyncLowering::Value MmaSyncLowering::mod(Value a, int64_t powerOfTwo) {
  return arith::AndIOp::create(builder, loc, a, i32(powerOfTwo - 1));
}
MmaSyncLowering::Value MmaSyncLowering::less(Value a, Value b) {
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, a, b);
}
MmaSyncLowering::Value MmaSyncLowering::widen(Value a) {
  return arith::ExtUIOp::create(builder, loc, builder.getI64Type(), a);
}
MmaSyncLowering::Value MmaSyncLowering::globalAt(Value base, Value byteOffset) {
  return LLVM::GEPOp::create(builder, loc, LLVM::LLVMPointerType::get(op.getContext(), 1),
                             builder.getI8Type(), base, llvm::ArrayRef<LLVM::GEPArg>{byteOffset});
}
MmaSyncLowering::Value MmaSyncLowering::sharedAt(Value byteOffset) {
  return LLVM::GEPOp::create(builder, loc, LLVM::LLVMPointerType::get(op.getContext(), 3),
                             builder.getI8Type(), shared, llvm::ArrayRef<LLVM::GEPArg>{byteOffset});
}
MmaSyncLowering::Value MmaSyncLowering::partOf(Value buffer, Value slot) {
  int64_t bytes = llvm::cast<tile::SharedType>(buffer.getType()).getBytes();
  return add(mul(slot, bytes), offsets.lookup(buffer));
}
MmaSyncLowering::Value MmaSyncLowering::load(mlir::Type type, Value pointer, int64_t alignment) {
  return LLVM::LoadOp::create(builder, loc, type, pointer, static_cast<unsigned>(alignment));
}
void MmaSyncLowering::store(Value value, Value pointer, int64_t alignment) {
  LLVM::StoreOp::create(builder, loc, value, pointer, static_cast<unsigned>(alignment));
}
MmaSyncLowering::Value MmaSyncLowering::element(Value vector, int64_t position) {
  return LLVM::ExtractElementOp::create(builder, loc, vector, i32(position));
}
MmaSyncLowering::Value MmaSyncLowering::vectorOf(llvm::ArrayRef<Value> values) {
  auto type = mlir::VectorType::get({static_cast<int64_t>(values.size())}, values[0].getType());
  Value vector = LLVM::PoisonOp::create(builder, loc, type);
  for (size_t i = 0; i < values.size(); ++i)
    vector = LLVM::InsertElementOp::create(builder, loc, vector, values[i],
                                           i32(static_cast<int64_t>(i)));
  return vector;
}

std::vector<MmaSyncLowering::Value> MmaSyncLowering::loadWords(Value pointer, int64_t bytes) {
  mlir::Type word = builder.getI32Type();
  if (bytes < 4) {
    Value narrow = load(builder.getIntegerType(static_cast<unsigned>(8 * bytes)), pointer, bytes);
    return {arith::ExtUIOp::create(builder, loc, word, narrow)};
  }
  std::vector<Value> words;
  for (int64_t at = 0; at < bytes; at += 16) {
    int64_t size = std::min<int64_t>(16, bytes - at);
    Value piece = LLVM::GEPOp::create(builder, loc, pointer.getType(), builder.getI8Type(), pointer,
                                      llvm::ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(at)});
    if (size == 4) {
      words.push_back(load(word, piece, 4));
      continue;
    }
    Value vector = load(mlir::VectorType::get({size / 4}, word), piece, size);
    for (int64_t i = 0; i < size / 4; ++i)
      words.push_back(element(vector, i));
  }
  return words;
}

} // namespace rho::compiler
