// What dsl/Quantize.h defines in double, as operations of device code: bit for bit.
#pragma once

#include "dsl/Format.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <functional>
#include <vector>

namespace rho::compiler {

// Operations at the insertion point of a builder that others use too.
class DoubleBuilder {
public:
  using Value = mlir::Value;
  DoubleBuilder(mlir::OpBuilder &builder, mlir::Location loc) : builder(builder), loc(loc) {}

  Value constant(double value);
  Value code(int64_t value); // i32
  // ElementType::decode and encode of i32 codes, whose bits above those of the type are 0.
  Value decode(dsl::ElementType type, Value code);
  Value encode(dsl::ElementType type, Value number);

  // The format's value, by the code of each component.
  Value value(const dsl::Format &format, const std::vector<Value> &codes);

  // The parts of a rule, see EncodeRule.h: its reductions in the order in which rule() meets them,
  // what one starts with, what it is with one more number x, and the rule's value.
  static std::vector<const dsl::Expr *> reductions(const dsl::Expr &rule);
  Value identity(dsl::Expr::Reduction reduction);
  Value reduced(const dsl::Expr &reduction, Value before, Value x,
                const std::vector<Value> &components);
  Value rule(const dsl::Expr &rule, const std::vector<Value> &components,
             const std::vector<Value> &reductions);

  // Step 2 of quantize(): x over a product's scale, as a code.
  Value quotient(dsl::ElementType type, Value x, Value scale);
  // Step 3: the code with the nearest of the finite values that `valueOf` gives for all 2^bits
  // codes; that of NaN is 0. One of many codes is found in a loop.
  Value nearest(Value x, int bits, const std::function<Value(Value code)> &valueOf);
  // table[code], of a power of two entries.
  Value lookUp(const std::vector<Value> &table, Value code);

private:
  mlir::OpBuilder &builder;
  mlir::Location loc;

  // An integer (i64) or a real number.
  struct Number {
    bool isInteger;
    Value value;
  };
  Number evaluate(const dsl::Expr &expr, const dsl::Format &format,
                  const std::vector<Value> &codes);
  Value real(Number number);
  Value lowBits(Value integer, dsl::ElementType type);
  // A rule, or what is reduced in it, of x.
  Value ruleValue(const dsl::Expr &expr, const std::vector<Value> &components, Value x,
                  const std::vector<Value> &reductions, size_t &next);
  Value call(dsl::Expr::Function function, Value a, Value b);
  Value arithmetic(dsl::Expr::Op op, Value a, Value b);
  Value decodeMagnitude(dsl::ElementType type, Value magnitude);
  Value encodeMagnitude(dsl::ElementType type, Value magnitude);

  Value i64(int64_t value);
  Value bits(Value number);      // i64
  Value fromBits(Value integer); // f64
  Value absolute(Value number);
  Value compare(mlir::arith::CmpFPredicate predicate, Value a, Value b);
  Value compare(mlir::arith::CmpIPredicate predicate, Value a, Value b);
  Value select(Value condition, Value a, Value b);
  Value narrow(Value integer); // i64 -> i32
  Value widen(Value code);     // i32 -> i64, unsigned
};

} // namespace rho::compiler
