// Products of single warps: operand B by ldmatrix, mma.sync, and the stored pieces of a residual.
#include "compiler/codegen/KernelLowering.h"
#include "dsl/Division.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

// A row of the n8 tile, of a trimmed one its last in place of those that are not there.
KernelLowering::Value KernelLowering::rowThere(tile::LoadActivationOp op, Value row) {
  if (!op.getTrimmed())
    return row;
  return arith::MinUIOp::create(builder, loc, row, sub(op.getTrimmed(), i32(1)));
}

// Register 2 i + h of a thread's run is register h of operand B in the chunk's i-th instruction.
// Threads that read at a time have every other piece of two neighbouring rows, which the swizzle
// tells apart: no two of them meet in a bank.
std::vector<KernelLowering::Value> KernelLowering::loadRun(tile::LoadActivationOp op, Value part,
                                                           int64_t rowBytes) {
  constexpr int64_t threads = 4;
  int64_t words = op.getType().getNumElements(), pieces = words / 4;
  int64_t firstPiece = op.getChunk() * pieces * threads;
  std::vector<Value> result;
  for (int64_t i = 0; i < pieces; ++i) {
    Value piece = add(mul(laneColumn, pieces), firstPiece + i);
    Value at = matrixRowAt(part, op.getBatchTile(), rowThere(op, laneRow), piece, rowBytes);
    for (Value word : loadWords(sharedAt(at), 16))
      result.push_back(word);
  }
  return result;
}

// ldmatrix row addresses: lanes 8 i .. 8 i + 7 give the rows of matrix i, 16 bytes of k each. The
// matrices of one chunk are consecutive along k, two for each instruction.
void KernelLowering::lowerLoadActivation(tile::LoadActivationOp op) {
  int64_t matrices = op.getType().getNumElements();
  int64_t firstPiece = op.getChunk() * matrices;
  int64_t rowBytes = op.getRowBytes().value_or(g.activationRowBytes());
  Value part = partOf(op.getBuffer(), op.getSlot());
  if (op.getRuns())
    return op.replaceAllUsesWith(vectorOf(loadRun(op, part, rowBytes)));
  Value matrixOfLane = div(lane, 8), row = rowThere(op, mod(lane, 8));
  std::vector<Value> words;
  for (int64_t done = 0; done < matrices; done += 4) {
    int64_t count = std::min<int64_t>(4, matrices - done);
    // With two matrices the addresses of lanes 16 and above are not used; keep them valid.
    Value piece = add(count == 2 ? mod(matrixOfLane, 2) : matrixOfLane, firstPiece + done);
    if (op.getFurther())
      piece = add(piece, mul(op.getFurther(), matrices));
    Value address = sharedAt(matrixRowAt(part, op.getBatchTile(), row, piece, rowBytes));
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

// mma.sync of 32 bytes of k, or of `half` as much.
static const char *intrinsicOf(llvm::StringRef element, bool half) {
  if (element == "f16")
    return "llvm.nvvm.mma.m16n8k16.row.col.f32.f32";
  if (element == "bf16")
    return "llvm.nvvm.mma.m16n8k16.row.col.bf16";
  if (element == "e4m3")
    return half ? "llvm.nvvm.mma.m16n8k16.row.col.f32.e4m3.e4m3.f32"
                : "llvm.nvvm.mma.m16n8k32.row.col.f32.e4m3.e4m3.f32";
  if (element == "s8")
    return half ? "llvm.nvvm.mma.m16n8k16.row.col.s8" : "llvm.nvvm.mma.m16n8k32.row.col.s8";
  return half ? "llvm.nvvm.mma.m16n8k32.row.col.s4" : "llvm.nvvm.mma.m16n8k64.row.col.s4";
}

void KernelLowering::lowerMma(tile::MmaOp op) {
  llvm::StringRef type = op.getElement();
  const char *intrinsic = intrinsicOf(type, op.getA().size() == 2);
  std::vector<Value> operands = mmaOperands(op.getA(), op.getB(), op.getStep(), op.getC());
  constexpr size_t multiplied = 6; // registers of A and B
  for (size_t i = 0; type == "f16" && i < multiplied; ++i)
    operands[i] = halves(operands[i], builder.getF16Type());
  op.replaceAllUsesWith(mmaResult(intrinsic, op.getC(), operands));
}

// Where the row of the table begins does not change along k: what is left is one instruction, if
// LLVM does not take the table's offset, which no load has room for, apart again.
void KernelLowering::lowerBandWord(tile::BandWordOp op) {
  Value band = add(mul(op.getTileN(), op.getBands()), warpN);
  Value inTable = mul(widen(band), 4 * op.getTilesK());
  Value row = globalAt(op.getSource(), add(inTable, op.getWords()));
  row = assembly(row.getType(), row, "mov.b64 $0, $1;", "=l,l");
  Value at = globalAt(row, mul(widen(op.getTileK()), 4));
  at = globalAt(at, i64(4 * op.getAhead()));
  op.replaceAllUsesWith(load(builder.getI32Type(), at, 4));
}

// Without a branch: instructions of the warpgroup may be running.
std::vector<KernelLowering::Value> KernelLowering::loadWordsIf(Value condition,
                                                               const std::string &instruction,
                                                               Value at, int64_t bytes) {
  std::vector<Value> words;
  for (int64_t done = 0; done < bytes; done += 16)
    llvm::append_range(
        words, loadBy(instruction, at, done, std::min<int64_t>(16, bytes - done) / 4, condition));
  return words;
}

void KernelLowering::lowerLoadPiece(tile::LoadPieceOp op) {
  int64_t bytes = 4 * op.getType().getNumElements();
  Value own = mul(lane, bytes);
  if (op.getRowBits()) {
    int64_t bits = *op.getRowBits();
    bytes = g.rowsPerThread() * bits / 8;
    own = mul(laneRow, bytes);
  }
  Value at = add(mul(op.getPiece(), op.getPieceBytes()), own);
  at = add(partOf(op.getBuffer(), op.getSlot()), add(at, op.getOffset()));
  at = sharedAt(at);
  op.replaceAllUsesWith(vectorOf(
      op.getStored() ? loadWordsIf(op.getStored(), "ld.shared", at, bytes) : loadWords(at, bytes)));
}

void KernelLowering::lowerFindPieces(tile::FindPiecesOp op) {
  Value at = add(mul(widen(op.getTile()), 4), op.getFirsts());
  op.getFirst().replaceAllUsesWith(load(builder.getI32Type(), globalAt(op.getSource(), at), 4));
  Value next = add(at, 4);
  op.getEnd().replaceAllUsesWith(load(builder.getI32Type(), globalAt(op.getSource(), next), 4));
}

KernelLowering::Value KernelLowering::firstByteOf(tile::CopyPanelOp copy) {
  Value tiles = mul(widen(copy.getTile()), copy.getSize());
  return globalAt(copy.getSource(), add(tiles, copy.getBase()));
}

KernelLowering::Value KernelLowering::shareOf(tile::CopyPanelOp copy) {
  return add(partOf(copy.getBuffer(), copy.getSlot()), copy.getPanel() * copy.copiedBytes());
}

KernelLowering::Value KernelLowering::firstByteOf(tile::CopyPiecesOp copy) {
  Value offset = mul(widen(copy.getFirst()), copy.getPieceBytes());
  return globalAt(copy.getSource(), add(offset, copy.getBase()));
}

// A line of the cache for each thread of a column of the grid; what is more is not worth a loop.
void KernelLowering::lowerPrefetch(tile::PrefetchOp op) {
  constexpr int64_t lineBytes = 128;
  Value column = NVVM::BlockIdXOp::create(builder, loc, builder.getI32Type());
  Value columns = NVVM::GridDimXOp::create(builder, loc, builder.getI32Type());
  // Lines of a CTA are as many CTAs apart: each has some of them.
  Value line = add(arith::MulIOp::create(builder, loc, thread, columns), column);
  Value exists = less(line, i32(divideUp(op.getBytes(), lineBytes)));
  Value at = add(mul(widen(line), lineBytes), op.getBase());
  effect("@$0 prefetch.global.L2 [$1];", "b,l", {exists, globalAt(op.getSource(), at)});
}

} // namespace rho::compiler
