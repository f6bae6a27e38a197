// Fragments from shared memory to registers, and scaling.
#include "compiler/codegen/KernelLowering.h"

#include "compiler/decode/DecodeProgram.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

// Chunks lie in the order [panel][chunk along k][warp][row tile], lane by lane.
void KernelLowering::lowerLoadCodes(tile::LoadCodesOp op) {
  int64_t rowTile = op.getRowTile();
  int64_t warps = rowTile / g.rowTiles() * 4; // further on
  int64_t inPanel = op.getChunk() * g.panelWarps + warps % g.panelWarps;
  int64_t chunk = (warps / g.panelWarps * g.chunks() * g.panelWarps + inPanel) * g.rowTiles() +
                  rowTile % g.rowTiles();
  int64_t bytes = op.getType().getNumElements() * 4;
  Value at = mul(add(firstCodes, chunk * 32), bytes);
  at = add(at, partOf(op.getBuffer(), op.getSlot()));
  op.replaceAllUsesWith(load(op.getType(), sharedAt(at), bytes));
}

// Row codes lie in the order [panel][group][thread's rows][group of the quad][row], and a thread's
// rows are consecutive.
KernelLowering::Value KernelLowering::rowCodeByte(int64_t group, int64_t groups, int64_t spread,
                                                  int64_t further, int64_t bits) {
  int64_t rows = g.panelRows();
  Value index = add(rowInPanel, mul(panel, groups * rows));
  index = mul(add(index, (further / rows * groups + group) * rows + further % rows), spread);
  if (spread > 1)
    index = add(index, mul(div(laneColumn, 4 / spread), g.rowsPerThread()));
  return mul(index, bits / 8);
}

void KernelLowering::lowerLoadRowCodes(tile::LoadRowCodesOp op) {
  int64_t bits = op.getBits();
  Value byte = rowCodeByte(op.getGroup(), op.getGroups(), op.getSpread(),
                           op.getWarpgroup() * 4 * g.warpN(), bits);
  Value at = add(partOf(op.getBuffer(), op.getSlot()), byte);
  op.replaceAllUsesWith(vectorOf(loadWords(sharedAt(at), g.rowsPerThread() * bits / 8)));
}

void KernelLowering::lowerLoadColumnScales(tile::LoadColumnScalesOp op) {
  int64_t bytes = dsl::unitBits(dsl::ElementType::get(op.getElement().str())) / 8;
  int64_t columns = g.scaleColumns(), spread = op.getSpread();
  Value column = add(firstScale, op.getGroup() * columns + op.getBatchTile() * g.batchStep());
  if (op.getFurther())
    column = add(column, mul(op.getFurther(), columns));
  if (spread > 1)
    column = add(column, mul(div(laneColumn, 4 / spread), columns));
  Value at = add(partOf(op.getBuffer(), op.getSlot()), mul(column, bytes));
  int64_t count = std::min<int64_t>(g.tileM, 2);
  std::vector<Value> scales =
      inputToF32(loadWords(sharedAt(at), count * bytes), op.getElement(), count);
  scales.resize(2, scales[0]); // of a tile of one row
  op.replaceAllUsesWith(vectorOf(scales));
}

void KernelLowering::lowerPair(tile::PairOp op) {
  Value rounded = arith::TruncFOp::create(builder, loc, halfType(op.getElement()), op.getNumber());
  op.replaceAllUsesWith(
      LLVM::BitcastOp::create(builder, loc, builder.getI32Type(), vectorOf({rounded, rounded}))
          .getResult());
}

void KernelLowering::lowerFillPairTables(tile::FillPairTablesOp op) {
  constexpr int64_t codes = DecodeProgram::lanesOfTable, piece = 16,
                    pieces = DecodeProgram::pairBytes / piece; // of an entry
  const llvm::ArrayRef<int32_t> lanes = op.getLanes();
  const auto numbers = op.getNumbers();
  const auto own = static_cast<int64_t>(op.getCode());
  // One byte of the lane of a code, in its lowest.
  auto byteOf = [&](Value code, int shift) -> Value {
    Value words[4];
    for (size_t word = 0; word < 4; ++word) {
      uint32_t bytes = 0;
      for (size_t i = 0; i < 4; ++i)
        bytes |= (static_cast<uint32_t>(lanes[4 * word + i]) >> shift & 0xff) << (8 * i);
      words[word] = i32(static_cast<int32_t>(bytes));
    }
    Value place = mod(code, 8);
    return select(less(code, i32(8)), permute(words[0], words[1], place),
                  permute(words[2], words[3], place));
  };
  auto laneOf = [&](Value code, Value number) -> Value {
    Value lane = permute(byteOf(code, 0), byteOf(code, 8), i32(0x40));
    if (!number)
      return lane;
    return select(equal(code, i32(static_cast<int32_t>(own))), number, lane);
  };
  auto numberOf = [&](Value table) -> Value {
    Value number = numbers.empty() ? Value() : numbers[0];
    for (size_t i = 1; i < numbers.size(); ++i)
      number = select(less(table, i32(static_cast<int32_t>(i))), number, numbers[i]);
    return number;
  };
  // Eight threads write the 16 entries of a table with one low code, a piece of each.
  const int64_t tables = std::max<int64_t>(1, static_cast<int64_t>(numbers.size())),
                groups = (g.mathRoleThreads() + g.decodeThreads()) / pieces;
  const Value group = div(thread, pieces), ofThread = mul(mod(thread, pieces), piece);
  for (int64_t first = 0; first < tables * codes; first += groups) {
    auto fill = [&] {
      Value mine = add(group, first), low = mod(mine, codes), table = div(mine, codes);
      Value number = numberOf(table), lowLane = laneOf(low, number);
      Value at = add(ofThread, mul(low, DecodeProgram::pairStride));
      if (tables > 1)
        at = add(at, add(mul(mod(table, 2), DecodeProgram::pairBytes),
                         mul(div(table, 2), DecodeProgram::tableStride)));
      for (int64_t high = 0; high < codes; ++high) {
        Value highLane = number && high == own ? number : i32(lanes[static_cast<size_t>(high)]);
        Value pair = permute(lowLane, highLane, i32(0x5410));
        const int64_t place =
            offsets.lookup(op.getBuffer()) + high * codes * int64_t{DecodeProgram::pairStride};
        store(vectorOf({pair, pair, pair, pair}), sharedAt(add(at, place)), piece);
      }
    };
    if (first + groups <= tables * codes)
      fill();
    else
      when(less(group, i32(static_cast<int32_t>(tables * codes - first))), fill);
  }
  // Whoever reads is behind barrier 0, which orders this: without roles that of the first k tile,
  // with roles the one for which the barriers of stages are made, but in a cluster, where that is
  // another.
  if (g.clusterN > 1)
    effect("bar.sync 0, " + std::to_string(pieces * groups) + ";");
}

void KernelLowering::lowerConvertScales(tile::ConvertScalesOp op) {
  std::vector<Value> words;
  for (int64_t i = 0; i < op.getWords().getType().getNumElements(); ++i)
    words.push_back(element(op.getWords(), i));
  const int64_t count = op.getType().getNumElements(), unit = op.getUnit();
  std::vector<Value> scales = op.getFractions()
                                  ? toFractions(words, op.getElement(), count, unit, op.getShift())
                                  : toF32(words, op.getElement(), count, unit, op.getShift());
  if (const std::optional<int64_t> sign = op.getSign())
    for (int64_t i = 0; i < count; ++i) {
      const int64_t bit = i * unit + *sign;
      scales[i] = negatedBy(words[bit / 32], bit % 32, scales[i]);
    }
  op.replaceAllUsesWith(vectorOf(scales));
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
