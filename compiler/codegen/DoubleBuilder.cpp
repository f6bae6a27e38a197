#include "compiler/codegen/DoubleBuilder.h"

#include "dsl/Operators.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <cmath>
#include <limits>

namespace rho::compiler {

namespace arith = mlir::arith;
using arith::CmpFPredicate;
using arith::CmpIPredicate;
using dsl::Expr;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr int doubleMantissa = 52, doubleBias = 1023;

// What ElementType keeps to itself, by what it does.
struct FloatFacts {
  int mantissaBits, bias;
  bool powersOfTwo, hasInfinity, hasSign;
  uint32_t maxCode, nanCode, infinityCode, allOnes; // nanCode 0: no NaN
  explicit FloatFacts(dsl::ElementType type)
      : mantissaBits(type.mantissaBits()), bias((1 << (type.exponentBits() - 1)) - 1),
        powersOfTwo(type == dsl::ElementType::get("e8m0")), hasSign(type.hasSign()),
        maxCode(type.encode(type.maxFinite())), nanCode(type.encode(std::nan(""))),
        infinityCode(type.encode(infinity)), allOnes((1U << type.exponentBits()) - 1) {
    hasInfinity = std::isinf(type.decode(infinityCode));
  }
  // Of the smallest normal number.
  int minExponent() const { return powersOfTwo ? -bias : 1 - bias; }
};

} // namespace

DoubleBuilder::Value DoubleBuilder::constant(double value) {
  return arith::ConstantFloatOp::create(builder, loc, builder.getF64Type(), llvm::APFloat(value));
}
DoubleBuilder::Value DoubleBuilder::code(int64_t value) {
  return arith::ConstantIntOp::create(builder, loc, builder.getI32Type(),
                                      static_cast<int32_t>(value));
}
DoubleBuilder::Value DoubleBuilder::i64(int64_t value) {
  return arith::ConstantIntOp::create(builder, loc, builder.getI64Type(), value);
}
DoubleBuilder::Value DoubleBuilder::bits(Value number) {
  return arith::BitcastOp::create(builder, loc, builder.getI64Type(), number);
}
DoubleBuilder::Value DoubleBuilder::fromBits(Value integer) {
  return arith::BitcastOp::create(builder, loc, builder.getF64Type(), integer);
}
DoubleBuilder::Value DoubleBuilder::absolute(Value number) {
  return mlir::math::AbsFOp::create(builder, loc, number);
}
DoubleBuilder::Value DoubleBuilder::compare(CmpFPredicate predicate, Value a, Value b) {
  return arith::CmpFOp::create(builder, loc, predicate, a, b);
}
DoubleBuilder::Value DoubleBuilder::compare(CmpIPredicate predicate, Value a, Value b) {
  return arith::CmpIOp::create(builder, loc, predicate, a, b);
}
DoubleBuilder::Value DoubleBuilder::select(Value condition, Value a, Value b) {
  return arith::SelectOp::create(builder, loc, condition, a, b);
}
DoubleBuilder::Value DoubleBuilder::narrow(Value integer) {
  return arith::TruncIOp::create(builder, loc, builder.getI32Type(), integer);
}
DoubleBuilder::Value DoubleBuilder::widen(Value code) {
  return arith::ExtUIOp::create(builder, loc, builder.getI64Type(), code);
}

DoubleBuilder::Value DoubleBuilder::lookUp(const std::vector<Value> &table, Value code) {
  std::vector<Value> level = table;
  for (int bit = 0; level.size() > 1; ++bit) {
    Value set = compare(CmpIPredicate::ne,
                        arith::AndIOp::create(builder, loc, code, this->code(int64_t{1} << bit)),
                        this->code(0));
    std::vector<Value> next;
    for (size_t i = 0; i < level.size(); i += 2)
      next.push_back(select(set, level[i + 1], level[i]));
    level = std::move(next);
  }
  return level[0];
}

DoubleBuilder::Value DoubleBuilder::decodeMagnitude(dsl::ElementType type, Value magnitude) {
  FloatFacts facts(type);
  Value exponent = arith::ShRUIOp::create(builder, loc, magnitude, code(facts.mantissaBits));
  Value wide = widen(magnitude);
  // The fields under those of a double, the exponent moved to its bias.
  Value fields =
      arith::ShLIOp::create(builder, loc, wide, i64(doubleMantissa - facts.mantissaBits));
  Value normal = fromBits(arith::AddIOp::create(
      builder, loc, fields, i64(int64_t{doubleBias - facts.bias} << doubleMantissa)));
  Value number = normal;
  if (!facts.powersOfTwo) {
    Value subnormal = arith::MulFOp::create(
        builder, loc, arith::UIToFPOp::create(builder, loc, builder.getF64Type(), magnitude),
        constant(std::ldexp(1.0, facts.minExponent() - facts.mantissaBits)));
    number = select(compare(CmpIPredicate::eq, exponent, code(0)), subnormal, normal);
  }
  if (facts.hasInfinity) {
    Value special = select(compare(CmpIPredicate::eq, magnitude, code(facts.infinityCode)),
                           constant(infinity), constant(std::nan("")));
    number = select(compare(CmpIPredicate::eq, exponent, code(facts.allOnes)), special, number);
  } else if (facts.nanCode != 0) {
    number = select(compare(CmpIPredicate::eq, magnitude, code(facts.nanCode)),
                    constant(std::nan("")), number);
  }
  return number;
}

DoubleBuilder::Value DoubleBuilder::decode(dsl::ElementType type, Value code) {
  if (type.isCodebook()) {
    std::vector<Value> table;
    for (uint32_t i = 0; i < 1U << type.bits(); ++i)
      table.push_back(constant(type.decode(i)));
    return lookUp(table, code);
  }
  Value top = this->code(int64_t{1} << (type.bits() - 1));
  if (type.isInteger()) {
    if (type.kind() == dsl::ElementType::Kind::Signed)
      code =
          arith::SubIOp::create(builder, loc, arith::XOrIOp::create(builder, loc, code, top), top);
    return arith::SIToFPOp::create(builder, loc, builder.getF64Type(), code);
  }
  if (!type.hasSign())
    return decodeMagnitude(type, code);
  Value sign = arith::AndIOp::create(builder, loc, code, top);
  Value number = decodeMagnitude(type, arith::XOrIOp::create(builder, loc, code, sign));
  return select(compare(CmpIPredicate::eq, sign, this->code(0)), number,
                arith::NegFOp::create(builder, loc, number));
}

// As ElementType.cpp does it: a sum whose last bit is the type's rounds to nearest, ties to even.
DoubleBuilder::Value DoubleBuilder::encodeMagnitude(dsl::ElementType type, Value magnitude) {
  FloatFacts facts(type);
  int least = facts.minExponent();
  auto exponentOf = [&](Value number) { // biased
    return arith::ShRUIOp::create(builder, loc, bits(number), i64(doubleMantissa));
  };
  Value exponent = arith::MaxSIOp::create(builder, loc, exponentOf(magnitude).getResult(),
                                          i64(least + doubleBias));
  Value magic = arith::ShLIOp::create(
      builder, loc,
      arith::AddIOp::create(builder, loc, exponent, i64(doubleMantissa - facts.mantissaBits)),
      i64(doubleMantissa));
  magic =
      fromBits(arith::OrIOp::create(builder, loc, magic, i64(int64_t{1} << (doubleMantissa - 1))));
  Value rounded = arith::SubFOp::create(
      builder, loc, arith::AddFOp::create(builder, loc, magnitude, magic), magic);
  Value quanta = arith::FPToSIOp::create(
      builder, loc, builder.getI32Type(),
      arith::MulFOp::create(builder, loc, rounded,
                            constant(std::ldexp(1.0, facts.mantissaBits - least))));
  Value fields =
      arith::ShRUIOp::create(builder, loc, bits(rounded), i64(doubleMantissa - facts.mantissaBits));
  int64_t first = least + doubleBias - (facts.powersOfTwo ? 0 : 1); // exponent field 0
  Value normal =
      narrow(arith::SubIOp::create(builder, loc, fields, i64(first << facts.mantissaBits)));
  if (facts.mantissaBits == 0) {
    Value below = arith::SubIOp::create(builder, loc, normal, code(1));
    Value down = arith::SubFOp::create(builder, loc, magnitude, decodeMagnitude(type, below));
    Value up = arith::SubFOp::create(builder, loc, rounded, magnitude);
    Value odd =
        compare(CmpIPredicate::ne, arith::AndIOp::create(builder, loc, normal, code(1)), code(0));
    Value tie = arith::AndIOp::create(builder, loc, odd, compare(CmpFPredicate::OEQ, down, up));
    normal = select(tie, below, normal);
  }
  Value isSmall = compare(CmpFPredicate::OLT, rounded, constant(std::ldexp(1.0, least)));
  return select(isSmall, quanta, normal);
}

DoubleBuilder::Value DoubleBuilder::encode(dsl::ElementType type, Value number) {
  Value isNan = compare(CmpFPredicate::UNO, number, number);
  if (type.isCodebook()) {
    Value x = select(isNan, constant(0), number);
    return nearest(x, type.bits(), [&](Value c) { return decode(type, c); });
  }
  if (type.isInteger()) {
    Value low = constant(type.minFinite()), high = constant(type.maxFinite());
    Value clamped = select(compare(CmpFPredicate::OLT, number, low), low, number);
    clamped = select(compare(CmpFPredicate::OGT, clamped, high), high, clamped);
    clamped = select(isNan, constant(0), clamped);
    Value magic = constant(0x1.8p52);
    Value rounded = arith::SubFOp::create(
        builder, loc, arith::AddFOp::create(builder, loc, clamped, magic), magic);
    Value integer = arith::FPToSIOp::create(builder, loc, builder.getI32Type(), rounded);
    return arith::AndIOp::create(builder, loc, integer, code((int64_t{1} << type.bits()) - 1));
  }
  FloatFacts facts(type);
  Value magnitude = absolute(number);
  Value isLarge = compare(CmpFPredicate::OGE, magnitude, constant(type.maxFinite()));
  Value result = select(isLarge, code(facts.maxCode), encodeMagnitude(type, magnitude));
  if (facts.hasInfinity)
    result = select(compare(CmpFPredicate::OEQ, magnitude, constant(infinity)),
                    code(facts.infinityCode), result);
  if (facts.hasSign) {
    Value sign = narrow(arith::ShRUIOp::create(builder, loc, bits(number), i64(63)));
    result = arith::OrIOp::create(builder, loc, result,
                                  arith::ShLIOp::create(builder, loc, sign, code(type.bits() - 1)));
  } else {
    result = select(compare(CmpFPredicate::OLE, number, constant(0)), code(0), result);
  }
  return select(isNan, code(facts.nanCode), result);
}

// --- values

DoubleBuilder::Value DoubleBuilder::real(Number number) {
  if (!number.isInteger)
    return number.value;
  return arith::SIToFPOp::create(builder, loc, builder.getF64Type(), number.value);
}

DoubleBuilder::Value DoubleBuilder::lowBits(Value integer, dsl::ElementType type) {
  Value up = i64(64 - type.bits());
  Value high = arith::ShLIOp::create(builder, loc, integer, up);
  return type.kind() == dsl::ElementType::Kind::Signed
             ? arith::ShRSIOp::create(builder, loc, high, up).getResult()
             : arith::ShRUIOp::create(builder, loc, high, up).getResult();
}

DoubleBuilder::Value DoubleBuilder::arithmetic(Expr::Op op, Value a, Value b) {
  bool integer = a.getType().isInteger();
  switch (op) {
  case Expr::Op::Add:
    return integer ? arith::AddIOp::create(builder, loc, a, b).getResult()
                   : arith::AddFOp::create(builder, loc, a, b).getResult();
  case Expr::Op::Sub:
    return integer ? arith::SubIOp::create(builder, loc, a, b).getResult()
                   : arith::SubFOp::create(builder, loc, a, b).getResult();
  case Expr::Op::Mul:
    return integer ? arith::MulIOp::create(builder, loc, a, b).getResult()
                   : arith::MulFOp::create(builder, loc, a, b).getResult();
  case Expr::Op::Div:
    return arith::DivFOp::create(builder, loc, a, b);
  case Expr::Op::And:
    return arith::AndIOp::create(builder, loc, a, b);
  case Expr::Op::Or:
    return arith::OrIOp::create(builder, loc, a, b);
  case Expr::Op::Xor:
    return arith::XOrIOp::create(builder, loc, a, b);
  case Expr::Op::Shl:
    return arith::ShLIOp::create(builder, loc, a, b);
  case Expr::Op::Shr:
    break;
  }
  return arith::ShRSIOp::create(builder, loc, a, b);
}

DoubleBuilder::Number DoubleBuilder::evaluate(const Expr &expr, const dsl::Format &format,
                                              const std::vector<Value> &codes) {
  auto operand = [&](size_t i) { return evaluate(*expr.operands[i], format, codes); };
  switch (expr.kind) {
  case Expr::Kind::Integer:
    return {true, i64(expr.integer)};
  case Expr::Kind::Component: {
    auto index = static_cast<size_t>(expr.component);
    dsl::ElementType type = format.components[index].type;
    if (type.isInteger())
      return {true, lowBits(widen(codes[index]), type)};
    return {false, decode(type, codes[index])};
  }
  case Expr::Kind::Negate: {
    Number a = operand(0);
    if (a.isInteger)
      return {true, arithmetic(Expr::Op::Sub, i64(0), a.value)};
    return {false, arith::NegFOp::create(builder, loc, a.value)};
  }
  case Expr::Kind::Binary: {
    Number a = operand(0), b = operand(1);
    if (a.isInteger && b.isInteger && expr.op != Expr::Op::Div)
      return {true, arithmetic(expr.op, a.value, b.value)};
    return {false, arithmetic(expr.op, real(a), real(b))};
  }
  case Expr::Kind::Cast: {
    Number a = operand(0);
    dsl::ElementType type = dsl::castTypeOf(expr);
    if (type.isInteger())
      return {true, lowBits(a.value, type)};
    return {false, decode(type, encode(type, real(a)))};
  }
  default:
    return {false, constant(expr.real)};
  }
}

DoubleBuilder::Value DoubleBuilder::value(const dsl::Format &format,
                                          const std::vector<Value> &codes) {
  return real(evaluate(*format.value, format, codes));
}

// --- rules

namespace {

void collect(const Expr &expr, std::vector<const Expr *> &reductions) {
  if (expr.kind == Expr::Kind::Reduce)
    return reductions.push_back(&expr);
  for (const dsl::ExprPtr &operand : expr.operands)
    collect(*operand, reductions);
}

} // namespace

std::vector<const Expr *> DoubleBuilder::reductions(const Expr &rule) {
  std::vector<const Expr *> all;
  collect(rule, all);
  return all;
}

DoubleBuilder::Value DoubleBuilder::identity(Expr::Reduction reduction) {
  return constant(reduction == Expr::Reduction::Absmax ? 0
                  : reduction == Expr::Reduction::Min  ? infinity
                                                       : -infinity);
}

DoubleBuilder::Value DoubleBuilder::reduced(const Expr &reduction, Value before, Value x,
                                            const std::vector<Value> &components) {
  size_t none = 0;
  Value next = ruleValue(*reduction.operands[0], components, x, {}, none);
  if (reduction.reduction == Expr::Reduction::Absmax)
    next = absolute(next);
  bool least = reduction.reduction == Expr::Reduction::Min;
  Value better = compare(least ? CmpFPredicate::OLT : CmpFPredicate::OGT, next, before);
  return select(compare(CmpFPredicate::UNO, before, next), constant(std::nan("")),
                select(better, next, before));
}

DoubleBuilder::Value DoubleBuilder::rule(const Expr &rule, const std::vector<Value> &components,
                                         const std::vector<Value> &reductions) {
  std::vector<Value> canonical; // 0 in place of -0
  for (Value reduction : reductions)
    canonical.push_back(arith::AddFOp::create(builder, loc, reduction, constant(0)));
  size_t next = 0;
  return ruleValue(rule, components, {}, canonical, next);
}

DoubleBuilder::Value DoubleBuilder::ruleValue(const Expr &expr,
                                              const std::vector<Value> &components, Value x,
                                              const std::vector<Value> &reductions, size_t &next) {
  auto operand = [&](size_t i) {
    return ruleValue(*expr.operands[i], components, x, reductions, next);
  };
  switch (expr.kind) {
  case Expr::Kind::Integer:
    return constant(static_cast<double>(expr.integer));
  case Expr::Kind::Real:
    return constant(expr.real);
  case Expr::Kind::Component:
    return components[static_cast<size_t>(expr.component)];
  case Expr::Kind::Input:
    return x;
  case Expr::Kind::Reduce:
    return reductions[next++];
  case Expr::Kind::Negate:
    return arith::NegFOp::create(builder, loc, operand(0));
  case Expr::Kind::Binary: {
    Value a = operand(0), b = operand(1), result = arithmetic(expr.op, a, b);
    if (expr.op != Expr::Op::Div)
      return result;
    Value zero = constant(0); // of anything over 0
    return select(compare(CmpFPredicate::OEQ, b, zero), zero, result);
  }
  case Expr::Kind::Cast: {
    dsl::ElementType type = dsl::castTypeOf(expr);
    return decode(type, encode(type, operand(0)));
  }
  case Expr::Kind::Call:
    break;
  }
  Value a = operand(0);
  return call(expr.function, a, expr.operands.size() > 1 ? operand(1) : a);
}

DoubleBuilder::Value DoubleBuilder::call(Expr::Function function, Value a, Value b) {
  if (function != Expr::Function::BitFloor) {
    bool least = function == Expr::Function::Min;
    return select(compare(least ? CmpFPredicate::ULT : CmpFPredicate::UGT, a, b),
                  select(compare(CmpFPredicate::UNO, b, b),
                         select(compare(CmpFPredicate::UNO, a, a), a, b), a),
                  b);
  }
  // The exponent alone; subnormal doubles are made normal first.
  constexpr int64_t exponentField = int64_t{0x7ff} << doubleMantissa;
  Value magnitude = absolute(a);
  Value tiny = compare(CmpFPredicate::OLT, magnitude, constant(0x1p-1022));
  Value normal =
      select(tiny, arith::MulFOp::create(builder, loc, magnitude, constant(0x1p54)), magnitude);
  Value floor = fromBits(arith::AndIOp::create(builder, loc, bits(normal), i64(exponentField)));
  floor = select(tiny, arith::MulFOp::create(builder, loc, floor, constant(0x1p-54)), floor);
  Value finite = compare(CmpFPredicate::OLT, magnitude, constant(infinity));
  return select(finite, floor, magnitude); // of 0 the exponent field is 0
}

// --- elements

DoubleBuilder::Value DoubleBuilder::quotient(dsl::ElementType type, Value x, Value scale) {
  Value code = encode(type, arith::DivFOp::create(builder, loc, x, scale));
  return select(compare(CmpFPredicate::OEQ, scale, constant(0)), this->code(type.encode(0)), code);
}

// Even codes come first, so that of equal values the first one found counts.
DoubleBuilder::Value DoubleBuilder::nearest(Value x, int bits,
                                            const std::function<Value(Value code)> &valueOf) {
  int64_t count = int64_t{1} << bits;
  // The largest value below x, the smallest that is not, and their codes.
  std::vector<Value> state{constant(-infinity), constant(infinity), code(0), code(0)};
  auto visit = [&](Value candidate, const std::vector<Value> &s) -> std::vector<Value> {
    Value v = valueOf(candidate);
    Value finite = compare(CmpFPredicate::OLT, absolute(v), constant(infinity));
    Value below = arith::AndIOp::create(builder, loc, compare(CmpFPredicate::OLT, v, x),
                                        compare(CmpFPredicate::OGT, v, s[0]));
    Value above = arith::AndIOp::create(builder, loc, compare(CmpFPredicate::OGE, v, x),
                                        compare(CmpFPredicate::OLT, v, s[1]));
    below = arith::AndIOp::create(builder, loc, below, finite);
    above = arith::AndIOp::create(builder, loc, above, finite);
    return {select(below, v, s[0]), select(above, v, s[1]), select(below, candidate, s[2]),
            select(above, candidate, s[3])};
  };
  if (bits <= 4) {
    for (int64_t i = 0; i < count; ++i)
      state = visit(code(i * 2 % count + i * 2 / count), state);
  } else {
    auto loop = mlir::scf::ForOp::create(builder, loc, code(0), code(count), code(1), state);
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(loop.getBody());
    Value twice = arith::ShLIOp::create(builder, loc, loop.getInductionVar(), code(1));
    Value candidate = arith::AddIOp::create(
        builder, loc, arith::AndIOp::create(builder, loc, twice, code(count - 1)),
        arith::ShRUIOp::create(builder, loc, twice, code(bits)));
    std::vector<Value> carried(loop.getRegionIterArgs().begin(), loop.getRegionIterArgs().end());
    mlir::scf::YieldOp::create(builder, loc, visit(candidate, carried));
    state.assign(loop.getResults().begin(), loop.getResults().end());
  }
  Value down = arith::SubFOp::create(builder, loc, x, state[0]);
  Value up = arith::SubFOp::create(builder, loc, state[1], x);
  Value belowOdd = arith::AndIOp::create(builder, loc, state[2], code(1));
  Value aboveOdd = arith::AndIOp::create(builder, loc, state[3], code(1));
  Value evener = select(compare(CmpIPredicate::eq, belowOdd, aboveOdd),
                        arith::MinUIOp::create(builder, loc, state[2], state[3]),
                        select(compare(CmpIPredicate::eq, aboveOdd, code(0)), state[3], state[2]));
  Value result = select(compare(CmpFPredicate::OLT, up, down), state[3],
                        select(compare(CmpFPredicate::OLT, down, up), state[2], evener));
  result = select(compare(CmpFPredicate::OEQ, state[1], constant(infinity)), state[2], result);
  result = select(compare(CmpFPredicate::OEQ, state[0], constant(-infinity)), state[3], result);
  return select(compare(CmpFPredicate::UNO, x, x), code(0), result);
}

} // namespace rho::compiler
