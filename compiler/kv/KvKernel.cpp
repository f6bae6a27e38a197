#include "compiler/kv/KvKernel.h"

#include "compiler/ir/Dialects.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <set>

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

KvKernel::Value KvKernel::fma(Value a, Value b, Value c) {
  return LLVM::FMAOp::create(builder, loc, a, b, c);
}
// Not as a conversion that LLVM knows: of a product with a bf16 it makes one of two f16, out of
// whose range the bf16 may be.
KvKernel::Value KvKernel::rounded(Value number, dsl::ElementType type) {
  std::string text = "cvt.rn." + std::string(type.name()) + ".f32 $0, $1;";
  Value bits = assembly(builder.getI16Type(), {number}, text, "=h,f");
  return arith::BitcastOp::create(builder, loc, halfType(type.name()), bits);
}
// One instruction; of two roundings that are put together ptxas makes three.
KvKernel::Value KvKernel::pair(Value low, Value high, dsl::ElementType type) {
  std::string text = "cvt.rn." + std::string(type.name()) + "x2.f32 $0, $1, $2;";
  return assembly(builder.getI32Type(), {high, low}, text, "=r,f,f");
}
KvKernel::Value KvKernel::shuffle(Value value, Value from, NVVM::ShflKind kind) {
  return NVVM::ShflOp::create(builder, loc, value.getType(), i32(-1), value, from, i32(31), kind,
                              mlir::UnitAttr());
}

KvKernel::Move KvKernel::moveOf(const KvTensor &tensor, mlir::ValueRange parameters) {
  Value head = blockX(), job = globalAt(parameters[2], widen(mul(blockY(), 8)));
  Value block = load(builder.getI32Type(), job, 8);
  Value page = load(builder.getI32Type(), globalAt(job, i64(4)), 4);
  Value stride = mul(parameters[3], 2);
  Value first = add(mul(mul(widen(block), tensor.shape.pageTokens), stride),
                    widen(mul(head, tensor.shape.headDim * 2)));
  return {headAt(parameters[0], tensor, page, head), globalAt(parameters[1], first), stride};
}

KvKernel::Value KvKernel::headAt(Value cache, const KvTensor &tensor, Value page, Value head) {
  Value inPage = mul(widen(head), tensor.headBytes());
  return globalAt(cache, add(mul(widen(page), tensor.pageBytes()), inPage));
}

int64_t KvKernel::laneChannels(const KvTensor &tensor) {
  return tensor.shape.headDim / (tensor.part == KvPart::Keys ? 4 : 8);
}

std::vector<int> KvKernel::usedComponents(const KvTensor &tensor) {
  std::set<int> used;
  for (const RowNumber *number : {&tensor.slope, &tensor.offset})
    for (int component : number->uses())
      used.insert(component);
  return {used.begin(), used.end()};
}

// What one lane alone reads, and nobody again, goes past L1.
std::vector<KvKernel::Value> KvKernel::streamWords(Value from, int64_t bytes, bool once) {
  std::vector<Value> words;
  for (int64_t at = 0; at < bytes; at += 16) {
    int64_t count = std::min<int64_t>(16, bytes - at) / 4;
    llvm::append_range(words, once ? loadBy(streamed, from, at * 32, count)
                                   : loadBy("ld.global.nc", from, at, count));
  }
  return words;
}

KvKernel::StepWords KvKernel::loadStep(const KvTensor &tensor, Value head, Value step) {
  StepWords result;
  Value codes = add(mul(step, tensor.stepBytes()), mul(lane, 16));
  result.codes = streamWords(globalAt(head, widen(codes)), tensor.words() * 4, true);
  for (int i : usedComponents(tensor)) {
    int64_t bytes = laneChannels(tensor) * tensor.componentBytes(i);
    Value at = add(groupOf(tensor, i, step), laneComponents(tensor, i));
    llvm::append_range(result.components, streamWords(globalAt(head, widen(at)), bytes, false));
  }
  return result;
}

KvKernel::Value KvKernel::groupOf(const KvTensor &tensor, int component, Value step) {
  Value group = div(step, tensor.component(component).group / tensor.step);
  return add(mul(group, groupBytes(tensor, component)), tensor.componentOffset(component));
}

KvKernel::Value KvKernel::laneComponents(const KvTensor &tensor, int component) {
  Value place = tensor.part == KvPart::Keys ? mod(lane, 4) : div(lane, 4);
  return mul(place, laneChannels(tensor) * tensor.componentBytes(component));
}

int64_t KvKernel::stagedBytes(const KvTensor &tensor) {
  int64_t bytes = tensor.stepBytes();
  for (int component : usedComponents(tensor))
    bytes += groupBytes(tensor, component);
  return bytes;
}

void KvKernel::copyStep(const KvTensor &tensor, Value head, Value step, Value to) {
  constexpr int64_t piece = 16, ofWarp = 32 * piece;
  auto copy = [&](Value from, Value place, int64_t bytes) {
    Value own = mul(lane, piece);
    for (int64_t at = 0; at < bytes; at += ofWarp) {
      Value exists = bytes - at < ofWarp ? less(lane, i32((bytes - at) / piece)) : Value();
      copyPiece(sharedAt(add(add(place, own), at)), globalAt(head, widen(add(add(from, own), at))),
                Value(), exists);
    }
  };
  copy(mul(step, tensor.stepBytes()), to, tensor.stepBytes());
  to = add(to, tensor.stepBytes());
  for (int i : usedComponents(tensor)) {
    copy(groupOf(tensor, i, step), to, groupBytes(tensor, i));
    to = add(to, groupBytes(tensor, i));
  }
}

KvKernel::StepWords KvKernel::stagedStep(const KvTensor &tensor, Value from) {
  StepWords result;
  for (int64_t at = 0; at < tensor.words() * 4; at += 16)
    llvm::append_range(result.codes,
                       loadWords(sharedAt(add(add(from, mul(lane, 16)), at * 32)), 16));
  from = add(from, tensor.stepBytes());
  for (int i : usedComponents(tensor)) {
    int64_t bytes = laneChannels(tensor) * tensor.componentBytes(i);
    llvm::append_range(result.components,
                       loadWords(sharedAt(add(from, laneComponents(tensor, i))), bytes));
    from = add(from, groupBytes(tensor, i));
  }
  return result;
}

std::vector<KvKernel::Value> KvKernel::registersOf(const KvTensor &tensor, mlir::ValueRange codes) {
  std::vector<Value> registers;
  auto words = static_cast<size_t>(tensor.decode.program.words());
  std::vector<mlir::Type> types(tensor.decode.registers(), builder.getI32Type());
  for (size_t u = 0; u < static_cast<size_t>(tensor.units()); ++u) {
    auto decode = tile::DecodeOp::create(builder, loc, types, codes.slice(u * words, words),
                                         mlir::ValueRange(), tensor.decode.program.print());
    registers.insert(registers.end(), decode.getResults().begin(), decode.getResults().end());
  }
  return registers;
}

KvKernel::Value KvKernel::numberOf(const RowNumber &number,
                                   const std::vector<std::vector<Value>> &components,
                                   size_t channel) {
  Value sum;
  for (const RowNumber::Term &term : number.terms) {
    Value product;
    for (int component : term.components) {
      Value own = components[static_cast<size_t>(component)][channel];
      product = product ? mulF(product, own) : own;
    }
    if (!product)
      product = constantF32(term.factor);
    else if (term.factor == -1)
      product = arith::NegFOp::create(builder, loc, product);
    else if (term.factor != 1)
      product = mulF(product, constantF32(term.factor));
    sum = sum ? addF(sum, product) : product;
  }
  return sum;
}

KvKernel::Numbers KvKernel::numbersOf(const KvTensor &tensor, mlir::ValueRange words) {
  std::vector<std::vector<Value>> components(tensor.format.components.size());
  int64_t channels = laneChannels(tensor);
  for (int i : usedComponents(tensor)) {
    auto count = static_cast<size_t>(channels * tensor.componentBytes(i) / 4);
    components[static_cast<size_t>(i)] = inputToF32(llvm::to_vector(words.take_front(count)),
                                                    tensor.component(i).type.name(), channels);
    words = words.drop_front(count);
  }
  Numbers numbers;
  for (size_t channel = 0; channel < static_cast<size_t>(channels); ++channel) {
    Value slope = numberOf(tensor.slope, components, channel);
    numbers.slopes.push_back(slope);
    if (tensor.offset.terms.empty())
      continue;
    if (tensor.ratio)
      numbers.ratios.push_back(numberOf(*tensor.ratio, components, channel));
    numbers.offsets.push_back(tensor.ratio ? mulF(slope, numbers.ratios.back())
                                           : numberOf(tensor.offset, components, channel));
  }
  return numbers;
}

} // namespace rho::compiler
