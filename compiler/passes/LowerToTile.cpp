// Placed gemms to the program of one thread block. What is multiplied, scaled and decoded follows
// the operations of rho.gemm; how it is divided among CTAs, warps and k tiles follows the plan.
#include "compiler/passes/GemmContext.h"
#include "compiler/passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <map>

namespace rho::compiler {

#define GEN_PASS_DEF_LOWERTOTILE
#include "compiler/passes/Passes.h.inc"

namespace {

using mlir::Value;
namespace NVVM = mlir::NVVM;

// The chain of operations from rho.return back to the matrix instruction.
struct Chain {
  ir::ReturnOp result;
  ir::MmaOp mma;
  ir::DecodeOp decode;
  std::vector<ir::ComponentOp> accumulator; // group scales, in order of application
  std::vector<ir::ComponentOp> epilogue;
};

mlir::FailureOr<Chain> readChain(ir::GemmOp op) {
  Chain chain;
  chain.result = llvm::cast<ir::ReturnOp>(op.getBody().front().back());
  Value value = chain.result.getValue();
  std::vector<ir::ComponentOp> *scales = &chain.epilogue;
  bool reduced = false;
  while (mlir::Operation *definition = value.getDefiningOp()) {
    if (auto scale = llvm::dyn_cast<ir::ScaleOp>(definition)) {
      auto component = scale.getScale().getDefiningOp<ir::ComponentOp>();
      if (!component)
        return scale.emitError("scale must be a component");
      scales->insert(scales->begin(), component);
      value = scale.getValue();
    } else if (auto reduce = llvm::dyn_cast<ir::ReduceOp>(definition)) {
      if (reduced)
        return reduce.emitError("only one reduction is possible");
      reduced = true;
      scales = &chain.accumulator;
      value = reduce.getValue();
    } else if (auto mma = llvm::dyn_cast<ir::MmaOp>(definition)) {
      chain.mma = mma;
      chain.decode = mma.getWeight().getDefiningOp<ir::DecodeOp>();
      if (!chain.decode)
        return mma.emitError("weight operand must come from rho.decode");
      return chain;
    } else {
      return definition->emitError("is no part of a placed gemm");
    }
  }
  return op.emitError("holds no rho.mma");
}

class KernelBuilder {
public:
  KernelBuilder(ir::GemmOp op, const GemmContext &context, Chain &chain)
      : op(op), context(context), chain(chain), g(context.geometry),
        layout(makeWeightLayout(context.gemm, context.placed, g, context.plan.problem)),
        builder(op.getContext()) {}

  void build() {
    builder.setInsertionPoint(op);
    const Schedule &s = context.plan.schedule;
    auto geometry = tile::GeometryAttr::get(op.getContext(), s.tileM, s.tileN, s.tileK, s.warpsM,
                                            s.warpsN, context.placed.mmaType, s.splitK);
    llvm::SmallVector<llvm::StringRef> origins(context.origins.begin(), context.origins.end());
    auto kernel = tile::KernelOp::create(builder, at("gemm"), op.getSymName(), context.plan.target,
                                         geometry, builder.getStrArrayAttr(origins));
    mlir::Block &block = kernel.getBody().emplaceBlock();
    addParameters(block);
    builder.setInsertionPointToEnd(&block);
    allocateShared();
    tileN = NVVM::BlockIdXOp::create(builder, at("schedule"), builder.getI32Type());
    tileM = NVVM::BlockIdYOp::create(builder, at("schedule"), builder.getI32Type());
    std::vector<Value> sums = buildPipeline();
    buildEpilogue(sums);
    op.erase();
  }

private:
  using Pair = std::pair<bool, int>; // weight or activation, component
  ir::GemmOp op;
  const GemmContext &context;
  Chain &chain;
  const Geometry &g;
  WeightLayout layout;
  mlir::OpBuilder builder;
  Value weight, output, workspace, m, tileN, tileM;
  std::map<int, Value> activation; // by component
  std::map<Pair, Value> buffers;   // shared, by component

  mlir::Location at(llvm::StringRef origin) {
    return locationOf(op.getContext(), context.origins, origin);
  }
  mlir::Location at(bool ofWeight, int component) {
    const dsl::Format &format = ofWeight ? context.gemm.weight : context.gemm.activation;
    return at((ofWeight ? "weight." : "activation.") + format.components[component].name);
  }
  const dsl::Component &partOf(ir::ComponentOp component, bool &ofWeight, int &index) const {
    ofWeight = component.getRole() == "weight";
    const dsl::Format &format = ofWeight ? context.gemm.weight : context.gemm.activation;
    index = 0;
    while (format.components[index].name != component.getComponent())
      ++index;
    return format.components[index];
  }
  Value i32(int64_t value) {
    return mlir::arith::ConstantIntOp::create(builder, at("schedule"), builder.getI32Type(), value);
  }
  Value mul(Value a, int64_t b) {
    return b == 1 ? a : mlir::arith::MulIOp::create(builder, at("schedule"), a, i32(b)).getResult();
  }
  Value add(Value a, Value b) { return mlir::arith::AddIOp::create(builder, at("schedule"), a, b); }
  Value divide(Value a, int64_t b) {
    return b == 1 ? a
                  : mlir::arith::DivUIOp::create(builder, at("schedule"), a, i32(b)).getResult();
  }
  mlir::VectorType accumulatorType(bool integer) {
    mlir::Type element = integer ? mlir::Type(builder.getI32Type()) : builder.getF32Type();
    return mlir::VectorType::get({4}, element);
  }
  mlir::VectorType vectorOf(int64_t count, bool integer) {
    mlir::Type element = integer ? mlir::Type(builder.getI32Type()) : builder.getF32Type();
    return mlir::VectorType::get({count}, element);
  }

  void addParameters(mlir::Block &block) {
    auto pointer = mlir::LLVM::LLVMPointerType::get(op.getContext(), 1);
    for (const KernelParameter &parameter : kernelParameters(context.gemm, context.plan.schedule)) {
      bool isM = parameter.kind == KernelParameter::Kind::M;
      Value value = block.addArgument(isM ? mlir::Type(builder.getI32Type()) : pointer, at("gemm"));
      switch (parameter.kind) {
      case KernelParameter::Kind::Weight:
        weight = value;
        break;
      case KernelParameter::Kind::Activation:
        activation[0] = value;
        break;
      case KernelParameter::Kind::ActivationComponent:
        activation[parameter.index] = value;
        break;
      case KernelParameter::Kind::Output:
        output = value;
        break;
      case KernelParameter::Kind::Workspace:
        workspace = value;
        break;
      case KernelParameter::Kind::M:
        m = value;
        break;
      }
    }
  }

  void allocateShared() {
    for (const StageBuffer &buffer : stageBuffers(context.gemm, context.placed, g))
      buffers[{buffer.weight, buffer.component}] = tile::AllocSharedOp::create(
          builder, at(buffer.origin),
          tile::SharedType::get(op.getContext(), buffer.bytes, context.plan.schedule.pipeline),
          buffer.origin);
  }

  // This CTA's k tiles, and the pipeline over them. Returns the accumulators, row tile by row
  // tile, batch tiles innermost.
  std::vector<Value> buildPipeline() {
    const Schedule &s = context.plan.schedule;
    int64_t tilesK = (context.plan.problem.k + g.tileK - 1) / g.tileK;
    Value first = i32(0), last = i32(tilesK);
    if (s.splitK > 1) {
      int64_t perSplit = (tilesK + s.splitK - 1) / s.splitK;
      Value split = NVVM::BlockIdZOp::create(builder, at("schedule"), builder.getI32Type());
      Value end = i32(tilesK);
      first = mlir::arith::MinUIOp::create(builder, at("schedule"), mul(split, perSplit), end);
      last = mlir::arith::MinUIOp::create(builder, at("schedule"), add(first, i32(perSplit)), end);
    }
    bool integer = context.placed.integerAccumulator && chain.accumulator.empty();
    mlir::VectorType type = accumulatorType(integer);
    Value zero = tile::ZeroOp::create(builder, at("gemm"), type);
    std::vector<Value> inits(static_cast<size_t>(g.rowTiles() * g.batchTiles()), zero);
    auto pipeline = tile::PipelineOp::create(builder, at("schedule"),
                                             std::vector<mlir::Type>(inits.size(), type), first,
                                             last, static_cast<uint64_t>(s.pipeline), inits);
    mlir::OpBuilder::InsertionGuard guard(builder);
    mlir::Location loc = at("schedule");
    mlir::Type index = builder.getI32Type();
    mlir::Block &produce = pipeline.getProduce().emplaceBlock();
    produce.addArguments({index, index}, {loc, loc});
    builder.setInsertionPointToEnd(&produce);
    buildCopies(produce.getArgument(0), produce.getArgument(1), tilesK);
    tile::YieldOp::create(builder, loc, mlir::ValueRange());
    mlir::Block &consume = pipeline.getConsume().emplaceBlock();
    consume.addArguments({index, index}, {loc, loc});
    std::vector<Value> carried;
    for (size_t i = 0; i < inits.size(); ++i)
      carried.push_back(consume.addArgument(type, loc));
    builder.setInsertionPointToEnd(&consume);
    tile::YieldOp::create(builder, loc, buildConsume(consume.getArgument(1), carried));
    return {pipeline.getResults().begin(), pipeline.getResults().end()};
  }

  void buildCopies(Value tileK, Value slot, int64_t tilesK) {
    Value weightTile = add(mul(tileN, tilesK), tileK);
    for (const auto &[key, buffer] : buffers) {
      auto [ofWeight, index] = key;
      mlir::Location loc = at(ofWeight, index);
      if (ofWeight) {
        const LayoutSection &section = layout.sections[index];
        Value tile = weightTile;
        if (index != 0) { // several k tiles may lie inside one group
          int64_t tilesPerGroup = std::max<int64_t>(1, section.unitK / g.tileK);
          tile = add(mul(tileN, section.tilesK), divide(tileK, tilesPerGroup));
        }
        tile::CopyTileOp::create(builder, loc, weight, section.offset, tile, buffer, slot);
        continue;
      }
      const dsl::Component &part = context.gemm.activation.components[index];
      if (index == 0) {
        int64_t pitch = makeActivationLayout(context.gemm, context.plan.problem).pitchBytes;
        tile::CopyRowsOp::create(builder, loc, activation[0], mul(tileM, g.tileM), m,
                                 mul(tileK, g.activationRowBytes()), i32(pitch), buffer, slot,
                                 g.tileM, g.activationRowBytes(), true);
        continue;
      }
      int64_t groups = (context.plan.problem.k + part.group - 1) / part.group;
      int64_t perTile = g.groupsPerTile(part.group);
      int64_t bytes = part.type.bits() / 8;
      int64_t tilesPerGroup = std::max<int64_t>(1, part.group / g.tileK);
      Value stride = mul(divide(add(m, i32(7)), 8), 8 * bytes); // activationGroupStride
      tile::CopyRowsOp::create(
          builder, loc, activation[index], mul(divide(tileK, tilesPerGroup), perTile), i32(groups),
          mul(tileM, g.tileM * bytes), stride, buffer, slot, perTile, g.tileM * bytes, false);
    }
  }

  // Registers per weight row of one parameter of the decode, for one group of the tile.
  struct ParameterKey {
    std::string form;
    int component;
    int64_t group;
    int64_t row;
    friend auto operator<=>(const ParameterKey &, const ParameterKey &) = default;
  };
  std::map<ParameterKey, Value> parameterCache;
  std::map<std::pair<int, int64_t>, std::vector<Value>> rowWords; // by component and group

  const std::vector<Value> &rowWordsOf(int component, int64_t group, Value slot) {
    std::vector<Value> &words = rowWords[{component, group}];
    if (!words.empty())
      return words;
    int bits = context.gemm.weight.components[component].type.bits();
    int64_t count = std::max<int64_t>(1, g.rowsPerThread() * bits / 32);
    Value vector = tile::LoadRowCodesOp::create(builder, at(true, component), vectorOf(count, true),
                                                buffers[{true, component}], slot, group, bits);
    for (int64_t i = 0; i < count; ++i)
      words.push_back(
          tile::ExtractOp::create(builder, at(true, component), builder.getI32Type(), vector, i));
    return words;
  }

  Value parameter(llvm::StringRef form, int component, int64_t group, int64_t row, Value slot) {
    ParameterKey key{form.str(), component, group, row};
    if (Value known = parameterCache[key])
      return known;
    const dsl::ElementType type = context.gemm.weight.components[component].type;
    int64_t perWord = 32 / type.bits();
    Value word = rowWordsOf(component, group, slot)[row / perWord];
    mlir::Location loc = at(true, component);
    if (form == "multiplier") {
      DecodeProgram scales =
          *scaleSequence(type, context.placed.mmaType, context.placed.decode.scaleLog2);
      int64_t outputs = static_cast<int64_t>(scales.outputs.size());
      auto decoded = tile::DecodeOp::create(builder, loc,
                                            std::vector<mlir::Type>(outputs, builder.getI32Type()),
                                            word, mlir::ValueRange(), scales.print());
      int64_t base = row / perWord * perWord;
      for (int64_t i = 0; i < outputs; ++i)
        parameterCache[{form.str(), component, group, base + i}] = decoded.getResult(i);
      return parameterCache[key];
    }
    DecodeProgram pick;
    uint32_t byte = static_cast<uint32_t>(row % perWord);
    uint32_t selector = form == "byte" ? 0x4440 | byte : byte * 0x1111;
    pick.output(pick.add(DecodeInstr::Op::Prmt, DecodeProgram::word(), DecodeProgram::constant(0),
                         DecodeProgram::constant(selector)));
    auto decoded = tile::DecodeOp::create(builder, loc, mlir::TypeRange{builder.getI32Type()}, word,
                                          mlir::ValueRange(), pick.print());
    return parameterCache[key] = decoded.getResult(0);
  }

  int64_t groupIn(int64_t k, int64_t group) const { return group >= g.tileK ? 0 : k / group; }

  std::vector<Value> buildConsume(Value slot, std::vector<Value> sums) {
    DecodeProgram program = *DecodeProgram::parse(chain.decode.getProgram().str());
    int64_t perWord = static_cast<int64_t>(program.outputs.size());
    int64_t steps = g.stepsPerChunk();
    bool grouped = !chain.accumulator.empty();
    int64_t flush = g.tileK;
    for (ir::ComponentOp component : chain.accumulator) {
      bool ofWeight = false;
      int index = 0;
      flush = std::min(flush, partOf(component, ofWeight, index).group);
    }
    mlir::VectorType mmaType = accumulatorType(context.placed.integerAccumulator);
    Value zero = tile::ZeroOp::create(builder, at("gemm"), mmaType);
    // Matrix instructions that add to the same accumulator wait for each other; few accumulators
    // are split into several chains, summed at the end of the group or tile.
    int64_t chains = std::min(mmaChains(g), flush / g.mmaK);
    std::vector<std::vector<Value>> partial(static_cast<size_t>(chains),
                                            std::vector<Value>(sums.size(), zero));
    if (!grouped)
      partial[0] = sums;
    for (int64_t chunk = 0; chunk < g.chunks(); ++chunk) {
      std::vector<Value> b, words;
      mlir::Location activationLoc = at(false, 0), weightLoc = at(true, 0);
      for (int64_t j = 0; j < g.batchTiles(); ++j)
        b.push_back(tile::LoadActivationOp::create(builder, activationLoc,
                                                   vectorOf(2 * steps, true), buffers[{false, 0}],
                                                   slot, chunk, j));
      for (int64_t t = 0; t < g.rowTiles(); ++t)
        words.push_back(tile::LoadCodesOp::create(builder, weightLoc,
                                                  vectorOf(Geometry::wordsPerChunk, true),
                                                  buffers[{true, 0}], slot, chunk, t));
      for (int64_t step = 0; step < steps; ++step) {
        int64_t k = chunk * Geometry::chunkK + step * g.mmaK;
        std::vector<Value> &chain = partial[k / g.mmaK % chains];
        for (int64_t t = 0; t < g.rowTiles(); ++t) {
          std::vector<Value> a = decodeStep(program, words[t], step, perWord, k, t, slot);
          for (int64_t j = 0; j < g.batchTiles(); ++j) {
            Value &sum = chain[t * g.batchTiles() + j];
            sum = tile::MmaOp::create(builder, at("gemm"), mmaType, a, b[j], step, sum,
                                      context.placed.mmaType);
          }
        }
        if (grouped && (k + g.mmaK) % flush == 0) {
          flushGroup(sums, joinChains(partial), k, slot);
          for (std::vector<Value> &each : partial)
            std::fill(each.begin(), each.end(), zero);
        }
      }
    }
    return grouped ? sums : joinChains(partial);
  }

  std::vector<Value> joinChains(const std::vector<std::vector<Value>> &partial) {
    std::vector<Value> result = partial[0];
    for (size_t chain = 1; chain < partial.size(); ++chain)
      for (size_t i = 0; i < result.size(); ++i) {
        Value other = partial[chain][i];
        if (context.placed.integerAccumulator)
          result[i] = mlir::arith::AddIOp::create(builder, at("gemm"), result[i], other);
        else
          result[i] = mlir::arith::AddFOp::create(builder, at("gemm"), result[i], other);
      }
    return result;
  }

  // The four registers of operand A for one instruction.
  std::vector<Value> decodeStep(const DecodeProgram &program, Value words, int64_t step,
                                int64_t perWord, int64_t k, int64_t rowTile, Value slot) {
    std::vector<Value> a;
    int64_t wordsPerStep = 4 / perWord;
    for (int64_t i = 0; i < wordsPerStep; ++i) {
      Value word = tile::ExtractOp::create(builder, at(true, 0), builder.getI32Type(), words,
                                           step * wordsPerStep + i);
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
      auto decoded = tile::DecodeOp::create(builder, chain.decode.getLoc(),
                                            std::vector<mlir::Type>(perWord, builder.getI32Type()),
                                            word, parameters, chain.decode.getProgram());
      a.insert(a.end(), decoded.getResults().begin(), decoded.getResults().end());
    }
    return a;
  }

  void flushGroup(std::vector<Value> &sums, const std::vector<Value> &partial, int64_t k,
                  Value slot) {
    // Row scales (two per row tile) and column scales (one pair per batch tile) of this group.
    std::vector<Value> rows;
    std::vector<Value> columns;
    for (ir::ComponentOp component : chain.accumulator) {
      bool ofWeight = false;
      int index = 0;
      const dsl::Component &part = partOf(component, ofWeight, index);
      int64_t group = groupIn(k, part.group);
      mlir::Location loc = component.getLoc();
      if (ofWeight) {
        int64_t count = std::max<int64_t>(1, g.rowsPerThread() * part.type.bits() / 32);
        Value words =
            tile::LoadRowCodesOp::create(builder, loc, vectorOf(count, true),
                                         buffers[{true, index}], slot, group, part.type.bits());
        Value scales = tile::ConvertScalesOp::create(
            builder, loc, vectorOf(g.rowsPerThread(), false), words, part.type.name());
        for (int64_t r = 0; r < g.rowsPerThread(); ++r) {
          Value scale = tile::ExtractOp::create(builder, loc, builder.getF32Type(), scales, r);
          if (static_cast<int64_t>(rows.size()) <= r)
            rows.push_back(scale);
          else
            rows[r] = mlir::arith::MulFOp::create(builder, loc, rows[r], scale);
        }
      } else {
        for (int64_t j = 0; j < g.batchTiles(); ++j) {
          Value scales = tile::LoadColumnScalesOp::create(builder, loc, vectorOf(2, false),
                                                          buffers[{false, index}], slot, group, j,
                                                          part.type.name());
          if (static_cast<int64_t>(columns.size()) <= j)
            columns.push_back(scales);
          else
            columns[j] = mlir::arith::MulFOp::create(builder, loc, columns[j], scales);
        }
      }
    }
    mlir::Location loc = chain.accumulator[0].getLoc();
    for (int64_t t = 0; t < g.rowTiles(); ++t)
      for (int64_t j = 0; j < g.batchTiles(); ++j) {
        int64_t i = t * g.batchTiles() + j;
        std::vector<Value> pair;
        if (!rows.empty())
          pair = {rows[2 * t], rows[2 * t + 1]};
        sums[i] = tile::ScaleOp::create(builder, loc, accumulatorType(false), partial[i], pair,
                                        columns.empty() ? Value() : columns[j], Value(), sums[i]);
      }
  }

  void buildEpilogue(std::vector<Value> sums) {
    if (context.plan.schedule.splitK > 1) {
      std::vector<mlir::Type> types;
      for (Value sum : sums)
        types.push_back(sum.getType());
      auto split = tile::SplitSumOp::create(builder, at("schedule"), builder.getI1Type(), types,
                                            workspace, m, sums);
      auto last = mlir::scf::IfOp::create(builder, at("schedule"), split.getLast());
      sums.assign(split.getSums().begin(), split.getSums().end());
      builder.setInsertionPointToStart(&last.getThenRegion().front());
    }
    Value factor;
    std::vector<Value> rows, columns;
    auto multiply = [&](mlir::Location loc, Value &product, Value with) {
      product =
          product ? mlir::arith::MulFOp::create(builder, loc, product, with).getResult() : with;
    };
    for (ir::ComponentOp component : chain.epilogue) {
      bool ofWeight = false;
      int index = 0;
      const dsl::Component &part = partOf(component, ofWeight, index);
      mlir::Location loc = component.getLoc();
      Value source = ofWeight ? weight : activation[index];
      int64_t base = ofWeight ? layout.sections[index].offset : 0;
      if (part.extent == dsl::Extent::Tensor) {
        multiply(loc, factor,
                 tile::LoadTensorScaleOp::create(builder, loc, builder.getF32Type(), source, base,
                                                 part.type.name()));
      } else if (ofWeight) {
        Value scales = tile::LoadRowScalesOp::create(
            builder, loc, vectorOf(g.rowsPerThread(), false), source, base, part.type.name());
        rows.resize(g.rowsPerThread());
        for (int64_t r = 0; r < g.rowsPerThread(); ++r)
          multiply(loc, rows[r],
                   tile::ExtractOp::create(builder, loc, builder.getF32Type(), scales, r));
      } else {
        columns.resize(g.batchTiles());
        for (int64_t j = 0; j < g.batchTiles(); ++j)
          multiply(loc, columns[j],
                   tile::LoadTokenScalesOp::create(builder, loc, vectorOf(2, false), source, m, j,
                                                   part.type.name()));
      }
    }
    double constant = chain.result.getFactor().convertToDouble();
    if (constant != 1.0)
      multiply(at("output"), factor,
               mlir::arith::ConstantFloatOp::create(builder, at("output"), builder.getF32Type(),
                                                    llvm::APFloat(static_cast<float>(constant))));
    for (int64_t t = 0; t < g.rowTiles(); ++t)
      for (int64_t j = 0; j < g.batchTiles(); ++j) {
        std::vector<Value> pair;
        if (!rows.empty())
          pair = {rows[2 * t], rows[2 * t + 1]};
        Value &sum = sums[t * g.batchTiles() + j];
        sum = tile::ScaleOp::create(builder, at("output"), accumulatorType(false), sum, pair,
                                    columns.empty() ? Value() : columns[j], factor, Value());
      }
    tile::StoreOutputOp::create(builder, at("output"), output, m, context.plan.problem.n,
                                context.gemm.output.name(), sums);
  }
};

struct LowerToTilePass : impl::LowerToTileBase<LowerToTilePass> {
  void runOnOperation() override {
    for (ir::GemmOp op : llvm::make_early_inc_range(getOperation().getOps<ir::GemmOp>())) {
      mlir::FailureOr<GemmContext> context = contextOf(op);
      if (mlir::failed(context))
        return signalPassFailure();
      mlir::FailureOr<Chain> chain = readChain(op);
      if (mlir::failed(chain))
        return signalPassFailure();
      KernelBuilder(op, *context, *chain).build();
    }
  }
};

} // namespace
} // namespace rho::compiler
