// Declaration and plan to the first module: one contraction of two real operands.
#include "compiler/passes/GemmContext.h"
#include "compiler/passes/Passes.h"

namespace rho::compiler {

mlir::OwningOpRef<mlir::ModuleOp> buildGemm(mlir::MLIRContext &context, const dsl::Gemm &gemm,
                                            const Plan &plan) {
  std::vector<std::string> origins = originsOf(gemm);
  auto at = [&](llvm::StringRef origin) { return locationOf(&context, origins, origin); };
  mlir::OpBuilder builder(&context);
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(at("gemm"));
  builder.setInsertionPointToEnd(module->getBody());
  auto op = ir::GemmOp::create(builder, at("gemm"), gemm.name, dsl::printWithParts(gemm.weight),
                               dsl::printWithParts(gemm.activation), gemm.output.name(),
                               plan.printForKernel());
  builder.setInsertionPointToEnd(&op.getBody().emplaceBlock());
  auto tensor = [&](llvm::StringRef axes) { return ir::TensorType::get(&context, axes, "real"); };
  mlir::Value weight = ir::OperandOp::create(builder, at("weight." + gemm.weight.element().name),
                                             tensor("n k"), "weight");
  const StoredComponent stored = storedComponents(gemm.activation)[0];
  mlir::Value activation = ir::OperandOp::create(builder, at(originOf(gemm.activation, stored)),
                                                 tensor("m k"), "activation");
  mlir::Value product =
      ir::ContractOp::create(builder, at("gemm"), tensor("n m"), weight, activation);
  ir::ReturnOp::create(builder, at("output"), product, llvm::APFloat(1.0));
  return module;
}

} // namespace rho::compiler
