// Arithmetic on f16, bf16 and pairs of them, each result rounded once (PTX ISA, "Half Precision
// Floating Point Instructions").
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Lanes.h"
#include "runtime/emulator/Numbers.h"

#include <cmath>

namespace rho::emulator {

namespace {

struct F16 {
  static float widen(uint16_t x) { return f16ToF32(x); }
  static uint16_t narrow(float x) { return f32ToF16(x); }
  static constexpr uint16_t infinity = 0x7c00, smallestNormal = 0x0400, one = 0x3c00;
  static constexpr auto tiny = float(tinyF16);
};
struct Bf16 {
  static float widen(uint16_t x) { return bf16ToF32(x); }
  static uint16_t narrow(float x) { return f32ToBf16(x); }
  static constexpr uint16_t infinity = 0x7f80, smallestNormal = 0x0080, one = 0x3f80;
  static constexpr float tiny = 0; // no sum or product of bf16 has .ftz
};

// Sums and products of two in float have more than twice the digits, so rounding them again equals
// rounding once (Figueroa, "When is double rounding innocuous?", 1995).
struct HalfAdd {
  template <class F> static uint16_t apply(uint16_t a, uint16_t b) {
    return F::narrow(F::widen(a) + F::widen(b));
  }
};
struct HalfSub {
  template <class F> static uint16_t apply(uint16_t a, uint16_t b) {
    return F::narrow(F::widen(a) - F::widen(b));
  }
};
// exact() is what the last rounding begins with.
struct HalfMul {
  template <class F> static float exact(uint16_t a, uint16_t b) {
    return F::widen(a) * F::widen(b);
  }
};
// The product is exact in double; both narrowings keep a sticky bit until the last.
struct HalfFma {
  template <class F> static float exact(uint16_t a, uint16_t b, uint16_t c) {
    double product = double(F::widen(a)) * double(F::widen(b));
    return toFloatOdd(addToOdd(product, double(F::widen(c))));
  }
};
template <class F> bool isNan(uint16_t x) { return (x & 0x7fff) > F::infinity; }
struct HalfMin {
  template <class F> static uint16_t apply(uint16_t a, uint16_t b) {
    float x = F::widen(a), y = F::widen(b);
    uint16_t least = x < y || (x == y && a & 0x8000) ? a : b;
    uint16_t number = isNan<F>(a) ? b : isNan<F>(b) ? a : least;
    return isNan<F>(number) ? 0x7fff : number;
  }
};
struct HalfMax {
  template <class F> static uint16_t apply(uint16_t a, uint16_t b) {
    float x = F::widen(a), y = F::widen(b);
    uint16_t most = x > y || (x == y && !(a & 0x8000)) ? a : b;
    uint16_t number = isNan<F>(a) ? b : isNan<F>(b) ? a : most;
    return isNan<F>(number) ? 0x7fff : number;
  }
};
template <class Op> struct HalfPropagateNan {
  template <class F> static uint16_t apply(uint16_t a, uint16_t b) {
    return isNan<F>(a) || isNan<F>(b) ? uint16_t(0x7fff) : Op::template apply<F>(a, b);
  }
};
struct HalfAbs {
  template <class F> static uint16_t apply(uint16_t a) { return a & 0x7fff; }
};
struct HalfNeg {
  template <class F> static uint16_t apply(uint16_t a) { return a ^ 0x8000; }
};
struct HalfEx2 {
  template <class F> static uint16_t apply(uint16_t a) {
    return F::narrow(toFloatOdd(std::exp2(double(F::widen(a)))));
  }
};
struct HalfTanh {
  template <class F> static uint16_t apply(uint16_t a) {
    return F::narrow(toFloatOdd(std::tanh(double(F::widen(a)))));
  }
};

template <class F> uint16_t flush(uint16_t x) {
  return (x & 0x7fff) < F::smallestNormal ? x & 0x8000 : x;
}
// One operation; `flushes`: .ftz, of which the sources know already.
template <class Op, class F, class... Halves> uint16_t applied(bool flushes, Halves... sources) {
  if constexpr (requires { Op::template exact<F>(sources...); }) {
    float exact = Op::template exact<F>(sources...);
    return F::narrow(flushes && std::fabs(exact) < F::tiny ? std::copysign(0.0f, exact) : exact);
  } else {
    return Op::template apply<F>(sources...);
  }
}
template <class F> uint16_t after(uint16_t x, uint8_t modifiers) {
  if (modifiers & Ftz)
    x = flush<F>(x);
  if (modifiers & (Sat | Relu)) {
    bool nan = isNan<F>(x);
    if (modifiers & Sat)
      x = nan || x & 0x8000 ? 0 : (x > F::one ? F::one : x);
    else
      x = nan ? 0x7fff : (x & 0x8000 ? 0 : x);
  }
  return x;
}

template <bool Pair, class G> void forHalves(uint16_t *d, uint32_t mask, G g) {
  constexpr int count = Pair ? 64 : 32;
  if (mask == allLanes) [[likely]] {
#pragma clang loop vectorize(assume_safety)
    for (int i = 0; i < count; ++i)
      d[i] = g(i);
  } else {
    for (int i = 0; i < count; ++i)
      if (mask & laneBit[size_t(Pair ? i / 2 : i)])
        d[i] = g(i);
  }
}

// A pair register is 64 halves in a row, so both widths are one loop.
template <class Op, int Sources, class F, bool Pair, bool Modified>
Flow halfHandler(Warp &w, const Inst &i, uint32_t mask) {
  const auto *a = w.reg<uint16_t>(i.a);
  const auto *b = w.reg<uint16_t>(Sources > 1 ? i.b : i.a);
  const auto *c = w.reg<uint16_t>(Sources > 2 ? i.c : i.a);
  uint8_t mode = i.mode;
  auto in = [mode](uint16_t x) { return Modified && mode & Ftz ? flush<F>(x) : x; };
  forHalves<Pair>(w.reg<uint16_t>(i.d), mask, [&](int l) {
    uint16_t result;
    const bool flushes = Modified && mode & Ftz;
    if constexpr (Sources == 1)
      result = applied<Op, F>(flushes, in(a[l]));
    else if constexpr (Sources == 2)
      result = applied<Op, F>(flushes, in(a[l]), in(b[l]));
    else
      result = applied<Op, F>(flushes, in(a[l]), in(b[l]), in(c[l]));
    return Modified ? after<F>(result, mode) : result;
  });
  return Flow::Next;
}

template <class Op, int Sources, bool Modified> Handler pick(Type type) {
  switch (type) {
  case Type::F16:
    return halfHandler<Op, Sources, F16, false, Modified>;
  case Type::F16x2:
    return halfHandler<Op, Sources, F16, true, Modified>;
  case Type::BF16:
    return halfHandler<Op, Sources, Bf16, false, Modified>;
  case Type::BF16x2:
    return halfHandler<Op, Sources, Bf16, true, Modified>;
  default:
    return nullptr;
  }
}

template <class Op, int Sources> void finish(Decoder &d) {
  uint8_t mode = 0;
  mode |= d.take("ftz") ? Ftz : 0;
  bool nan = Sources == 2 && d.take("NaN");
  mode |= d.take("sat") ? Sat : d.take("relu") ? Relu : 0;
  Type type = d.takeType();
  // bf16 has neither, but for ex2, which always flushes.
  bool brain = type == Type::BF16 || type == Type::BF16x2;
  if (brain && mode & (std::is_same_v<Op, HalfEx2> ? Sat : Sat | Ftz))
    return d.unknown();
  d.operands(type, std::vector<Type>(Sources, type));
  d.inst.mode = mode;
  if constexpr (std::is_same_v<Op, HalfMin> || std::is_same_v<Op, HalfMax>) {
    if (nan)
      return d.emit(mode ? pick<HalfPropagateNan<Op>, 2, true>(type)
                         : pick<HalfPropagateNan<Op>, 2, false>(type));
  } else if (nan) {
    return d.unknown();
  }
  d.emit(mode ? pick<Op, Sources, true>(type) : pick<Op, Sources, false>(type));
}

template <class Op, int Sources> void rounded(Decoder &d) {
  d.takeOne({"rn", "approx"});
  finish<Op, Sources>(d);
}

constexpr Opcode halfOpcodes[] = {
    {"add", rounded<HalfAdd, 2>},   {"sub", rounded<HalfSub, 2>}, {"mul", rounded<HalfMul, 2>},
    {"fma", rounded<HalfFma, 3>},   {"min", finish<HalfMin, 2>},  {"max", finish<HalfMax, 2>},
    {"abs", finish<HalfAbs, 1>},    {"neg", finish<HalfNeg, 1>},  {"ex2", rounded<HalfEx2, 1>},
    {"tanh", rounded<HalfTanh, 1>},
};

} // namespace

void decodeHalfArithmetic(Decoder &d) { decodeAs(d, halfOpcodes); }

} // namespace rho::emulator
