// Packed codes, and what a decode takes beside them, to registers of operand A.
#include "compiler/passes/KernelBuilder.h"

namespace rho::compiler {

using mlir::Value;

Value KernelBuilder::rowVectorOf(int component, int64_t group, int64_t warpgroup, Value slot) {
  if (auto known = rowVectors.find({component, group}); known != rowVectors.end())
    return known->second;
  int bits = context.gemm.weight.components[component].type.bits();
  int64_t count = std::max<int64_t>(1, g.rowsPerThread() * bits / 32);
  return tile::LoadRowCodesOp::create(builder, at(true, component), vectorOf(count, true),
                                      buffers[{true, component}], slot, group, bits, warpgroup);
}

const std::vector<Value> &KernelBuilder::rowWordsOf(int component, int64_t group, int64_t warpgroup,
                                                    Value slot) {
  std::vector<Value> &words = rowWords[{component, group, warpgroup}];
  if (!words.empty())
    return words;
  Value vector = rowVectorOf(component, group, warpgroup, slot);
  int64_t count = llvm::cast<mlir::VectorType>(vector.getType()).getNumElements();
  for (int64_t i = 0; i < count; ++i)
    words.push_back(
        tile::ExtractOp::create(builder, at(true, component), builder.getI32Type(), vector, i));
  return words;
}

Value KernelBuilder::parameter(llvm::StringRef form, int component, int64_t group, int64_t row,
                               Value slot) {
  ParameterKey key{form.str(), component, group, row};
  if (Value known = parameterCache[key])
    return known;
  const dsl::ElementType type = context.gemm.weight.components[component].type;
  int64_t perWord = 32 / type.bits();
  int64_t warpgroup = row / g.rowsPerThread(), inWarpgroup = row % g.rowsPerThread();
  Value word = rowWordsOf(component, group, warpgroup, slot)[inWarpgroup / perWord];
  mlir::Location loc = at(true, component);
  if (form == "multiplier") {
    DecodeProgram scales =
        *scaleSequence(type, context.placed.mmaType, context.placed.decode.scaleLog2);
    int64_t outputs = static_cast<int64_t>(scales.outputs.size());
    auto decoded =
        tile::DecodeOp::create(builder, loc, std::vector<mlir::Type>(outputs, builder.getI32Type()),
                               word, mlir::ValueRange(), scales.print());
    int64_t base = row - inWarpgroup % perWord; // a word may be longer than the thread's rows
    for (int64_t i = 0; i < std::min(outputs, g.rowsPerThread()); ++i)
      parameterCache[{form.str(), component, group, base + i}] = decoded.getResult(i);
    return parameterCache[key];
  }
  DecodeProgram pick;
  uint32_t byte = static_cast<uint32_t>(inWarpgroup % perWord);
  uint32_t selector = form == "byte" ? 0x4440 | byte : byte * 0x1111;
  pick.output(pick.add(DecodeInstr::Op::Prmt, DecodeProgram::word(), DecodeProgram::constant(0),
                       DecodeProgram::constant(selector)));
  auto decoded = tile::DecodeOp::create(builder, loc, mlir::TypeRange{builder.getI32Type()}, word,
                                        mlir::ValueRange(), pick.print());
  return parameterCache[key] = decoded.getResult(0);
}

std::vector<Value> KernelBuilder::decodeStep(const Chunk &words, int64_t step, int64_t k,
                                             int64_t rowTile, Value slot) {
  const DecodeSequence &decode = context.placed.decode;
  auto registers = static_cast<int64_t>(decode.registers());
  int64_t perDecode = std::min<int64_t>(registers, 4); // registers
  int64_t parts = registers / perDecode;               // of a unit
  if (unitPrograms.empty()) {
    DecodeProgram program = *DecodeProgram::parse(chain.decode.getProgram().str());
    for (int64_t part = 0; part < parts; ++part)
      unitPrograms.push_back(
          program.part(static_cast<size_t>(part * perDecode), static_cast<size_t>(perDecode)));
  }
  std::vector<int> planes = planeBits(g.weightBits);
  std::vector<Value> a;
  for (int64_t i = step * 4 / perDecode; i < (step + 1) * 4 / perDecode; ++i) {
    int64_t unit = i / parts;
    std::vector<Value> unitWords;
    for (size_t plane = 0; plane < planes.size(); ++plane) {
      int64_t count = int64_t{decode.codes} * planes[plane] / 32;
      for (int64_t word = unit * count; word < (unit + 1) * count; ++word)
        unitWords.push_back(tile::ExtractOp::create(builder, at(true, 0), builder.getI32Type(),
                                                    words[plane], word));
    }
    std::vector<Value> parameters;
    for (size_t p = 0; p < chain.decode.getParameters().size(); ++p) {
      auto component = chain.decode.getParameters()[p].getDefiningOp<ir::ComponentOp>();
      bool ofWeight = false;
      int index = 0;
      const dsl::Component &part = partOf(component, ofWeight, index);
      auto [form, half] =
          llvm::cast<mlir::StringAttr>(chain.decode.getForms()[p]).getValue().split('.');
      int64_t row = 2 * rowTile + (half == "1" ? 1 : 0);
      parameters.push_back(parameter(form, index, groupIn(k, part.group), row, slot));
    }
    std::vector<mlir::Type> types(static_cast<size_t>(perDecode), builder.getI32Type());
    auto decoded =
        tile::DecodeOp::create(builder, chain.decode.getLoc(), types, unitWords, parameters,
                               unitPrograms[static_cast<size_t>(i % parts)].print());
    a.insert(a.end(), decoded.getResults().begin(), decoded.getResults().end());
  }
  return a;
}

KernelBuilder::Chunk KernelBuilder::loadChunk(int64_t chunk, int64_t rowTile, Value slot) {
  std::vector<int> planes = planeBits(g.weightBits);
  Chunk words;
  for (size_t plane = 0; plane < planes.size(); ++plane)
    words.push_back(tile::LoadCodesOp::create(
        builder, at(true, 0), vectorOf(g.planeWords(planes[plane]), true),
        buffers[{true, planeSection(context.gemm, plane)}], slot, chunk, rowTile));
  return words;
}

const std::vector<KernelBuilder::Chunk> &KernelBuilder::codesOf(int64_t chunk, Value slot) {
  std::vector<Chunk> &words = codes[chunk];
  if (!words.empty())
    return words;
  for (int64_t t = 0; t < g.rowTiles(); ++t)
    words.push_back(loadChunk(chunk, t, slot));
  return words;
}

void KernelBuilder::buildOperandStores(Value slot, Value to) {
  struct Piece {
    int64_t chunk, rowTile;
    Chunk words;
  };
  std::vector<Piece> pieces;
  for (int64_t chunk = 0; chunk < g.chunks(); ++chunk)
    for (int64_t t = 0; t < g.tileN / 64; ++t)
      pieces.push_back({chunk, t, {}});
  auto load = [&](Piece &piece) {
    piece.words = loadChunk(piece.chunk, piece.rowTile, slot);
    for (Value parameter : chain.decode.getParameters()) {
      bool ofWeight = false;
      int index = 0;
      const dsl::Component &part =
          partOf(parameter.getDefiningOp<ir::ComponentOp>(), ofWeight, index);
      for (int64_t k = piece.chunk * g.chunkK(); k < (piece.chunk + 1) * g.chunkK(); k += g.mmaK)
        rowWordsOf(index, groupIn(k, part.group), piece.rowTile / g.rowTiles(), slot);
    }
  };
  // No load passes a store, so loads are started ahead of the stores of earlier pieces.
  constexpr size_t ahead = 2;
  for (size_t i = 0; i < std::min(ahead, pieces.size()); ++i)
    load(pieces[i]);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i + ahead < pieces.size())
      load(pieces[i + ahead]);
    const Piece &piece = pieces[i];
    for (int64_t step = 0; step < g.stepsPerChunk(); ++step) {
      int64_t k = piece.chunk * g.chunkK() + step * g.mmaK;
      std::vector<Value> a = decodeStep(piece.words, step, k, piece.rowTile, slot);
      tile::StoreOperandOp::create(builder, at("schedule"), a, operandBuffer, to, k / g.mmaK,
                                   piece.rowTile);
    }
  }
}

} // namespace rho::compiler
