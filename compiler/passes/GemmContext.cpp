#include "compiler/passes/GemmContext.h"

#include "compiler/plan/Legality.h"
#include "dsl/Module.h"

#include <algorithm>

namespace rho::compiler {

std::vector<std::string> originsOf(const dsl::Gemm &gemm) {
  std::vector<std::string> result{"gemm", "output", "schedule"};
  for (const dsl::Component &component : gemm.weight.components)
    result.push_back("weight." + component.name);
  for (const StoredComponent &stored : storedComponents(gemm.activation))
    result.push_back(originOf(gemm.activation, stored));
  if (gemm.weight.residual)
    result.push_back("weight." + gemm.weight.residual->part.name);
  return result;
}

std::string originOf(const dsl::Format &activation, const StoredComponent &stored) {
  return "activation." + partPrefix(activation, stored.part) + stored.declared().name;
}

std::string originOf(const dsl::Gemm &gemm, const StageBuffer &buffer) {
  if (buffer.component == StageBuffer::barriers)
    return tile::shared_labels::barriers.str();
  if (buffer.component == StageBuffer::pieces)
    return "weight." + gemm.weight.residual->part.name;
  auto component = static_cast<size_t>(buffer.component);
  if (buffer.weight)
    return "weight." + (component < gemm.weight.components.size()
                            ? gemm.weight.components[component].name
                            : gemm.weight.element().name); // a plane of its codes
  return originOf(gemm.activation, storedComponents(gemm.activation)[component]);
}

mlir::Location locationOf(mlir::MLIRContext *context, const std::vector<std::string> &origins,
                          llvm::StringRef origin) {
  auto found = std::find(origins.begin(), origins.end(), origin);
  unsigned line = found == origins.end() ? 1 : static_cast<unsigned>(found - origins.begin()) + 1;
  return mlir::FileLineColLoc::get(context, "rho", line, 1);
}

std::string partPrefix(const dsl::Format &activation, size_t part) {
  return activation.partition ? activation.partition->parts[part].name + "." : "";
}

mlir::Location componentLocation(mlir::MLIRContext *context, const GemmContext &gemm, bool ofWeight,
                                 int component) {
  const dsl::Format &format = ofWeight ? gemm.gemm.weight : gemm.gemm.activation;
  std::string name = format.components[static_cast<size_t>(component)].name;
  if (ofWeight && !gemm.weightOrigin.empty())
    return locationOf(context, gemm.origins, gemm.weightOrigin);
  return locationOf(context, gemm.origins,
                    (ofWeight ? "weight." : "activation." + gemm.prefix) + name);
}

namespace {

constexpr llvm::StringLiteral declaration = "format ";

// Appends to a module's text the declarations that it lacks, and returns the name of the last.
std::string declare(llvm::StringRef text, std::string &module) {
  if (!text.starts_with(declaration))
    return text.str();
  std::string name;
  while (!text.empty()) {
    size_t end = text.find(("\n" + declaration).str(), 1);
    llvm::StringRef one = text.take_front(end);
    text = end == llvm::StringRef::npos ? "" : text.drop_front(end + 1);
    name = one.drop_front(declaration.size())
               .take_until([](char c) { return c == ' ' || c == '{'; })
               .str();
    if (!llvm::StringRef("\n" + module).contains(("\n" + one.rtrim()).str()))
      module += one.rtrim().str() + "\n";
  }
  return name;
}

// Of the residual's pieces: the same gemm with their format, and k tiles of one piece.
std::shared_ptr<const GemmContext> residualContext(const GemmContext &context) {
  auto result = std::make_shared<GemmContext>();
  result->gemm = residualOf(context.gemm);
  result->plan = context.plan;
  result->plan.schedule.sums = dsl::ScheduleDecl::Sums::Converted;
  result->placed = *context.placed.residual;
  result->geometry = pieceGeometry(context.placed, context.geometry);
  result->origins = context.origins;
  result->weightOrigin = "weight." + context.gemm.weight.residual->part.name;
  return result;
}

} // namespace

mlir::FailureOr<GemmContext> contextOf(ir::GemmOp op) {
  auto fail = [&](const Error &error) {
    return op.emitError(error.diagnostics.empty() ? "" : error.diagnostics[0].message);
  };
  std::string text, weight = declare(op.getWeight(), text),
                    activation = declare(op.getActivation(), text);
  text += "gemm g {\n  weight: " + weight + "\n  activation: " + activation +
          "\n  output: " + op.getOutput().str() + "\n}\n";
  Result<dsl::Module> module =
      dsl::parseModule(text, "rho.gemm", [](const std::string &) { return std::nullopt; });
  if (!module)
    return fail(module.error());
  Result<Plan> plan = Plan::parse(op.getPlan().str());
  if (!plan)
    return fail(plan.error());
  GemmContext result;
  result.gemm = module->gemms[0];
  result.gemm.name = op.getSymName().str();
  result.plan = *plan;
  Result<PlacedGemm> placed = place(result.gemm, *plan, nullptr);
  if (!placed)
    return fail(placed.error());
  if (std::optional<Error> error = planError(result.gemm, *placed, *plan))
    return fail(*error);
  result.placed = *placed;
  result.geometry = makeGeometry(*placed, plan->schedule);
  result.origins = originsOf(result.gemm);
  if (result.placed.residual)
    result.residual = residualContext(result);
  return result;
}

GemmContext contextOfPart(const GemmContext &whole, size_t part) {
  if (whole.placed.parts.empty())
    return whole;
  GemmContext result = whole;
  result.gemm = gemmOfPart(whole.gemm, part);
  result.placed = whole.placed.parts[part];
  result.geometry = geometryOfPart(result.placed, whole.geometry);
  result.prefix = partPrefix(whole.gemm.activation, part);
  result.firstStored = storedIndex(whole.gemm.activation, part, 0);
  return result;
}

} // namespace rho::compiler
