// The order of the passes, and why it is this order.
#include "compiler/passes/Passes.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/LLVMIR/Transforms/Passes.h"

namespace rho::compiler {

void addRhoPasses(mlir::OpPassManager &passes) { passes.addPass(createPlaceFactors()); }

void addTilePasses(mlir::OpPassManager &passes) {
  passes.addPass(createPlaceFactors()); // a module re-entered before placement; else nothing
  passes.addPass(createLowerToTile());
}

void addLlvmPasses(mlir::OpPassManager &passes) {
  // Before buffers become addresses: both copies of the producer then use the same buffer.
  passes.addPass(createSpecializeWarps()); // takes the loops over tiles of warps in roles
  passes.addPass(createExpandPipeline());  // the others, and the pipelines
  passes.addPass(createLowerToNvvm());
  // After it, since loading packed scales adds decodes.
  passes.addPass(createLowerDecode());
  passes.addPass(mlir::createSCFToControlFlowPass());
  // Structured control flow is gone; what is left are branches and arithmetic.
  passes.addPass(mlir::createConvertMathToLLVMPass());
  passes.addPass(mlir::createArithToLLVMConversionPass());
  passes.addPass(mlir::createConvertControlFlowToLLVMPass());
  passes.addPass(mlir::createReconcileUnrealizedCastsPass());
  // Last: gives every function the scope that turns locations into PTX .loc lines.
  mlir::LLVM::DIScopeForLLVMFuncOpPassOptions debug;
  debug.emissionKind = mlir::LLVM::DIEmissionKind::DebugDirectivesOnly;
  passes.addPass(mlir::LLVM::createDIScopeForLLVMFuncOpPass(debug));
}

} // namespace rho::compiler
