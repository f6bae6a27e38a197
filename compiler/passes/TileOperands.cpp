// Packed codes, and what a decode takes beside them, to registers of operand A.
#include "compiler/decode/ScaleSequence.h"
#include "compiler/decode/TableSearch.h"
#include "compiler/passes/KernelBuilder.h"

namespace rho::compiler {

using mlir::Value;

Value KernelBuilder::rowVectorOf(int component, int64_t group, int64_t warpgroup, Value slot) {
  component = dsl::hostOf(context.gemm.weight, component);
  int64_t unit = group / groupsTogether(component), bits = unitBits(component);
  if (auto known = tileValues.rowVectors.find({component, unit});
      known != tileValues.rowVectors.end())
    return known->second;
  int64_t extent = extentK(context.gemm.weight.components[component]);
  int64_t spread = g.groupsPerChunk(extent);
  return tile::LoadRowCodesOp::create(
      builder, at(true, component), vectorOf(wordsOfRows(bits), true), buffers[{true, component}],
      slot, unit, g.unitsPerTile(storedBitsOf(component), extent), bits, warpgroup, spread);
}

void KernelBuilder::loadRowVector(int component, int64_t k, Value slot) {
  component = dsl::hostOf(context.gemm.weight, component);
  int64_t group = groupIn(k, extentK(context.gemm.weight.components[component]));
  tileValues.rowVectors[{component, group / groupsTogether(component)}] =
      rowVectorOf(component, group, 0, slot);
}

const std::vector<Value> &KernelBuilder::rowWordsOf(int component, int64_t group, int64_t warpgroup,
                                                    Value slot) {
  std::vector<Value> &words =
      tileValues.rowWords[{component, group / groupsTogether(component), warpgroup}];
  if (!words.empty())
    return words;
  Value vector = rowVectorOf(component, group, warpgroup, slot);
  int64_t count = llvm::cast<mlir::VectorType>(vector.getType()).getNumElements();
  for (int64_t i = 0; i < count; ++i)
    words.push_back(
        tile::ExtractOp::create(builder, at(true, component), builder.getI32Type(), vector, i));
  return words;
}

DecodeProgram KernelBuilder::tablePlacesOf(int selector, int count) const {
  const dsl::Component &part = context.gemm.weight.components[selector];
  const ScaleSign sign = context.placed.decode.scaleSign;
  int bits = part.type.bits(), shift = part.shift;
  if (sign.selector != 0) { // the other bit names the table
    --bits;
    shift += sign.bit == 0 ? 1 : 0;
  }
  return tablePlacesSequence(bits, static_cast<int>(storedBitsOf(selector)), shift, count);
}

Value KernelBuilder::parameter(DecodeParam::Form form, int component, int64_t group, int64_t row,
                               Value slot) {
  using Form = DecodeParam::Form;
  ParameterKey key{form, component, group, row};
  if (Value known = tileValues.parameters[key])
    return known;
  const dsl::Component &part = context.gemm.weight.components[component];
  const dsl::ElementType type = part.type;
  int64_t perWord = 32 / unitBits(component), together = groupsTogether(component); // rows, groups
  int64_t inWarpgroup = row % g.rowsPerThread();
  mlir::Location loc = at(true, component);
  auto [word, bit] = packedCode(component, group, row, slot);
  if (form == Form::Multiplier || form == Form::Places || form == Form::Pairs) {
    // Of all codes of the word at once.
    const int64_t codes = std::min(perWord, g.rowsPerThread()) * together;
    const int64_t firstRow = row - inWarpgroup % perWord, firstGroup = group - group % together;
    const auto stored = static_cast<int>(storedBitsOf(component)), count = static_cast<int>(codes);
    const DecodeProgram program =
        form == Form::Places  ? placesSequence(type.bits(), stored, part.shift, count)
        : form == Form::Pairs ? tablePlacesOf(component, count)
                              : multiplierSequence(context.placed.decode, context.gemm.weight,
                                                   component, context.placed.mmaType);
    auto decoded = tile::DecodeOp::create(
        builder, loc, std::vector<mlir::Type>(program.outputs.size(), builder.getI32Type()), word,
        form == Form::Pairs ? mlir::ValueRange(pairs) : mlir::ValueRange(), program.print());
    for (int64_t i = 0; i < codes; ++i)
      tileValues.parameters[{form, component, firstGroup + i % together, firstRow + i / together}] =
          decoded.getResult(static_cast<unsigned>(i));
    return tileValues.parameters[key];
  }
  DecodeProgram pick;
  if (sharesUnit(component) && form == Form::Byte) {
    pick.output(codeAt(pick, bit, type.bits()));
    auto code = tile::DecodeOp::create(builder, loc, mlir::TypeRange{builder.getI32Type()}, word,
                                       mlir::ValueRange(), pick.print());
    return tileValues.parameters[key] = code.getResult(0);
  }
  auto byte = static_cast<uint32_t>(bit / 8);
  uint32_t selector = form == Form::Byte ? 0x4440 | byte : byte * 0x1111;
  auto picked = pick.add(DecodeInstr::Op::Prmt, DecodeProgram::word(), DecodeProgram::constant(0),
                         DecodeProgram::constant(selector));
  if (sharesUnit(component)) {
    picked = pick.add(DecodeInstr::Op::Shr, picked,
                      DecodeProgram::constant(static_cast<uint32_t>(bit % 8)));
    picked = pick.add(DecodeInstr::Op::And, picked,
                      DecodeProgram::constant(((1U << type.bits()) - 1) * 0x01010101U));
  }
  pick.output(picked);
  auto decoded = tile::DecodeOp::create(builder, loc, mlir::TypeRange{builder.getI32Type()}, word,
                                        mlir::ValueRange(), pick.print());
  return tileValues.parameters[key] = decoded.getResult(0);
}

std::vector<int> KernelBuilder::componentsOf(Value parameter) const {
  std::vector<int> result;
  auto append = [&](Value value) {
    result.push_back(sourceOf(value.getDefiningOp<ir::ComponentOp>()).index);
  };
  if (auto number = parameter.getDefiningOp<ir::NumberOp>())
    llvm::for_each(number.getComponents(), append);
  else
    append(parameter);
  return result;
}

std::vector<Value> KernelBuilder::decodeParameters(int64_t k, int64_t rowTile, Value slot,
                                                   int64_t firstRow) {
  std::vector<Value> result;
  for (auto [value, attribute] : llvm::zip(chain.decode.getParameters(), chain.decode.getForms())) {
    const auto [form, rowHalf, kHalf] =
        *parseForm(llvm::cast<mlir::StringAttr>(attribute).getValue());
    int64_t row = 2 * rowTile + (rowHalf == 1 ? 1 : firstRow);
    int64_t own = k + (kHalf == 1 ? g.mmaK / 2 : 0);
    using Form = DecodeParam::Form;
    if (auto op = value.getDefiningOp<ir::NumberOp>()) {
      result.push_back(form == Form::Choices ? choices(op, own, row, slot)
                       : form == Form::Pairs ? pairsOf(op, own, row, slot)
                       : form == Form::LowProducts || form == Form::HighProducts
                           ? products(number(op, own, row, slot), form)
                           : number(op, own, row, slot));
      continue;
    }
    if (form == Form::Pairs || form == Form::PairsBegin) {
      result.push_back(form == Form::Pairs ? pairs : pairsBegin);
      continue;
    }
    int component = componentsOf(value)[0];
    int64_t group = extentK(context.gemm.weight.components[component]);
    result.push_back(parameter(form, component, groupIn(own, group), row, slot));
  }
  return result;
}

std::vector<Value> KernelBuilder::wordsOfUnit(const Chunk &words, int64_t unit) {
  std::vector<CodePlane> planes = g.planes();
  std::vector<Value> result;
  for (size_t plane = 0; plane < planes.size(); ++plane) {
    int64_t count = int64_t{context.placed.decode.codes} * planes[plane].bits / 32;
    for (int64_t word = unit * count; word < (unit + 1) * count; ++word)
      result.push_back(
          tile::ExtractOp::create(builder, at(true, 0), builder.getI32Type(), words[plane], word));
  }
  return result;
}

// Units of one row half and of the other take turns; a unit has two registers of each instruction.
std::vector<Value> KernelBuilder::decodeRowHalves(const Chunk &words, int64_t step) {
  auto registers = static_cast<int64_t>(context.placed.decode.registers());
  int64_t first = 2 * step % registers; // of the unit
  std::vector<Value> halves[2];
  for (int64_t half = 0; half < 2; ++half) {
    int64_t place = 2 * (2 * step / registers) + half;
    std::vector<Value> &decoded = decodedUnits[{words[0].getAsOpaquePointer(), place}];
    if (decoded.empty()) {
      std::vector<mlir::Type> types(static_cast<size_t>(registers), builder.getI32Type());
      auto unit =
          tile::DecodeOp::create(builder, chain.decode.getLoc(), types, wordsOfUnit(words, place),
                                 mlir::ValueRange(), chain.decode.getProgram());
      decoded.assign(unit.getResults().begin(), unit.getResults().end());
    }
    halves[half] = {decoded[static_cast<size_t>(first)], decoded[static_cast<size_t>(first) + 1]};
  }
  return {halves[0][0], halves[1][0], halves[0][1], halves[1][1]};
}

std::vector<Value> KernelBuilder::decodeStep(const Chunk &words, int64_t step, int64_t k,
                                             int64_t rowTile, Value slot) {
  const DecodeSequence &decode = context.placed.decode;
  auto registers = static_cast<int64_t>(decode.registers());
  int64_t perDecode = std::min<int64_t>(registers, 4); // registers
  int64_t parts = registers / perDecode;               // of a unit
  if (unitPrograms.empty()) {
    DecodeProgram program = *DecodeProgram::parse(chain.decode.getProgram().str());
    program.lanes.clear(); // tile.fill_pair_tables has them
    for (int64_t part = 0; part < parts; ++part)
      unitPrograms.push_back(
          program.part(static_cast<size_t>(part * perDecode), static_cast<size_t>(perDecode)));
  }
  if (context.placed.oneRowHalf)
    return decodeRowHalves(words, step);
  std::vector<Value> a;
  for (int64_t i = step * 4 / perDecode; i < (step + 1) * 4 / perDecode; ++i) {
    int64_t unit = i / parts;
    std::vector<Value> unitWords = wordsOfUnit(words, unit);
    std::vector<mlir::Type> types(static_cast<size_t>(perDecode), builder.getI32Type());
    // Of the first register; registers of both rows take turns.
    int64_t kHalf = i * perDecode / 2 % 2, row = i * perDecode % 2;
    auto decoded =
        tile::DecodeOp::create(builder, chain.decode.getLoc(), types, unitWords,
                               decodeParameters(k + kHalf * g.mmaK / 2, rowTile, slot, row),
                               unitPrograms[static_cast<size_t>(i % parts)].print());
    a.insert(a.end(), decoded.getResults().begin(), decoded.getResults().end());
  }
  return a;
}

KernelBuilder::Chunk KernelBuilder::loadChunk(int64_t chunk, int64_t rowTile, Value slot) {
  std::vector<CodePlane> planes = g.densePlanes();
  Chunk words;
  for (size_t plane = 0; plane < planes.size(); ++plane)
    words.push_back(tile::LoadCodesOp::create(
        builder, at(true, 0), vectorOf(g.planeWords(planes[plane].bits), true),
        buffers[{true, planeSection(context.gemm, plane)}], slot, chunk, rowTile));
  if (g.sparseBits > 0)
    words.push_back(loadSparseWords(chunk, rowTile, slot));
  return words;
}

const std::vector<KernelBuilder::Chunk> &KernelBuilder::codesOf(int64_t chunk, Value slot) {
  std::vector<Chunk> &words = tileValues.codes[chunk];
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
    int64_t first = piece.chunk * g.chunkK(), warpgroup = piece.rowTile / g.rowTiles();
    for (Value parameter : chain.decode.getParameters())
      for (int component : componentsOf(parameter))
        for (int64_t k = first; k < first + g.chunkK() && context.placed.streamed[component];
             k += g.mmaK / 2)
          rowWordsOf(component, groupIn(k, extentK(context.gemm.weight.components[component])),
                     warpgroup, slot);
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
