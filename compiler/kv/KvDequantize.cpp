// Codes of pages to numbers: slope * element + offset in f32, rounded once.
#include "compiler/kv/KvKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace rho::compiler {

namespace {

class DequantizeKernel final : public KvKernel {
public:
  DequantizeKernel(mlir::MLIRContext &context, const PlainLaunch &launch, const KvTensor &tensor)
      : KvKernel(context, launch), tensor(tensor) {}

private:
  const KvTensor &tensor;

  std::vector<mlir::Type> parameterTypes() override { return moveTypes(); }

  void body(mlir::ValueRange parameters) override {
    Move move = moveOf(tensor, parameters);
    scalars.forEach(warp, i32(tensor.steps()), i32(KvLayout::warps),
                    [&](Value step) { writeStep(step, move); });
  }

  // A register has two channels of one token of keys, two tokens of one channel of values.
  void writeStep(Value step, const Move &move) {
    const bool keys = tensor.part == KvPart::Keys, bf16 = tensor.shape.type.name() == "bf16";
    StepWords words = loadStep(tensor, move.page, step);
    std::vector<Value> registers = registersOf(tensor, words.codes);
    Numbers numbers = numbersOf(tensor, words.components);
    for (int64_t r = 0; r < tensor.registers(); ++r) {
      KvTensor::Place of = tensor.place(r, 0, 0); // of lane 0
      Value row = div(lane, 4), k = mul(mod(lane, 4), 2);
      Value token = add(mul(step, tensor.step), add(keys ? row : k, of.token));
      Value channel = add(keys ? k : row, of.channel);
      int64_t place = tensor.channelPlace(of.channel);
      std::array<Value, 2> pair = widenPair(registers[static_cast<size_t>(r)], bf16);
      for (int64_t i = 0; i < 2; ++i) {
        auto own = static_cast<size_t>(keys ? place + i : place);
        Value &value = pair[static_cast<size_t>(i)];
        if (!numbers.ratios.empty()) // 0 at a zero point, whatever the slope
          value = mulF(addF(value, numbers.ratios[own]), numbers.slopes[own]);
        else if (!numbers.offsets.empty())
          value = fma(value, numbers.slopes[own], numbers.offsets[own]);
        else
          value = mulF(value, numbers.slopes[own]);
      }
      Value at =
          globalAt(move.outside, add(mul(widen(token), move.stride), widen(mul(channel, 2))));
      if (keys) {
        store(this->pair(pair[0], pair[1], tensor.shape.type), at, 4);
        continue;
      }
      store(rounded(pair[0], tensor.shape.type), at, 2);
      store(rounded(pair[1], tensor.shape.type), globalAt(at, move.stride), 2);
    }
  }
};

} // namespace

Result<KernelImage> compileKvDequantize(const KvTensor &tensor, const std::string &target) {
  return compilePlainKernel<DequantizeKernel>({"kv_dequantize", target, KvLayout::warps * 32, 0},
                                              tensor);
}

} // namespace rho::compiler
