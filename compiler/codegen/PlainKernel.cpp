#include "compiler/codegen/PlainKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

PlainKernel::PlainKernel(mlir::MLIRContext &context, PlainLaunch launch)
    : DeviceBuilder(&context, mlir::UnknownLoc::get(&context)), scalars{builder, loc},
      launch(std::move(launch)) {}

mlir::OwningOpRef<mlir::ModuleOp> PlainKernel::build() {
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(builder, loc);
  builder.setInsertionPointToEnd(module->getBody());
  std::vector<mlir::Type> types = parameterTypes();
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(builder.getContext()), types);
  auto function = LLVM::LLVMFuncOp::create(builder, loc, launch.entry, type);
  function->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), builder.getUnitAttr());
  function->setAttr(NVVM::NVVMDialect::getReqntidAttrName(),
                    builder.getDenseI32ArrayAttr({launch.threads, 1, 1}));
  if (launch.ctasPerSm > 1)
    function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                      builder.getI32IntegerAttr(launch.ctasPerSm));
  function->setAttr(targetAttribute, builder.getStringAttr(launch.target));
  constexpr uint64_t alignment = 16;
  auto global = LLVM::GlobalOp::create(
      builder, loc, LLVM::LLVMArrayType::get(builder.getI8Type(), 0), false,
      LLVM::Linkage::External, launch.entry + "_shared", mlir::Attribute(), alignment, 3);
  mlir::Block *entry = function.addEntryBlock(builder);
  builder.setInsertionPointToStart(entry);
  shared = LLVM::AddressOfOp::create(builder, loc, global);
  thread = NVVM::ThreadIdXOp::create(builder, loc, builder.getI32Type());
  lane = mod(thread, 32);
  warp = div(thread, 32);
  body(entry->getArguments());
  LLVM::ReturnOp::create(builder, loc, mlir::ValueRange());
  return module;
}

PlainKernel::Value PlainKernel::addF(Value a, Value b) {
  return arith::AddFOp::create(builder, loc, a, b);
}
PlainKernel::Value PlainKernel::mulF(Value a, Value b) {
  return arith::MulFOp::create(builder, loc, a, b);
}

} // namespace rho::compiler
