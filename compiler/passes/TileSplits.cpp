// Operands with a remapped code as sums of two operands, in registers.
#include "compiler/passes/KernelBuilder.h"

namespace rho::compiler {

using mlir::Value;
using Op = DecodeInstr::Op;

namespace {

constexpr uint32_t allBytes = 0x01010101;

uint32_t lowBits(dsl::ElementType type) { return (1U << type.bits()) - 1; }

} // namespace

Value KernelBuilder::runProgram(mlir::Location loc, const DecodeProgram &program, Value word) {
  return tile::DecodeOp::create(builder, loc, mlir::TypeRange{builder.getI32Type()}, word,
                                mlir::ValueRange(), program.print())
      .getResult(0);
}

Value KernelBuilder::withoutGuests(bool ofWeight, int component, Value word) {
  const dsl::Format &format = ofWeight ? context.gemm.weight : context.gemm.activation;
  if (dsl::guestsOf(format, component).empty())
    return word;
  DecodeProgram program;
  program.output(
      program.add(Op::And, DecodeProgram::word(),
                  DecodeProgram::constant(lowBits(format.components[component].type) * allBytes)));
  return runProgram(at(ofWeight, component), program, word);
}

void KernelBuilder::buildSplitTables() {
  for (bool ofWeight : {true, false}) {
    if (!context.placed.blockScaling || !context.placed.blockScaling->split(ofWeight))
      continue;
    const CodeSplit &split = *context.placed.blockScaling->split(ofWeight);
    mlir::Location loc = at(ofWeight, split.selector);
    std::vector<Value> words; // activations have none: nothing of theirs is per tensor
    for (int component : split.stored)
      words.push_back(tile::LoadTensorCodeOp::create(
          builder, at(ofWeight, component), builder.getI32Type(), weight, section(component).offset,
          section(component).codeBits));
    std::vector<mlir::Type> types(split.tables.outputs.size(), builder.getI32Type());
    auto tables = tile::DecodeOp::create(builder, loc, types, words, mlir::ValueRange(),
                                         split.tables.print());
    splitTables[ofWeight].assign(tables.getRegisters().begin(), tables.getRegisters().end());
  }
}

const std::vector<Value> &KernelBuilder::selectorsOf(bool ofWeight, int64_t word, int64_t tile,
                                                     Value slot) {
  std::vector<Value> &words = tileValues.selectorWords[{ofWeight, word, tile}];
  if (!words.empty())
    return words;
  const CodeSplit &split = *context.placed.blockScaling->split(ofWeight);
  const dsl::Format &format = ofWeight ? context.gemm.weight : context.gemm.activation;
  const dsl::Component &selector = format.components[split.selector];
  mlir::Location loc = at(ofWeight, split.selector);
  int64_t rows = ofWeight ? 2 : 1;
  int unit = selector.host >= 0 ? selector.host : split.selector;
  Value codes = tile::LoadBlockCodesOp::create(
      builder, loc, vectorOf(rows, true), buffers[{ofWeight, unit}], slot, word, tile, ofWeight);
  DecodeProgram program;
  auto moved = program.add(Op::Shr, DecodeProgram::word(),
                           DecodeProgram::constant(static_cast<uint32_t>(selector.shift)));
  program.output(
      program.add(Op::AndOr, moved, DecodeProgram::constant(lowBits(selector.type) * allBytes),
                  DecodeProgram::constant((CodeSplit::pickedSelector & 0xff) * allBytes)));
  for (int64_t row = 0; row < rows; ++row)
    words.push_back(runProgram(
        loc, program, tile::ExtractOp::create(builder, loc, builder.getI32Type(), codes, row)));
  return words;
}

// A register has 8 codes of one row along k, from 8 times the thread's place in its quad on, and 32
// further on where it is one of the upper half of an instruction's k.
std::vector<std::vector<Value>> KernelBuilder::splitRegisters(bool ofWeight,
                                                              const std::vector<Value> &registers,
                                                              int64_t k, int64_t tile, Value slot) {
  const std::optional<BlockScaling> &scaling = context.placed.blockScaling;
  if (!scaling || !scaling->split(ofWeight))
    return {registers};
  const CodeSplit &split = *scaling->split(ofWeight);
  mlir::Location loc = at(ofWeight, split.selector);
  int64_t rows = ofWeight ? 2 : 1;
  std::vector<std::vector<Value>> parts(static_cast<size_t>(scaling->parts(ofWeight)));
  for (size_t r = 0; r < registers.size(); ++r) {
    int64_t half = static_cast<int64_t>(r) / rows;
    int64_t block = (k + half * g.mmaK / 2) / scaling->block;
    const std::vector<Value> &selectors =
        selectorsOf(ofWeight, block / BlockScaling::perWord, tile, slot);
    Value picked = tile::PickBlockOp::create(
        builder, loc, builder.getI32Type(), selectors[r % static_cast<size_t>(rows)],
        block % BlockScaling::perWord, std::max<int64_t>(1, g.mmaK / 2 / scaling->block));
    std::vector<Value> parameters{picked};
    parameters.insert(parameters.end(), splitTables[ofWeight].begin(), splitTables[ofWeight].end());
    std::vector<mlir::Type> types(2, builder.getI32Type());
    auto made =
        tile::DecodeOp::create(builder, loc, types, registers[r], parameters, split.split.print());
    for (size_t part = 0; part < parts.size(); ++part)
      parts[part].push_back(made.getRegisters()[static_cast<unsigned>(part)]);
  }
  return parts;
}

std::vector<Value> KernelBuilder::splitActivation(Value b, int64_t chunk, int64_t batchTile,
                                                  Value slot) {
  const std::optional<BlockScaling> &scaling = context.placed.blockScaling;
  if (!scaling || !scaling->activationSplit)
    return {b};
  std::vector<std::vector<Value>> parts(static_cast<size_t>(scaling->parts(false)));
  for (int64_t step = 0; step < g.stepsPerChunk(); ++step) {
    std::vector<Value> registers;
    for (int64_t half = 0; half < 2; ++half)
      registers.push_back(
          tile::ExtractOp::create(builder, at(false, 0), builder.getI32Type(), b, 2 * step + half));
    auto split =
        splitRegisters(false, registers, chunk * g.chunkK() + step * g.mmaK, batchTile, slot);
    for (size_t part = 0; part < parts.size(); ++part)
      parts[part].insert(parts[part].end(), split[part].begin(), split[part].end());
  }
  std::vector<Value> vectors;
  for (const std::vector<Value> &words : parts)
    vectors.push_back(tile::JoinOp::create(
        builder, at(false, 0), vectorOf(static_cast<int64_t>(words.size()), true), words));
  return vectors;
}

} // namespace rho::compiler
