// What the kernels of a paged cache share: what they move, and codes and components of a step to
// registers.
#pragma once

#include "compiler/KvCache.h"
#include "compiler/codegen/PlainKernel.h"

namespace rho::compiler {

class KvKernel : public PlainKernel {
protected:
  KvKernel(mlir::MLIRContext &context, const PlainLaunch &launch) : PlainKernel(context, launch) {}
  ~KvKernel() = default;

  Value fma(Value a, Value b, Value c);
  Value rounded(Value number, dsl::ElementType type);       // f32 -> f16 or bf16
  Value pair(Value low, Value high, dsl::ElementType type); // rounded, an i32
  Value shuffle(Value value, Value from, mlir::NVVM::ShflKind kind);

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
  // empty where there are none, `ratios` where they are no multiples of the slopes. A slope that is
  // the same everywhere is a constant.
  struct Numbers {
    std::vector<Value> slopes, offsets, ratios;
  };
  Numbers numbersOf(const KvTensor &tensor, mlir::ValueRange components);
  static int64_t laneChannels(const KvTensor &tensor);

private:
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

} // namespace rho::compiler
