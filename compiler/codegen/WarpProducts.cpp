// Products of single warps: operand B by ldmatrix, mma.sync, and the stored pieces of a residual.
#include "compiler/LayoutMap.h"
#include "compiler/codegen/KernelLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

// ldmatrix row addresses: lanes 8 i .. 8 i + 7 give the rows of matrix i, 16 bytes of k each. The
// matrices of one chunk are consecutive along k, two for each instruction.
void KernelLowering::lowerLoadActivation(tile::LoadActivationOp op) {
  int64_t matrices = op.getType().getNumElements();
  int64_t firstPiece = static_cast<int64_t>(op.getChunk()) * matrices;
  auto rowBytes = static_cast<int64_t>(
      op.getRowBytes().value_or(static_cast<uint64_t>(g.activationRowBytes())));
  Value part = partOf(op.getBuffer(), op.getSlot());
  Value matrixOfLane = div(lane, 8);
  std::vector<Value> words;
  for (int64_t done = 0; done < matrices; done += 4) {
    int64_t count = std::min<int64_t>(4, matrices - done);
    // With two matrices the addresses of lanes 16 and above are not used; keep them valid.
    Value piece = add(count == 2 ? mod(matrixOfLane, 2) : matrixOfLane, firstPiece + done);
    if (op.getFurther())
      piece = add(piece, mul(op.getFurther(), matrices));
    Value address =
        sharedAt(matrixRowAt(part, static_cast<int64_t>(op.getBatchTile()), piece, rowBytes));
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

std::vector<KernelLowering::Value> KernelLowering::mmaOperands(mlir::ValueRange a, Value b,
                                                               int64_t step, Value c) {
  std::vector<Value> operands(a.begin(), a.end());
  auto ofB = static_cast<int64_t>(a.size() / 2);
  for (int64_t i = 0; i < ofB; ++i)
    operands.push_back(element(b, ofB * step + i));
  for (int64_t i = 0; i < 4; ++i)
    operands.push_back(element(c, i));
  return operands;
}

void KernelLowering::lowerMma(tile::MmaOp op) {
  llvm::StringRef type = op.getElement();
  bool half = op.getA().size() == 2;
  const char *intrinsic = type == "f16"    ? "llvm.nvvm.mma.m16n8k16.row.col.f32.f32"
                          : type == "bf16" ? "llvm.nvvm.mma.m16n8k16.row.col.bf16"
                          : type == "e4m3" ? "llvm.nvvm.mma.m16n8k32.row.col.f32.e4m3.e4m3.f32"
                          : type == "s8"   ? (half ? "llvm.nvvm.mma.m16n8k16.row.col.s8"
                                                   : "llvm.nvvm.mma.m16n8k32.row.col.s8")
                          : half           ? "llvm.nvvm.mma.m16n8k32.row.col.s4"
                                           : "llvm.nvvm.mma.m16n8k64.row.col.s4";
  std::vector<Value> operands =
      mmaOperands(op.getA(), op.getB(), static_cast<int64_t>(op.getStep()), op.getC());
  constexpr size_t multiplied = 6; // registers of A and B
  for (size_t i = 0; type == "f16" && i < multiplied; ++i)
    operands[i] = LLVM::BitcastOp::create(
        builder, loc, mlir::VectorType::get({2}, builder.getF16Type()), operands[i]);
  op.replaceAllUsesWith(mmaResult(intrinsic, op.getC(), operands));
}

void KernelLowering::lowerLoadBlockList(tile::LoadBlockListOp op) {
  Value stored = load(builder.getI64Type(), sharedAt(partOf(op.getBuffer(), op.getSlot())), 8);
  auto perWarp = static_cast<int64_t>(op.getPerWarp());
  Value place = widen(mul(warpN, perWarp));
  Value own = arith::ShRUIOp::create(builder, loc, stored, place);
  own = arith::TruncIOp::create(builder, loc, builder.getI32Type(), own);
  if (perWarp < 32)
    own = mod(own, int64_t{1} << perWarp);
  Value below = arith::ShLIOp::create(builder, loc, i64(1), place);
  below = arith::AndIOp::create(builder, loc, stored, add(below, -1));
  Value before = mlir::math::CtPopOp::create(builder, loc, below);
  op.getStored().replaceAllUsesWith(own);
  op.getFirst().replaceAllUsesWith(
      arith::TruncIOp::create(builder, loc, builder.getI32Type(), before));
}

void KernelLowering::lowerLoadPiece(tile::LoadPieceOp op) {
  int64_t bytes = 4 * op.getType().getNumElements();
  Value own = mul(lane, bytes);
  if (op.getRowBits()) {
    auto bits = static_cast<int64_t>(*op.getRowBits());
    bytes = g.rowsPerThread() * bits / 8;
    own = mul(laneRow, bytes);
  }
  Value at = add(mul(op.getPiece(), static_cast<int64_t>(op.getPieceBytes())), own);
  at = add(partOf(op.getBuffer(), op.getSlot()), add(at, static_cast<int64_t>(op.getOffset())));
  op.replaceAllUsesWith(vectorOf(loadWords(sharedAt(at), bytes)));
}

void KernelLowering::lowerFindPieces(tile::FindPiecesOp op) {
  Value at = add(mul(widen(op.getTile()), 4), static_cast<int64_t>(op.getFirsts()));
  op.getFirst().replaceAllUsesWith(load(builder.getI32Type(), globalAt(op.getSource(), at), 4));
  Value next = add(at, 4);
  op.getEnd().replaceAllUsesWith(load(builder.getI32Type(), globalAt(op.getSource(), next), 4));
}

KernelLowering::Value KernelLowering::firstByteOf(tile::CopyPiecesOp copy) {
  Value offset = mul(widen(copy.getFirst()), static_cast<int64_t>(copy.getPieceBytes()));
  return globalAt(copy.getSource(), add(offset, static_cast<int64_t>(copy.getBase())));
}

// A line of the cache for each thread of a column of the grid; what is more is not worth a loop.
void KernelLowering::lowerPrefetch(tile::PrefetchOp op) {
  constexpr int64_t lineBytes = 128;
  Value column = NVVM::BlockIdXOp::create(builder, loc, builder.getI32Type());
  Value columns = NVVM::GridDimXOp::create(builder, loc, builder.getI32Type());
  // Lines of a CTA are as many CTAs apart: each has some of them.
  Value line = add(arith::MulIOp::create(builder, loc, thread, columns), column);
  Value exists = less(line, i32(divideUp(static_cast<int64_t>(op.getBytes()), lineBytes)));
  Value at = add(mul(widen(line), lineBytes), static_cast<int64_t>(op.getBase()));
  ptx("@$0 prefetch.global.L2 [$1];", "b,l", mlir::TypeRange(),
      {exists, globalAt(op.getSource(), at)});
}

} // namespace rho::compiler
