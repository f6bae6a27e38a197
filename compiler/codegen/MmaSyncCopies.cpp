// Asynchronous copies from global to shared memory, 16 bytes a thread and instruction.
#include "compiler/codegen/MmaSync.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace rho::compiler {

namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

// Spreads pieces over the CTA's threads: piece = thread, thread + threads, ...
void MmaSyncLowering::forEachPiece(int64_t pieces, const std::function<void(Value)> &body) {
  for (int64_t first = 0; first < pieces; first += g.threads()) {
    Value piece = add(thread, first);
    if (first + g.threads() <= pieces) {
      body(piece);
      continue;
    }
    auto guarded = mlir::scf::IfOp::create(builder, loc, less(piece, i32(pieces)));
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&guarded.getThenRegion().front());
    body(piece);
  }
}

void MmaSyncLowering::lowerCopyTile(tile::CopyTileOp copy) {
  int64_t bytes = copy.getBuffer().getType().getBytes();
  Value part = partOf(copy.getBuffer(), copy.getSlot());
  Value from = globalAt(copy.getSource(), add(mul(widen(copy.getTile()), bytes),
                                              static_cast<int64_t>(copy.getBase())));
  forEachPiece(bytes / 16, [&](Value piece) {
    Value offset = mul(piece, 16);
    NVVM::CpAsyncOp::create(builder, loc, sharedAt(add(part, offset)),
                            globalAt(from, widen(offset)), 16, NVVM::LoadCacheModifierKind::CG,
                            Value());
  });
}

void MmaSyncLowering::lowerCopyRows(tile::CopyRowsOp copy) {
  int64_t rowBytes = static_cast<int64_t>(copy.getRowBytes());
  int64_t perRow = rowBytes / 16;
  int64_t sharing = std::max<int64_t>(1, 128 / rowBytes);
  int64_t permuted = std::min<int64_t>(perRow, 8);
  Value part = partOf(copy.getBuffer(), copy.getSlot());
  forEachPiece(static_cast<int64_t>(copy.getRows()) * perRow, [&](Value piece) {
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
    NVVM::CpAsyncOp::create(builder, loc, sharedAt(target), globalAt(copy.getSource(), offset), 16,
                            NVVM::LoadCacheModifierKind::CG, size);
  });
}

} // namespace rho::compiler
