#include "compiler/passes/GemmContext.h"

#include "dsl/Module.h"

#include <algorithm>
#include <set>

namespace rho::compiler {

static constexpr llvm::StringLiteral declaration("format ");

std::vector<std::string> originsOf(const dsl::Gemm &gemm) {
  std::vector<std::string> result{"gemm", "output", "schedule"};
  for (const dsl::Component &component : gemm.weight.components)
    result.push_back("weight." + component.name);
  for (const StoredComponent &stored : storedComponents(gemm.activation))
    result.push_back("activation." + partPrefix(gemm.activation, stored.part) +
                     stored.declared().name);
  return result;
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

std::string formatText(const dsl::Format &format) {
  bool plain = format.components.size() == 1 && format.name == format.element().type.name();
  if (plain)
    return format.name;
  std::string text;
  std::set<std::string> ofParts;
  dsl::forEachPart(format, [&](const dsl::Part &part, const dsl::Blocks &) {
    std::string own = formatText(*part.format);
    if (own.starts_with(declaration) && ofParts.insert(own).second)
      text += own;
  });
  return text + dsl::print(format);
}

namespace {

// Declarations, the last of which is the format; a bare type name is its own name.
std::vector<std::string> declarationsOf(llvm::StringRef text) {
  std::vector<std::string> result;
  while (text.starts_with(declaration)) {
    size_t next = text.find(("\n" + declaration).str());
    result.push_back((text.take_front(next) + "\n").str());
    text = next == llvm::StringRef::npos ? "" : text.drop_front(next + 1);
  }
  return result;
}

std::string formatName(llvm::StringRef text) {
  std::vector<std::string> declared = declarationsOf(text);
  if (declared.empty())
    return text.str();
  llvm::StringRef last = declared.back();
  last.consume_front(declaration);
  return last.take_until([](char c) { return c == ' ' || c == '{'; }).str();
}

} // namespace

mlir::FailureOr<GemmContext> contextOf(ir::GemmOp op) {
  auto fail = [&](const Error &error) {
    return op.emitError(error.diagnostics.empty() ? "" : error.diagnostics[0].message);
  };
  std::string weight = op.getWeight().str(), activation = op.getActivation().str();
  std::string text;
  std::set<std::string> declared;
  for (const std::string *format : {&weight, &activation})
    for (const std::string &one : declarationsOf(*format))
      if (declared.insert(one).second)
        text += one + "\n";
  text += "gemm g {\n  weight: " + formatName(weight) +
          "\n  activation: " + formatName(activation) + "\n  output: " + op.getOutput().str() +
          "\n}\n";
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
