// Loops over the 32 lanes of a warp, written so that the compiler vectorises them.
#pragma once

#include "runtime/emulator/Machine.h"

#include <array>

// A lane loop that stays scalar is slower, not wrong.
#pragma clang diagnostic ignored "-Wpass-failed"

namespace rho::emulator {

inline constexpr std::array<uint32_t, 32> laneBit = [] {
  std::array<uint32_t, 32> bits{};
  for (int i = 0; i < 32; ++i)
    bits[size_t(i)] = 1u << i;
  return bits;
}();

// d[lane] = f(lane) for the lanes in mask. f is evaluated for all lanes and must not fault. `d` may
// be one of f's sources: each lane only touches itself, which makes assume_safety true.
template <class D, class F> inline void forLanes(D *d, uint32_t mask, F f) {
  if (mask == allLanes) [[likely]] {
#pragma clang loop vectorize(assume_safety)
    for (int lane = 0; lane < 32; ++lane)
      d[lane] = f(lane);
  } else {
#pragma clang loop vectorize(assume_safety)
    for (int lane = 0; lane < 32; ++lane) {
      D result = f(lane);
      d[lane] = mask & laneBit[size_t(lane)] ? result : d[lane];
    }
  }
}

// The lanes for which f(lane) holds.
template <class F> inline uint32_t lanesWhere(F f) {
  uint32_t result = 0;
#pragma clang loop vectorize(assume_safety)
  for (int lane = 0; lane < 32; ++lane)
    result |= f(lane) ? laneBit[size_t(lane)] : 0;
  return result;
}

inline void setPredicate(uint32_t &predicate, uint32_t mask, uint32_t value) {
  predicate = (predicate & ~mask) | (value & mask);
}

// The handler of an instruction without effect that a kernel could see.
inline Flow nothing(Warp &, const Inst &, uint32_t) { return Flow::Next; }

// Handlers for operations without state: Op::apply on lane values.
template <class D, class A, class Op> Flow unaryHandler(Warp &w, const Inst &i, uint32_t mask) {
  const A *a = w.reg<A>(i.a);
  forLanes(w.reg<D>(i.d), mask, [&](int l) { return D(Op::apply(a[l])); });
  return Flow::Next;
}
template <class D, class A, class B, class Op>
Flow binaryHandler(Warp &w, const Inst &i, uint32_t mask) {
  const A *a = w.reg<A>(i.a);
  const B *b = w.reg<B>(i.b);
  forLanes(w.reg<D>(i.d), mask, [&](int l) { return D(Op::apply(a[l], b[l])); });
  return Flow::Next;
}
template <class D, class A, class B, class C, class Op>
Flow ternaryHandler(Warp &w, const Inst &i, uint32_t mask) {
  const A *a = w.reg<A>(i.a);
  const B *b = w.reg<B>(i.b);
  const C *c = w.reg<C>(i.c);
  forLanes(w.reg<D>(i.d), mask, [&](int l) { return D(Op::apply(a[l], b[l], c[l])); });
  return Flow::Next;
}

// The handler of a template for the C++ type of `type`; null for types that integers have not.
template <template <class> class Choose> Handler forInteger(Type type) {
  switch (type) {
  case Type::U16:
  case Type::B16:
    return Choose<uint16_t>::handler;
  case Type::S16:
    return Choose<int16_t>::handler;
  case Type::U32:
  case Type::B32:
    return Choose<uint32_t>::handler;
  case Type::S32:
    return Choose<int32_t>::handler;
  case Type::U64:
  case Type::B64:
    return Choose<uint64_t>::handler;
  case Type::S64:
    return Choose<int64_t>::handler;
  default:
    return nullptr;
  }
}
template <class Op> struct Unary {
  template <class T> struct Of {
    static constexpr Handler handler = unaryHandler<T, T, Op>;
  };
};
template <class Op> struct Binary {
  template <class T> struct Of {
    static constexpr Handler handler = binaryHandler<T, T, T, Op>;
  };
};
// By an amount of 32 bits.
template <class Op> struct Shift {
  template <class T> struct Of {
    static constexpr Handler handler = binaryHandler<T, T, uint32_t, Op>;
  };
};
template <class Op> struct Ternary {
  template <class T> struct Of {
    static constexpr Handler handler = ternaryHandler<T, T, T, T, Op>;
  };
};

} // namespace rho::emulator
