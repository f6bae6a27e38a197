#include "compiler/codegen/DeviceBuilder.h"

#include "compiler/decode/ScaleSequence.h"
#include "compiler/ir/Dialects.h"
#include "compiler/passes/ScalarBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/TypeUtilities.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

namespace {

// Of a register, as constraints of inline assembly name it.
llvm::StringRef registerKind(mlir::Type type) {
  if (type.isF32())
    return "f";
  if (type.isInteger(1))
    return "b"; // a predicate
  if (type.isInteger(16))
    return "h";
  return type.isInteger(32) ? "r" : "l"; // addresses have 64 bits
}

} // namespace

DeviceBuilder::Value DeviceBuilder::i32(int64_t value) {
  return arith::ConstantIntOp::create(builder, loc, builder.getI32Type(), value);
}
DeviceBuilder::Value DeviceBuilder::i64(int64_t value) {
  return arith::ConstantIntOp::create(builder, loc, builder.getI64Type(), value);
}
DeviceBuilder::Value DeviceBuilder::add(Value a, Value b) {
  return arith::AddIOp::create(builder, loc, a, b);
}
DeviceBuilder::Value DeviceBuilder::add(Value a, int64_t b) {
  return b == 0 ? a : add(a, a.getType().isInteger(64) ? i64(b) : i32(b));
}
DeviceBuilder::Value DeviceBuilder::sub(Value a, Value b) {
  return arith::SubIOp::create(builder, loc, a, b);
}
DeviceBuilder::Value DeviceBuilder::mul(Value a, Value b) {
  return arith::MulIOp::create(builder, loc, a, b);
}
DeviceBuilder::Value DeviceBuilder::mul(Value a, int64_t b) {
  return b == 1 ? a : mul(a, a.getType().isInteger(64) ? i64(b) : i32(b));
}
DeviceBuilder::Value DeviceBuilder::div(Value a, int64_t b) {
  if (b == 1)
    return a;
  auto divisor = static_cast<uint64_t>(b);
  if (!std::has_single_bit(divisor))
    return arith::DivUIOp::create(builder, loc, a, i32(b));
  return arith::ShRUIOp::create(builder, loc, a, i32(std::countr_zero(divisor)));
}
DeviceBuilder::Value DeviceBuilder::mod(Value a, int64_t b) {
  if (!std::has_single_bit(static_cast<uint64_t>(b)))
    return arith::RemUIOp::create(builder, loc, a, i32(b));
  return arith::AndIOp::create(builder, loc, a, i32(b - 1));
}
DeviceBuilder::Value DeviceBuilder::less(Value a, Value b) {
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, a, b);
}
DeviceBuilder::Value DeviceBuilder::equal(Value a, Value b) {
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, a, b);
}
DeviceBuilder::Value DeviceBuilder::select(Value condition, Value a, Value b) {
  return arith::SelectOp::create(builder, loc, condition, a, b);
}
DeviceBuilder::Value DeviceBuilder::widen(Value a) {
  return arith::ExtUIOp::create(builder, loc, builder.getI64Type(), a);
}
DeviceBuilder::Value DeviceBuilder::permute(Value a, Value b, Value selector) {
  return mlir::NVVM::PermuteOp::create(builder, loc, builder.getI32Type(), a, b, selector,
                                       mlir::NVVM::PermuteMode::DEFAULT);
}
DeviceBuilder::Value DeviceBuilder::globalAt(Value base, Value byteOffset) {
  return LLVM::GEPOp::create(builder, loc, LLVM::LLVMPointerType::get(builder.getContext(), 1),
                             builder.getI8Type(), base, llvm::ArrayRef<LLVM::GEPArg>{byteOffset});
}
DeviceBuilder::Value DeviceBuilder::sharedAt(Value byteOffset) {
  return LLVM::GEPOp::create(builder, loc, LLVM::LLVMPointerType::get(builder.getContext(), 3),
                             builder.getI8Type(), shared, llvm::ArrayRef<LLVM::GEPArg>{byteOffset});
}
DeviceBuilder::Value DeviceBuilder::load(mlir::Type type, Value pointer, int64_t alignment) {
  return LLVM::LoadOp::create(builder, loc, type, pointer, static_cast<unsigned>(alignment));
}
void DeviceBuilder::store(Value value, Value pointer, int64_t alignment) {
  LLVM::StoreOp::create(builder, loc, value, pointer, static_cast<unsigned>(alignment));
}
void DeviceBuilder::when(Value condition, llvm::function_ref<void()> body) {
  ScalarBuilder{builder, loc}.when(condition, body);
}
llvm::SmallVector<DeviceBuilder::Value>
DeviceBuilder::either(Value condition, mlir::TypeRange types, Branch then, Branch otherwise) {
  auto chosen = mlir::scf::IfOp::create(builder, loc, types, condition, /*withElseRegion=*/true);
  mlir::OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&chosen.getThenRegion().front());
  mlir::scf::YieldOp::create(builder, loc, then());
  builder.setInsertionPointToStart(&chosen.getElseRegion().front());
  mlir::scf::YieldOp::create(builder, loc, otherwise());
  return chosen.getResults();
}
llvm::SmallVector<DeviceBuilder::Value> DeviceBuilder::ptx(llvm::StringRef text,
                                                           llvm::StringRef constraints,
                                                           mlir::TypeRange results,
                                                           mlir::ValueRange operands) {
  std::string memory = constraints.empty() ? "~{memory}" : constraints.str() + ",~{memory}";
  mlir::TypeRange types = results;
  mlir::Type structure;
  if (results.size() > 1) {
    structure = LLVM::LLVMStructType::getLiteral(builder.getContext(), llvm::to_vector(results));
    types = structure;
  }
  auto call = LLVM::InlineAsmOp::create(builder, loc, types, operands, text, memory,
                                        /*has_side_effects=*/true, /*is_align_stack=*/false,
                                        LLVM::tailcallkind::TailCallKind::None,
                                        LLVM::AsmDialectAttr(), mlir::ArrayAttr());
  llvm::SmallVector<Value> values;
  if (results.size() == 1)
    values.push_back(call.getResult(0));
  for (size_t i = 0; results.size() > 1 && i < results.size(); ++i)
    values.push_back(LLVM::ExtractValueOp::create(builder, loc, call.getResult(0), i));
  return values;
}

void DeviceBuilder::effect(llvm::StringRef text, llvm::StringRef constraints,
                           mlir::ValueRange operands) {
  ptx(text, constraints, mlir::TypeRange(), operands);
}
DeviceBuilder::Value DeviceBuilder::assembly(mlir::Type type, mlir::ValueRange operands,
                                             llvm::StringRef text, llvm::StringRef constraints) {
  return LLVM::InlineAsmOp::create(builder, loc, mlir::TypeRange{type}, operands, text, constraints,
                                   /*has_side_effects=*/false, /*is_align_stack=*/false,
                                   LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(),
                                   mlir::ArrayAttr())
      .getResult(0);
}

void DeviceBuilder::AsmCall::constrain(llvm::StringRef constraint) {
  constraints += (constraints.empty() ? "" : ",") + constraint.str();
}

std::string DeviceBuilder::AsmCall::result(mlir::Type type, bool early) {
  assert(inputs.empty() && "results are counted before inputs");
  constrain((early ? "=&" : "=") + registerKind(type).str());
  types.push_back(type);
  return "$" + std::to_string(types.size() - 1);
}

std::string DeviceBuilder::AsmCall::append(llvm::StringRef constraint, Value input) {
  constrain(constraint);
  inputs.push_back(input);
  return "$" + std::to_string(types.size() + inputs.size() - 1);
}

std::string DeviceBuilder::AsmCall::input(Value value) {
  return append(registerKind(value.getType()), value);
}

std::string DeviceBuilder::AsmCall::tied(llvm::StringRef result, Value value) {
  return append(result.drop_front(), value); // without the '$'
}

llvm::SmallVector<DeviceBuilder::Value> DeviceBuilder::AsmCall::emit(llvm::StringRef text) {
  return device.ptx(text, constraints, types, inputs);
}

DeviceBuilder::Value DeviceBuilder::sumOf(Value a, Value b) {
  if (mlir::getElementTypeOrSelf(a.getType()).isInteger())
    return arith::AddIOp::create(builder, loc, a, b);
  return arith::AddFOp::create(builder, loc, a, b);
}
DeviceBuilder::Value DeviceBuilder::element(Value vector, int64_t position) {
  return LLVM::ExtractElementOp::create(builder, loc, vector, i32(position));
}
DeviceBuilder::Value DeviceBuilder::vectorOf(llvm::ArrayRef<Value> values) {
  auto type = mlir::VectorType::get({static_cast<int64_t>(values.size())}, values[0].getType());
  Value vector = LLVM::PoisonOp::create(builder, loc, type);
  for (size_t i = 0; i < values.size(); ++i)
    vector = LLVM::InsertElementOp::create(builder, loc, vector, values[i],
                                           i32(static_cast<int64_t>(i)));
  return vector;
}

std::vector<DeviceBuilder::Value> DeviceBuilder::loadWords(Value pointer, int64_t bytes) {
  mlir::Type word = builder.getI32Type();
  if (bytes < 4) {
    Value narrow = load(builder.getIntegerType(static_cast<unsigned>(8 * bytes)), pointer, bytes);
    return {arith::ExtUIOp::create(builder, loc, word, narrow)};
  }
  std::vector<Value> words;
  for (int64_t at = 0; at < bytes; at += 16) {
    int64_t size = std::min<int64_t>(16, bytes - at);
    Value piece = LLVM::GEPOp::create(builder, loc, pointer.getType(), builder.getI8Type(), pointer,
                                      llvm::ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(at)});
    if (size == 4) {
      words.push_back(load(word, piece, 4));
      continue;
    }
    Value vector = load(mlir::VectorType::get({size / 4}, word), piece, size);
    for (int64_t i = 0; i < size / 4; ++i)
      words.push_back(element(vector, i));
  }
  return words;
}

llvm::SmallVector<DeviceBuilder::Value> DeviceBuilder::loadBy(const std::string &instruction,
                                                              Value from, int64_t offset,
                                                              int64_t count, Value condition) {
  AsmCall call(*this);
  std::string zeros, registers;
  for (int64_t i = 0; i < count; ++i) {
    std::string word = call.result(builder.getI32Type(), /*early=*/static_cast<bool>(condition));
    zeros += "mov.b32 " + word + ", 0;\n";
    registers += (i == 0 ? "" : ", ") + word;
  }
  std::string text = instruction;
  if (count > 1) {
    text += ".v" + std::to_string(count);
    registers = "{" + registers + "}";
  }
  if (condition)
    text = zeros + "@" + call.input(condition) + " " + text;
  text += ".b32 " + registers + ", [" + call.input(from) + " + " + std::to_string(offset) + "];";
  return call.emit(text);
}

// A thread without a piece is predicated off, not branched around: LLVM may copy what follows a
// branch into both of its paths, and ldmatrix and mma need all threads of the warp on one.
void DeviceBuilder::copyPiece(Value to, Value from, Value size, Value exists) {
  if (!exists) {
    NVVM::CpAsyncOp::create(builder, loc, to, from, 16, NVVM::LoadCacheModifierKind::CG, size);
    return;
  }
  llvm::SmallVector<Value> operands{exists, to, from};
  if (size)
    operands.push_back(size);
  effect(size ? "@$0 cp.async.cg.shared.global [$1], [$2], 16, $3;"
              : "@$0 cp.async.cg.shared.global [$1], [$2], 16;",
         size ? "b,l,l,r" : "b,l,l", operands);
}

std::vector<DeviceBuilder::Value> DeviceBuilder::toF32(llvm::ArrayRef<Value> words,
                                                       llvm::StringRef element, int64_t count,
                                                       int64_t unit, int64_t shift) {
  std::vector<Value> result;
  dsl::ElementType type = dsl::ElementType::get(element.str());
  if (element == "f32") {
    for (int64_t i = 0; i < count; ++i)
      result.push_back(arith::BitcastOp::create(builder, loc, f32(), words[i]));
    return result;
  }
  if (element == "f16" || element == "bf16") { // two to a word
    for (int64_t i = 0; i < count; ++i) {
      Value pair = halves(words[i / 2], halfType(element));
      result.push_back(arith::ExtFOp::create(builder, loc, f32(), this->element(pair, i % 2)));
    }
    return result;
  }
  unit = unit == 0 ? dsl::unitBits(type) : unit;
  // Without a sign a conversion of its own is shorter.
  const bool wholeByte = type.bits() == 8 && unit == 8 && type.isFloat() && type.hasSign();
  if (auto sequence = wholeByte ? scaleSequence(type, "f16", 0) : std::nullopt) {
    // A register for each byte, which holds its number twice.
    std::vector<Value> pairs;
    for (Value word : words) {
      auto decode = tile::DecodeOp::create(
          builder, loc, std::vector<mlir::Type>(sequence->outputs.size(), builder.getI32Type()),
          word, mlir::ValueRange(), sequence->print());
      pairs.insert(pairs.end(), decode.getResults().begin(), decode.getResults().end());
    }
    for (int64_t i = 0; i < count; ++i) {
      Value pair = halves(pairs[(i * unit + shift) / 8], builder.getF16Type());
      result.push_back(arith::ExtFOp::create(builder, loc, f32(), this->element(pair, 0)));
    }
    return result;
  }
  int64_t perWord = 32 / unit;
  for (int64_t i = 0; i < count; ++i) {
    Value code =
        arith::ShRUIOp::create(builder, loc, words[i / perWord], i32(i % perWord * unit + shift));
    code = arith::AndIOp::create(builder, loc, code, i32((int64_t{1} << type.bits()) - 1));
    result.push_back(type.isInteger() ? integerToF32(code, type) : floatToF32(code, type));
  }
  return result;
}

// A byte is the upper mantissa of 1 + u / 128 where its highest bit is set: one permutation for
// each.
std::vector<DeviceBuilder::Value> DeviceBuilder::toFractions(llvm::ArrayRef<Value> words,
                                                             llvm::StringRef element, int64_t count,
                                                             int64_t unit, int64_t shift) {
  constexpr int64_t one = 0x3f800000, upperByte = 7, lowerByte = 4, everyByte = 0x01010101;
  const int64_t mask = (int64_t{1} << dsl::ElementType::get(element.str()).bits()) - 1;
  std::vector<Value> result;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t bit = i * unit + shift, byte = bit % 32 / 8;
    Value codes = arith::AndIOp::create(builder, loc, words[bit / 32], i32(mask * everyByte));
    codes = arith::OrIOp::create(builder, loc, codes, i32(int32_t(0x80 * everyByte)));
    Value number =
        permute(codes, i32(one), i32(upperByte << 12 | byte << 8 | lowerByte << 4 | lowerByte));
    result.push_back(arith::BitcastOp::create(builder, loc, f32(), number));
  }
  return result;
}

DeviceBuilder::Value DeviceBuilder::negatedBy(Value word, int64_t bit, Value number) {
  constexpr int64_t top = 31;
  Value sign = arith::ShLIOp::create(builder, loc, word, i32(top - bit));
  sign = arith::AndIOp::create(builder, loc, sign, i32(std::numeric_limits<int32_t>::min()));
  Value bits = arith::BitcastOp::create(builder, loc, builder.getI32Type(), number);
  return arith::BitcastOp::create(builder, loc, f32(),
                                  arith::XOrIOp::create(builder, loc, bits, sign));
}

std::vector<DeviceBuilder::Value> DeviceBuilder::inputToF32(llvm::ArrayRef<Value> words,
                                                            llvm::StringRef element, int64_t count,
                                                            int64_t unit, int64_t shift) {
  std::vector<Value> result = toF32(words, element, count, unit, shift);
  dsl::ElementType type = dsl::ElementType::get(element.str());
  const bool keepsThem = !type.isFloat() || type.bits() > 16 || element == "f16" ||
                         element == "bf16" || type.mantissaBits() == 0;
  if (keepsThem || !std::isnan(type.decode(type.encode(std::nan("")))))
    return result;
  unit = unit == 0 ? dsl::unitBits(type) : unit;
  int64_t perWord = 32 / unit;
  for (int64_t i = 0; i < count; ++i) {
    Value code =
        arith::ShRUIOp::create(builder, loc, words[i / perWord], i32(i % perWord * unit + shift));
    result[i] = withSpecials(result[i], code, type);
  }
  return result;
}

DeviceBuilder::Value DeviceBuilder::withSpecials(Value number, Value code, dsl::ElementType type) {
  constexpr int64_t exponent = 0x7f800000;
  const int64_t magnitudeMask = (int64_t{1} << (type.bits() - (type.hasSign() ? 1 : 0))) - 1;
  const int64_t mantissaMask = (int64_t{1} << type.mantissaBits()) - 1;
  const bool hasInfinity =
      std::isinf(type.decode(type.encode(std::numeric_limits<double>::infinity())));
  const int64_t first = hasInfinity ? magnitudeMask & ~mantissaMask : magnitudeMask;
  Value magnitude = arith::AndIOp::create(builder, loc, code, i32(magnitudeMask));
  // Infinity has no mantissa, NaN has; the sign is that of the number.
  Value bits = arith::OrIOp::create(
      builder, loc,
      arith::ShLIOp::create(builder, loc,
                            arith::AndIOp::create(builder, loc, code, i32(mantissaMask)),
                            i32(23 - type.mantissaBits())),
      i32(exponent));
  Value sign = arith::AndIOp::create(
      builder, loc, arith::BitcastOp::create(builder, loc, builder.getI32Type(), number),
      i32(int32_t(0x80000000)));
  Value special = arith::BitcastOp::create(
      builder, loc, f32(), arith::OrIOp::create(builder, loc, bits, sign).getResult());
  Value isSpecial =
      arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::uge, magnitude, i32(first));
  return select(isSpecial, special, number);
}

// 2^23 + u for a small number u has u in its lowest bits. Signed codes go by offset binary.
DeviceBuilder::Value DeviceBuilder::integerToF32(Value code, dsl::ElementType type) {
  constexpr int64_t magic = 0x4b000000;
  double offset = 0x1p23;
  if (type.kind() == dsl::ElementType::Kind::Signed) {
    int64_t top = int64_t{1} << (type.bits() - 1);
    code = arith::XOrIOp::create(builder, loc, code, i32(top));
    offset += static_cast<double>(top);
  }
  Value number = arith::BitcastOp::create(
      builder, loc, f32(), arith::OrIOp::create(builder, loc, code, i32(magic)).getResult());
  return arith::SubFOp::create(builder, loc, number, constantF32(offset));
}

// Exponent and mantissa under the wider exponent: the number times a power of two, subnormals too.
DeviceBuilder::Value DeviceBuilder::floatToF32(Value code, dsl::ElementType type) {
  constexpr int mantissaBits = 23, bias = 127;
  Value magnitude = code;
  if (type.hasSign())
    magnitude = arith::AndIOp::create(builder, loc, code, i32((1 << (type.bits() - 1)) - 1));
  magnitude =
      arith::ShLIOp::create(builder, loc, magnitude, i32(mantissaBits - type.mantissaBits()));
  if (type.exponentBits() == 8 && type.mantissaBits() == 0) { // e8m0: code 0 is 2^-127
    constexpr int64_t smallest = 0x00400000;
    magnitude = arith::MaxUIOp::create(builder, loc, magnitude, i32(smallest));
    return arith::BitcastOp::create(builder, loc, f32(), magnitude);
  }
  int own = (1 << (type.exponentBits() - 1)) - 1;
  Value number = arith::MulFOp::create(
      builder, loc, arith::BitcastOp::create(builder, loc, f32(), magnitude).getResult(),
      constantF32(std::ldexp(1.0, bias - own)));
  if (!type.hasSign())
    return number;
  Value sign = arith::AndIOp::create(
      builder, loc, arith::ShLIOp::create(builder, loc, code, i32(32 - type.bits())).getResult(),
      i32(int32_t(0x80000000)));
  Value bits = arith::BitcastOp::create(builder, loc, builder.getI32Type(), number);
  return arith::BitcastOp::create(builder, loc, f32(),
                                  arith::OrIOp::create(builder, loc, bits, sign).getResult());
}

DeviceBuilder::Value DeviceBuilder::constantF32(double value) {
  return arith::ConstantFloatOp::create(builder, loc, builder.getF32Type(),
                                        llvm::APFloat(static_cast<float>(value)));
}

DeviceBuilder::Value DeviceBuilder::mmaResult(llvm::StringRef intrinsic, Value c,
                                              mlir::ValueRange operands) {
  llvm::SmallVector<mlir::Type> types(4,
                                      llvm::cast<mlir::VectorType>(c.getType()).getElementType());
  auto structure = LLVM::LLVMStructType::getLiteral(builder.getContext(), types);
  auto call = LLVM::CallIntrinsicOp::create(builder, loc, structure,
                                            builder.getStringAttr(intrinsic), operands);
  std::vector<Value> results;
  for (int64_t i = 0; i < 4; ++i)
    results.push_back(LLVM::ExtractValueOp::create(builder, loc, call.getResult(0), i));
  return vectorOf(results);
}

mlir::Type DeviceBuilder::halfType(llvm::StringRef element) {
  return element == "bf16" ? mlir::Type(builder.getBF16Type()) : builder.getF16Type();
}

DeviceBuilder::Value DeviceBuilder::halves(Value word, mlir::Type type) {
  return LLVM::BitcastOp::create(builder, loc, mlir::VectorType::get({2}, type), word);
}

std::array<DeviceBuilder::Value, 2> DeviceBuilder::widenPair(Value word, bool bf16) {
  if (bf16) { // the upper half of an f32
    Value low = arith::ShLIOp::create(builder, loc, word, i32(16));
    Value high = arith::AndIOp::create(builder, loc, word, i32(int32_t(0xffff0000)));
    return {arith::BitcastOp::create(builder, loc, f32(), low),
            arith::BitcastOp::create(builder, loc, f32(), high)};
  }
  Value pair = halves(word, builder.getF16Type());
  return {arith::ExtFOp::create(builder, loc, f32(), element(pair, 0)),
          arith::ExtFOp::create(builder, loc, f32(), element(pair, 1))};
}

} // namespace rho::compiler
