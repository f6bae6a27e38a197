#include "compiler/Compiler.h"

#include "compiler/codegen/CompileModule.h"
#include "compiler/codegen/Ptx.h"
#include "compiler/passes/GemmContext.h"
#include "compiler/passes/Passes.h"
#include "compiler/plan/OperandRanges.h"
#include "compiler/plan/Resources.h"
#include "dsl/Lasting.h"
#include "dsl/ProcessEnd.h"

#include "compiler/BuildId.inc"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/Verifier.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/SourceMgr.h"

#include <chrono>
#include <future>
#include <mutex>
#include <utility>

namespace rho::compiler {

namespace {

constexpr std::string_view stageNames[] = {"rho", "tile", "llvm", "ptx"};

std::string_view nameOf(Stage stage) { return stageNames[static_cast<int>(stage)]; }

// A context with every dialect that the stages use. Single-threaded: kernels are compiled in
// parallel by compiling several at once.
std::unique_ptr<mlir::MLIRContext> makeContext() {
  static const auto &registry = dsl::lasting([] {
    mlir::DialectRegistry result;
    result.insert<ir::RhoDialect, tile::TileDialect, mlir::arith::ArithDialect,
                  mlir::cf::ControlFlowDialect, mlir::LLVM::LLVMDialect, mlir::math::MathDialect,
                  mlir::NVVM::NVVMDialect, mlir::scf::SCFDialect>();
    mlir::registerAllToLLVMIRTranslations(result);
    return result;
  }());
  auto context =
      std::make_unique<mlir::MLIRContext>(registry, mlir::MLIRContext::Threading::DISABLED);
  context->loadAllAvailableDialects();
  return context;
}

// The most brackets that are open at one place of a text, outside of strings.
int nestingOf(std::string_view text) {
  int depth = 0, most = 0;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        i += text[i] == '\\';
    } else if (text[i] == '(' || text[i] == '[' || text[i] == '{') {
      most = std::max(most, ++depth);
    } else if (text[i] == ')' || text[i] == ']' || text[i] == '}') {
      --depth;
    }
  return most;
}

// One compilation on its way through the stages: an MLIR module first, an LLVM module later.
class Compilation {
public:
  Compilation()
      : context(makeContext()), handler(context.get(), [this](mlir::Diagnostic &d) {
          if (message.empty())
            message = describe(d);
          return mlir::success();
        }) {
    llvmContext.setDiagnosticHandlerCallBack(
        [](const llvm::DiagnosticInfo *info, void *to) {
          std::string &message = static_cast<Compilation *>(to)->message;
          if (info->getSeverity() == llvm::DS_Error && message.empty())
            message = describe(*info);
        },
        this);
  }

  void start(const dsl::Gemm &gemm, const Plan &plan) { module = buildGemm(*context, gemm, plan); }
  void start(const ModuleMaker &make) { module = make(*context); }

  std::optional<Error> parse(std::string_view text, std::string_view name, Stage stage) {
    constexpr int mostNesting = 256; // the parsers call themselves for each
    if (nestingOf(text) > mostNesting) {
      message = "it nests deeper than " + std::to_string(mostNesting);
      return failure(stage);
    }
    if (stage == Stage::Llvm) {
      llvm::SMDiagnostic problem;
      llvm::MemoryBufferRef buffer{llvm::StringRef(text), llvm::StringRef(name)};
      llvmModule = llvm::parseIR(buffer, problem, llvmContext);
      if (!llvmModule)
        return makeError(DiagId::bad_ir,
                         {"llvm", std::string(name) + ":" + std::to_string(problem.getLineNo()) +
                                      ": " + problem.getMessage().str()});
      llvm::raw_string_ostream out(message);
      bool isBroken = llvm::verifyModule(*llvmModule, &out);
      message.resize(std::min(message.size(), message.find('\n')));
      return isBroken ? std::optional(failure(stage)) : std::nullopt;
    }
    module = mlir::parseSourceString<mlir::ModuleOp>(
        llvm::StringRef(text), mlir::ParserConfig(context.get()), llvm::StringRef(name));
    return module ? std::nullopt : std::optional(failure(stage));
  }

  // Brings the module to a stage, at most LLVM IR.
  std::optional<Error> advance(Stage stage) {
    mlir::PassManager passes(context.get());
    passes.enableVerifier(false); // once behind all of them, not behind each
    if (stage == Stage::Rho)
      addRhoPasses(passes);
    else if (stage == Stage::Tile)
      addTilePasses(passes);
    else
      addLlvmPasses(passes);
    if (mlir::failed(passes.run(*module)) || mlir::failed(mlir::verify(*module)))
      return failure(stage);
    return stage == Stage::Llvm ? translate() : std::nullopt;
  }

  Result<std::string> print(Stage stage) {
    std::string text;
    llvm::raw_string_ostream out(text);
    if (stage == Stage::Ptx) {
      Result<std::string> ptx = emitPtx(*llvmModule);
      return ptx && !message.empty() ? failure(Stage::Llvm) : ptx;
    }
    if (stage == Stage::Llvm)
      llvmModule->print(out, nullptr);
    else // with locations: they carry the origins, and re-entry must not lose them
      module->print(out, mlir::OpPrintingFlags().enableDebugInfo(true));
    return text;
  }

private:
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::ScopedDiagnosticHandler handler;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> llvmModule;
  std::string message;

  static std::string describe(mlir::Diagnostic &diagnostic) {
    std::string text;
    llvm::raw_string_ostream out(text);
    if (auto at = llvm::dyn_cast<mlir::FileLineColLoc>(diagnostic.getLocation()))
      out << at.getFilename().getValue() << ':' << at.getLine() << ':' << at.getColumn() << ": ";
    out << diagnostic.str();
    return text;
  }

  static std::string describe(const llvm::DiagnosticInfo &diagnostic) {
    std::string text;
    llvm::raw_string_ostream out(text);
    llvm::DiagnosticPrinterRawOStream printer(out);
    diagnostic.print(printer);
    return text;
  }

  Error failure(Stage stage) {
    return makeError(DiagId::bad_ir, {std::string(nameOf(stage)),
                                      message.empty() ? "the module is not valid" : message});
  }

  std::optional<Error> translate() {
    std::string target;
    module->walk([&](mlir::LLVM::LLVMFuncOp function) {
      if (auto attribute = function->getAttrOfType<mlir::StringAttr>(targetAttribute))
        target = attribute.getValue().str();
      function->removeAttr(targetAttribute);
    });
    if (target.empty()) {
      message = "no function has the attribute \"" + targetAttribute.str() + "\"";
      return failure(Stage::Llvm);
    }
    Result<DeviceModel> known = modelOfTarget(target);
    if (!known)
      return known.error();
    llvmModule = mlir::translateModuleToLLVMIR(*module, llvmContext);
    if (!llvmModule)
      return failure(Stage::Llvm);
    setTarget(*llvmModule, target);
    return std::nullopt;
  }
};

Result<std::string> runStages(Compilation &compilation, Stage next, Stage last,
                              std::vector<StageTime> *times) {
  for (Stage stage = next;; stage = static_cast<Stage>(static_cast<int>(stage) + 1)) {
    auto start = std::chrono::steady_clock::now();
    std::optional<Error> error;
    std::optional<Result<std::string>> text;
    if (stage != Stage::Ptx)
      error = compilation.advance(stage);
    if (error)
      return *error;
    if (stage == last)
      text = compilation.print(stage);
    std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (times)
      times->push_back({std::string(nameOf(stage)), took.count()});
    if (text)
      return *text;
  }
}

// Whether what this thread keeps until it ends is destroyed already, as in what runs at exit. MLIR
// keeps caches so, and does not work without them.
bool isThreadOver() {
  static thread_local bool isOver = false;
  struct End {
    ~End() { isOver = true; }
  };
  [[maybe_unused]] static thread_local const End end;
  return isOver;
}

// work(), on a thread of its own where this one is over. Error process_ends.
Result<std::string> onLivingThread(llvm::function_ref<Result<std::string>()> work) {
  auto compile = [&]() -> Result<std::string> {
    static dsl::EndingLibrary llvm;
    const dsl::DelaysProcessEnd delay(llvm);
    if (!delay)
      return makeError(DiagId::process_ends);
    return work();
  };
  return isThreadOver() ? std::async(std::launch::async, compile).get() : compile();
}

// What a compilation makes.
Result<std::string> compiling(llvm::function_ref<Result<std::string>(Compilation &)> work) {
  return onLivingThread([&] {
    Compilation compilation;
    return work(compilation);
  });
}

// What a compilation of somebody else's text makes. LLVM ends the process over code that it cannot
// compile, which our own passes never make: here that is an error, and what the compilation holds
// is lost.
Result<std::string> orFatal(llvm::function_ref<Result<std::string>(Compilation &)> work) {
  static std::mutex ofTheHandler; // LLVM has one for all threads
  const std::lock_guard lock(ofTheHandler);
  std::string reason = "LLVM crashed";
  llvm::ScopedFatalErrorHandler handler(
      [](void *to, const char *why, bool) {
        *static_cast<std::string *>(to) = why;
        llvm::CrashRecoveryContext::GetCurrent()->HandleExit(1);
      },
      &reason);
  auto compilation = std::make_unique<Compilation>();
  std::optional<Result<std::string>> result;
  llvm::CrashRecoveryContext::Enable();
  bool finished = llvm::CrashRecoveryContext().RunSafely([&] { result = work(*compilation); });
  llvm::CrashRecoveryContext::Disable();
  if (finished)
    return *std::move(result);
  [[maybe_unused]] Compilation *lost = compilation.release();
  return makeError(DiagId::bad_ir, {"llvm", reason});
}

KernelImage launchFacts(const dsl::Gemm &gemm, const Plan &plan, const PlacedGemm &placed) {
  Geometry g = makeGeometry(placed, plan.schedule);
  KernelImage image;
  image.entry = gemm.name;
  image.target = plan.target;
  image.threads = static_cast<int>(g.threads());
  image.sharedBytes = sharedBytes(gemm, placed, g, plan.schedule, plan.problem);
  image.n = plan.problem.n;
  image.k = plan.problem.k;
  image.tileM = g.tileM;
  image.tileN = g.tileN;
  image.tileK = g.tileK;
  image.pipeline = plan.schedule.pipeline;
  image.splitK = plan.schedule.splitK;
  image.clusterN = plan.schedule.clusterN;
  image.clusterK = plan.schedule.clusterK;
  image.residentCtas = plan.schedule.residentCtas;
  image.wholeProgram = g.specialized();
  image.dependentLaunch = plan.schedule.dependent;
  image.parameters = kernelParameters(gemm, g, plan.schedule, plan.problem);
  image.weight = makeWeightLayout(gemm, placed, g, plan.problem);
  image.operands = operandRanges(gemm, placed);
  image.activation = makeActivationLayout(placed, g, plan.problem);
  image.origins = originsOf(gemm);
  return image;
}

} // namespace

std::string printSpec(const dsl::Gemm &gemm, const Plan &plan) {
  return "weight " + dsl::printWithParts(gemm.weight) + "\nactivation " +
         dsl::printWithParts(gemm.activation) + "\noutput " + std::string(gemm.output.name()) +
         "\nentry " + gemm.name + "\n" + plan.printForKernel();
}

Result<Compiled> compile(const dsl::Gemm &gemm, const Plan &plan, const SourceMap *sources) {
  Result<PlacedGemm> placed = place(gemm, plan, sources);
  if (!placed)
    return placed.error();
  Compiled result;
  result.image = launchFacts(gemm, plan, *placed);
  Result<std::string> ptx = compiling([&](Compilation &compilation) {
    compilation.start(gemm, plan);
    return runStages(compilation, Stage::Rho, Stage::Ptx, &result.times);
  });
  if (!ptx)
    return ptx.error();
  result.image.ptx = std::move(*ptx);
  return result;
}

Result<std::string> emit(const dsl::Gemm &gemm, const Plan &plan, Stage stage,
                         const SourceMap *sources) {
  Result<PlacedGemm> placed = place(gemm, plan, sources);
  if (!placed)
    return placed.error();
  return compiling([&](Compilation &compilation) {
    compilation.start(gemm, plan);
    return runStages(compilation, Stage::Rho, stage, nullptr);
  });
}

Result<std::string> reenter(std::string_view text, std::string_view name, Stage from, Stage to) {
  if (from == Stage::Ptx || to < from)
    return makeError(DiagId::bad_stage_order, {std::string(nameOf(from)), std::string(nameOf(to))});
  auto work = [&](Compilation &compilation) -> Result<std::string> {
    if (std::optional<Error> error = compilation.parse(text, name, from))
      return *error;
    if (to == from && from != Stage::Rho)
      return compilation.print(to);
    Stage next = from == Stage::Rho && to == Stage::Rho
                     ? Stage::Rho
                     : static_cast<Stage>(static_cast<int>(from) + 1);
    return runStages(compilation, next, to, nullptr);
  };
  return onLivingThread([&] { return orFatal(work); });
}

Result<std::string> compileModule(const ModuleMaker &make) {
  return compiling([&](Compilation &compilation) {
    compilation.start(make);
    return runStages(compilation, Stage::Llvm, Stage::Ptx, nullptr);
  });
}

std::string_view buildId() { return RHO_BUILD_ID; }
std::string_view llvmVersion() { return LLVM_VERSION_STRING; }

} // namespace rho::compiler
