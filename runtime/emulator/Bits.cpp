// Logic, shifts and bit fields (PTX ISA, "Logic and Shift Instructions").
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Lanes.h"

#include <type_traits>

namespace rho::emulator {

namespace {

struct And {
  template <class T> static T apply(T a, T b) { return T(a & b); }
};
struct Or {
  template <class T> static T apply(T a, T b) { return T(a | b); }
};
struct Xor {
  template <class T> static T apply(T a, T b) { return T(a ^ b); }
};
struct Not {
  template <class T> static T apply(T a) { return T(~a); }
};
struct CNot {
  template <class T> static T apply(T a) { return T(a == 0); }
};
// Shift amounts above the width act as the width.
struct Shl {
  template <class T> static T apply(T a, uint32_t by) {
    constexpr uint32_t width = 8 * sizeof(T);
    return by >= width ? T(0) : T(uint64_t(a) << (by & (width - 1)));
  }
};
struct Shr {
  template <class T> static T apply(T a, uint32_t by) {
    constexpr uint32_t width = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>)
      return T(a >> (by >= width ? width - 1 : by));
    return by >= width ? T(0) : T(a >> (by & (width - 1)));
  }
};
struct Popc {
  template <class T> static uint32_t apply(T a) { return uint32_t(std::popcount(a)); }
};
struct Clz {
  template <class T> static uint32_t apply(T a) { return uint32_t(std::countl_zero(a)); }
};
struct Brev {
  template <class T> static T apply(T a) {
    T result = 0;
    for (size_t i = 0; i < 8 * sizeof(T); ++i, a >>= 1)
      result = T(result << 1 | (a & 1));
    return result;
  }
};
// Position of the most significant bit that differs from the sign; ~0 when there is none.
template <bool Shiftamt> struct Bfind {
  template <class T> static uint32_t apply(T a) {
    using U = std::make_unsigned_t<T>;
    U magnitude = U(a);
    if (std::is_signed_v<T> && a < 0)
      magnitude = U(~a);
    if (magnitude == 0)
      return ~0u;
    auto leading = uint32_t(std::countl_zero(magnitude));
    return Shiftamt ? leading : uint32_t(8 * sizeof(T)) - 1 - leading;
  }
};
struct Bfe {
  template <class T> static T apply(T a, uint32_t b, uint32_t c) {
    using U = std::make_unsigned_t<T>;
    constexpr uint32_t width = 8 * sizeof(T);
    uint32_t pos = b & 0xff, len = c & 0xff;
    U field = pos >= width ? U(0) : U(U(a) >> pos);
    uint32_t signAt = pos + len - 1 < width - 1 ? pos + len - 1 : width - 1;
    bool sign = std::is_signed_v<T> && len != 0 && (U(a) >> signAt & 1);
    uint32_t valid = len < width ? len : width;
    uint32_t present = pos >= width ? 0 : width - pos;
    valid = valid < present ? valid : present;
    U keep = valid >= width ? U(~U(0)) : U((U(1) << valid) - 1);
    return T((field & keep) | (sign ? U(~keep) : U(0)));
  }
};
struct Bfi {
  template <class T> static T apply(T a, T b, uint32_t c, uint32_t d) {
    constexpr uint32_t width = 8 * sizeof(T);
    uint32_t pos = c & 0xff, len = d & 0xff;
    if (pos >= width || len == 0)
      return b;
    T keep = len >= width ? T(~T(0)) : T((T(1) << len) - 1);
    keep = T(keep << pos);
    return T((b & T(~keep)) | (T(a << pos) & keep));
  }
};
template <bool Left, bool Wrap> struct Shf {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t c) {
    uint64_t both = uint64_t(b) << 32 | a;
    uint32_t by = Wrap ? c & 31 : (c > 32 ? 32 : c);
    return Left ? uint32_t(both << by >> 32) : uint32_t(both >> by);
  }
};
template <bool Clamp> struct Bmsk {
  static uint32_t apply(uint32_t a, uint32_t b) {
    uint32_t pos = Clamp ? (a > 32 ? 32 : a) : a & 31, len = Clamp ? (b > 32 ? 32 : b) : b & 31;
    uint64_t ones = ((uint64_t(1) << len) - 1) << pos;
    return uint32_t(ones);
  }
};

// Predicates are lane masks: their logic is the masks' logic.
template <class Op> Flow predicateBinary(Warp &w, const Inst &i, uint32_t mask) {
  setPredicate(w.predicate(i.d), mask,
               Op::apply(w.predicate(i.a, i.flag & 1), w.predicate(i.b, i.flag & 2)));
  return Flow::Next;
}
Flow predicateNot(Warp &w, const Inst &i, uint32_t mask) {
  setPredicate(w.predicate(i.d), mask, ~w.predicate(i.a, i.flag));
  return Flow::Next;
}

template <class Op> void logic(Decoder &d) {
  if (d.take("pred")) {
    d.expectOperands(3);
    uint8_t negatedA = 0, negatedB = 0;
    d.inst.d = d.predicateDestination(d.operand(0));
    d.inst.a = d.predicate(1, negatedA);
    d.inst.b = d.predicate(2, negatedB);
    d.inst.flag = uint8_t(negatedA | negatedB << 1);
    return d.emit(predicateBinary<Op>);
  }
  Type type = d.takeType();
  d.operands(type, {type, type});
  d.emit(forInteger<Binary<Op>::template Of>(type));
}

template <class Op> void unary(Decoder &d) {
  Type type = d.takeType();
  d.operands(type, {type});
  d.emit(forInteger<Unary<Op>::template Of>(type));
}

void logicNot(Decoder &d) {
  if (d.take("pred")) {
    d.expectOperands(2);
    d.inst.d = d.predicateDestination(d.operand(0));
    d.inst.a = d.predicate(1, d.inst.flag);
    return d.emit(predicateNot);
  }
  unary<Not>(d);
}

template <class Op> void shift(Decoder &d) {
  Type type = d.takeType();
  d.operands(type, {type, Type::U32});
  d.emit(forInteger<Shift<Op>::template Of>(type));
}

// 32-bit count of a 32- or 64-bit value.
template <class Op> void counting(Decoder &d) {
  Type type = d.takeType();
  d.operands(Type::U32, {type});
  d.emit(!isInteger(type)   ? nullptr
         : bits(type) == 32 ? unaryHandler<uint32_t, uint32_t, Op>
         : bits(type) == 64 ? unaryHandler<uint32_t, uint64_t, Op>
                            : nullptr);
}

template <bool Shiftamt> Handler bfindOf(Type type) {
  switch (type) {
  case Type::U32:
    return unaryHandler<uint32_t, uint32_t, Bfind<Shiftamt>>;
  case Type::S32:
    return unaryHandler<uint32_t, int32_t, Bfind<Shiftamt>>;
  case Type::U64:
    return unaryHandler<uint32_t, uint64_t, Bfind<Shiftamt>>;
  case Type::S64:
    return unaryHandler<uint32_t, int64_t, Bfind<Shiftamt>>;
  default:
    return nullptr;
  }
}

void bfind(Decoder &d) {
  bool shiftamt = d.take("shiftamt");
  Type type = d.takeType();
  d.operands(Type::U32, {type});
  d.emit(shiftamt ? bfindOf<true>(type) : bfindOf<false>(type));
}

template <class T> constexpr Handler bfeOf = ternaryHandler<T, T, uint32_t, uint32_t, Bfe>;

void bfe(Decoder &d) {
  Type type = d.takeType();
  d.operands(type, {type, Type::U32, Type::U32});
  d.emit(type == Type::U32   ? bfeOf<uint32_t>
         : type == Type::S32 ? bfeOf<int32_t>
         : type == Type::U64 ? bfeOf<uint64_t>
         : type == Type::S64 ? bfeOf<int64_t>
                             : nullptr);
}

template <class T> Flow bfiHandler(Warp &w, const Inst &i, uint32_t mask) {
  const T *a = w.reg<T>(i.a), *b = w.reg<T>(i.b);
  const auto *c = w.reg<uint32_t>(i.c), *e = w.reg<uint32_t>(i.e);
  forLanes(w.reg<T>(i.d), mask, [&](int l) { return Bfi::apply(a[l], b[l], c[l], e[l]); });
  return Flow::Next;
}

void bfi(Decoder &d) {
  Type type = d.takeType();
  d.operands(type, {type, type, Type::U32, Type::U32});
  d.emit(type == Type::B32   ? bfiHandler<uint32_t>
         : type == Type::B64 ? bfiHandler<uint64_t>
                             : nullptr);
}

template <class Op>
constexpr Handler ternary32 = ternaryHandler<uint32_t, uint32_t, uint32_t, uint32_t, Op>;

void shf(Decoder &d) {
  int left = d.takeOne({"l", "r"}), wrap = d.takeOne({"clamp", "wrap"});
  if (left < 0 || wrap < 0 || !d.take("b32"))
    return d.unknown();
  d.operands(Type::B32, {Type::B32, Type::B32, Type::B32});
  Handler all[2][2] = {{ternary32<Shf<true, false>>, ternary32<Shf<true, true>>},
                       {ternary32<Shf<false, false>>, ternary32<Shf<false, true>>}};
  d.emit(all[left][wrap]);
}

void bmsk(Decoder &d) {
  int mode = d.takeOne({"clamp", "wrap"});
  if (mode < 0 || !d.take("b32"))
    return d.unknown();
  d.operands(Type::B32, {Type::B32, Type::B32});
  d.emit(mode == 0 ? binaryHandler<uint32_t, uint32_t, uint32_t, Bmsk<true>>
                   : binaryHandler<uint32_t, uint32_t, uint32_t, Bmsk<false>>);
}

// Bit i of the table is the result for a, b, c being bits 2, 1, 0 of i: seven selections.
Flow lop3Handler(Warp &w, const Inst &i, uint32_t mask) {
  const auto *a = w.reg<uint32_t>(i.a), *b = w.reg<uint32_t>(i.b), *c = w.reg<uint32_t>(i.c);
  uint32_t t[8];
  for (int bit = 0; bit < 8; ++bit)
    t[bit] = i.imm >> bit & 1 ? ~0u : 0u;
  auto choose = [](uint32_t s, uint32_t one, uint32_t zero) { return (s & (one ^ zero)) ^ zero; };
  forLanes(w.reg<uint32_t>(i.d), mask, [&](int l) {
    uint32_t x = c[l], y = b[l];
    uint32_t high = choose(y, choose(x, t[7], t[6]), choose(x, t[5], t[4]));
    uint32_t low = choose(y, choose(x, t[3], t[2]), choose(x, t[1], t[0]));
    return choose(a[l], high, low);
  });
  return Flow::Next;
}

void lop3(Decoder &d) {
  if (!d.take("b32"))
    return d.unknown();
  d.expectOperands(5);
  d.inst.d = d.destination(0, Type::B32);
  d.inst.a = d.source(1, Type::B32);
  d.inst.b = d.source(2, Type::B32);
  d.inst.c = d.source(3, Type::B32);
  int64_t table = d.immediate(4);
  if (table < 0 || table > 255)
    d.bad("a lookup table has values from 0 to 255");
  d.inst.imm = table;
  d.emit(lop3Handler);
}

struct PrmtIndex {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t pool = uint64_t(b) << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
      uint32_t s = selector >> 4 * i;
      auto byte = uint32_t(pool >> 8 * (s & 7)) & 0xff;
      uint32_t sign = byte & 0x80 ? 0xff : 0;
      result |= (s & 8 ? sign : byte) << 8 * i;
    }
    return result;
  }
};
// The other modes are index mode with a selector made from two bits.
Flow prmtMode(Warp &w, const Inst &i, uint32_t mask) {
  static constexpr uint16_t selectors[6][4] = {
      {0x3210, 0x4321, 0x5432, 0x6543}, // f4e
      {0x5670, 0x6701, 0x7012, 0x0123}, // b4e
      {0x0000, 0x1111, 0x2222, 0x3333}, // rc8
      {0x3210, 0x3211, 0x3222, 0x3333}, // ecl
      {0x0000, 0x1110, 0x2210, 0x3210}, // ecr
      {0x1010, 0x3232, 0x1010, 0x3232}, // rc16
  };
  const auto *a = w.reg<uint32_t>(i.a), *b = w.reg<uint32_t>(i.b), *c = w.reg<uint32_t>(i.c);
  forLanes(w.reg<uint32_t>(i.d), mask,
           [&](int l) { return PrmtIndex::apply(a[l], b[l], selectors[i.mode][c[l] & 3]); });
  return Flow::Next;
}

void prmt(Decoder &d) {
  if (!d.take("b32"))
    return d.unknown();
  int mode = d.takeOne({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  d.operands(Type::B32, {Type::B32, Type::B32, Type::B32});
  d.inst.mode = uint8_t(mode);
  d.emit(mode < 0 ? ternary32<PrmtIndex> : prmtMode);
}

} // namespace

std::span<const Opcode> bitOpcodes() {
  static constexpr Opcode opcodes[] = {
      {"and", logic<And>},    {"or", logic<Or>},     {"xor", logic<Xor>}, {"not", logicNot},
      {"cnot", unary<CNot>},  {"shl", shift<Shl>},   {"shr", shift<Shr>}, {"popc", counting<Popc>},
      {"clz", counting<Clz>}, {"brev", unary<Brev>}, {"bfind", bfind},    {"bfe", bfe},
      {"bfi", bfi},           {"shf", shf},          {"bmsk", bmsk},      {"lop3", lop3},
      {"prmt", prmt},
  };
  return opcodes;
}

} // namespace rho::emulator
