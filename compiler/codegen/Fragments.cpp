// Fragments from shared memory to registers, and scaling.
#include "compiler/codegen/KernelLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

#include <cmath>

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

// Chunks lie in the order [warp][chunk along k][row tile], lane by lane.
void KernelLowering::lowerLoadCodes(tile::LoadCodesOp op) {
  int64_t rowTile = static_cast<int64_t>(op.getRowTile());
  int64_t warp = rowTile / g.rowTiles() * 4; // further on
  int64_t chunk = (warp * g.chunks() + static_cast<int64_t>(op.getChunk())) * g.rowTiles() +
                  rowTile % g.rowTiles();
  int64_t bytes = op.getType().getNumElements() * 4;
  Value at = mul(add(firstCodes, chunk * 32), bytes);
  at = add(at, partOf(op.getBuffer(), op.getSlot()));
  op.replaceAllUsesWith(load(op.getType(), sharedAt(at), bytes));
}

// Row codes lie in the order [group][row], and a thread's rows are consecutive.
void KernelLowering::lowerLoadRowCodes(tile::LoadRowCodesOp op) {
  int64_t bits = static_cast<int64_t>(op.getBits());
  Value index = add(firstRow, static_cast<int64_t>(op.getGroup()) * g.tileN +
                                  static_cast<int64_t>(op.getWarpgroup()) * 4 * g.warpN());
  Value at = add(partOf(op.getBuffer(), op.getSlot()), mul(index, bits / 8));
  op.replaceAllUsesWith(vectorOf(loadWords(sharedAt(at), g.rowsPerThread() * bits / 8)));
}

void KernelLowering::lowerLoadColumnScales(tile::LoadColumnScalesOp op) {
  int64_t bytes = storedBits(dsl::ElementType::get(op.getElement().str())) / 8;
  int64_t columns = g.scaleColumns(), spread = static_cast<int64_t>(op.getSpread());
  Value column = add(firstScale, static_cast<int64_t>(op.getGroup()) * columns +
                                     static_cast<int64_t>(op.getBatchTile()) * g.batchStep());
  if (spread > 1)
    column = add(column, mul(div(laneColumn, 4 / spread), columns));
  Value at = add(partOf(op.getBuffer(), op.getSlot()), mul(column, bytes));
  int64_t count = std::min<int64_t>(g.tileM, 2);
  std::vector<Value> scales = toF32(loadWords(sharedAt(at), count * bytes), op.getElement(), count);
  scales.resize(2, scales[0]); // of a tile of one row
  op.replaceAllUsesWith(vectorOf(scales));
}

std::vector<KernelLowering::Value> KernelLowering::toF32(llvm::ArrayRef<Value> words,
                                                         llvm::StringRef element, int64_t count,
                                                 int64_t unit, int64_t shift) {
  std::vector<Value> result;
  dsl::ElementType type = dsl::ElementType::get(element.str());
  if (element == "f32") {
    for (int64_t i = 0; i < count; ++i)
      result.push_back(arith::BitcastOp::create(builder, loc, f32(), words[i]));
    return result;
  }
  if (element == "f16" || element == "bf16") { // two to a word
    mlir::Type half = element == "bf16" ? mlir::Type(builder.getBF16Type()) : builder.getF16Type();
    for (int64_t i = 0; i < count; ++i) {
      Value pair =
          LLVM::BitcastOp::create(builder, loc, mlir::VectorType::get({2}, half), words[i / 2]);
      result.push_back(arith::ExtFOp::create(builder, loc, f32(), this->element(pair, i % 2)));
    }
    return result;
  }
  if (std::optional<DecodeProgram> sequence = scaleSequence(type, "f16", 0)) {
    // Each register holds one number twice.
    std::vector<Value> pairs;
    for (Value word : words) {
      auto decode = tile::DecodeOp::create(
          builder, loc, std::vector<mlir::Type>(sequence->outputs.size(), builder.getI32Type()),
          word, mlir::ValueRange(), sequence->print());
      pairs.insert(pairs.end(), decode.getResults().begin(), decode.getResults().end());
    }
    for (int64_t i = 0; i < count; ++i) {
      Value pair = LLVM::BitcastOp::create(
          builder, loc, mlir::VectorType::get({2}, builder.getF16Type()), pairs[i]);
      result.push_back(arith::ExtFOp::create(builder, loc, f32(), this->element(pair, 0)));
    }
    return result;
  }
  unit = unit == 0 ? storedBits(type) : unit;
  int64_t perWord = 32 / unit;
  for (int64_t i = 0; i < count; ++i) {
    Value code = arith::ShRUIOp::create(builder, loc, words[i / perWord],
                                        i32(i % perWord * unit + shift));
    code = arith::AndIOp::create(builder, loc, code, i32((int64_t{1} << type.bits()) - 1));
    result.push_back(type.isInteger() ? integerToF32(code, type) : floatToF32(code, type));
  }
  return result;
}

// 2^23 + u for a small number u has u in its lowest bits. Signed codes go by offset binary.
KernelLowering::Value KernelLowering::integerToF32(Value code, dsl::ElementType type) {
  constexpr int64_t magic = 0x4b000000;
  double offset = 0x1p23;
  if (type.kind() == dsl::ElementType::Kind::Signed) {
    int64_t top = int64_t{1} << (type.bits() - 1);
    code = arith::XOrIOp::create(builder, loc, code, i32(top));
    offset += static_cast<double>(top);
  }
  Value number = arith::BitcastOp::create(
      builder, loc, f32(), arith::OrIOp::create(builder, loc, code, i32(magic)).getResult());
  return arith::SubFOp::create(builder, loc, number, constantF32(offset));
}

// Exponent and mantissa under the wider exponent: the number times a power of two, subnormals too.
KernelLowering::Value KernelLowering::floatToF32(Value code, dsl::ElementType type) {
  constexpr int mantissaBits = 23, bias = 127;
  Value magnitude = code;
  if (type.hasSign())
    magnitude = arith::AndIOp::create(builder, loc, code, i32((1 << (type.bits() - 1)) - 1));
  magnitude =
      arith::ShLIOp::create(builder, loc, magnitude, i32(mantissaBits - type.mantissaBits()));
  if (type.exponentBits() == 8 && type.mantissaBits() == 0) { // e8m0: code 0 is 2^-127
    constexpr int64_t smallest = 0x00400000;
    magnitude = arith::MaxUIOp::create(builder, loc, magnitude, i32(smallest));
    return arith::BitcastOp::create(builder, loc, f32(), magnitude);
  }
  int own = (1 << (type.exponentBits() - 1)) - 1;
  Value number = arith::MulFOp::create(
      builder, loc, arith::BitcastOp::create(builder, loc, f32(), magnitude).getResult(),
      constantF32(std::ldexp(1.0, bias - own)));
  if (!type.hasSign())
    return number;
  Value sign = arith::AndIOp::create(
      builder, loc, arith::ShLIOp::create(builder, loc, code, i32(32 - type.bits())).getResult(),
      i32(int32_t(0x80000000)));
  Value bits = arith::BitcastOp::create(builder, loc, builder.getI32Type(), number);
  return arith::BitcastOp::create(builder, loc, f32(),
                                  arith::OrIOp::create(builder, loc, bits, sign).getResult());
}

KernelLowering::Value KernelLowering::constantF32(double value) {
  return arith::ConstantFloatOp::create(builder, loc, builder.getF32Type(),
                                        llvm::APFloat(static_cast<float>(value)));
}

void KernelLowering::lowerPair(tile::PairOp op) {
  mlir::Type half =
      op.getElement() == "bf16" ? mlir::Type(builder.getBF16Type()) : builder.getF16Type();
  Value rounded = arith::TruncFOp::create(builder, loc, half, op.getNumber());
  op.replaceAllUsesWith(
      LLVM::BitcastOp::create(builder, loc, builder.getI32Type(), vectorOf({rounded, rounded}))
          .getResult());
}

void KernelLowering::lowerConvertScales(tile::ConvertScalesOp op) {
  std::vector<Value> words;
  for (int64_t i = 0; i < op.getWords().getType().getNumElements(); ++i)
    words.push_back(element(op.getWords(), i));
  op.replaceAllUsesWith(vectorOf(toF32(words, op.getElement(), op.getType().getNumElements(),
                                       static_cast<int64_t>(op.getUnit()),
                                       static_cast<int64_t>(op.getShift()))));
}

// Accumulator registers 0, 1 are columns 0, 1 of the first fragment row, 2, 3 of the second.
void KernelLowering::lowerScale(tile::ScaleOp op) {
  std::vector<Value> results;
  for (int64_t i = 0; i < 4; ++i) {
    auto row = static_cast<unsigned>(i / 2);
    Value value = element(op.getValue(), i);
    if (op.getBiased())
      value = arith::BitcastOp::create(builder, loc, f32(), value);
    else if (value.getType().isInteger())
      value = arith::SIToFPOp::create(builder, loc, f32(), value);
    Value scale;
    auto multiply = [&](Value with) {
      scale = scale ? arith::MulFOp::create(builder, loc, scale, with).getResult() : with;
    };
    if (!op.getRowBias().empty())
      value = LLVM::FMAOp::create(builder, loc, value, op.getRows()[row], op.getRowBias()[row]);
    else if (op.getBiased())
      value = arith::SubFOp::create(builder, loc, value, constantF32(tile::sumBias));
    if (!op.getRows().empty() && op.getRowBias().empty())
      multiply(op.getRows()[row]);
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
