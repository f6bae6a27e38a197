#include "compiler/passes/GemmContext.h"

#include "dsl/Module.h"

#include <algorithm>

namespace rho::compiler {

std::vector<std::string> originsOf(const dsl::Gemm &gemm) {
  std::vector<std::string> result{"gemm", "output", "schedule"};
  for (const dsl::Component &component : gemm.weight.components)
    result.push_back("weight." + component.name);
  for (const dsl::Component &component : gemm.activation.components)
    result.push_back("activation." + component.name);
  return result;
}

mlir::Location locationOf(mlir::MLIRContext *context, const std::vector<std::string> &origins,
                          llvm::StringRef origin) {
  auto found = std::find(origins.begin(), origins.end(), origin);
  unsigned line = found == origins.end() ? 1 : static_cast<unsigned>(found - origins.begin()) + 1;
  return mlir::FileLineColLoc::get(context, "rho", line, 1);
}

std::string formatText(const dsl::Format &format) {
  bool plain = format.components.size() == 1 && format.name == format.element().type.name();
  return plain ? format.name : dsl::print(format);
}

namespace {

// "format NAME {" -> NAME; a bare type name is its own name.
llvm::StringRef formatName(llvm::StringRef text) {
  if (!text.consume_front("format "))
    return text;
  return text.take_until([](char c) { return c == ' ' || c == '{'; });
}

} // namespace

mlir::FailureOr<GemmContext> contextOf(ir::GemmOp op) {
  auto fail = [&](const Error &error) {
    return op.emitError(error.diagnostics.empty() ? "" : error.diagnostics[0].message);
  };
  std::string weight = op.getWeight().str(), activation = op.getActivation().str();
  std::string text;
  for (const std::string *format : {&weight, &activation})
    if (llvm::StringRef(*format).starts_with("format ") &&
        (format == &weight || weight != activation))
      text += *format + "\n";
  text += "gemm g {\n  weight: " + formatName(weight).str() +
          "\n  activation: " + formatName(activation).str() +
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
  Result<PlacedGemm> placed =
      place(result.gemm, plan->groupScales, plan->schedule.roles, plan->target, nullptr);
  if (!placed)
    return fail(placed.error());
  result.placed = *placed;
  result.geometry = makeGeometry(*placed, plan->schedule);
  result.origins = originsOf(result.gemm);
  return result;
}

} // namespace rho::compiler
