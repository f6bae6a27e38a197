// f32 and f64 arithmetic (PTX ISA, "Floating Point Instructions"). Approximations are computed in
// double and rounded once: at least as close as any hardware's.
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Lanes.h"
#include "runtime/emulator/Numbers.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

namespace rho::emulator {

namespace {

struct Add {
  template <class T> static T apply(T a, T b) { return a + b; }
};
struct Sub {
  template <class T> static T apply(T a, T b) { return a - b; }
};
// exact() of f32 operations is what their last rounding begins with.
struct Mul {
  static double exact(float a, float b) { return double(a) * double(b); }
  template <class T> static T apply(T a, T b) { return a * b; }
};
struct Div {
  template <class T> static T apply(T a, T b) { return a / b; }
};
// "For 2^126 < |b| < 2^128, if a is infinity, div.approx.f32 returns NaN, otherwise it returns a
// sign-preserving 0."
struct ApproxDiv {
  static float apply(float a, float b) {
    bool large = std::fabs(b) > 0x1p126f && std::isfinite(b);
    return a / (large ? std::copysign(std::numeric_limits<float>::infinity(), b) : b);
  }
  static double apply(double a, double b) { return a / b; }
};
// The product of two floats is exact in double; the sum is kept odd, so the last rounding is the
// only one.
struct Fma {
  static double exact(float a, float b, float c) {
    return addToOdd(double(a) * double(b), double(c));
  }
  static float apply(float a, float b, float c) { return float(exact(a, b, c)); }
  static double apply(double a, double b, double c) { return std::fma(a, b, c); }
};
// The number wins over NaN; -0 is less than +0.
struct Min {
  template <class T> static T apply(T a, T b) {
    T least = a < b || (a == b && std::signbit(a)) ? a : b;
    return a != a ? b : b != b ? a : least;
  }
};
struct Max {
  template <class T> static T apply(T a, T b) {
    T most = a > b || (a == b && !std::signbit(a)) ? a : b;
    return a != a ? b : b != b ? a : most;
  }
};
template <class Op> struct PropagateNan {
  template <class T> static T apply(T a, T b) { return a != a ? a : b != b ? b : Op::apply(a, b); }
};
struct Abs {
  template <class T> static T apply(T a) { return std::fabs(a); }
};
struct Neg {
  template <class T> static T apply(T a) { return -a; }
};
struct Rcp {
  template <class T> static T apply(T a) { return T(1.0 / double(a)); }
};
struct Sqrt {
  template <class T> static T apply(T a) { return std::sqrt(a); }
};
struct Rsqrt {
  template <class T> static T apply(T a) { return T(1.0 / std::sqrt(double(a))); }
};
struct Ex2 {
  template <class T> static T apply(T a) { return T(std::exp2(double(a))); }
};
struct Lg2 {
  template <class T> static T apply(T a) { return T(std::log2(double(a))); }
};
struct Sin {
  template <class T> static T apply(T a) { return T(std::sin(double(a))); }
};
struct Cos {
  template <class T> static T apply(T a) { return T(std::cos(double(a))); }
};
struct Tanh {
  template <class T> static T apply(T a) { return T(std::tanh(double(a))); }
};
// copysign d, a, b: the sign of a on the value of b.
struct Copysign {
  template <class T> static T apply(T a, T b) { return std::copysign(b, a); }
};

inline float saturate(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// .ftz and .sat of f32 operations.
template <class Op, bool Ftz, bool Sat> struct Modified {
  static float in(float x) { return Ftz ? flushF32(x) : x; }
  template <class... Floats> static float apply(Floats... sources) {
    float result;
    if constexpr (Ftz && requires { Op::exact(sources...); }) {
      double exact = Op::exact(in(sources)...);
      result = float(std::fabs(exact) < tinyF32 ? std::copysign(0.0, exact) : exact);
    } else {
      result = in(Op::apply(in(sources)...));
    }
    return Sat ? saturate(result) : result;
  }
};

// Both halves of a 64-bit register.
template <class Op> struct Pairwise {
  template <class... Pairs> static uint64_t apply(Pairs... pairs) {
    auto half = [&](int shift) {
      float result = Op::apply(std::bit_cast<float>(uint32_t(pairs >> shift))...);
      return uint64_t(std::bit_cast<uint32_t>(result)) << shift;
    };
    return half(0) | half(32);
  }
};
template <class Op>
constexpr bool hasPairs = std::is_same_v<Op, Add> || std::is_same_v<Op, Sub> ||
                          std::is_same_v<Op, Mul> || std::is_same_v<Op, Fma>;

template <class Op, int Sources, class T> constexpr Handler plain() {
  if constexpr (Sources == 1)
    return unaryHandler<T, T, Op>;
  else if constexpr (Sources == 2)
    return binaryHandler<T, T, T, Op>;
  else
    return ternaryHandler<T, T, T, T, Op>;
}

template <class Op, int Sources> void finish(Decoder &d, bool ftz, bool sat) {
  Type type = d.takeType();
  d.operands(type, std::vector<Type>(Sources, type));
  if constexpr (hasPairs<Op>)
    if (type == Type::F32x2 && !sat)
      return d.emit(ftz ? plain<Pairwise<Modified<Op, true, false>>, Sources, uint64_t>()
                        : plain<Pairwise<Op>, Sources, uint64_t>());
  if (type == Type::F32)
    return d.emit(ftz ? (sat ? plain<Modified<Op, true, true>, Sources, float>()
                             : plain<Modified<Op, true, false>, Sources, float>())
                      : (sat ? plain<Modified<Op, false, true>, Sources, float>()
                             : plain<Op, Sources, float>()));
  d.emit(type == Type::F64 && !ftz && !sat ? plain<Op, Sources, double>() : nullptr);
}

// Round to nearest is the default and the only mode of f32 and f64 arithmetic here; .rz, .rm and
// .rp stay as modifiers and are refused.
template <class Op, int Sources> void arithmetic(Decoder &d) {
  bool approximate = d.takeOne({"rn", "approx", "full"}) == 1;
  bool ftz = d.take("ftz");
  bool sat = d.take("sat");
  if constexpr (std::is_same_v<Op, Div>)
    if (approximate)
      return finish<ApproxDiv, Sources>(d, ftz, sat);
  finish<Op, Sources>(d, ftz, sat);
}

template <class Op> void minMax(Decoder &d) {
  bool ftz = d.take("ftz");
  if (d.take("NaN"))
    return finish<PropagateNan<Op>, 2>(d, ftz, false);
  finish<Op, 2>(d, ftz, false);
}

bool isHalf(Type type) {
  return bits(type) == 16 || (kind(type) == TypeKind::Packed && type != Type::F32x2);
}

// f32 operations whose sources but the last are halves, which f32 holds exactly ("Mixed Precision
// Floating Point Instructions").
template <class Op, float (*widen)(uint16_t)> struct Widened {
  static float apply(uint16_t a, float c) { return Op::apply(widen(a), c); }
  static float apply(uint16_t a, uint16_t b, float c) { return Op::apply(widen(a), widen(b), c); }
};
template <class Op, int Sources> constexpr Handler mixedHandler() {
  if constexpr (Sources == 2)
    return binaryHandler<float, uint16_t, float, Op>;
  else
    return ternaryHandler<float, uint16_t, uint16_t, float, Op>;
}

// OP.rn.f32.TYPE, of a TYPE that is a half.
bool isMixed(const Decoder &d) { return d.peekModifier(d.peekModifier() == "rn" ? 1 : 0) == "f32"; }
template <class Op, int Sources> void mixed(Decoder &d) {
  d.takeOne({"rn"});
  d.takeType();
  Type type = d.takeType();
  std::vector<Type> sources(Sources, type);
  sources.back() = Type::F32;
  d.operands(Type::F32, sources);
  d.emit(type == Type::F16    ? mixedHandler<Widened<Op, f16ToF32>, Sources>()
         : type == Type::BF16 ? mixedHandler<Widened<Op, bf16ToF32>, Sources>()
                              : nullptr);
}

template <class Op, int Sources> void maybeHalf(Decoder &d) {
  if (!isHalf(d.lastType()))
    return arithmetic<Op, Sources>(d);
  if constexpr (std::is_same_v<Op, Add> || std::is_same_v<Op, Sub> || std::is_same_v<Op, Fma>)
    if (isMixed(d))
      return mixed<Op, Sources>(d);
  decodeHalfArithmetic(d);
}

// The rows that share their names with integer instructions.
constexpr Opcode forms[] = {
    {"add", maybeHalf<Add, 2>},  {"sub", maybeHalf<Sub, 2>},  {"mul", arithmetic<Mul, 2>},
    {"div", arithmetic<Div, 2>}, {"mad", arithmetic<Fma, 3>}, {"min", minMax<Min>},
    {"max", minMax<Max>},        {"abs", arithmetic<Abs, 1>}, {"neg", arithmetic<Neg, 1>},
};

enum class Test : uint8_t { Finite, Infinite, Number, NotANumber, Normal, Subnormal };

template <class T> Flow testpHandler(Warp &w, const Inst &i, uint32_t mask) {
  const T *a = w.reg<T>(i.a);
  uint32_t result = lanesWhere([&](int l) {
    int what = std::fpclassify(a[l]);
    switch (Test(i.mode)) {
    case Test::Finite:
      return what != FP_INFINITE && what != FP_NAN;
    case Test::Infinite:
      return what == FP_INFINITE;
    case Test::Number:
      return what != FP_NAN;
    case Test::NotANumber:
      return what == FP_NAN;
    case Test::Normal: // "As a special case, positive and negative zero are considered normal"
      return what == FP_NORMAL || what == FP_ZERO;
    case Test::Subnormal:
      return what == FP_SUBNORMAL;
    }
    return false;
  });
  setPredicate(w.predicate(i.d), mask, result);
  return Flow::Next;
}

void testp(Decoder &d) {
  int test = d.takeOne({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  Type type = d.takeType();
  if (test < 0)
    return d.unknown();
  d.expectOperands(2);
  d.inst.d = d.predicateDestination(d.operand(0));
  d.inst.a = d.source(1, type);
  d.inst.mode = uint8_t(test);
  d.emit(type == Type::F32   ? testpHandler<float>
         : type == Type::F64 ? testpHandler<double>
                             : nullptr);
}

} // namespace

void decodeFloatArithmetic(Decoder &d) {
  if (isHalf(d.lastType()) && !isMixed(d))
    return decodeHalfArithmetic(d);
  decodeAs(d, forms);
}

std::span<const Opcode> floatOpcodes() {
  static constexpr Opcode opcodes[] = {
      {"fma", maybeHalf<Fma, 3>},
      {"rcp", arithmetic<Rcp, 1>},
      {"sqrt", arithmetic<Sqrt, 1>},
      {"rsqrt", arithmetic<Rsqrt, 1>},
      {"ex2", maybeHalf<Ex2, 1>},
      {"lg2", arithmetic<Lg2, 1>},
      {"sin", arithmetic<Sin, 1>},
      {"cos", arithmetic<Cos, 1>},
      {"tanh", maybeHalf<Tanh, 1>},
      {"copysign", arithmetic<Copysign, 2>},
      {"testp", testp},
  };
  return opcodes;
}

} // namespace rho::emulator
