// The mma.sync family (sm_80 and later): asynchronous copies of 16 bytes a thread and instruction,
// ldmatrix, and matrix instructions of single warps.
#include "compiler/codegen/Families.h"
#include "compiler/codegen/KernelLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/ADT/TypeSwitch.h"

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

namespace {

class MmaSyncLowering final : public KernelLowering {
public:
  using KernelLowering::KernelLowering;

private:
  // Of this lane's ldmatrix row.
  struct MatrixRow {
    Value swizzle; // exclusive-or mask of its 16-byte pieces
    Value base;    // its byte in a part, batch tile 0
  };
  MatrixRow ownRow; // of rows as the geometry says

  MatrixRow matrixRow(int64_t rowBytes);
  void computeFamilyValues() override;
  bool lowerFamily(mlir::Operation *inner) override;
  void lowerCopyTile(tile::CopyTileOp copy);
  void lowerLoadActivation(tile::LoadActivationOp load);
  void lowerMma(tile::MmaOp mma);
  void lowerLoadBlockScales(tile::LoadBlockScalesOp load);
  void lowerBlockMma(tile::BlockMmaOp mma);
  // Operands A, B and C of an instruction, each register one.
  std::vector<Value> mmaOperands(mlir::ValueRange a, Value b, int64_t step, Value c);
  Value mmaResult(llvm::StringRef intrinsic, Value c, mlir::ValueRange operands);
};

void MmaSyncLowering::computeFamilyValues() { ownRow = matrixRow(g.activationRowBytes()); }

MmaSyncLowering::MatrixRow MmaSyncLowering::matrixRow(int64_t rowBytes) {
  // Rows of at least 128 bytes are permuted by their low three bits; of shorter ones several share
  // 128 bytes, and the permutation uses the bits above.
  int64_t sharing = std::max<int64_t>(1, 128 / rowBytes);
  int64_t pieces = std::min<int64_t>(rowBytes / 16, 8);
  Value swizzle = mod(div(mod(lane, 8), sharing), pieces);
  return {swizzle, mul(add(mul(warpM, g.warpM()), mod(lane, 8)), rowBytes)};
}

bool MmaSyncLowering::lowerFamily(mlir::Operation *inner) {
  return llvm::TypeSwitch<mlir::Operation *, bool>(inner)
      .Case<tile::CopyTileOp>([&](auto o) { return lowerCopyTile(o), true; })
      .Case<tile::LoadActivationOp>([&](auto o) { return lowerLoadActivation(o), true; })
      .Case<tile::MmaOp>([&](auto o) { return lowerMma(o), true; })
      .Case<tile::LoadBlockScalesOp>([&](auto o) { return lowerLoadBlockScales(o), true; })
      .Case<tile::BlockMmaOp>([&](auto o) { return lowerBlockMma(o), true; })
      .Default([](auto) { return false; });
}

void MmaSyncLowering::lowerCopyTile(tile::CopyTileOp copy) {
  int64_t bytes = copy.getBuffer().getType().getBytes();
  Value part = partOf(copy.getBuffer(), copy.getSlot());
  Value from = globalAt(copy.getSource(), add(mul(widen(copy.getTile()), bytes),
                                              static_cast<int64_t>(copy.getBase())));
  forEachPiece(bytes / 16, [&](Value piece, Value exists) {
    Value offset = mul(piece, 16);
    copyPiece(sharedAt(add(part, offset)), globalAt(from, widen(offset)), Value(), exists);
  });
}

// ldmatrix row addresses: lanes 8 i .. 8 i + 7 give the rows of matrix i, 16 bytes of k each. The
// matrices of one chunk are consecutive along k, two for each instruction.
void MmaSyncLowering::lowerLoadActivation(tile::LoadActivationOp op) {
  int64_t matrices = op.getType().getNumElements();
  int64_t rowBytes = g.activationRowBytes();
  MatrixRow lanes = ownRow;
  if (op.getRowBytes()) {
    rowBytes = static_cast<int64_t>(*op.getRowBytes());
    lanes = matrixRow(rowBytes);
  }
  int64_t firstPiece = static_cast<int64_t>(op.getChunk()) * matrices;
  Value row = add(add(partOf(op.getBuffer(), op.getSlot()), lanes.base),
                  static_cast<int64_t>(op.getBatchTile()) * 8 * rowBytes);
  Value matrixOfLane = div(lane, 8);
  std::vector<Value> words;
  for (int64_t done = 0; done < matrices; done += 4) {
    int64_t count = std::min<int64_t>(4, matrices - done);
    // With two matrices the addresses of lanes 16 and above are not used; keep them valid.
    Value piece = add(count == 2 ? mod(matrixOfLane, 2) : matrixOfLane, firstPiece + done);
    Value place = arith::XOrIOp::create(builder, loc, piece, lanes.swizzle);
    Value address = sharedAt(add(row, mul(place, 16)));
    llvm::SmallVector<mlir::Type> types(static_cast<size_t>(count), builder.getI32Type());
    auto structure = LLVM::LLVMStructType::getLiteral(op.getContext(), types);
    auto shape = NVVM::LdStMatrixShapeAttr::get(op.getContext(), 8, 8);
    Value loaded =
        NVVM::LdMatrixOp::create(builder, loc, structure, address, static_cast<uint32_t>(count),
                                 NVVM::MMALayout::row, shape, NVVM::LdStMatrixEltType::B16);
    for (int64_t i = 0; i < count; ++i)
      words.push_back(LLVM::ExtractValueOp::create(builder, loc, loaded, i));
  }
  op.replaceAllUsesWith(vectorOf(words));
}

std::vector<KernelLowering::Value> MmaSyncLowering::mmaOperands(mlir::ValueRange a, Value b,
                                                                int64_t step, Value c) {
  std::vector<Value> operands(a.begin(), a.end());
  for (int64_t i = 0; i < 2; ++i)
    operands.push_back(element(b, 2 * step + i));
  for (int64_t i = 0; i < 4; ++i)
    operands.push_back(element(c, i));
  return operands;
}

KernelLowering::Value MmaSyncLowering::mmaResult(llvm::StringRef intrinsic, Value c,
                                                 mlir::ValueRange operands) {
  llvm::SmallVector<mlir::Type> types(4,
                                      llvm::cast<mlir::VectorType>(c.getType()).getElementType());
  auto structure = LLVM::LLVMStructType::getLiteral(op.getContext(), types);
  auto call = LLVM::CallIntrinsicOp::create(builder, loc, structure,
                                            builder.getStringAttr(intrinsic), operands);
  std::vector<Value> results;
  for (int64_t i = 0; i < 4; ++i)
    results.push_back(LLVM::ExtractValueOp::create(builder, loc, call.getResult(0), i));
  return vectorOf(results);
}

void MmaSyncLowering::lowerMma(tile::MmaOp op) {
  llvm::StringRef type = op.getElement();
  const char *intrinsic = type == "f16"    ? "llvm.nvvm.mma.m16n8k16.row.col.f32.f32"
                          : type == "bf16" ? "llvm.nvvm.mma.m16n8k16.row.col.bf16"
                          : type == "e4m3" ? "llvm.nvvm.mma.m16n8k32.row.col.f32.e4m3.e4m3.f32"
                          : type == "s8"   ? "llvm.nvvm.mma.m16n8k32.row.col.s8"
                                           : "llvm.nvvm.mma.m16n8k64.row.col.s4";
  std::vector<Value> operands =
      mmaOperands(op.getA(), op.getB(), static_cast<int64_t>(op.getStep()), op.getC());
  constexpr size_t multiplied = 6; // registers of A and B
  for (size_t i = 0; type == "f16" && i < multiplied; ++i)
    operands[i] = LLVM::BitcastOp::create(
        builder, loc, mlir::VectorType::get({2}, builder.getF16Type()), operands[i]);
  op.replaceAllUsesWith(mmaResult(intrinsic, op.getC(), operands));
}

// Words of weights lie in the order of blockScaleOrder() in plan/Geometry.cpp, those of activations
// in the order [word][batch row].
void MmaSyncLowering::lowerLoadBlockScales(tile::LoadBlockScalesOp op) {
  int64_t word = static_cast<int64_t>(op.getWord()), tile = static_cast<int64_t>(op.getTile());
  Value index;
  if (op.getWeight()) {
    int64_t halves = std::min<int64_t>(4, 2 * g.rowTiles());
    Value own = add(mul(laneRow, halves), mod(laneColumn, halves));
    index = add(add(own, mul(warpN, g.warpN())), word * g.tileN + tile * 16);
  } else {
    int64_t tiles = std::min<int64_t>(4, g.batchTiles());
    Value own = add(mul(mod(laneColumn, tiles), 8), laneRow);
    index = add(add(own, mul(warpM, g.warpM())), word * g.tileM + tile * 8);
  }
  Value at = add(partOf(op.getBuffer(), op.getSlot()), mul(index, 4));
  op.replaceAllUsesWith(load(builder.getI32Type(), sharedAt(at), 4));
}

void MmaSyncLowering::lowerBlockMma(tile::BlockMmaOp op) {
  const char *intrinsic =
      op.getElement() == "e4m3"
          ? "llvm.nvvm.mma.block.scale.m16n8k32.row.col.mxf8f6f4.scale.1x.f32.e4m3.e4m3.f32.ue8m0"
      : op.getScale() == "ue8m0"
          ? "llvm.nvvm.mma.block.scale.m16n8k64.row.col.mxf4.scale.2x.f32.e2m1.e2m1.f32.ue8m0"
          : "llvm.nvvm.mma.block.scale.m16n8k64.row.col.mxf4nvf4.scale.4x.f32.e2m1.e2m1.f32.ue4m3";
  std::vector<Value> operands =
      mmaOperands(op.getA(), op.getB(), static_cast<int64_t>(op.getStep()), op.getC());
  auto selector = [&](uint64_t value) -> Value {
    return arith::ConstantIntOp::create(builder, loc, builder.getI16Type(),
                                        static_cast<int64_t>(value));
  };
  operands.insert(operands.end(),
                  {op.getScaleA(), selector(op.getByte()), selector(op.getThreadA()),
                   op.getScaleB(), selector(op.getByte()), selector(op.getThreadB())});
  op.replaceAllUsesWith(mmaResult(intrinsic, op.getC(), operands));
}

} // namespace

mlir::LogicalResult lowerToMmaSync(tile::KernelOp op) { return MmaSyncLowering(op).run(); }

} // namespace rho::compiler
