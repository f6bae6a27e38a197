#include "compiler/Compiler.h"
#include "compiler/DecodeText.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/Tool.h"

namespace rho::tool {

namespace {

using compiler::Stage;

std::optional<Stage> stageOf(std::string_view name) {
  if (name == "rho")
    return Stage::Rho;
  if (name == "tile")
    return Stage::Tile;
  if (name == "llvm")
    return Stage::Llvm;
  if (name == "ptx")
    return Stage::Ptx;
  return std::nullopt;
}

// Errors: bad_plan_file.
Result<compiler::Plan> readPlan(const std::string &file, const dsl::Gemm &gemm) {
  Result<std::string> text = readText(file);
  if (!text)
    return text.error();
  Result<compiler::Plan> plan = compiler::Plan::parse(*text);
  if (plan)
    plan = checkedPlan(compiler::onTarget(gemm, plan->target).gemm, *plan);
  if (!plan)
    return makeError(DiagId::bad_plan_file, {file, plan.error().diagnostics[0].message});
  return plan;
}

// The plan that --plan names, or the planner's own for --target and --m --n --k.
Result<compiler::Plan> choosePlan(const Options &options, const dsl::Gemm &gemm,
                                  const SourceMap *sources) {
  if (options.has("--plan")) {
    for (const char *fixed : {"--m", "--n", "--k", "--target", "--device", "--launch"})
      if (options.has(fixed))
        return makeError(DiagId::option_conflict, {"--plan", fixed, "the plan says it already"});
    return readPlan(options.text("--plan"), gemm);
  }
  Result<compiler::Problem> problem = plannedProblem(options);
  if (!problem)
    return problem.error();
  if (options.has("--device") && options.has("--target"))
    return makeError(DiagId::option_conflict,
                     {"--device", "--target", "a device has a target of its own"});
  Result<compiler::DeviceModel> device =
      options.has("--device") ? openModel(options.text("--device"))
                              : compiler::modelOfTarget(options.text("--target", "sm_80"));
  if (!device)
    return device.error();
  return compiler::plan(compiler::onTarget(gemm, device->target).gemm, *problem, *device, sources);
}

constexpr const char *planningOptions[] = {"--m",      "--n",    "--k",      "--target",
                                           "--device", "--gemm", "--launch", "--plan"};

Result<std::string> textOf(const Options &options, const std::string &path) {
  std::string emit = options.text("--emit", "ptx");
  std::optional<Stage> to = stageOf(emit);
  if (std::optional<Stage> from = stageOf(options.text("--from"))) {
    if (!to || *to < *from)
      return makeError(DiagId::option_conflict,
                       {"--from " + options.text("--from"), "--emit " + emit,
                        "compilation goes from rho to tile to llvm to ptx"});
    for (const char *fixed : planningOptions)
      if (options.has(fixed))
        return makeError(DiagId::option_conflict, {"--from", fixed, "the text says it already"});
    Result<std::string> text = readText(path);
    if (!text)
      return text;
    return compiler::reenter(*text, path, *from, *to);
  }
  if (emit == "ast" || emit == "format")
    for (const char *planning : planningOptions)
      if (options.has(planning))
        return makeError(DiagId::option_conflict,
                         {"--emit " + emit, planning, "the text of a file depends on no problem"});
  if (emit == "ast") {
    Result<std::string> text = readText(path);
    if (!text)
      return text;
    return dsl::printAst(*text, path);
  }
  Result<dsl::Module> module = dsl::loadModule(path);
  if (!module)
    return module.error();
  if (emit == "format")
    return dsl::print(*module);
  Result<dsl::Gemm> gemm = plannedGemm(*module, options);
  if (!gemm)
    return gemm.error();
  Result<compiler::Plan> plan = choosePlan(options, *gemm, module->sources.get());
  if (!plan)
    return plan.error();
  const dsl::Gemm onTarget = compiler::onTarget(*gemm, plan->target).gemm;
  if (emit == "decode")
    return compiler::explainDecode(onTarget, *plan);
  if (!to)
    return plan->print();
  return compiler::emit(onTarget, *plan, *to, module->sources.get());
}

} // namespace

Result<int> compileCommand(const Options &options) {
  Result<std::string> path = options.onlyFile();
  if (!path)
    return path.error();
  Result<std::string> text = textOf(options, *path);
  if (!text)
    return text.error();
  if (!text->empty() && text->back() != '\n')
    *text += '\n';
  if (Status written = writeText(options.text("-o"), *text); !written)
    return written.error();
  return success;
}

} // namespace rho::tool
