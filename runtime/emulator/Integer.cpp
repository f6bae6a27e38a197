// Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions").
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Lanes.h"

#include <limits>
#include <type_traits>

namespace rho::emulator {

namespace {

// Twice as wide, for products and overflow checks.
template <class T> struct Twice;
template <> struct Twice<uint16_t> {
  using Value = uint32_t;
};
template <> struct Twice<int16_t> {
  using Value = int32_t;
};
template <> struct Twice<uint32_t> {
  using Value = uint64_t;
};
template <> struct Twice<int32_t> {
  using Value = int64_t;
};
template <> struct Twice<uint64_t> {
  using Value = unsigned __int128;
};
template <> struct Twice<int64_t> {
  using Value = __int128;
};
template <class T> using Wide = typename Twice<T>::Value;

// Wrapping arithmetic goes through an unsigned type of at least 32 bits: narrower ones promote to
// int, whose overflow is undefined.
template <class T>
using Wrap = std::conditional_t<sizeof(T) < 4, uint32_t, std::make_unsigned_t<T>>;

struct IntegerAdd {
  template <class T> static T apply(T a, T b) { return T(Wrap<T>(a) + Wrap<T>(b)); }
};
struct IntegerSub {
  template <class T> static T apply(T a, T b) { return T(Wrap<T>(a) - Wrap<T>(b)); }
};
struct MulLo {
  template <class T> static T apply(T a, T b) { return T(Wrap<T>(a) * Wrap<T>(b)); }
};
struct MulHi {
  template <class T> static T apply(T a, T b) {
    return T(Wide<T>(Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T)));
  }
};
// 24-bit multiply-add and the like are not emitted by LLVM; only the full forms are here.
struct MadLo {
  template <class T> static T apply(T a, T b, T c) {
    return T(Wrap<T>(a) * Wrap<T>(b) + Wrap<T>(c));
  }
};
struct MadHi {
  template <class T> static T apply(T a, T b, T c) {
    return IntegerAdd::apply(MulHi::apply(a, b), c);
  }
};
struct MulWide {
  template <class T> static Wide<T> apply(T a, T b) { return Wide<T>(a) * Wide<T>(b); }
};
struct MadWide {
  template <class T> static Wide<T> apply(T a, T b, Wide<T> c) {
    return IntegerAdd::apply(MulWide::apply(a, b), c);
  }
};
// Division by zero is unspecified in PTX; quotient and remainder are all ones on an H200.
struct IntegerDiv {
  template <class T> static T apply(T a, T b) {
    if (b == 0)
      return T(-1);
    if (std::is_signed_v<T> && b == T(-1))
      return IntegerSub::apply(T(0), a);
    return T(a / b);
  }
};
struct Rem {
  template <class T> static T apply(T a, T b) {
    if (b == 0)
      return T(-1);
    if (std::is_signed_v<T> && b == T(-1))
      return 0;
    return T(a % b);
  }
};
struct IntegerMin {
  template <class T> static T apply(T a, T b) { return b < a ? b : a; }
};
struct IntegerMax {
  template <class T> static T apply(T a, T b) { return a < b ? b : a; }
};
struct IntegerAbs {
  template <class T> static T apply(T a) { return a < 0 ? IntegerSub::apply(T(0), a) : a; }
};
struct IntegerNeg {
  template <class T> static T apply(T a) { return IntegerSub::apply(T(0), a); }
};
struct Sad {
  template <class T> static T apply(T a, T b, T c) {
    return IntegerAdd::apply(c, a < b ? IntegerSub::apply(b, a) : IntegerSub::apply(a, b));
  }
};
struct AddSaturate {
  static int32_t apply(int32_t a, int32_t b) { return clamp(int64_t(a) + b); }
  static int32_t clamp(int64_t x) {
    int64_t low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
    return int32_t(x < low ? low : x > high ? high : x);
  }
};
struct SubSaturate {
  static int32_t apply(int32_t a, int32_t b) { return AddSaturate::clamp(int64_t(a) - b); }
};

bool floating(const Decoder &d) {
  TypeKind k = kind(d.lastType());
  return k == TypeKind::Float || k == TypeKind::Packed;
}

template <class Op> void integerUnary(Decoder &d) {
  if (floating(d))
    return decodeFloatArithmetic(d);
  Type type = d.takeType();
  d.operands(type, {type});
  d.emit(forInteger<Unary<Op>::template Of>(type));
}

template <class Op> void binary(Decoder &d) {
  if (floating(d))
    return decodeFloatArithmetic(d);
  Type type = d.takeType();
  d.operands(type, {type, type});
  d.emit(forInteger<Binary<Op>::template Of>(type));
}

template <class Op, class Saturating> void addSub(Decoder &d) {
  if (floating(d) || !d.take("sat"))
    return binary<Op>(d);
  Type type = d.takeType();
  d.operands(type, {type, type});
  d.emit(type == Type::S32 ? binaryHandler<int32_t, int32_t, int32_t, Saturating> : nullptr);
}

// The result type of .wide, and its handler; None where there is none.
Type wider(Type type) {
  switch (type) {
  case Type::U16:
    return Type::U32;
  case Type::S16:
    return Type::S32;
  case Type::U32:
    return Type::U64;
  case Type::S32:
    return Type::S64;
  default:
    return Type::None;
  }
}
template <class T> constexpr Handler mulWide = binaryHandler<Wide<T>, T, T, MulWide>;
template <class T> constexpr Handler madWide = ternaryHandler<Wide<T>, T, T, Wide<T>, MadWide>;

void mul(Decoder &d) {
  if (floating(d))
    return decodeFloatArithmetic(d);
  int part = d.takeOne({"lo", "hi", "wide"});
  Type type = d.takeType();
  if (part != 2) {
    d.operands(type, {type, type});
    return d.emit(part == 0   ? forInteger<Binary<MulLo>::Of>(type)
                  : part == 1 ? forInteger<Binary<MulHi>::Of>(type)
                              : nullptr);
  }
  Type result = wider(type);
  if (result == Type::None)
    return d.unknown();
  d.operands(result, {type, type});
  d.emit(type == Type::U16   ? mulWide<uint16_t>
         : type == Type::S16 ? mulWide<int16_t>
         : type == Type::U32 ? mulWide<uint32_t>
                             : mulWide<int32_t>);
}

void mad(Decoder &d) {
  if (floating(d))
    return decodeFloatArithmetic(d);
  int part = d.takeOne({"lo", "hi", "wide"});
  Type type = d.takeType();
  Type result = part == 2 ? wider(type) : type;
  if (result == Type::None)
    return d.unknown();
  d.operands(result, {type, type, result});
  if (part == 2)
    return d.emit(type == Type::U16   ? madWide<uint16_t>
                  : type == Type::S16 ? madWide<int16_t>
                  : type == Type::U32 ? madWide<uint32_t>
                                      : madWide<int32_t>);
  d.emit(part == 0   ? forInteger<Ternary<MadLo>::Of>(type)
         : part == 1 ? forInteger<Ternary<MadHi>::Of>(type)
                     : nullptr);
}

void sad(Decoder &d) {
  Type type = d.takeType();
  d.operands(type, {type, type, type});
  d.emit(forInteger<Ternary<Sad>::Of>(type));
}

template <class A, class B> struct Dp4a {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t c) {
    for (int i = 0; i < 32; i += 8)
      c += uint32_t(int32_t(A(a >> i)) * int32_t(B(b >> i)));
    return c;
  }
};
template <class A, class B>
constexpr Handler dp4aOf = ternaryHandler<uint32_t, uint32_t, uint32_t, uint32_t, Dp4a<A, B>>;

void dp4a(Decoder &d) {
  Type a = d.takeType(), b = d.takeType();
  d.operands(Type::B32, {Type::B32, Type::B32, Type::B32});
  bool known = (a == Type::U32 || a == Type::S32) && (b == Type::U32 || b == Type::S32);
  Handler both[2][2] = {{dp4aOf<uint8_t, uint8_t>, dp4aOf<uint8_t, int8_t>},
                        {dp4aOf<int8_t, uint8_t>, dp4aOf<int8_t, int8_t>}};
  d.emit(known ? both[isSigned(a)][isSigned(b)] : nullptr);
}

} // namespace

std::span<const Opcode> integerOpcodes() {
  static constexpr Opcode opcodes[] = {
      {"add", addSub<IntegerAdd, AddSaturate>},
      {"sub", addSub<IntegerSub, SubSaturate>},
      {"mul", mul},
      {"mad", mad},
      {"div", binary<IntegerDiv>},
      {"rem", binary<Rem>},
      {"min", binary<IntegerMin>},
      {"max", binary<IntegerMax>},
      {"abs", integerUnary<IntegerAbs>},
      {"neg", integerUnary<IntegerNeg>},
      {"sad", sad},
      {"dp4a", dp4a},
  };
  return opcodes;
}

} // namespace rho::emulator
