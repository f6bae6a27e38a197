// The gemv family: weights from global memory straight to registers, products on the CUDA cores.
// The threads of a quad have the same two rows of each m16 tile and a run of k each.
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

class GemvLowering final : public KernelLowering {
public:
  using KernelLowering::KernelLowering;

private:
  Value runBase; // byte of this thread's run of k in the first chunk of a part

  int64_t runBytes() const { return g.chunkK() / 4 * g.activationBits() / 8; }

  void computeFamilyValues() override;
  bool lowerFamily(mlir::Operation *inner) override;
  void lowerStreamCodes(tile::StreamCodesOp stream);
  void lowerStreamRowCodes(tile::StreamRowCodesOp stream);
  void lowerStreamPiece(tile::StreamPieceOp stream);
  void lowerLoadBatchRow(tile::LoadBatchRowOp load);
  void lowerDot(tile::DotOp dot);
  void lowerComputed(tile::ComputedOp computed);
  void lowerQuadSum(tile::QuadSumOp sum);
};

// Warps that share k tiles copy the activations of those.
void GemvLowering::computeFamilyValues() {
  firstBatch = i32(0);
  Value batch = mul(NVVM::BlockIdYOp::create(builder, loc, builder.getI32Type()), g.tileM);
  firstScale = mod(batch, g.scaleColumns());
  copyThread = mod(thread, g.groupThreads());
  copyThreads = g.groupThreads();
  runBase = mul(laneColumn, runBytes());
}

bool GemvLowering::lowerFamily(mlir::Operation *inner) {
  return llvm::TypeSwitch<mlir::Operation *, bool>(inner)
      .Case<tile::StreamCodesOp>([&](auto o) { return lowerStreamCodes(o), true; })
      .Case<tile::StreamRowCodesOp>([&](auto o) { return lowerStreamRowCodes(o), true; })
      .Case<tile::StreamPieceOp>([&](auto o) { return lowerStreamPiece(o), true; })
      .Case<tile::LoadBatchRowOp>([&](auto o) { return lowerLoadBatchRow(o), true; })
      .Case<tile::DotOp>([&](auto o) { return lowerDot(o), true; })
      .Case<tile::ComputedOp>([&](auto o) { return lowerComputed(o), true; })
      .Case<tile::QuadSumOp>([&](auto o) { return lowerQuadSum(o), true; })
      .Default([](auto) { return false; });
}

void GemvLowering::lowerStreamCodes(tile::StreamCodesOp op) {
  int64_t chunk = op.getChunk() * g.panelWarps * g.rowTiles() + op.getRowTile();
  int64_t words = op.getType().getNumElements(), bytes = 4 * words;
  int64_t tileBytes = g.codeBytes(32 * words / g.chunkCodes()) / g.chunks();
  Value tile = add(mul(widen(op.getTile()), tileBytes), widen(mul(firstCodes, bytes)));
  Value at = globalAt(op.getSource(), add(tile, op.getBase()));
  op.replaceAllUsesWith(vectorOf(loadBy(streamed, at, chunk * 32 * bytes, words)));
}

void GemvLowering::lowerStreamRowCodes(tile::StreamRowCodesOp op) {
  int64_t bits = op.getBits(), spread = op.getSpread();
  Value inTile = rowCodeByte(op.getGroup(), 1, spread, 0, bits);
  int64_t tileBytes = spread * g.tileN * bits / 8;
  Value at = add(mul(widen(op.getTile()), tileBytes), widen(inTile));
  at = globalAt(op.getSource(), add(at, op.getBase()));
  op.replaceAllUsesWith(vectorOf(loadWords(at, g.rowsPerThread() * bits / 8)));
}

void GemvLowering::lowerStreamPiece(tile::StreamPieceOp op) {
  int64_t bytes = 4 * op.getType().getNumElements();
  Value piece = mul(widen(op.getPiece()), op.getPieceBytes());
  Value own = add(piece, widen(mul(lane, bytes)));
  Value at = globalAt(op.getSource(), add(own, op.getBase()));
  op.replaceAllUsesWith(vectorOf(loadWordsIf(op.getStored(), streamed, at, bytes)));
}

void GemvLowering::lowerLoadBatchRow(tile::LoadBatchRowOp op) {
  int64_t inPart = op.getRow() * g.activationRowBytes() + op.getChunk() * 4 * runBytes();
  Value at = add(add(partOf(op.getBuffer(), op.getSlot()), runBase), inPart);
  std::vector<Value> words = loadWords(sharedAt(at), runBytes());
  if (op.getElement() == "s8")
    return op.replaceAllUsesWith(vectorOf(words));
  std::vector<Value> numbers;
  for (Value word : words)
    for (Value number : widenPair(word, op.getElement() == "bf16"))
      numbers.push_back(number);
  op.replaceAllUsesWith(vectorOf(numbers));
}

void GemvLowering::lowerDot(tile::DotOp op) {
  int64_t position = op.getPosition();
  std::array<Value, 4> sums;
  for (int64_t i = 0; i < 4; ++i)
    sums[static_cast<size_t>(i)] = element(op.getC(), i);
  for (unsigned r = 0; r < 2; ++r) {
    Value a = op.getA()[r];
    std::array<Value, 2> pair;
    if (op.getElement() != "s8")
      pair = widenPair(a, op.getElement() == "bf16");
    for (unsigned c = 0; c < op.getB().size(); ++c) {
      Value &sum = sums[2 * r + c];
      Value b = op.getB()[c];
      if (op.getElement() == "s8")
        sum = LLVM::CallIntrinsicOp::create(builder, loc, builder.getI32Type(),
                                            builder.getStringAttr("llvm.nvvm.idp4a.s.s"),
                                            mlir::ValueRange{a, element(b, position), sum})
                  .getResult(0);
      else
        for (size_t i = 0; i < 2; ++i)
          sum = LLVM::FMAOp::create(builder, loc, pair[i],
                                    element(b, 2 * position + static_cast<int64_t>(i)), sum);
    }
  }
  op.replaceAllUsesWith(vectorOf(sums));
}

void GemvLowering::lowerComputed(tile::ComputedOp op) {
  for (auto [index, value, result] : llvm::enumerate(op.getValues(), op.getSums())) {
    auto batch = static_cast<int64_t>(index) % g.batchTiles() * g.batchStep();
    std::vector<Value> numbers;
    for (int64_t i = 0; i < 4; ++i) {
      Value number = element(value, i);
      if (batch + i % 2 < g.tileM) // else nobody has made it
        number =
            ptx("", number.getType().isInteger() ? "=r,0" : "=f,0", number.getType(), number)[0];
      numbers.push_back(number);
    }
    result.replaceAllUsesWith(vectorOf(numbers));
  }
}

void GemvLowering::lowerQuadSum(tile::QuadSumOp op) {
  for (auto [value, result] : llvm::zip(op.getValues(), op.getSums())) {
    std::vector<Value> sums;
    for (int64_t i = 0; i < 4; ++i) {
      Value sum = element(value, i);
      for (int64_t distance : {1, 2})
        sum = sumOf(sum,
                    NVVM::ShflOp::create(builder, loc, sum.getType(), i32(-1), sum, i32(distance),
                                         i32(31), NVVM::ShflKind::bfly, mlir::UnitAttr()));
      sums.push_back(sum);
    }
    result.replaceAllUsesWith(vectorOf(sums));
  }
  op.getFirst().replaceAllUsesWith(equal(laneColumn, i32(0)));
}

} // namespace

mlir::LogicalResult lowerToGemv(tile::KernelOp op) { return GemvLowering(op).run(); }

} // namespace rho::compiler
