// Asynchronous copies of 16 bytes a thread and instruction.
#include "compiler/codegen/KernelLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace rho::compiler {

namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

// Spreads pieces over the threads that copy: piece = thread, thread + threads, ... `exists` is null
// where every thread has one.
void KernelLowering::forEachPiece(int64_t pieces,
                                  const std::function<void(Value piece, Value exists)> &body) {
  for (int64_t first = 0; first < pieces; first += copyThreads) {
    Value piece = add(copyThread, first);
    bool all = first + copyThreads <= pieces;
    body(piece, all ? Value() : less(piece, i32(pieces)));
  }
}

void KernelLowering::lowerCopyRows(tile::CopyRowsOp copy) {
  int64_t rowBytes = copy.getRowBytes();
  int64_t perRow = rowBytes / 16;
  int64_t sharing = std::max<int64_t>(1, 128 / rowBytes);
  int64_t permuted = std::min<int64_t>(perRow, 8);
  Value part = partOf(copy.getBuffer(), copy.getSlot());
  forEachPiece(copy.getRows() * perRow, [&](Value piece, Value exists) {
    Value row = div(piece, perRow), column = mod(piece, perRow);
    Value sourceRow = add(copy.getRow(), row);
    Value sourceByte = add(copy.getColumn(), mul(column, 16));
    Value inside = arith::AndIOp::create(builder, loc, less(sourceRow, copy.getRowLimit()),
                                         less(sourceByte, copy.getPitch()));
    // A size of zero reads nothing and fills with zeros; the address must be valid all the same.
    Value size = select(inside, i32(16), i32(0));
    Value offset = add(mul(widen(sourceRow), widen(copy.getPitch())), widen(sourceByte));
    offset = select(inside, offset, i64(0));
    Value place = column;
    if (copy.getSwizzle())
      place = arith::XOrIOp::create(builder, loc, column, mod(div(row, sharing), permuted));
    Value target = add(part, add(mul(row, rowBytes), mul(place, 16)));
    copyPiece(sharedAt(target), globalAt(copy.getSource(), offset), size, exists);
  });
}

} // namespace rho::compiler
