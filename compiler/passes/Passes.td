// The passes of the compiler, in the order of Pipeline.cpp.
#ifndef RHO_PASSES_TD
#define RHO_PASSES_TD

include "mlir/Pass/PassBase.td"

def PlaceFactors : Pass<"rho-place-factors", "::mlir::ModuleOp"> {
  let summary = "take operands apart and put each factor where the plan places it";
  let dependentDialects = ["::rho::ir::RhoDialect"];
}

def LowerToTile : Pass<"rho-lower-to-tile", "::mlir::ModuleOp"> {
  let summary = "placed gemms to the program of one thread block";
  let dependentDialects = ["::rho::tile::TileDialect", "::mlir::arith::ArithDialect",
                           "::mlir::scf::SCFDialect", "::mlir::NVVM::NVVMDialect"];
}

def LowerDecode : Pass<"tile-lower-decode", "::mlir::ModuleOp"> {
  let summary = "decode programs to instructions";
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::NVVM::NVVMDialect", "::mlir::math::MathDialect"];
}

def SpecializeWarps : Pass<"tile-specialize-warps", "::mlir::ModuleOp"> {
  let summary = "loops over output tiles to a loading warp and multiplying warps that meet at barriers";
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect",
                           "::mlir::NVVM::NVVMDialect"];
}

def ExpandPipeline : Pass<"tile-expand-pipeline", "::mlir::ModuleOp"> {
  let summary = "pipelines to a prologue and a loop with asynchronous copy groups";
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect",
                           "::mlir::NVVM::NVVMDialect"];
}

def LowerToNvvm : Pass<"tile-lower-to-nvvm", "::mlir::ModuleOp"> {
  let summary = "kernels, buffers, copies, fragments and atoms to NVVM, by the family of the kernel";
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect",
                           "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

#endif // RHO_PASSES_TD
