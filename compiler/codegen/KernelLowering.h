// Kernels of the tile dialect to NVVM and LLVM operations: what all families of matrix instructions
// share. A family is a subclass in files of its own, which adds copies, operand B and the
// instructions. Index formulas follow the fragment layouts of the PTX ISA (section 9.7.14.5) and
// the code order of plan/Geometry.cpp.
#pragma once

#include "compiler/ir/Dialects.h"
#include "compiler/plan/Geometry.h"

#include "mlir/IR/Builders.h"

#include <functional>

namespace rho::compiler {

class KernelLowering {
public:
  explicit KernelLowering(tile::KernelOp op);
  virtual ~KernelLowering() = default;
  mlir::LogicalResult run();

protected:
  using Value = mlir::Value;
  tile::KernelOp op;
  mlir::OpBuilder builder;
  mlir::Location loc; // of the operation being lowered
  Geometry g;

  // Set up at the kernel's entry.
  mlir::Block *entry = nullptr;
  Value shared; // base of dynamic shared memory
  Value thread, lane, warpM, warpN, warpK;
  Value laneRow, laneColumn;              // lane / 4, lane % 4
  Value firstRow;                         // this thread's first weight row within the CTA tile
  Value firstBatch;                       // and its first batch row
  Value firstScale;                       // and that row's place in a row of scales
  Value firstCodes;                       // this thread's place among those of a part of codes
  Value copyThread;                       // this thread's place among those that share a copy
  int64_t copyThreads;                    // which are as many
  llvm::DenseMap<Value, int64_t> offsets; // of shared buffers

  // The family's part: values of its own at the kernel's entry, and its operations. False: the
  // operation is none of the family's.
  virtual void computeFamilyValues() {}
  virtual bool lowerFamily(mlir::Operation *inner) = 0;
  // Waits for all threads that hold sums.
  virtual void sumBarrier();
  // Waits for all threads that multiply.
  virtual void mathBarrier();
  // Adds to the sums of the CTA's first group those that other CTAs hold. Gives which threads have
  // them then, of those where `first` is true.
  virtual Value sumCluster(Value buffer, Value first, llvm::SmallVector<Value> &sums);

  // KernelLowering.cpp
  void createFunction();
  void assignShared();
  void computeThreadValues();
  bool lowerCommon(mlir::Operation *inner);

  // AsyncCopies.cpp
  void forEachPiece(int64_t pieces, const std::function<void(Value piece, Value exists)> &body);
  void copyPiece(Value to, Value from, Value size, Value exists);
  void lowerCopyRows(tile::CopyRowsOp copy);

  // Fragments.cpp
  void lowerLoadCodes(tile::LoadCodesOp load);
  void lowerLoadRowCodes(tile::LoadRowCodesOp load);
  void lowerLoadColumnScales(tile::LoadColumnScalesOp load);
  void lowerConvertScales(tile::ConvertScalesOp convert);
  void lowerPair(tile::PairOp pair);
  void lowerScale(tile::ScaleOp scale);

  // Epilogue.cpp
  void lowerSplitSum(tile::SplitSumOp sum);
  struct SplitWorkspace {
    int64_t values; // accumulators of a thread
    Value pointer, parts, counter, isFirstThread;
  };
  Value partAt(const SplitWorkspace &space, Value place, int64_t value);
  Value leaveShare(tile::SplitSumOp sum, const SplitWorkspace &space);
  llvm::SmallVector<Value> addShares(const SplitWorkspace &space, Value first, Value count,
                                     mlir::ValueRange start);
  llvm::SmallVector<Value> sumLast(tile::SplitSumOp sum, const SplitWorkspace &space);
  llvm::SmallVector<Value> gatherShares(tile::SplitSumOp sum, const SplitWorkspace &space);
  void resetCounter(const SplitWorkspace &space);
  void lowerGroupSum(tile::GroupSumOp sum);
  // Where a group of warps leaves accumulator `value` of `values` in part `part` of a buffer.
  Value sumPlace(Value buffer, Value part, int64_t values, int64_t value);
  // Threads where `has` is true leave their sums in a part of the buffer.
  void leaveSums(Value has, Value buffer, Value part, mlir::ValueRange sums);
  // In threads where `has` is true, `sums` plus what each of the parts holds, in their order.
  using Parts = llvm::function_ref<Value(int64_t part, int64_t value)>;
  llvm::SmallVector<Value> addParts(Value has, mlir::ValueRange sums, int64_t parts, Parts pointer);
  void lowerLoadRowScales(tile::LoadRowScalesOp load);
  void lowerLoadTokenScales(tile::LoadTokenScalesOp load);
  void lowerLoadTensorScale(tile::LoadTensorScaleOp load);
  void lowerStoreOutput(tile::StoreOutputOp store);
  // `count` consecutive outputs of one batch row: this thread's weight rows from `first` on, its
  // column c of n8 tile j, rounded. A vector if there are several.
  Value outputs(mlir::ValueRange accumulators, llvm::StringRef element, int64_t first,
                int64_t count, int64_t j, int64_t c);

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
  // PTX that touches memory or order: stays where it is put.
  llvm::SmallVector<Value> ptx(llvm::StringRef text, llvm::StringRef constraints,
                               mlir::TypeRange results, mlir::ValueRange operands);
  Value sumOf(Value a, Value b); // of integers or floats, elementwise
  // Byte of this thread's accumulator `value` of `values` where a part holds those of one group of
  // warps.
  Value sumAt(Value part, int64_t values, int64_t value);
  Value element(Value vector, int64_t position);
  Value vectorOf(llvm::ArrayRef<Value> values);
  // `bytes` bytes at a pointer as 32-bit words; fewer than 4 bytes are zero-extended.
  std::vector<Value> loadWords(Value pointer, int64_t bytes);
  // Packed scales of an element type to f32, each in a unit of so many bits, from bit `shift` on;
  // 0: of as many as the type is stored in.
  std::vector<Value> toF32(llvm::ArrayRef<Value> words, llvm::StringRef element, int64_t count,
                           int64_t unit = 0, int64_t shift = 0);
  Value integerToF32(Value code, dsl::ElementType type);
  Value floatToF32(Value code, dsl::ElementType type);
  Value constantF32(double value);
  mlir::Type f32() { return builder.getF32Type(); }
};

} // namespace rho::compiler
