// What the kernels of a paged cache share: a function and its parameters, codes and components of a
// step to registers.
#pragma once

#include "compiler/KvCache.h"
#include "compiler/codegen/CompileModule.h"
#include "compiler/codegen/DeviceBuilder.h"
#include "compiler/passes/ScalarBuilder.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace rho::compiler {

struct KvLaunch {
  std::string entry, target;
  int threads = 0;
  int64_t sharedBytes = 0;
  int ctasPerSm = 1; // that registers must have room for
};

class KvKernel : protected DeviceBuilder {
public:
  // A module with the kernel.
  mlir::OwningOpRef<mlir::ModuleOp> build();

protected:
  KvKernel(mlir::MLIRContext &context, KvLaunch launch);
  ~KvKernel() = default;

  ScalarBuilder scalars; // at the insertion point of `builder`
  Value thread, lane, warp;

  virtual std::vector<mlir::Type> parameterTypes() = 0;
  virtual void body(mlir::ValueRange parameters) = 0;
  mlir::Type pointer() { return mlir::LLVM::LLVMPointerType::get(builder.getContext(), 1); }
  Value blockX() { return mlir::NVVM::BlockIdXOp::create(builder, loc, builder.getI32Type()); }
  Value blockY() { return mlir::NVVM::BlockIdYOp::create(builder, loc, builder.getI32Type()); }
  void barrier() { mlir::NVVM::Barrier0Op::create(builder, loc); }

  Value select(Value condition, Value a, Value b) { return scalars.select(condition, a, b); }
  Value addF(Value a, Value b);
  Value mulF(Value a, Value b);
  Value fma(Value a, Value b, Value c);
  Value half(Value word, int which); // i16 of an i32
  mlir::Type halfType(dsl::ElementType type);
  // One instruction's text, without side effects.
  Value assembly(mlir::Type type, mlir::ValueRange operands, const std::string &text,
                 const char *constraints);
  Value rounded(Value number, dsl::ElementType type);       // f32 -> f16 or bf16
  Value pair(Value low, Value high, dsl::ElementType type); // rounded, an i32
  Value shuffle(Value value, Value from, mlir::NVVM::ShflKind kind);
  // Values of one of two branches.
  using Branch = std::function<llvm::SmallVector<Value>()>;
  llvm::SmallVector<Value> either(Value condition, mlir::TypeRange types, const Branch &then,
                                  const Branch &otherwise);

  // What a CTA of quantize or dequantize moves: one head of a block of the caller and of a page.
  std::vector<mlir::Type> moveTypes() {
    return {pointer(), pointer(), pointer(), builder.getI64Type()};
  }
  struct Move {
    Value page;    // the head's bytes in the cache
    Value outside; // its first number of the caller's
    Value stride;  // bytes between tokens there
  };
  Move moveOf(const KvTensor &tensor, mlir::ValueRange parameters);

  // The bytes of one head of a page.
  Value headAt(Value cache, const KvTensor &tensor, Value page, Value head);
  // This lane's code words of a step, and its codes of each component that the numbers of the step
  // need, both loaded at this point.
  struct StepWords {
    std::vector<Value> codes;
    std::vector<Value> components; // one component's words after the other's
  };
  StepWords loadStep(const KvTensor &tensor, Value head, Value step);
  // The same through shared memory: a lane copies the codes that it will read, a warp together the
  // components of a step. Copies are asynchronous, of the group that is committed next.
  static int64_t stagedBytes(const KvTensor &tensor);
  void copyStep(const KvTensor &tensor, Value head, Value step, Value to);
  StepWords stagedStep(const KvTensor &tensor, Value from);
  // Operand registers.
  std::vector<Value> registersOf(const KvTensor &tensor, mlir::ValueRange codes);
  // Of each of this lane's channels, in the order of KvTensor::channelPlace: f32. `offsets` is
  // empty where there are none. A slope that is the same everywhere is a constant.
  struct Numbers {
    std::vector<Value> slopes, offsets;
  };
  Numbers numbersOf(const KvTensor &tensor, mlir::ValueRange components);
  static int64_t laneChannels(const KvTensor &tensor);

private:
  KvLaunch launch;
  static std::vector<int> usedComponents(const KvTensor &tensor);
  static int64_t groupBytes(const KvTensor &tensor, int component) {
    return tensor.shape.headDim * tensor.componentBytes(component);
  }
  // Where the codes of a component in a step's group begin, from the head's first byte.
  Value groupOf(const KvTensor &tensor, int component, Value step);
  // Where those that a lane needs begin among them.
  Value laneComponents(const KvTensor &tensor, int component);
  std::vector<Value> streamWords(Value from, int64_t bytes, bool once);
  Value numberOf(const RowNumber &number, const std::vector<std::vector<Value>> &components,
                 size_t channel);
};

// Builds the kernel and makes it an image.
template <class Kernel, class... Arguments>
Result<KernelImage> compileKvKernel(const KvLaunch &launch, const Arguments &...arguments) {
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
