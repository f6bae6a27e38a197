// Takes operands apart into components and puts each factor where the plan places it.
#include "compiler/passes/GemmContext.h"
#include "compiler/passes/Passes.h"

#include <cmath>

namespace rho::compiler {

#define GEN_PASS_DEF_PLACEFACTORS
#include "compiler/passes/Passes.h.inc"

namespace {

std::string axesOf(const dsl::Component &component, bool weight) {
  std::string row = weight ? "n" : "m";
  switch (component.extent) {
  case dsl::Extent::Element:
    return row + " k";
  case dsl::Extent::Group:
    return row + " k/" + std::to_string(component.group);
  case dsl::Extent::Row:
    return row;
  case dsl::Extent::Tensor:
    break;
  }
  return "";
}

class PlacedBody {
public:
  PlacedBody(ir::GemmOp op, const GemmContext &whole, llvm::StringRef role = "weight")
      : op(op), whole(whole), context(contextOfPart(whole, 0)), builder(op.getContext()),
        role(role) {}

  void build() {
    mlir::Block &block = op.getBody().front();
    block.clear();
    if (whole.parts() > 1)
      return buildParts();
    mlir::Value value = product(context.placed.epilogue);
    double result = factor();
    if (context.residual) {
      PlacedBody residual(op, *context.residual, "residual");
      mlir::Value added = residual.product(context.residual->placed.epilogue);
      builder.setInsertionPointToEnd(&block);
      value = ir::AddOp::create(builder, at("gemm"), tensor("n m", "f32"), value,
                                llvm::APFloat(result), added, llvm::APFloat(residual.factor()));
      result = 1;
    }
    ir::ReturnOp::create(builder, at("output"), value, llvm::APFloat(result));
  }

private:
  ir::GemmOp op;
  const GemmContext &whole;
  GemmContext context; // of the part that is being built
  mlir::OpBuilder builder;
  std::string role; // of the weight's components
  std::map<std::pair<bool, int>, mlir::Value> components;
  std::map<std::string, mlir::Value> numbers; // by their terms

  double factor() const {
    return context.placed.constant * std::ldexp(1.0, -context.placed.log2Factor);
  }
  // Scales of one operand that are constant along k.
  std::vector<ScaleUse> usesOf(bool weight) {
    std::vector<ScaleUse> uses = context.placed.epilogue;
    llvm::erase_if(uses, [&](const ScaleUse &use) { return use.weight != weight; });
    return uses;
  }
  void buildParts() {
    std::vector<mlir::Value> products;
    std::vector<double> factors;
    for (size_t part = 0; part < whole.parts(); ++part) {
      context = contextOfPart(whole, part);
      std::erase_if(components, [](const auto &known) { return !known.first.first; });
      numbers.clear(); // as wide as the part's operands
      products.push_back(product(usesOf(false)));
      factors.push_back(factor());
    }
    mlir::Value sum = ir::SumOp::create(builder, at("gemm"), tensor("n m", "f32"), products,
                                        builder.getF64ArrayAttr(factors));
    for (const ScaleUse &use : usesOf(true))
      sum = scale(sum, use, "n m");
    ir::ReturnOp::create(builder, at("output"), sum, llvm::APFloat(1.0));
  }
  // At the end of the body, times these of the scales that are constant along k, without the
  // factor.
  mlir::Value product(const std::vector<ScaleUse> &outside) {
    const PlacedGemm &placed = context.placed;
    builder.setInsertionPointToEnd(&op.getBody().front());
    mlir::Value codes = component(true, 0);
    std::vector<mlir::Value> parameters;
    std::vector<mlir::Attribute> forms;
    for (const DecodeParam &param : placed.decode.params) {
      parameters.push_back(param.hasNumber() ? number(param.number)
                                             : component(true, param.component));
      forms.push_back(
          builder.getStringAttr(print(ParameterForm{param.form, param.rowHalf, param.kHalf})));
    }
    mlir::Value weight = ir::DecodeOp::create(
        builder, codes.getLoc(), tensor("n k", placed.mmaType), codes, parameters,
        builder.getArrayAttr(forms), placed.decode.program.print(), placed.decode.log2Factor);
    mlir::Value activation = component(false, 0);
    std::string sumType = placed.integerAccumulator ? "s32" : "f32";
    std::string axes = placed.flushK == 0 ? "n m" : "n m k/" + std::to_string(placed.flushK);
    mlir::Value weightScale, activationScale;
    if (placed.blockScaling && placed.blockScaling->weight != BlockScaling::none)
      weightScale = component(true, placed.blockScaling->weight);
    if (placed.blockScaling && placed.blockScaling->activation != BlockScaling::none)
      activationScale = component(false, placed.blockScaling->activation);
    mlir::Value weightRest = split(true, weight), activationRest = split(false, activation);
    mlir::Value value =
        ir::MmaOp::create(builder, at("gemm"), tensor(axes, sumType), weight, activation,
                          weightScale, activationScale, weightRest, activationRest);
    for (const ScaleUse &use : placed.accumulator)
      value = scale(value, use, axes);
    if (placed.flushK > 0)
      value = ir::ReduceOp::create(builder, at("gemm"), tensor("n m", "f32"), value);
    for (const ScaleUse &use : outside)
      value = scale(value, use, "n m");
    return value;
  }

  mlir::Location at(llvm::StringRef origin) {
    return locationOf(op.getContext(), context.origins, origin);
  }
  ir::TensorType tensor(llvm::StringRef axes, llvm::StringRef element) {
    return ir::TensorType::get(op.getContext(), axes, element);
  }
  mlir::Value component(bool weight, int index) {
    mlir::Value &value = components[{weight, index}];
    if (value)
      return value;
    const dsl::Format &format = weight ? context.gemm.weight : context.gemm.activation;
    const dsl::Component &part = format.components[index];
    bool operand = !weight && index == 0; // stored as the instruction takes it
    llvm::StringRef element = operand ? context.placed.mmaType : part.type.name();
    value =
        ir::ComponentOp::create(builder, componentLocation(op.getContext(), context, weight, index),
                                tensor(axesOf(part, weight), element), weight ? role : "activation",
                                (weight ? "" : context.prefix) + part.name);
    return value;
  }
  // Splits the codes of an operand with a remapped one; gives the rest, null where there is none.
  mlir::Value split(bool ofWeight, mlir::Value &codes) {
    const std::optional<BlockScaling> &scaling = context.placed.blockScaling;
    if (!scaling || !scaling->split(ofWeight))
      return {};
    const CodeSplit &split = *scaling->split(ofWeight);
    const dsl::Format &format = ofWeight ? context.gemm.weight : context.gemm.activation;
    std::vector<int32_t> pairs;
    for (size_t i = 0; i < split.pairs.size(); ++i)
      pairs.push_back(format.element().remap->entries[i].component >= 0
                          ? -1
                          : static_cast<int32_t>(split.pairs[i].main | split.pairs[i].rest << 4));
    auto op = ir::SplitOp::create(builder, codes.getLoc(), codes.getType(), codes.getType(), codes,
                                  component(ofWeight, split.selector), pairs);
    codes = op.getMain();
    return split.hasRest ? op.getRest() : mlir::Value();
  }
  mlir::Value number(const RowNumber &terms) {
    mlir::Value &value = numbers[terms.print()];
    if (value)
      return value;
    std::vector<int> uses = terms.uses();
    std::vector<mlir::Value> operands;
    int64_t group = 0; // the finest
    for (int use : uses) {
      operands.push_back(component(true, use));
      int64_t own = extentK(context.gemm.weight.components[use]);
      group = group == 0 ? own : std::min(group, own);
    }
    RowNumber local = terms.renumbered([&](int use) { // by operand
      return static_cast<int>(std::find(uses.begin(), uses.end(), use) - uses.begin()) + 1;
    });
    bool grouped = std::any_of(uses.begin(), uses.end(), [&](int use) {
      return context.gemm.weight.components[use].extent == dsl::Extent::Group;
    });
    std::string axes = grouped ? "n k/" + std::to_string(group) : "n";
    value =
        ir::NumberOp::create(builder, at("gemm"), tensor(axes, numberType(context.placed.mmaType)),
                             operands, local.print());
    return value;
  }
  mlir::Value scale(mlir::Value value, const ScaleUse &use, llvm::StringRef axes) {
    mlir::Value factor = component(use.weight, use.component);
    return ir::ScaleOp::create(builder, factor.getLoc(), tensor(axes, "f32"), value, factor);
  }
};

} // namespace

mlir::LogicalResult checkPlacedBody(ir::GemmOp op, const GemmContext &context) {
  mlir::OwningOpRef<ir::GemmOp> planned = op.clone();
  PlacedBody(*planned, context).build();
  auto own = op.getBody().front().getOps<ir::DecodeOp>();
  auto plannedDecodes = planned->getBody().front().getOps<ir::DecodeOp>();
  for (auto [decode, wanted] : llvm::zip(own, plannedDecodes)) {
    Result<DecodeProgram> program = DecodeProgram::parse(decode.getProgram().str());
    Result<DecodeProgram> other = DecodeProgram::parse(wanted.getProgram().str());
    if (!program || !other || program->outputs.size() != other->outputs.size())
      return decode.emitError("its program has other outputs than the plan's");
    if (program->tables() != other->tables())
      return decode.emitError("its program has more or fewer tables of lanes than the plan's");
    wanted.setProgram(decode.getProgram());
  }
  if (!mlir::OperationEquivalence::isRegionEquivalentTo(
          &op.getBody(), &planned->getBody(), mlir::OperationEquivalence::IgnoreLocations))
    return op.emitError("body is not that of its plan");
  return mlir::success();
}

namespace {

struct PlaceFactorsPass : impl::PlaceFactorsBase<PlaceFactorsPass> {
  void runOnOperation() override {
    for (ir::GemmOp op : getOperation().getOps<ir::GemmOp>()) {
      if (op.getBody().front().getOps<ir::ContractOp>().empty())
        continue; // placed already
      mlir::FailureOr<GemmContext> context = contextOf(op);
      if (mlir::failed(context))
        return signalPassFailure();
      PlacedBody(op, *context).build();
    }
  }
};

} // namespace
} // namespace rho::compiler
