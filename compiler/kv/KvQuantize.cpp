// New keys and values to codes. A thread has one channel of a head: it computes the components of
// its groups one after the other, each in double, and puts codes of a step into shared memory, from
// where all threads make words of them.
#include "compiler/codegen/DoubleBuilder.h"
#include "compiler/kv/KvKernel.h"
#include "dsl/DeriveEncode.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace rho::compiler {

namespace arith = mlir::arith;

namespace {

class QuantizeKernel final : public KvKernel {
public:
  QuantizeKernel(mlir::MLIRContext &context, const PlainLaunch &launch, const KvTensor &tensor)
      : KvKernel(context, launch), tensor(tensor), format(tensor.format), doubles(builder, loc),
        divisor(dsl::literalDivisor(tensor.format)) {}

private:
  const KvTensor &tensor;
  const dsl::Format &format;
  DoubleBuilder doubles;
  const std::optional<double> divisor;
  Move move;
  Value input; // this thread's first number

  // Codes of the components that share a number, and what they stand for.
  struct Known {
    std::vector<Value> codes, numbers;
  };

  std::vector<mlir::Type> parameterTypes() override { return moveTypes(); }

  void body(mlir::ValueRange parameters) override {
    move = moveOf(tensor, parameters);
    input = globalAt(move.outside, widen(mul(thread, 2)));
    Known known{std::vector<Value>(format.components.size()),
                std::vector<Value>(format.components.size())};
    encodeFrom(0, i32(0), tensor.shape.pageTokens, known);
  }

  Value numberAt(Value token) {
    Value at = globalAt(input, mul(widen(token), move.stride));
    Value stored = load(halfType(tensor.shape.type.name()), at, 2);
    Value single = arith::ExtFOp::create(builder, loc, f32(), stored);
    return arith::ExtFOp::create(builder, loc, builder.getF64Type(), single);
  }

  // Encodes the component at `position` of the order, and all after it, of tokens that share all
  // before it.
  void encodeFrom(size_t position, Value first, int64_t tokens, const Known &before) {
    if (position == format.encodeOrder.size())
      return encodeElements(first, tokens, before);
    int index = format.encodeOrder[position];
    int64_t group = tensor.component(index).group;
    scalars.forEach(i32(0), i32(tokens / group), i32(1), [&](Value g) {
      Value begin = add(first, mul(g, group));
      Known known = before;
      auto at = static_cast<size_t>(index);
      known.codes[at] = encodeComponent(index, begin, group, known.numbers);
      known.numbers[at] = doubles.decode(tensor.component(index).type, known.codes[at]);
      encodeFrom(position + 1, begin, group, known);
    });
  }

  Value encodeComponent(int index, Value begin, int64_t group, const std::vector<Value> &numbers) {
    const dsl::Component &component = tensor.component(index);
    std::vector<const dsl::Expr *> reductions = DoubleBuilder::reductions(*component.encode);
    llvm::SmallVector<Value> starts;
    for (const dsl::Expr *reduction : reductions)
      starts.push_back(doubles.identity(reduction->reduction));
    std::vector<Value> reduced;
    if (!reductions.empty())
      llvm::append_range(
          reduced, scalars.loop(begin, add(begin, group), i32(1), starts,
                                [&](Value token, mlir::ValueRange carried) {
                                  Value x = numberAt(token);
                                  llvm::SmallVector<Value> next;
                                  for (auto [reduction, sum] : llvm::zip(reductions, carried))
                                    next.push_back(doubles.reduced(*reduction, sum, x, numbers));
                                  return next;
                                }));
    Value code = doubles.encode(component.type, doubles.rule(*component.encode, numbers, reduced));
    int64_t bytes = tensor.componentBytes(index);
    Value at = add(mul(div(begin, group), tensor.shape.headDim), placeOfChannel());
    storeCode(code, globalAt(move.page, add(widen(mul(at, bytes)), tensor.componentOffset(index))),
              bytes);
    return code;
  }

  // KvTensor::channelPlace of this thread's channel.
  Value placeOfChannel() {
    const int64_t dim = tensor.shape.headDim;
    Value tile = div(thread, 16), half = mod(div(thread, 8), 2);
    if (tensor.part == KvPart::Values)
      return add(add(mul(mod(thread, 8), dim / 8), mul(tile, 2)), half);
    Value pair = mod(div(thread, 2), 4);
    return add(add(mul(pair, dim / 4), mul(tile, 4)), add(mul(half, 2), mod(thread, 2)));
  }

  void storeCode(Value code, Value at, int64_t bytes) {
    if (bytes < 4)
      code = arith::TruncIOp::create(
          builder, loc, builder.getIntegerType(static_cast<unsigned>(8 * bytes)), code);
    store(code, at, bytes);
  }

  // A step at a time through shared memory: [token][channel].
  void encodeElements(Value first, int64_t tokens, const Known &known) {
    const int64_t dim = tensor.shape.headDim, bytes = tensor.componentBytes(0);
    scalars.forEach(i32(0), i32(tokens / tensor.step), i32(1), [&](Value s) {
      Value begin = add(first, mul(s, tensor.step));
      scalars.forEach(i32(0), i32(tensor.step), i32(1), [&](Value token) {
        Value code = stored(encodeElement(numberAt(add(begin, token)), known));
        storeCode(code, sharedAt(mul(add(mul(token, dim), thread), bytes)), bytes);
      });
      barrier();
      packStep(div(begin, tensor.step));
      barrier();
    });
  }

  Value encodeElement(Value x, const Known &known) {
    dsl::ElementType type = format.element().type;
    if (divisor) {
      Value scale = doubles.constant(*divisor);
      for (size_t i = 1; i < known.numbers.size(); ++i)
        scale = arith::MulFOp::create(builder, loc, scale, known.numbers[i]);
      return doubles.quotient(type, x, scale);
    }
    return doubles.nearest(x, type.bits(), [&](Value code) {
      std::vector<Value> codes = known.codes;
      codes[0] = code;
      return doubles.value(format, codes);
    });
  }

  // DecodeSequence::stored
  Value stored(Value code) {
    const DecodeSequence &decode = tensor.decode;
    if (decode.codeTable.empty())
      return decode.codeXor == 0
                 ? code
                 : arith::XOrIOp::create(builder, loc, code, i32(decode.codeXor)).getResult();
    std::vector<Value> table;
    for (uint8_t entry : decode.codeTable)
      table.push_back(i32(entry));
    return doubles.lookUp(table, code);
  }

  // Each thread makes the words of some units of some lanes.
  void packStep(Value step) {
    auto unitRegisters = static_cast<int64_t>(tensor.decode.registers());
    int64_t words = tensor.decode.program.words();
    scalars.forEach(thread, i32(32 * tensor.units()), i32(tensor.shape.headDim), [&](Value i) {
      Value own = mod(i, 32), unit = div(i, 32);
      std::vector<Value> made(static_cast<size_t>(words));
      for (int64_t r = 0; r < unitRegisters; ++r)
        for (int64_t half = 0; half < 2; ++half)
          addCode(made, r, half, codeAt(add(mul(unit, unitRegisters), r), half, own));
      for (int64_t w = 0; w < words; ++w) {
        Value word = add(mul(unit, words), w);
        Value piece = add(mul(div(word, 4), 32), own);
        Value at = add(mul(piece, 16), mul(mod(word, 4), 4));
        at = add(at, mul(step, tensor.stepBytes()));
        store(made[static_cast<size_t>(w)], globalAt(move.page, widen(at)), 4);
      }
    });
  }

  // The code of KvTensor::place.
  Value codeAt(Value r, int64_t half, Value own) {
    const bool keys = tensor.part == KvPart::Keys;
    int64_t tilesAlongK = (keys ? tensor.shape.headDim : tensor.step) / 16;
    Value instruction = div(r, 4);
    Value row = add(mul(div(instruction, tilesAlongK), 16), div(own, 4));
    row = add(row, mul(mod(r, 2), 8));
    Value k = add(mul(mod(instruction, tilesAlongK), 16), mul(mod(own, 4), 2));
    k = add(add(k, mul(mod(div(r, 2), 2), 8)), half);
    Value token = keys ? row : k, channel = keys ? k : row;
    int64_t bytes = tensor.componentBytes(0);
    Value at = sharedAt(mul(add(mul(token, tensor.shape.headDim), channel), bytes));
    Value narrow = load(builder.getIntegerType(static_cast<unsigned>(8 * bytes)), at, bytes);
    return arith::ExtUIOp::create(builder, loc, builder.getI32Type(), narrow);
  }

  // Puts the bits of a code to their places, those that stay beside each other at once.
  void addCode(std::vector<Value> &words, int64_t r, int64_t half, Value code) {
    const std::vector<CodeBit> &bits =
        tensor.decode.bits[static_cast<size_t>(r)][static_cast<size_t>(half)];
    for (size_t first = 0, end = 0; first < bits.size(); first = end) {
      for (end = first + 1; end < bits.size() && bits[end].word == bits[first].word &&
                            bits[end].bit == bits[end - 1].bit + 1;)
        ++end;
      Value run = code;
      if (end < bits.size() || first > 0) {
        int64_t mask = (int64_t{1} << (end - first)) - 1;
        run = div(run, int64_t{1} << first);
        run = arith::AndIOp::create(builder, loc, run, i32(mask));
      }
      run = arith::ShLIOp::create(builder, loc, run, i32(bits[first].bit));
      Value &word = words[static_cast<size_t>(bits[first].word)];
      word = word ? arith::OrIOp::create(builder, loc, word, run).getResult() : run;
    }
  }
};

} // namespace

Result<KernelImage> compileKvQuantize(const KvTensor &tensor, const std::string &target) {
  int64_t shared = tensor.step * tensor.shape.headDim * tensor.componentBytes(0);
  return compilePlainKernel<QuantizeKernel>(
      {"kv_quantize", target, static_cast<int>(tensor.shape.headDim), shared}, tensor);
}

} // namespace rho::compiler
