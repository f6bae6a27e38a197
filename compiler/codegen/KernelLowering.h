// Kernels of the tile dialect to NVVM and LLVM operations: what all families of matrix instructions
// share. A family is a subclass in files of its own, which adds copies, operand B and the
// instructions. Index formulas follow the fragment layouts of the PTX ISA (section 9.7.14.5) and
// the code order of plan/PackedLayout.cpp.
#pragma once

#include "compiler/codegen/DeviceBuilder.h"
#include "compiler/ir/Dialects.h"
#include "compiler/plan/Geometry.h"

#include <functional>

namespace rho::compiler {

class KernelLowering : protected DeviceBuilder {
public:
  explicit KernelLowering(tile::KernelOp op);
  virtual ~KernelLowering() = default;
  mlir::LogicalResult run();

protected:
  using DeviceBuilder::Value;
  tile::KernelOp op;
  Geometry g;

  // Set up at the kernel's entry.
  mlir::Block *entry = nullptr;
  Value thread, lane, warpM, warpN, warpK;
  Value laneRow, laneColumn;              // lane / 4, lane % 4
  Value firstRow;                         // this thread's first weight row within the CTA tile
  Value panel, rowInPanel;                // of a tile, and that row's place in it
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

  // Byte in shared memory of 16-byte piece `piece` of row `row` (< 8) of n8 tile `batchTile` of the
  // activations that a part holds; families of warps that multiply from there say where.
  virtual Value matrixRowAt(Value part, int64_t batchTile, Value row, Value piece,
                            int64_t rowBytes) {
    return {};
  }

  // KernelLowering.cpp
  void createFunction();
  void assignShared();
  void computeThreadValues();
  bool lowerCommon(mlir::Operation *inner);

  // AsyncCopies.cpp
  void forEachPiece(int64_t pieces, const std::function<void(Value piece, Value exists)> &body);
  void lowerCopyRows(tile::CopyRowsOp copy);

  // WarpProducts.cpp
  Value rowThere(tile::LoadActivationOp load, Value row);
  std::vector<Value> loadRun(tile::LoadActivationOp load, Value part, int64_t rowBytes);
  void lowerLoadActivation(tile::LoadActivationOp load);
  // Operands A, B and C of an instruction, each register one.
  std::vector<Value> mmaOperands(mlir::ValueRange a, Value b, int64_t step, Value c);
  void lowerMma(tile::MmaOp mma);
  void lowerBandWord(tile::BandWordOp word);
  // By that instruction of PTX from `at`; else zeros.
  std::vector<Value> loadWordsIf(Value condition, const std::string &instruction, Value at,
                                 int64_t bytes);
  void lowerLoadPiece(tile::LoadPieceOp load);
  void lowerFindPieces(tile::FindPiecesOp find);
  Value firstByteOf(tile::CopyPiecesOp copy); // in global memory
  Value firstByteOf(tile::CopyPanelOp copy);
  Value shareOf(tile::CopyPanelOp copy); // first byte in shared memory
  void lowerPrefetch(tile::PrefetchOp prefetch);

  // Fragments.cpp
  void lowerLoadCodes(tile::LoadCodesOp load);
  // Byte in a tile of `groups` times `spread` groups of this thread's row codes of its group among
  // the `group`th `spread`, `further` rows on.
  Value rowCodeByte(int64_t group, int64_t groups, int64_t spread, int64_t further, int64_t bits);
  void lowerLoadRowCodes(tile::LoadRowCodesOp load);
  void lowerLoadColumnScales(tile::LoadColumnScalesOp load);
  void lowerConvertScales(tile::ConvertScalesOp convert);
  void lowerPair(tile::PairOp pair);
  void lowerFillPairTables(tile::FillPairTablesOp fill);
  void lowerScale(tile::ScaleOp scale);

  // Epilogue.cpp
  void lowerSplitSum(tile::SplitSumOp sum);
  struct SplitWorkspace {
    int64_t values; // accumulators of a thread
    Value pointer, counter, isFirstThread;
  };
  Value shareAt(const SplitWorkspace &space, Value place, int64_t value);
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
  // Of batch row `row` of `rows`, past the last that of row 0, in f32.
  Value tokenScale(Value source, Value row, Value rows, llvm::StringRef element);
  void lowerLoadTokenScales(tile::LoadTokenScalesOp load);
  void lowerLoadTensorScale(tile::LoadTensorScaleOp load);
  void lowerStoreOutput(tile::StoreOutputOp store);
  // `count` consecutive outputs of one batch row: this thread's weight rows from `first` on, its
  // column c of n8 tile j, rounded. A vector if there are several.
  Value outputs(mlir::ValueRange accumulators, llvm::StringRef element, int64_t first,
                int64_t count, int64_t j, int64_t c);

  // Whether all warps must have multiplied their last k tile before one writes there.
  static bool isOverStages(Value buffer) {
    return buffer.getDefiningOp<tile::AllocSharedOp>().getOverStages();
  }
  // First byte of a part of a shared buffer.
  Value partOf(Value buffer, Value slot);
  // Byte of this thread's accumulator `value` of `values` where a part holds those of one group of
  // warps.
  Value sumAt(Value part, int64_t values, int64_t value);
};

} // namespace rho::compiler
