// Fragments in and out of registers, and the matrix instruction.
#include "compiler/codegen/MmaSync.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

// Chunks lie in the order [warp][chunk along k][row tile], 16 bytes a lane each.
void MmaSyncLowering::lowerLoadCodes(tile::LoadCodesOp op) {
  int64_t chunk =
      static_cast<int64_t>(op.getChunk()) * g.rowTiles() + static_cast<int64_t>(op.getRowTile());
  Value at = add(add(partOf(op.getBuffer(), op.getSlot()), codesBase), chunk * 512);
  op.replaceAllUsesWith(load(op.getType(), sharedAt(at), 16));
}

// ldmatrix row addresses: lanes 8 i .. 8 i + 7 give the rows of matrix i, 16 bytes of k each. The
// matrices of one chunk are consecutive along k, two for each instruction.
void MmaSyncLowering::lowerLoadActivation(tile::LoadActivationOp op) {
  int64_t matrices = 2 * g.stepsPerChunk();
  int64_t firstPiece = static_cast<int64_t>(op.getChunk()) * matrices;
  Value row = add(add(partOf(op.getBuffer(), op.getSlot()), activationBase),
                  static_cast<int64_t>(op.getBatchTile()) * 8 * g.activationRowBytes());
  Value matrixOfLane = div(lane, 8);
  std::vector<Value> words;
  for (int64_t done = 0; done < matrices; done += 4) {
    int64_t count = std::min<int64_t>(4, matrices - done);
    // With two matrices the addresses of lanes 16 and above are not used; keep them valid.
    Value piece = add(count == 2 ? mod(matrixOfLane, 2) : matrixOfLane, firstPiece + done);
    Value place = arith::XOrIOp::create(builder, loc, piece, swizzle);
    Value address = sharedAt(add(row, mul(place, 16)));
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

// Row codes lie in the order [group][row], and a thread's rows are consecutive.
void MmaSyncLowering::lowerLoadRowCodes(tile::LoadRowCodesOp op) {
  int64_t bits = static_cast<int64_t>(op.getBits());
  Value index = add(firstRow, static_cast<int64_t>(op.getGroup()) * g.tileN);
  Value at = add(partOf(op.getBuffer(), op.getSlot()), mul(index, bits / 8));
  op.replaceAllUsesWith(vectorOf(loadWords(sharedAt(at), g.rowsPerThread() * bits / 8)));
}

void MmaSyncLowering::lowerLoadColumnScales(tile::LoadColumnScalesOp op) {
  int64_t bytes = dsl::ElementType::get(op.getElement().str()).bits() / 8;
  Value column = add(add(mul(warpM, g.warpM()), mul(laneColumn, 2)),
                     static_cast<int64_t>(op.getGroup()) * g.tileM +
                         static_cast<int64_t>(op.getBatchTile()) * 8);
  Value at = add(partOf(op.getBuffer(), op.getSlot()), mul(column, bytes));
  op.replaceAllUsesWith(vectorOf(toF32(loadWords(sharedAt(at), 2 * bytes), op.getElement(), 2)));
}

std::vector<MmaSyncLowering::Value> MmaSyncLowering::toF32(llvm::ArrayRef<Value> words,
                                                           llvm::StringRef element, int64_t count) {
  std::vector<Value> result;
  if (element == "f32") {
    for (int64_t i = 0; i < count; ++i)
      result.push_back(arith::BitcastOp::create(builder, loc, f32(), words[i]));
    return result;
  }
  // Sixteen-bit numbers two to a word; eight-bit ones become f16 by their own decode sequence.
  std::vector<Value> halves(words.begin(), words.end());
  mlir::Type half = element == "bf16" ? mlir::Type(builder.getBF16Type()) : builder.getF16Type();
  bool repeated = false; // each register holds one scale twice
  if (element != "f16" && element != "bf16") {
    DecodeProgram sequence = *scaleSequence(dsl::ElementType::get(element.str()), "f16", 0);
    halves.clear();
    for (Value word : words) {
      auto decode = tile::DecodeOp::create(
          builder, loc, std::vector<mlir::Type>(sequence.outputs.size(), builder.getI32Type()),
          word, mlir::ValueRange(), sequence.print());
      halves.insert(halves.end(), decode.getResults().begin(), decode.getResults().end());
    }
    repeated = true;
  }
  for (int64_t i = 0; i < count; ++i) {
    Value pair = LLVM::BitcastOp::create(builder, loc, mlir::VectorType::get({2}, half),
                                         halves[repeated ? i : i / 2]);
    result.push_back(
        arith::ExtFOp::create(builder, loc, f32(), this->element(pair, repeated ? 0 : i % 2)));
  }
  return result;
}

void MmaSyncLowering::lowerConvertScales(tile::ConvertScalesOp op) {
  std::vector<Value> words;
  for (int64_t i = 0; i < op.getWords().getType().getNumElements(); ++i)
    words.push_back(element(op.getWords(), i));
  op.replaceAllUsesWith(vectorOf(toF32(words, op.getElement(), op.getType().getNumElements())));
}

void MmaSyncLowering::lowerMma(tile::MmaOp op) {
  llvm::StringRef type = op.getElement();
  const char *intrinsic = type == "f16"    ? "llvm.nvvm.mma.m16n8k16.row.col.f32.f32"
                          : type == "bf16" ? "llvm.nvvm.mma.m16n8k16.row.col.bf16"
                          : type == "s8"   ? "llvm.nvvm.mma.m16n8k32.row.col.s8"
                                           : "llvm.nvvm.mma.m16n8k64.row.col.s4";
  std::vector<Value> operands(op.getA().begin(), op.getA().end());
  int64_t step = static_cast<int64_t>(op.getStep());
  for (int64_t i = 0; i < 2; ++i)
    operands.push_back(element(op.getB(), 2 * step + i));
  if (type == "f16")
    for (Value &operand : operands)
      operand = LLVM::BitcastOp::create(builder, loc,
                                        mlir::VectorType::get({2}, builder.getF16Type()), operand);
  for (int64_t i = 0; i < 4; ++i)
    operands.push_back(element(op.getC(), i));
  llvm::SmallVector<mlir::Type> types(4, op.getType().getElementType());
  auto structure = LLVM::LLVMStructType::getLiteral(op.getContext(), types);
  auto call = LLVM::CallIntrinsicOp::create(builder, loc, structure,
                                            builder.getStringAttr(intrinsic), operands);
  std::vector<Value> results;
  for (int64_t i = 0; i < 4; ++i)
    results.push_back(LLVM::ExtractValueOp::create(builder, loc, call.getResult(0), i));
  op.replaceAllUsesWith(vectorOf(results));
}

// Accumulator registers 0, 1 are columns 0, 1 of the first fragment row, 2, 3 of the second.
void MmaSyncLowering::lowerScale(tile::ScaleOp op) {
  std::vector<Value> results;
  for (int64_t i = 0; i < 4; ++i) {
    Value value = element(op.getValue(), i);
    if (value.getType().isInteger())
      value = arith::SIToFPOp::create(builder, loc, f32(), value);
    Value scale;
    auto multiply = [&](Value with) {
      scale = scale ? arith::MulFOp::create(builder, loc, scale, with).getResult() : with;
    };
    if (!op.getRows().empty())
      multiply(op.getRows()[static_cast<unsigned>(i / 2)]);
    if (op.getColumns())
      multiply(element(op.getColumns(), i % 2));
    if (op.getFactor())
      multiply(op.getFactor());
    if (op.getSum()) {
      Value sum = element(op.getSum(), i);
      value = scale ? LLVM::FMAOp::create(builder, loc, value, scale, sum).getResult()
                    : arith::AddFOp::create(builder, loc, value, sum).getResult();
    } else if (scale) {
      value = arith::MulFOp::create(builder, loc, value, scale);
    }
    results.push_back(value);
  }
  op.replaceAllUsesWith(vectorOf(results));
}

} // namespace rho::compiler
