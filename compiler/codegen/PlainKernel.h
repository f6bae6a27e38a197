// A kernel that is no gemm's, made of operations directly: its function and its threads, and
// arithmetic that such kernels share.
#pragma once

#include "compiler/KernelImage.h"
#include "compiler/codegen/CompileModule.h"
#include "compiler/codegen/DeviceBuilder.h"
#include "compiler/passes/ScalarBuilder.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace rho::compiler {

struct PlainLaunch {
  std::string entry, target;
  int threads = 0;
  int64_t sharedBytes = 0;
  int ctasPerSm = 1; // that registers must have room for
};

class PlainKernel : protected DeviceBuilder {
public:
  // A module with the kernel.
  mlir::OwningOpRef<mlir::ModuleOp> build();

protected:
  PlainKernel(mlir::MLIRContext &context, PlainLaunch launch);
  ~PlainKernel() = default;

  ScalarBuilder scalars; // at the insertion point of `builder`
  Value thread, lane, warp;

  virtual std::vector<mlir::Type> parameterTypes() = 0;
  virtual void body(mlir::ValueRange parameters) = 0;
  mlir::Type pointer() { return mlir::LLVM::LLVMPointerType::get(builder.getContext(), 1); }
  Value blockX() { return mlir::NVVM::BlockIdXOp::create(builder, loc, builder.getI32Type()); }
  Value blockY() { return mlir::NVVM::BlockIdYOp::create(builder, loc, builder.getI32Type()); }
  void barrier() { mlir::NVVM::Barrier0Op::create(builder, loc); }

  Value addF(Value a, Value b);
  Value mulF(Value a, Value b);

private:
  PlainLaunch launch;
};

// Builds the kernel and makes it an image.
template <class Kernel, class... Arguments>
Result<KernelImage> compilePlainKernel(const PlainLaunch &launch, const Arguments &...arguments) {
  Result<std::string> ptx = compileModule(
      [&](mlir::MLIRContext &context) { return Kernel(context, launch, arguments...).build(); });
  if (!ptx)
    return ptx.error();
  KernelImage image;
  image.entry = launch.entry;
  image.target = launch.target;
  image.threads = launch.threads;
  image.sharedBytes = launch.sharedBytes;
  image.ptx = std::move(*ptx);
  return image;
}

} // namespace rho::compiler
