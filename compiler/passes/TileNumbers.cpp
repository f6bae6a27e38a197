// Numbers of a weight row that a decode takes: computed in f32, rounded, in both halves of a
// register.
#include "compiler/decode/ElementCore.h"
#include "compiler/decode/RoundedProduct.h"
#include "compiler/passes/KernelBuilder.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <algorithm>
#include <limits>

namespace rho::compiler {

using mlir::Value;
namespace arith = mlir::arith;

// Its components are counted as its operands are.
static RowNumber termsOf(ir::NumberOp op) { return *RowNumber::parse(op.getTerms().str()); }

void KernelBuilder::loadTensorNumbers() {
  tensorNumbers.clear();
  for (Value parameter : chain.decode.getParameters()) {
    if (!parameter.getDefiningOp<ir::NumberOp>())
      continue;
    for (int component : componentsOf(parameter)) {
      const dsl::Component &part = context.gemm.weight.components[component];
      const bool isOne = part.extent == dsl::Extent::Tensor; // whatever else lies beside it
      if ((context.placed.streamed[component] && !isOne) || tensorNumbers.count(component) != 0)
        continue;
      tensorNumbers[component] = tile::LoadTensorScaleOp::create(
          builder, at(true, component), builder.getF32Type(), weight, section(component).offset,
          part.type.name(), storedBitsOf(component), part.shift);
    }
  }
}

bool KernelBuilder::hasFraction(int component, int64_t group) const {
  const dsl::ElementType type = context.gemm.weight.components[component].type;
  constexpr int mostBits = 7;
  return type.kind() == dsl::ElementType::Kind::Unsigned && type.bits() <= mostBits &&
         context.placed.streamed[component] && unitBits(component) % 8 == 0 &&
         bitInUnit(component, group) % 8 == 0;
}

Value KernelBuilder::componentNumber(int component, int64_t group, int64_t row, Value slot,
                                     bool fraction) {
  if (auto found = tensorNumbers.find(component); found != tensorNumbers.end())
    return found->second;
  Value &known = tileValues.componentNumbers[{component, group, row, fraction}];
  if (known)
    return known;
  int64_t warpgroup = row / g.rowsPerThread(), inWarpgroup = row % g.rowsPerThread();
  mlir::Location loc = at(true, component);
  const dsl::Component &part = context.gemm.weight.components[component];
  Value scales = tile::ConvertScalesOp::create(
      builder, loc, vectorOf(g.rowsPerThread(), false),
      rowVectorOf(component, group, warpgroup, slot), part.type.name(), unitBits(component),
      bitInUnit(component, group), signInUnit(component, group), fraction);
  for (int64_t i = 0; i < g.rowsPerThread(); ++i)
    tileValues.componentNumbers[{component, group, row - inWarpgroup + i, fraction}] =
        tile::ExtractOp::create(builder, loc, builder.getF32Type(), scales, i);
  return known;
}

KernelBuilder::PackedCode KernelBuilder::packedCode(int component, int64_t group, int64_t row,
                                                    Value slot) {
  int64_t perWord = std::max<int64_t>(1, 32 / unitBits(component)); // rows
  int64_t warpgroup = row / g.rowsPerThread(), inWarpgroup = row % g.rowsPerThread();
  Value word = rowWordsOf(component, group, warpgroup, slot)[inWarpgroup / perWord];
  return {word, inWarpgroup % perWord * unitBits(component) + bitInUnit(component, group)};
}

Value KernelBuilder::sumOf(const RowNumber &number, const std::vector<int> &components, int64_t k,
                           int64_t row, Value slot) {
  mlir::Location loc = chain.decode.getLoc();
  auto constant = [&](double value) -> Value {
    return arith::ConstantFloatOp::create(builder, loc, builder.getF32Type(),
                                          llvm::APFloat(static_cast<float>(value)));
  };
  auto componentAt = [&](int place) { return components[static_cast<size_t>(place) - 1]; };
  auto groupOf = [&](int place) {
    return groupIn(k, extentK(context.gemm.weight.components[componentAt(place)]));
  };
  auto factorOf = [&](int place) {
    return componentNumber(componentAt(place), groupOf(place), row, slot);
  };
  // x * 128 * (1 + u / 128) - x * 128, one instruction that rounds as x * u does.
  constexpr double ofFraction = 128;
  auto timesFraction = [&](Value x, int place) -> Value {
    Value fraction = componentNumber(componentAt(place), groupOf(place), row, slot, true);
    return mlir::LLVM::FMAOp::create(builder, loc, x, fraction,
                                     arith::NegFOp::create(builder, loc, x));
  };
  // Which of a term's further components is such a fraction: of one with a power of two, where 128
  // times what comes before stays finite.
  auto fractionOf = [&](const RowNumber::Term &term) -> size_t {
    double largest = std::abs(term.factor) * ofFraction;
    for (size_t i = 0; i < term.components.size(); ++i) {
      const int component = componentAt(term.components[i]);
      if (i > 0 && hasFraction(component, groupOf(term.components[i])))
        return significantBits(term.factor) == 1 && largest <= std::numeric_limits<float>::max()
                   ? i
                   : 0;
      largest *= context.gemm.weight.components[component].type.maxMagnitude();
    }
    return 0;
  };
  auto times = [&](Value a, Value b) -> Value {
    return a ? arith::MulFOp::create(builder, loc, a, b).getResult() : b;
  };
  Value sum;
  for (const RowNumber::Term &term : number.terms) {
    // Powers of two first, which round nothing: the product with a coarse component is then one of
    // many groups.
    const bool isPower = significantBits(term.factor) == 1;
    const size_t fraction = fractionOf(term);
    const double first = term.factor * (fraction > 0 ? ofFraction : 1);
    Value product;
    for (size_t i = 0; i < term.components.size(); ++i) {
      product = fraction > 0 && i == fraction ? timesFraction(product, term.components[i])
                                              : times(product, factorOf(term.components[i]));
      if (isPower && i == 0 && first != 1)
        product = times(product, constant(first));
    }
    if (!product || (!isPower && term.factor != 1))
      product = times(product, constant(term.factor));
    if (term.selector != 0) {
      Value selected = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OEQ,
                                             factorOf(term.selector), constant(term.code));
      product = arith::SelectOp::create(builder, loc, selected, product, constant(0));
    }
    sum = sum ? arith::AddFOp::create(builder, loc, sum, product).getResult() : product;
  }
  return sum ? sum : constant(0);
}

Value KernelBuilder::rounded(Value number) {
  return tile::PairOp::create(builder, chain.decode.getLoc(), builder.getI32Type(), number,
                              numberType(context.placed.mmaType));
}

DecodeProgram::Operand KernelBuilder::codeAt(DecodeProgram &program, int64_t bit, int bits) {
  DecodeProgram::Operand code = DecodeProgram::word();
  if (bit > 0)
    code = program.add(DecodeInstr::Op::Shr, code, constant(static_cast<uint32_t>(bit)));
  if (bit + bits < 32)
    code = program.add(DecodeInstr::Op::And, code, constant((1U << bits) - 1));
  return code;
}

std::vector<Value> KernelBuilder::chosenNumbers(const RowNumber &number,
                                                const std::vector<int> &components, int selector,
                                                int64_t k, int64_t row, Value slot) {
  auto found = std::find(components.begin(), components.end(), selector);
  int place = static_cast<int>(found - components.begin()) + 1;
  std::vector<Value> result;
  for (int code = 0; code < 4; ++code)
    result.push_back(rounded(sumOf(number.chosen(place, code), components, k, row, slot)));
  return result;
}

// Of components of the weight, where `number` names them by their places.
static RowNumber ofWeight(const RowNumber &number, const std::vector<int> &components) {
  return number.renumbered([&](int place) { return components[static_cast<size_t>(place) - 1]; });
}

// The row for whose codes a number is made: that of the tensor is one for all rows of a thread.
static int64_t rowOf(const RowNumber &named, const dsl::Format &weight, int64_t row) {
  return named.isOfTensor(weight) ? 0 : row;
}

// Where only a selector of few codes changes along k, the numbers that it chooses from are made
// once for a k tile, and a byte permutation takes one of them by the packed code.
Value KernelBuilder::chosenNumber(const RowNumber &number, const std::vector<int> &components,
                                  int64_t k, int64_t row, Value slot) {
  const RowNumber named = ofWeight(number, components);
  int component = named.fewChoices(context.gemm.weight);
  if (component == 0)
    return {};
  const dsl::Component &selector = context.gemm.weight.components[component];
  mlir::Location loc = chain.decode.getLoc();
  const int64_t from = rowOf(named, context.gemm.weight, row);
  std::vector<Value> &pairs = tileValues.choices[{"number", number.print(), components, from}];
  if (pairs.empty()) {
    std::vector<Value> numbers = chosenNumbers(number, components, component, k, from, slot);
    for (size_t i = 0; i < numbers.size(); i += 2) {
      Value low = arith::AndIOp::create(builder, loc, numbers[i], i32(0xffff));
      Value high = arith::ShLIOp::create(builder, loc, numbers[i + 1], i32(16));
      pairs.push_back(arith::OrIOp::create(builder, loc, low, high));
    }
  }
  auto [word, bit] = packedCode(component, groupIn(k, extentK(selector)), row, slot);
  DecodeProgram choose;
  // Bytes 2 c and 2 c + 1 of both registers, twice.
  DecodeProgram::Operand places =
      choose.add(DecodeInstr::Op::Mad, codeAt(choose, bit, selector.type.bits()), constant(0x2222),
                 constant(0x1010));
  choose.params = 2;
  choose.output(
      choose.add(DecodeInstr::Op::Prmt, DecodeProgram::param(0), DecodeProgram::param(1), places));
  return tile::DecodeOp::create(builder, loc, mlir::TypeRange{builder.getI32Type()}, word, pairs,
                                choose.print())
      .getResult(0);
}

Value KernelBuilder::choices(ir::NumberOp op, int64_t k, int64_t row, Value slot) {
  std::vector<int> components = componentsOf(op.getResult());
  RowNumber number = termsOf(op);
  const RowNumber named = ofWeight(number, components);
  int selector = named.fewChoices(context.gemm.weight);
  const int64_t from = rowOf(named, context.gemm.weight, row);
  std::vector<Value> &bytes = tileValues.choices[{"bytes", op.getTerms().str(), components, from}];
  if (!bytes.empty())
    return bytes[0];
  std::vector<Value> numbers = chosenNumbers(number, components, selector, k, from, slot);
  Value all;
  for (Value each : llvm::reverse(numbers)) {
    Value byte = arith::AndIOp::create(builder, op.getLoc(), each, i32(0xff));
    if (all)
      byte = arith::OrIOp::create(builder, op.getLoc(), byte,
                                  arith::ShLIOp::create(builder, op.getLoc(), all, i32(8)));
    all = byte;
  }
  bytes = {all};
  return all;
}

std::vector<Value> KernelBuilder::pairNumbers() {
  auto op = chain.decode.getParameters()[0].getDefiningOp<ir::NumberOp>(); // see pairSequence()
  if (!op)
    return {};
  loadTensorNumbers();
  const RowNumber number = termsOf(op);
  const std::vector<Value> all =
      chosenNumbers(number, componentsOf(op.getResult()), selectorOf(op), 0, 0, {});
  const DecodeSequence &decode = context.placed.decode;
  std::vector<Value> numbers;
  for (uint32_t table = 0; table < decode.program.tables(); ++table)
    numbers.push_back(all[decode.scaleSign.codeOfTable(table)]);
  return numbers;
}

int KernelBuilder::selectorOf(ir::NumberOp op) const {
  return ofWeight(termsOf(op), componentsOf(op.getResult())).fewChoices(context.gemm.weight);
}

Value KernelBuilder::pairsOf(ir::NumberOp op, int64_t k, int64_t row, Value slot) {
  const int selector = selectorOf(op);
  const int64_t group = groupIn(k, extentK(context.gemm.weight.components[selector]));
  return parameter(DecodeParam::Form::Pairs, selector, group, row, slot);
}

Value KernelBuilder::number(ir::NumberOp op, int64_t k, int64_t row, Value slot) {
  std::vector<int> components = componentsOf(op.getResult());
  int64_t group = 0;
  for (int component : components) // of the finest, which tells the others apart too
    group = std::max(group, groupIn(k, extentK(context.gemm.weight.components[component])));
  Value &known = tileValues.numbers[{op.getTerms().str(), components, group, row}];
  if (known)
    return known;
  RowNumber terms = termsOf(op);
  Value result = chosenNumber(terms, components, k, row, slot);
  if (!result)
    result = rounded(sumOf(terms, components, k, row, slot));
  return known = result;
}

Value KernelBuilder::products(Value number, DecodeParam::Form form) {
  Value &known = tileValues.products[{number.getAsOpaquePointer(), form}];
  if (!known)
    known =
        tile::DecodeOp::create(builder, chain.decode.getLoc(),
                               mlir::TypeRange{builder.getI32Type()}, {}, mlir::ValueRange{number},
                               productsSequence(context.gemm.weight.element().type, form).print())
            .getResult(0);
  return known;
}

} // namespace rho::compiler
