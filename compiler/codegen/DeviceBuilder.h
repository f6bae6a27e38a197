// Operations of device code at one insertion point: what lowerings of all kinds of kernels share.
#pragma once

#include "dsl/ElementType.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

#include <array>
#include <string>
#include <vector>

namespace rho::compiler {

class DeviceBuilder {
protected:
  using Value = mlir::Value;
  DeviceBuilder(mlir::MLIRContext *context, mlir::Location loc) : builder(context), loc(loc) {}

  mlir::OpBuilder builder;
  mlir::Location loc; // of the operation being lowered
  Value shared;       // base of dynamic shared memory

  Value i32(int64_t value);
  Value i64(int64_t value);
  Value add(Value a, Value b);
  Value add(Value a, int64_t b);
  Value sub(Value a, Value b);
  Value mul(Value a, Value b);
  Value mul(Value a, int64_t b);
  Value div(Value a, int64_t b); // unsigned
  Value mod(Value a, int64_t b);
  Value less(Value a, Value b); // unsigned
  Value equal(Value a, Value b);
  Value select(Value condition, Value a, Value b);
  Value widen(Value a);                            // u32 -> i64
  Value permute(Value a, Value b, Value selector); // bytes of both, as PTX's prmt
  Value globalAt(Value base, Value byteOffset);
  Value sharedAt(Value byteOffset); // from the base of dynamic shared memory
  Value load(mlir::Type type, Value pointer, int64_t alignment);
  void store(Value value, Value pointer, int64_t alignment);
  void when(Value condition, llvm::function_ref<void()> body);
  // Values of one of two branches.
  using Branch = llvm::function_ref<llvm::SmallVector<Value>()>;
  llvm::SmallVector<Value> either(Value condition, mlir::TypeRange types, Branch then,
                                  Branch otherwise);
  // PTX that touches memory or order: stays where it is put.
  llvm::SmallVector<Value> ptx(llvm::StringRef text, llvm::StringRef constraints,
                               mlir::TypeRange results, mlir::ValueRange operands);
  // The same without results.
  void effect(llvm::StringRef text, llvm::StringRef constraints = "",
              mlir::ValueRange operands = {});
  // PTX of a value, without side effects.
  Value assembly(mlir::Type type, mlir::ValueRange operands, llvm::StringRef text,
                 llvm::StringRef constraints);
  // A text of PTX that stays where it is put, with many operands. Each is known by what stands for
  // it in the text, "$n". Results come before all inputs, since they are counted first.
  class AsmCall {
  public:
    explicit AsmCall(DeviceBuilder &device) : device(device) {}
    // Early: written while inputs are still to be read, and so in a register of its own.
    std::string result(mlir::Type type, bool early = false);
    // In a register of the kind that the value's type has.
    std::string input(Value value);
    // An input in the register of a result.
    std::string tied(llvm::StringRef result, Value value);
    llvm::SmallVector<Value> emit(llvm::StringRef text);

  private:
    DeviceBuilder &device;
    std::string constraints;
    llvm::SmallVector<mlir::Type> types; // of results
    llvm::SmallVector<Value> inputs;
    void constrain(llvm::StringRef constraint);
    std::string append(llvm::StringRef constraint, Value input);
  };
  Value sumOf(Value a, Value b); // of integers or floats, elementwise
  Value element(Value vector, int64_t position);
  Value vectorOf(llvm::ArrayRef<Value> values);
  // `bytes` bytes at a pointer as 32-bit words; fewer than 4 bytes are zero-extended.
  std::vector<Value> loadWords(Value pointer, int64_t bytes);
  static constexpr const char *streamed = "ld.global.nc.L1::no_allocate"; // what nobody else reads
  // One to four words by that instruction of PTX, which stays where it is put; where there is a
  // condition and it is false zeros, without a branch.
  llvm::SmallVector<Value> loadBy(const std::string &instruction, Value from, int64_t offset,
                                  int64_t count, Value condition = Value());
  // Starts an asynchronous copy of 16 bytes, of which `size` are read, all if it is null; none
  // where there is an `exists` and it is false.
  void copyPiece(Value to, Value from, Value size, Value exists);
  // 1 + u / 128 for codes u of an unsigned integer of at most 7 bits, each of which lies in a byte.
  std::vector<Value> toFractions(llvm::ArrayRef<Value> words, llvm::StringRef element,
                                 int64_t count, int64_t unit, int64_t shift);
  // Packed scales of an element type to f32, each in a unit of so many bits, from bit `shift` on;
  // 0: of as many as the type is stored in.
  std::vector<Value> toF32(llvm::ArrayRef<Value> words, llvm::StringRef element, int64_t count,
                           int64_t unit = 0, int64_t shift = 0);
  // The same of scales that may be NaN or infinite, which those of weights are not.
  std::vector<Value> inputToF32(llvm::ArrayRef<Value> words, llvm::StringRef element, int64_t count,
                                int64_t unit = 0, int64_t shift = 0);
  // `number`, which is that of a code if it is finite, else NaN or the infinity.
  Value withSpecials(Value number, Value code, dsl::ElementType type);
  // -`number` where bit `bit` of the word is set.
  Value negatedBy(Value word, int64_t bit, Value number);
  Value integerToF32(Value code, dsl::ElementType type);
  Value floatToF32(Value code, dsl::ElementType type);
  Value constantF32(double value);
  mlir::Type halfType(llvm::StringRef element); // f16 or bf16
  Value halves(Value word, mlir::Type type);    // a register as a vector of two of these
  // The two numbers of a register of f16 or bf16 as f32.
  std::array<Value, 2> widenPair(Value word, bool bf16);
  // The result of a matrix instruction with four accumulator registers of the type of those of `c`.
  Value mmaResult(llvm::StringRef intrinsic, Value c, mlir::ValueRange operands);
  mlir::Type f32() { return builder.getF32Type(); }
};

} // namespace rho::compiler
