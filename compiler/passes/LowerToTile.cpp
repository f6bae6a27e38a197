// Placed gemms to programs of one thread block: the frame of the kernel, its tiles and its copies.
#include "compiler/LayoutMap.h"
#include "compiler/passes/KernelBuilder.h"
#include "compiler/passes/Passes.h"
#include "compiler/passes/TileOrder.h"
#include "compiler/plan/Resources.h"
#include "dsl/Division.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

#include <tuple>

namespace rho::compiler {

#define GEN_PASS_DEF_LOWERTOTILE
#include "compiler/passes/Passes.h.inc"

using mlir::Value;
namespace NVVM = mlir::NVVM;

KernelBuilder::KernelBuilder(ir::GemmOp op, const GemmContext &whole, Chain chain)
    : op(op), whole(whole), context(whole), wholeChain(chain), chain(std::move(chain)),
      g(context.geometry),
      layout(makeWeightLayout(context.gemm, context.placed, g, context.plan.problem)),
      builder(op.getContext()), slices(outputSlices(context.gemm, g, context.plan.problem)) {}

void KernelBuilder::build() {
  builder.setInsertionPoint(op);
  const Schedule &s = context.plan.schedule;
  auto geometry =
      tile::GeometryAttr::get(op.getContext(), s.tileM, s.tileN, s.tileK, s.warpsM, s.warpsN,
                              s.warpsK, context.placed.mmaType, g.denseBits(), s.splitK,
                              dsl::name(s.roles), s.clusterN, s.clusterK, g.panelWarps);
  llvm::SmallVector<llvm::StringRef> origins(context.origins.begin(), context.origins.end());
  auto kernel =
      tile::KernelOp::create(builder, at("gemm"), op.getSymName(), context.plan.target, geometry,
                             builder.getStrArrayAttr(origins), s.dependent, s.ctasPerSm);
  mlir::Block &block = kernel.getBody().emplaceBlock();
  addParameters(block);
  builder.setInsertionPointToEnd(&block);
  allocateShared();
  if (pairTables)
    fillPairTables();
  if (layout.residual && !g.gemv()) // who copies reads it ahead of the pieces
    tile::PrefetchOp::create(builder, atResidual(), weight, layout.residual->firstsOffset,
                             layout.residual->firstsBytes());
  if (g.trimsBatch())
    trimmed = mlir::arith::MinUIOp::create(builder, at("schedule"), m, i32(g.tileM));
  findTile();
  if (g.specialized()) {
    // Their latency hides behind the products, where those leave registers for it: sums that each
    // instruction ends do not.
    loadFactors(/*ofWeight=*/true);
    const bool scalesEach = context.placed.flushK == g.mmaK;
    if (g.tileM <= mostOwnTokens || (tokensBuffer && !scalesEach))
      loadFactors(/*ofWeight=*/false);
  }
  makeResidual();
  if (g.gemv())
    buildGemv();
  else if (residual)
    buildEpilogue(joinSums(buildPipeline()));
  else
    buildEpilogue(whole.parts() > 1 ? buildParts() : buildPipeline());
  op.erase();
}

// Roles and equal shares of k have tile.for_tiles; otherwise the grid is of tiles and of parts of
// k.
void KernelBuilder::findTile() {
  mlir::Location loc = at("schedule");
  mlir::Type type = builder.getI32Type();
  int64_t tilesN = outputTilesN();
  int64_t tilesK = divideUp(context.plan.problem.k, g.tileK);
  if (g.specialized() || g.streamK) {
    std::vector<Value> ofParts;
    mlir::DenseI64ArrayAttr costs;
    if (balancesStream()) {
      if (context.plan.schedule.dependent)
        waitForLists();
      ofParts = tilesOfParts(startsOfParts());
      costs = builder.getDenseI64ArrayAttr(context.plan.schedule.tileCosts);
    }
    auto tiles = tile::ForTilesOp::create(builder, loc, tilesN, outputTilesM(), tilesK, ofParts,
                                          costs, context.plan.schedule.hasOneTile());
    mlir::Block &body = tiles.getBody().emplaceBlock();
    for (Value *argument : {&tileN, &tileM, &firstK, &lastK, &shares, &share, &firstPlace})
      *argument = body.addArgument(type, loc);
    builder.setInsertionPointToEnd(&body);
    return;
  }
  tileN = NVVM::BlockIdXOp::create(builder, loc, type);
  tileM = NVVM::BlockIdYOp::create(builder, loc, type);
  firstK = i32(0);
  lastK = i32(tilesK);
  int64_t splitK = context.plan.schedule.splitK;
  if (splitK == 1)
    return;
  shares = i32(splitK);
  ScalarBuilder scalars{builder, loc};
  const SplitShare own = splitShare(scalars, tileM, tileN, tilesN, tilesK, splitK);
  share = own.share;
  firstK = own.firstK;
  lastK = own.lastK;
  firstPlace = own.firstPlace;
}

void KernelBuilder::addParameters(mlir::Block &block) {
  for (const KernelParameter &parameter :
       kernelParameters(context.gemm, g, context.plan.schedule, context.plan.problem)) {
    bool isM = parameter.kind == KernelParameter::Kind::M;
    const unsigned space = parameter.isTensorMap() ? 0 : 1; // tensor maps come by value
    mlir::Type type = mlir::LLVM::LLVMPointerType::get(op.getContext(), space);
    if (isM)
      type = builder.getI32Type();
    Value value = block.addArgument(type, at("gemm"));
    switch (parameter.kind) {
    case KernelParameter::Kind::Weight:
      weight = value;
      break;
    case KernelParameter::Kind::Activation:
    case KernelParameter::Kind::ActivationComponent:
      activation[parameter.index] = value;
      break;
    case KernelParameter::Kind::ActivationTiles:
      partTiles = value;
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

void KernelBuilder::allocateShared() {
  using Role = SharedBuffer::Role;
  for (const SharedBuffer &buffer : sharedBuffers(context.gemm, context.placed, g,
                                                  context.plan.schedule, context.plan.problem)) {
    auto allocate = [&](mlir::Location loc, llvm::StringRef name) -> Value {
      return tile::AllocSharedOp::create(
          builder, loc, tile::SharedType::get(op.getContext(), buffer.bytes, buffer.stages), name,
          buffer.overStages);
    };
    switch (buffer.role) {
    case Role::Stage: {
      std::string origin = originOf(context.gemm, buffer.of);
      buffers[{buffer.of.weight, buffer.of.component}] = allocate(at(origin), origin);
      break;
    }
    case Role::Pieces:
      buffers[{true, StageBuffer::pieces}] = allocate(atResidual(), "pieces");
      break;
    case Role::PiecePlaces:
      allocate(at("schedule"), tile::shared_labels::piecePlaces);
      break;
    case Role::Sums:
      sumsBuffer = allocate(at("output"), tile::shared_labels::sums);
      break;
    case Role::Slices:
      slicesBuffer = allocate(at("output"), "output.slices");
      break;
    case Role::Tokens:
      tokensBuffer = allocate(at("output"), "output.tokens");
      break;
    case Role::Operand:
      operandBuffer = allocate(at("schedule"), "operand");
      break;
    case Role::OperandBarriers:
      allocate(at("schedule"), tile::shared_labels::operandBarriers);
      break;
    case Role::Pairs:
      pairTables = allocate(at(true, 0), "pairs");
      break;
    }
  }
}

void KernelBuilder::fillPairTables() {
  const mlir::Location loc = at(true, 0);
  const DecodeProgram program = *DecodeProgram::parse(chain.decode.getProgram().str());
  const std::vector<Value> numbers = pairNumbers();
  const auto begin = program.lanes.begin();
  const llvm::SmallVector<int32_t> lanes(begin, begin + DecodeProgram::lanesOfTable);
  const uint32_t code =
      numbers.empty() ? 0 : context.placed.decode.stored(context.gemm.weight.element().remap->code);
  tile::FillPairTablesOp::create(builder, loc, pairTables, numbers, lanes, code);
  auto tables = tile::PairTablesOp::create(builder, loc, builder.getI32Type(), builder.getI32Type(),
                                           pairTables);
  pairsBegin = tables.getBegin();
  pairs = tables.getLane();
  constexpr int32_t eachByte = 0x01010101;
  if (!numbers.empty())
    pairs = mlir::arith::MulIOp::create(builder, loc, pairs, i32(eachByte));
}

std::vector<Value> KernelBuilder::Carried::flatten() const {
  std::vector<Value> values;
  for (const std::vector<Value> *each : {&sums, &residualSums, &held, &residualHeld})
    llvm::append_range(values, *each);
  return values;
}

KernelBuilder::Carried KernelBuilder::Carried::split(mlir::ValueRange values) const {
  auto take = [&](size_t count) {
    mlir::ValueRange taken = values.take_front(count);
    values = values.drop_front(count);
    return std::vector<Value>(taken.begin(), taken.end());
  };
  return {take(sums.size()), take(residualSums.size()), take(held.size()),
          take(residualHeld.size())};
}

KernelBuilder::Carried KernelBuilder::startOf(const std::vector<Value> &sums) {
  auto ofWeight = static_cast<size_t>(g.rowTiles() * g.batchTiles());
  Carried start;
  start.sums = sums;
  if (sums.empty())
    start.sums.assign(ofWeight * carriedChains(),
                      tile::ZeroOp::create(builder, at("gemm"), sumType()));
  if (residual)
    start.residualSums.assign(ofWeight,
                              tile::ZeroOp::create(builder, at("gemm"), residual->sumType()));
  if (carries())
    start.held.assign(static_cast<size_t>(4 * g.rowTiles() * batchSteps(g)), i32(0));
  if (residual)
    start.residualHeld.assign(static_cast<size_t>(heldOfPieces()), i32(0));
  return start;
}

std::vector<Value> KernelBuilder::buildPipeline(const std::vector<Value> &sums) {
  buildSplitTables();
  loadTensorNumbers();
  if (residual) {
    residual->builder.restoreInsertionPoint(builder.saveInsertionPoint());
    residual->loadTensorNumbers();
  }
  const Carried start = startOf(sums);
  const std::vector<Value> inits = start.flatten();
  auto pipeline =
      tile::PipelineOp::create(builder, at("schedule"), mlir::ValueRange(inits).getTypes(), firstK,
                               lastK, context.plan.schedule.pipeline, inits);
  {
    mlir::OpBuilder::InsertionGuard guard(builder);
    buildProduce(pipeline.getProduce().emplaceBlock());
    if (g.decodesApart())
      buildDecode(pipeline.getDecode().emplaceBlock());
    buildConsume(pipeline.getConsume().emplaceBlock(), start);
  }
  Carried results = start.split(pipeline.getResults());
  if (!sums.empty() || carriedChains() == 1) {
    llvm::append_range(results.sums, results.residualSums);
    return results.sums;
  }
  const size_t count = results.sums.size() / carriedChains();
  std::vector<std::vector<Value>> chains;
  for (size_t chain = 0; chain < carriedChains(); ++chain)
    chains.push_back(llvm::ArrayRef(results.sums).slice(chain * count, count).vec());
  std::vector<Value> joined = joinChains(chains);
  return g.specialized() ? totalOf(joined) : joined;
}

std::vector<Value> KernelBuilder::enterBlock(mlir::Block &block, size_t indices) {
  builder.setInsertionPointToEnd(&block);
  std::vector<Value> arguments;
  for (size_t i = 0; i < indices; ++i)
    arguments.push_back(block.addArgument(builder.getI32Type(), at("schedule")));
  return arguments;
}

void KernelBuilder::buildProduce(mlir::Block &block) {
  const std::vector<Value> arguments = enterBlock(block, 2);
  Value tileK = arguments[0];
  if (partTiles) // the number of the k tile at this place of the lists
    tileK = tableEntry(add(tileK, i32(static_cast<int64_t>(whole.parts()) + 1)));
  buildCopies(tileK, arguments[1]);
  tile::YieldOp::create(builder, at("schedule"), mlir::ValueRange());
}

void KernelBuilder::buildDecode(mlir::Block &block) {
  const std::vector<Value> arguments = enterBlock(block, 3);
  buildOperandStores(arguments[1], arguments[2]);
  tile::YieldOp::create(builder, at("schedule"), mlir::ValueRange());
}

void KernelBuilder::buildConsume(mlir::Block &block, const Carried &start) {
  const std::vector<Value> arguments = enterBlock(block, g.decodesApart() ? 3 : 2);
  Value slot = arguments[1];
  if (g.decodesApart())
    operandSlot = arguments[2];
  std::vector<Value> values;
  for (Value init : start.flatten())
    values.push_back(block.addArgument(init.getType(), at("schedule")));
  Carried carried = start.split(values);

  if (layout.residual)
    findPieces(arguments[0]);
  // The first batch of the weight ends what runs on of both.
  std::vector<Value> products = carried.sums;
  llvm::append_range(products, carried.held);
  llvm::append_range(products, carried.residualHeld);
  bool either =
      g.sparseBits > 0 && !grouped() && warpgroupsShareBlocks(*context.gemm.weight.residual, g);
  products = either ? buildEitherProducts(slot, products) : buildProducts(slot, products);
  if (residual)
    Carried::assign(carried.residualSums, carried.residualHeld,
                    addResidual(slot, carried.residualSums));
  if (g.warpgroupsMultiply() && !grouped() && !carriesBatch(g) && !either)
    products = awaitBatch(products);
  Carried::assign(carried.sums, carried.held, products);
  tile::YieldOp::create(builder, at("schedule"), carried.flatten());
}

std::vector<Value> KernelBuilder::buildProducts(Value slot, const std::vector<Value> &carried) {
  if (!g.warpgroupsMultiply())
    return buildWarpProducts(slot, carried);
  return grouped() ? buildGroupedProducts(slot, carried) : buildWarpgroupProducts(slot, carried);
}

Value KernelBuilder::sectionTile(int index, Value tileK, int64_t panel) {
  const LayoutSection &section = this->section(index);
  int64_t panels = g.tileN / section.tileN;
  Value row = add(mul(tileN, panels), i32(panel));
  // Panels of the last tile may be past the weight. Nobody looks at their rows: any will do.
  if (outputTilesN() * panels > section.tilesN && panel > 0)
    row = mlir::arith::MinUIOp::create(builder, at("schedule"), row, i32(section.tilesN - 1));
  row = mul(row, section.tilesK);
  if (section.tilesK == 1) // a group may be longer than k
    return row;
  // Several k tiles may lie inside one group.
  bool codes = section.component == 0;
  int64_t inGroup = codes ? 1 : std::max<int64_t>(1, section.unitK / g.tileK);
  int64_t inTile = (codes ? g.tileK : g.groupsPerTile(section.unitK)) / section.tileK;
  return add(row, mul(divide(tileK, inGroup), inTile));
}

void KernelBuilder::buildCopies(Value tileK, Value slot) {
  std::vector<StageBuffer> own = stageBuffers(context.gemm, context.placed, g);
  llvm::sort(own, [](const StageBuffer &a, const StageBuffer &b) {
    return std::tie(a.weight, a.component) < std::tie(b.weight, b.component);
  });
  for (const StageBuffer &one : own) {
    int index = one.component;
    if (index == StageBuffer::barriers || index == StageBuffer::pieces)
      continue;
    if (!one.weight) {
      buildActivationCopy(index, tileK, slot);
      continue;
    }
    Value buffer = bufferOf(true, index);
    int64_t panels = g.tileN / section(index).tileN;
    for (int64_t panel = 0; panel < panels; ++panel)
      tile::CopyPanelOp::create(builder, at(true, section(index).component), weight,
                                section(index).offset, sectionTile(index, tileK, panel),
                                tileBytes(section(index)), buffer, slot, panel, panels);
  }
  if (layout.residual)
    buildPieceCopies(tileK, slot); // last: it waits for a load
}

void KernelBuilder::buildActivationCopy(int index, Value tileK, Value slot) {
  const dsl::Component &part = context.gemm.activation.components[index];
  mlir::Location loc = at(false, index);
  Value buffer = bufferOf(false, index);
  Value batch = mul(tileM, g.tileM);
  int64_t bytes = dsl::unitBits(part.type) / 8; // of a component other than the element
  bool element = index == 0;
  int64_t perTile = element ? 0 : g.groupsPerTile(part.group);
  int64_t tilesPerGroup = element ? 0 : std::max<int64_t>(1, part.group / g.tileK);
  if (g.specialized()) {
    if (element)
      tile::CopyBoxOp::create(
          builder, loc, activationOf(0), batch, mul(tileK, g.activationRowBytes()), buffer, slot,
          g.tileM, g.activationRowBytes(), Geometry::swizzleBytes, g.clusterN > 1, trimmed);
    else
      tile::CopyBoxOp::create(builder, loc, activationOf(index),
                              mul(divide(tileK, tilesPerGroup), perTile), mul(batch, bytes), buffer,
                              slot, perTile, g.tileM * bytes, g.tileM * bytes, false, Value());
    return;
  }
  if (element) {
    int64_t pitch = makeActivationLayout(context.placed, g, context.plan.problem).pitchBytes;
    tile::CopyRowsOp::create(builder, loc, activationOf(0), batch, m,
                             mul(tileK, g.activationRowBytes()), i32(pitch), buffer, slot, g.tileM,
                             g.activationRowBytes(), !g.gemv());
    return;
  }
  int64_t groups = divideUp(context.plan.problem.k, part.group);
  if (context.placed.blockScaling) { // a row of words, each of several groups
    constexpr int64_t perWord = BlockScaling::perWord;
    groups = divideUp(groups, perWord);
    perTile /= perWord;
    bytes *= perWord;
  }
  Value stride = mul(divide(add(m, i32(15)), 16), 16 * bytes); // activationGroupStride
  if (g.gemv())
    batch = mul(divide(batch, g.scaleColumns()), g.scaleColumns());
  tile::CopyRowsOp::create(
      builder, loc, activationOf(index), mul(divide(tileK, tilesPerGroup), perTile), i32(groups),
      mul(batch, bytes), stride, buffer, slot, perTile, g.scaleColumns() * bytes, false);
}

namespace {

mlir::LogicalResult readChain(ir::GemmOp op, Value value, Chain &chain) {
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
      Value codes = mma.getWeight();
      if (auto split = codes.getDefiningOp<ir::SplitOp>())
        codes = split.getCodes();
      chain.decode = codes.getDefiningOp<ir::DecodeOp>();
      if (!chain.decode)
        return mma.emitError("weight operand must come from rho.decode");
      return mlir::success();
    } else if (auto sum = llvm::dyn_cast<ir::SumOp>(definition); sum && !reduced) {
      for (auto [part, factor] : llvm::zip(sum.getValues(), sum.getFactors())) {
        Chain &own = chain.parts.emplace_back();
        own.factor = llvm::cast<mlir::FloatAttr>(factor).getValueAsDouble();
        if (mlir::failed(readChain(op, part, own)))
          return mlir::failure();
      }
      return mlir::success();
    } else {
      return definition->emitError("is no part of a placed gemm");
    }
  }
  return op.emitError("holds no rho.mma");
}

mlir::LogicalResult readBody(ir::GemmOp op, bool hasResidual, Chain &chain) {
  auto result = llvm::cast<ir::ReturnOp>(op.getBody().front().back());
  auto sum = result.getValue().getDefiningOp<ir::AddOp>();
  if (static_cast<bool>(sum) != hasResidual)
    return op.emitError(sum ? "the weight has no residual" : "the weight's residual is not added");
  chain.factor = result.getFactor().convertToDouble();
  if (!sum)
    return readChain(op, result.getValue(), chain);
  chain.residual = std::make_shared<Chain>();
  chain.residual->factor = chain.factor * sum.getResidualFactor().convertToDouble();
  chain.factor *= sum.getFactor().convertToDouble();
  return mlir::success(mlir::succeeded(readChain(op, sum.getValue(), chain)) &&
                       mlir::succeeded(readChain(op, sum.getResidual(), *chain.residual)));
}

struct LowerToTilePass : impl::LowerToTileBase<LowerToTilePass> {
  void runOnOperation() override {
    for (ir::GemmOp op : llvm::make_early_inc_range(getOperation().getOps<ir::GemmOp>())) {
      mlir::FailureOr<GemmContext> context = contextOf(op);
      if (mlir::failed(context))
        return signalPassFailure();
      Chain chain;
      if (mlir::failed(readBody(op, context->residual != nullptr, chain)))
        return signalPassFailure();
      if (chain.parts.size() != context->placed.parts.size()) {
        op.emitError("body sums other parts than the activation has");
        return signalPassFailure();
      }
      if (mlir::failed(checkPlacedBody(op, *context)))
        return signalPassFailure();
      KernelBuilder(op, *context, chain).build();
    }
  }
};

} // namespace
} // namespace rho::compiler
