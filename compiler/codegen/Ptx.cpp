#include "compiler/codegen/Ptx.h"

#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/PassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

#include <mutex>

namespace rho::compiler {

namespace {

const char *const triple = "nvptx64-nvidia-cuda";

// Whether inline PTX of the module has `part` in it.
bool contains(const llvm::Module &module, llvm::StringRef part) {
  for (const llvm::Function &function : module)
    for (const llvm::Instruction &instruction : llvm::instructions(function))
      if (auto *call = llvm::dyn_cast<llvm::CallBase>(&instruction))
        if (auto *text = llvm::dyn_cast<llvm::InlineAsm>(call->getCalledOperand()))
          if (llvm::StringRef(text->getAsmString()).contains(part))
            return true;
  return false;
}

// The lowest PTX version that knows the architecture and its instructions, so that old drivers
// accept the text.
const char *ptxFeature(const llvm::Module &module, llvm::StringRef target) {
  if (target == "sm_120a")
    return "+ptx87";
  auto declares = [&](llvm::StringRef instruction) {
    return llvm::any_of(module, [&](const llvm::Function &function) {
      return function.getName().starts_with(instruction) && function.getName().contains("e4m3");
    });
  };
  if (declares("llvm.nvvm.mma.m16n8k16"))
    return "+ptx87";
  if (declares("llvm.nvvm.mma."))
    return "+ptx84";
  bool isOld = target == "sm_80" || target == "sm_86";
  if (isOld && contains(module, "movmatrix"))
    return "+ptx78";
  if (isOld && contains(module, "L1::no_allocate")) // loads past L1
    return "+ptx74";
  if (target == "sm_80")
    return "+ptx70";
  if (target == "sm_86")
    return "+ptx71";
  if (target == "sm_90a")
    return "+ptx80";
  return "+ptx78"; // sm_89, sm_90
}

void initialize() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
}

std::unique_ptr<llvm::TargetMachine> machineFor(const llvm::Module &module,
                                                llvm::StringRef target) {
  initialize();
  std::string error;
  llvm::Triple nvptx(triple);
  const llvm::Target *back = llvm::TargetRegistry::lookupTarget(nvptx, error);
  if (!back)
    return nullptr;
  return std::unique_ptr<llvm::TargetMachine>(
      back->createTargetMachine(nvptx, target, ptxFeature(module, target), llvm::TargetOptions(),
                                std::nullopt, std::nullopt, llvm::CodeGenOptLevel::Default));
}

// Kernels come fully unrolled and in SSA form; what pays is removing repeated address arithmetic.
void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::PassBuilder builder(&machine);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::SimplifyCFGPass());
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), true));
  llvm::ModulePassManager all;
  all.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(passes)));
  all.run(module, modules);
}

} // namespace

// LLVM knows nothing of the threads that must meet at these instructions, nor in inline PTX with
// effects; unless told so it may copy them into both paths of a branch.
static void markConvergent(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::instructions(function))
      if (auto *call = llvm::dyn_cast<llvm::CallBase>(&instruction))
        if (auto *ptx = llvm::dyn_cast<llvm::InlineAsm>(call->getCalledOperand());
            ptx && ptx->hasSideEffects())
          call->setConvergent();
  for (llvm::Function &intrinsic : module)
    if (intrinsic.getName().starts_with("llvm.nvvm.ldmatrix.") ||
        intrinsic.getName().starts_with("llvm.nvvm.mma."))
      for (llvm::User *user : intrinsic.users())
        if (auto *call = llvm::dyn_cast<llvm::CallBase>(user))
          call->setConvergent();
}

void setTarget(llvm::Module &module, llvm::StringRef target) {
  markConvergent(module);
  module.setTargetTriple(llvm::Triple(triple));
  if (std::unique_ptr<llvm::TargetMachine> machine = machineFor(module, target))
    module.setDataLayout(machine->createDataLayout());
  for (llvm::Function &function : module)
    if (!function.isDeclaration()) {
      function.addFnAttr("target-cpu", target);
      function.addFnAttr("target-features", ptxFeature(module, target));
    }
}

Result<std::string> emitPtx(llvm::Module &module) {
  std::string target;
  for (llvm::Function &function : module)
    if (function.hasFnAttribute("target-cpu"))
      target = function.getFnAttribute("target-cpu").getValueAsString().str();
  if (target.empty())
    return makeError(DiagId::bad_ir, {"llvm", "no function has the attribute \"target-cpu\""});
  std::unique_ptr<llvm::TargetMachine> machine = machineFor(module, target);
  if (!machine)
    return makeError(DiagId::bad_ir, {"llvm", "this LLVM has no NVPTX back end"});
  optimize(module, *machine);
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream out(text);
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, out, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return makeError(DiagId::bad_ir, {"llvm", "this LLVM cannot print PTX"});
  codegen.run(module);
  return std::string(text.str());
}

} // namespace rho::compiler
