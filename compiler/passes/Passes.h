// The passes, one per file. Passes.td describes each; Pipeline.cpp puts them in order.
#pragma once

#include "compiler/Plan.h"
#include "dsl/Format.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

#include <memory>

namespace rho::compiler {

#define GEN_PASS_DECL
#include "compiler/passes/Passes.h.inc"

// The module that the passes start from: one rho.gemm before placement.
mlir::OwningOpRef<mlir::ModuleOp> buildGemm(mlir::MLIRContext &context, const dsl::Gemm &gemm,
                                            const Plan &plan);

// From the printed stages: rho -> tile, tile -> llvm.
void addRhoPasses(mlir::OpPassManager &passes);  // placement
void addTilePasses(mlir::OpPassManager &passes); // to the tile dialect
void addLlvmPasses(mlir::OpPassManager &passes); // to the LLVM dialect

} // namespace rho::compiler
