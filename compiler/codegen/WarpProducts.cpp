// Products of single warps: operand B by ldmatrix, mma.sync, and the stored pieces of a residual.
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

KernelLowering::Value KernelLowering::blockList(Value buffer, Value slot) {
  return load(mlir::VectorType::get({4}, builder.getI32Type()), sharedAt(partOf(buffer, slot)), 16);
}

void KernelLowering::lowerLoadBlockList(tile::LoadBlockListOp op) {
  Value list = blockList(op.getBuffer(), op.getSlot());
  auto perWarp = static_cast<int64_t>(op.getPerWarp());
  Value stored = arith::OrIOp::create(
      builder, loc, widen(element(list, 1)),
      arith::ShLIOp::create(builder, loc, widen(element(list, 2)), i64(32)).getResult());
  Value place = widen(mul(warpN, perWarp));
  Value own = arith::ShRUIOp::create(builder, loc, stored, place);
  own = arith::TruncIOp::create(builder, loc, builder.getI32Type(), own);
  if (perWarp < 32)
    own = mod(own, int64_t{1} << perWarp);
  Value below = arith::ShLIOp::create(builder, loc, i64(1), place);
  below = arith::AndIOp::create(builder, loc, stored, add(below, -1));
  Value before = mlir::math::CtPopOp::create(builder, loc, below);
  before = arith::TruncIOp::create(builder, loc, builder.getI32Type(), before);
  op.getStored().replaceAllUsesWith(own);
  op.getFirst().replaceAllUsesWith(add(element(list, 0), before));
}

// A line of a cache for each thread; what is more than all of them take is not worth a loop.
void KernelLowering::lowerPrefetchBlocks(tile::PrefetchBlocksOp op) {
  constexpr int64_t lineBytes = 128, half = int64_t{1} << 16;
  auto pieceBytes = static_cast<int64_t>(op.getPieceBytes());
  Value list = blockList(op.getBuffer(), op.getSlot());
  Value ahead = element(list, 3);
  Value before = mod(ahead, half), count = div(ahead, half);
  auto choose = [&](Value all, Value one) -> Value {
    return arith::SelectOp::create(builder, loc, op.getBetween(), all, one);
  };
  Value bytes = mul(choose(add(before, count), count), pieceBytes);
  Value line = mul(mod(thread, g.groupThreads()), lineBytes);
  auto some = mlir::scf::IfOp::create(builder, loc, less(line, bytes));
  mlir::OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&some.getThenRegion().front());
  Value first = add(element(list, 0), choose(i32(0), before));
  Value at = add(mul(widen(first), pieceBytes), widen(line));
  ptx("prefetch.global.L2 [$0];", "l", mlir::TypeRange(),
      {globalAt(op.getSource(), add(at, static_cast<int64_t>(op.getBase())))});
}

void KernelLowering::lowerLoadPiece(tile::LoadPieceOp op) {
  int64_t bytes = 4 * op.getType().getNumElements();
  Value own = mul(lane, bytes);
  if (op.getRowBits()) {
    auto bits = static_cast<int64_t>(*op.getRowBits());
    bytes = g.rowsPerThread() * bits / 8;
    own = mul(laneRow, bytes);
  }
  Value at = add(mul(widen(op.getPiece()), static_cast<int64_t>(op.getPieceBytes())), widen(own));
  at = add(at, static_cast<int64_t>(op.getBase() + op.getOffset()));
  op.replaceAllUsesWith(vectorOf(loadWords(globalAt(op.getSource(), at), bytes)));
}

} // namespace rho::compiler
