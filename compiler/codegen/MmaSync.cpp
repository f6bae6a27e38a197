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
  bool lowerFamily(mlir::Operation *inner) override;
  void lowerCopyPanel(tile::CopyPanelOp copy);
  void lowerCopyPieces(tile::CopyPiecesOp copy);
  Value matrixRowAt(Value part, int64_t batchTile, Value row, Value piece,
                    int64_t rowBytes) override;
  void lowerLoadBlockScales(tile::LoadBlockScalesOp load);
  void lowerLoadBlockCodes(tile::LoadBlockCodesOp load);
  void lowerPickBlock(tile::PickBlockOp pick);
  void lowerBlockMma(tile::BlockMmaOp mma);
};

bool MmaSyncLowering::lowerFamily(mlir::Operation *inner) {
  return llvm::TypeSwitch<mlir::Operation *, bool>(inner)
      .Case<tile::CopyPanelOp>([&](auto o) { return lowerCopyPanel(o), true; })
      .Case<tile::CopyPiecesOp>([&](auto o) { return lowerCopyPieces(o), true; })
      .Case<tile::LoadBlockScalesOp>([&](auto o) { return lowerLoadBlockScales(o), true; })
      .Case<tile::LoadBlockCodesOp>([&](auto o) { return lowerLoadBlockCodes(o), true; })
      .Case<tile::PickBlockOp>([&](auto o) { return lowerPickBlock(o), true; })
      .Case<tile::BlockMmaOp>([&](auto o) { return lowerBlockMma(o), true; })
      .Default([](auto) { return false; });
}

void MmaSyncLowering::lowerCopyPanel(tile::CopyPanelOp copy) {
  Value part = shareOf(copy), from = firstByteOf(copy);
  forEachPiece(copy.copiedBytes() / 16, [&](Value piece, Value exists) {
    Value offset = mul(piece, 16);
    copyPiece(sharedAt(add(part, offset)), globalAt(from, widen(offset)), Value(), exists);
  });
}

void MmaSyncLowering::lowerCopyPieces(tile::CopyPiecesOp copy) {
  Value from = firstByteOf(copy);
  Value count = sub(copy.getEnd(), copy.getFirst());
  Value bytes = mul(count, copy.getPieceBytes());
  Value part = partOf(copy.getBuffer(), copy.getSlot());
  forEachPiece(copy.getBuffer().getType().getBytes() / 16, [&](Value piece, Value) {
    Value offset = mul(piece, 16);
    copyPiece(sharedAt(add(part, offset)), globalAt(from, widen(offset)), Value(),
              less(offset, bytes));
  });
}

// Rows of at least 128 bytes are permuted by their low three bits; of shorter ones several share
// 128 bytes, and the permutation uses the bits above.
MmaSyncLowering::Value MmaSyncLowering::matrixRowAt(Value part, int64_t batchTile, Value row,
                                                    Value piece, int64_t rowBytes) {
  int64_t sharing = std::max<int64_t>(1, 128 / rowBytes);
  int64_t pieces = std::min<int64_t>(rowBytes / 16, 8);
  Value swizzled = arith::XOrIOp::create(builder, loc, piece, mod(div(row, sharing), pieces));
  Value first = mul(add(mul(warpM, g.warpM()), row), rowBytes);
  return add(add(add(part, first), batchTile * 8 * rowBytes), mul(swizzled, 16));
}

// Words of weights lie in the order of blockScaleOrder() in plan/PackedLayout.cpp, those of
// activations in the order [word][batch row].
void MmaSyncLowering::lowerLoadBlockScales(tile::LoadBlockScalesOp op) {
  int64_t word = op.getWord(), tile = op.getTile();
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

void MmaSyncLowering::lowerLoadBlockCodes(tile::LoadBlockCodesOp op) {
  int64_t word = op.getWord(), tile = op.getTile();
  Value index;
  if (op.getWeight()) {
    int64_t halves = std::min<int64_t>(4, 2 * g.rowTiles());
    Value own = add(mul(laneRow, halves), tile % 2 * 2);
    index = add(add(own, mul(warpN, g.warpN())), word * g.tileN + tile / 2 * 32);
  } else {
    index = add(add(laneRow, mul(warpM, g.warpM())), word * g.tileM + tile * 8);
  }
  Value at = add(partOf(op.getBuffer(), op.getSlot()), mul(index, 4));
  int64_t bytes = op.getType().getNumElements() * 4;
  op.replaceAllUsesWith(vectorOf(loadWords(sharedAt(at), bytes)));
}

void MmaSyncLowering::lowerPickBlock(tile::PickBlockOp op) {
  constexpr int64_t others = 0x4440;
  Value selector = i32(op.getByte() | others);
  if (int64_t spread = op.getSpread(); spread > 1)
    selector = add(selector, div(laneColumn, 4 / spread));
  op.replaceAllUsesWith(permute(op.getCodes(), i32(0xcc), selector));
}

void MmaSyncLowering::lowerBlockMma(tile::BlockMmaOp op) {
  const char *intrinsic =
      op.getElement() == "e4m3"
          ? "llvm.nvvm.mma.block.scale.m16n8k32.row.col.mxf8f6f4.scale.1x.f32.e4m3.e4m3.f32.ue8m0"
      : op.getScale() == "ue8m0"
          ? "llvm.nvvm.mma.block.scale.m16n8k64.row.col.mxf4.scale.2x.f32.e2m1.e2m1.f32.ue8m0"
          : "llvm.nvvm.mma.block.scale.m16n8k64.row.col.mxf4nvf4.scale.4x.f32.e2m1.e2m1.f32.ue4m3";
  std::vector<Value> operands = mmaOperands(op.getA(), op.getB(), op.getStep(), op.getC());
  auto selector = [&](int64_t value) -> Value {
    return arith::ConstantIntOp::create(builder, loc, builder.getI16Type(), value);
  };
  operands.insert(operands.end(),
                  {op.getScaleA(), selector(op.getByte()), selector(op.getThreadA()),
                   op.getScaleB(), selector(op.getByte()), selector(op.getThreadB())});
  op.replaceAllUsesWith(mmaResult(intrinsic, op.getC(), operands));
}

} // namespace

mlir::LogicalResult lowerToMmaSync(tile::KernelOp op) { return MmaSyncLowering(op).run(); }

} // namespace rho::compiler
