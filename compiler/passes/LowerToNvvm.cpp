// Kernels of the tile dialect to NVVM, by the family that their target belongs to.
#include "compiler/codegen/Families.h"
#include "compiler/passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace rho::compiler {

#define GEN_PASS_DEF_LOWERTONVVM
#include "compiler/passes/Passes.h.inc"

namespace {

struct LowerToNvvmPass : impl::LowerToNvvmBase<LowerToNvvmPass> {
  void runOnOperation() override {
    for (tile::KernelOp op : llvm::make_early_inc_range(getOperation().getOps<tile::KernelOp>()))
      if (mlir::failed(op.getGeometry().getRoles() == "uniform" ? lowerToMmaSync(op)
                       : op.getGeometry().getRoles() == "gemv"  ? lowerToGemv(op)
                                                                : lowerToWgmma(op)))
        return signalPassFailure();
  }
};

} // namespace
} // namespace rho::compiler
