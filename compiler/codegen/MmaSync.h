// The mma.sync family (sm_80 and later): kernels, shared buffers, asynchronous copies, fragments
// and matrix atoms to NVVM and LLVM operations. Index formulas follow the fragment layouts of the
// PTX ISA (section 9.7.14.5) and the code order of plan/Geometry.cpp.
#pragma once

#include "compiler/ir/Dialects.h"
#include "compiler/plan/Geometry.h"

#include "mlir/IR/Builders.h"

#include <functional>

namespace rho::compiler {

class MmaSyncLowering {
public:
  explicit MmaSyncLowering(tile::KernelOp op);
  mlir::LogicalResult run();

private:
  using Value = mlir::Value;
  tile::KernelOp op;
  mlir::OpBuilder builder;
  mlir::Location loc; // of the operation being lowered
  Geometry g;
  int64_t splits;

  // Set up at the kernel's entry.
  mlir::Block *entry = nullptr;
  Value shared; // base of dynamic shared memory
  Value thread, lane, warpM, warpN;
  Value laneRow, laneColumn; // lane / 4, lane % 4
  Value swizzle;             // exclusive-or mask of this lane's ldmatrix row, in 16-byte pieces
  Value tileM, tileN;        // this CTA's tile
  Value firstRow;            // this thread's first weight row within the CTA tile
  Value codesBase;           // byte of this thread's first code chunk in a part
  Value activationBase;      // byte of this lane's ldmatrix row in a part, batch tile 0
  llvm::DenseMap<Value, int64_t> offsets; // of shared buffers

  // KernelLowering: MmaSync.cpp
  void createFunction();
  void assignShared();
  void computeThreadValues();
  mlir::LogicalResult lower(mlir::Operation *inner);

  // MmaSyncCopies.cpp
  void forEachPiece(int64_t pieces, const std::function<void(Value piece, Value exists)> &body);
  void copyPiece(Value to, Value from, Value size, Value exists);
  void lowerCopyTile(tile::CopyTileOp copy);
  void lowerCopyRows(tile::CopyRowsOp copy);

  // MmaSyncFragments.cpp
  void lowerLoadCodes(tile::LoadCodesOp load);
  void lowerLoadActivation(tile::LoadActivationOp load);
  void lowerLoadRowCodes(tile::LoadRowCodesOp load);
  void lowerLoadColumnScales(tile::LoadColumnScalesOp load);
  void lowerConvertScales(tile::ConvertScalesOp convert);
  void lowerMma(tile::MmaOp mma);
  void lowerScale(tile::ScaleOp scale);

  // MmaSyncEpilogue.cpp
  void lowerSplitSum(tile::SplitSumOp sum);
  void lowerLoadRowScales(tile::LoadRowScalesOp load);
  void lowerLoadTokenScales(tile::LoadTokenScalesOp load);
  void lowerLoadTensorScale(tile::LoadTensorScaleOp load);
  void lowerStoreOutput(tile::StoreOutputOp store);

  // Small builders.
  Value i32(int64_t value);
  Value i64(int64_t value);
  Value add(Value a, Value b);
  Value add(Value a, int64_t b);
  Value mul(Value a, Value b);
  Value mul(Value a, int64_t b);
  Value div(Value a, int64_t powerOfTwo);
  Value mod(Value a, int64_t powerOfTwo);
  Value less(Value a, Value b); // unsigned
  Value widen(Value a);         // u32 -> i64
  Value globalAt(Value base, Value byteOffset);
  Value sharedAt(Value byteOffset); // from the base of dynamic shared memory
  // First byte of a part of a shared buffer.
  Value partOf(Value buffer, Value slot);
  Value load(mlir::Type type, Value pointer, int64_t alignment);
  void store(Value value, Value pointer, int64_t alignment);
  Value element(Value vector, int64_t position);
  Value vectorOf(llvm::ArrayRef<Value> values);
  // `bytes` bytes at a pointer as 32-bit words; fewer than 4 bytes are zero-extended.
  std::vector<Value> loadWords(Value pointer, int64_t bytes);
  // Packed scales of an element type to f32.
  std::vector<Value> toF32(llvm::ArrayRef<Value> words, llvm::StringRef element, int64_t count);
  mlir::Type f32() { return builder.getF32Type(); }
};

} // namespace rho::compiler
