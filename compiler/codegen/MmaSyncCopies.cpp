// Asynchronous copies from global to shared memory, 16 bytes a thread and instruction.
#include "compiler/codegen/MmaSync.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

// Spreads pieces over the CTA's threads: piece = thread, thread + threads, ... `exists` is null
// where every thread has one.
void MmaSyncLowering::forEachPiece(int64_t pieces,
                                   const std::function<void(Value piece, Value exists)> &body) {
  for (int64_t first = 0; first < pieces; first += g.threads()) {
    Value piece = add(thread, first);
    bool all = first + g.threads() <= pieces;
    body(piece, all ? Value() : less(piece, i32(pieces)));
  }
}

// A thread without a piece is predicated off, not branched around: LLVM may copy what follows a
// branch into both of its paths, and ldmatrix and mma need all threads of the warp on one.
void MmaSyncLowering::copyPiece(Value to, Value from, Value size, Value exists) {
  if (!exists) {
    NVVM::CpAsyncOp::create(builder, loc, to, from, 16, NVVM::LoadCacheModifierKind::CG, size);
    return;
  }
  llvm::SmallVector<Value> operands{exists, to, from};
  if (size)
    operands.push_back(size);
  LLVM::InlineAsmOp::create(builder, loc, mlir::TypeRange(), operands,
                            size ? "@$0 cp.async.cg.shared.global [$1], [$2], 16, $3;"
                                 : "@$0 cp.async.cg.shared.global [$1], [$2], 16;",
                            size ? "b,l,l,r,~{memory}" : "b,l,l,~{memory}",
                            /*has_side_effects=*/true, /*is_align_stack=*/false,
                            LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(),
                            mlir::ArrayAttr());
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

void MmaSyncLowering::lowerCopyRows(tile::CopyRowsOp copy) {
  int64_t rowBytes = static_cast<int64_t>(copy.getRowBytes());
  int64_t perRow = rowBytes / 16;
  int64_t sharing = std::max<int64_t>(1, 128 / rowBytes);
  int64_t permuted = std::min<int64_t>(perRow, 8);
  Value part = partOf(copy.getBuffer(), copy.getSlot());
  forEachPiece(static_cast<int64_t>(copy.getRows()) * perRow, [&](Value piece, Value exists) {
    Value row = div(piece, perRow), column = mod(piece, perRow);
    Value sourceRow = add(copy.getRow(), row);
    Value sourceByte = add(copy.getColumn(), mul(column, 16));
    Value inside = arith::AndIOp::create(builder, loc, less(sourceRow, copy.getRowLimit()),
                                         less(sourceByte, copy.getPitch()));
    // A size of zero reads nothing and fills with zeros; the address must be valid all the same.
    Value size = arith::SelectOp::create(builder, loc, inside, i32(16), i32(0));
    Value offset = add(mul(widen(sourceRow), widen(copy.getPitch())), widen(sourceByte));
    offset = arith::SelectOp::create(builder, loc, inside, offset, i64(0));
    Value place = column;
    if (copy.getSwizzle())
      place = arith::XOrIOp::create(builder, loc, column, mod(div(row, sharing), permuted));
    Value target = add(part, add(mul(row, rowBytes), mul(place, 16)));
    copyPiece(sharedAt(target), globalAt(copy.getSource(), offset), size, exists);
  });
}

} // namespace rho::compiler
