// Comparisons and selections (PTX ISA, "Comparison and Selection Instructions").
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Lanes.h"
#include "runtime/emulator/Numbers.h"

namespace rho::emulator {

namespace {

struct F16Value {
  uint16_t bits;
  operator float() const { return f16ToF32(bits); }
};
struct Bf16Value {
  uint16_t bits;
  operator float() const { return bf16ToF32(bits); }
};

// The same with .ftz.
struct FlushedF32 {
  float value;
  operator float() const { return flushF32(value); }
};
struct FlushedF16 {
  uint16_t bits;
  operator float() const { return bits & 0x7c00 ? f16ToF32(bits) : 0.0f; }
};

enum class Compare : uint8_t { Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan };

template <Compare C, class T> bool holds(T a, T b) {
  switch (C) {
  case Compare::Eq:
    return a == b;
  case Compare::Ne: // false with NaN, unlike C++
    return a < b || a > b;
  case Compare::Lt:
    return a < b;
  case Compare::Le:
    return a <= b;
  case Compare::Gt:
    return a > b;
  case Compare::Ge:
    return a >= b;
  case Compare::Equ:
    return !(a < b || a > b);
  case Compare::Neu:
    return a != b;
  case Compare::Ltu:
    return !(a >= b);
  case Compare::Leu:
    return !(a > b);
  case Compare::Gtu:
    return !(a <= b);
  case Compare::Geu:
    return !(a < b);
  case Compare::Num:
    return a == a && b == b;
  case Compare::Nan:
    return a != a || b != b;
  }
}

template <Compare C, class T> uint32_t compareLanes(const Warp &w, const Inst &i) {
  using V = std::conditional_t<std::is_arithmetic_v<T>, T, float>; // of those above
  const T *a = w.reg<T>(i.a), *b = w.reg<T>(i.b);
  return lanesWhere([&](int l) { return holds<C, V>(V(a[l]), V(b[l])); });
}

enum class Combine : uint8_t { None, And, Or, Xor };

uint32_t combined(const Warp &w, const Inst &i, uint32_t value) {
  uint32_t other = w.predicate(i.c, i.flag);
  switch (Combine(i.mode)) {
  case Combine::None:
    return value;
  case Combine::And:
    return value & other;
  case Combine::Or:
    return value | other;
  case Combine::Xor:
    return value ^ other;
  }
  return value;
}

template <Compare C, class T> Flow setpHandler(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t value = compareLanes<C, T>(w, i);
  uint32_t first = combined(w, i, value), second = i.e ? combined(w, i, ~value) : 0;
  setPredicate(w.predicate(i.d), mask, first);
  if (i.e)
    setPredicate(w.predicate(i.e), mask, second);
  return Flow::Next;
}

// set: all ones, or 1.0f, where it holds.
template <Compare C, class T> Flow setHandler(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t value = combined(w, i, compareLanes<C, T>(w, i));
  uint32_t yes = i.aux;
  forLanes(w.reg<uint32_t>(i.d), mask,
           [&](int l) { return value & laneBit[size_t(l)] ? yes : 0u; });
  return Flow::Next;
}

template <template <Compare, class> class Choose, class T> Handler forCompare(Compare c) {
  switch (c) {
#define RHO_CASE(name)                                                                             \
  case Compare::name:                                                                              \
    return Choose<Compare::name, T>::handler;
    RHO_CASE(Eq) RHO_CASE(Ne) RHO_CASE(Lt) RHO_CASE(Le) RHO_CASE(Gt) RHO_CASE(Ge) default : break;
  }
  if constexpr (!std::is_integral_v<T>)
    switch (c) {
      RHO_CASE(Equ)
      RHO_CASE(Neu)
      RHO_CASE(Ltu)
      RHO_CASE(Leu) RHO_CASE(Gtu) RHO_CASE(Geu) RHO_CASE(Num) RHO_CASE(Nan) default : break;
    }
#undef RHO_CASE
  return nullptr;
}

template <Compare C, class T> struct Setp {
  static constexpr Handler handler = setpHandler<C, T>;
};
template <Compare C, class T> struct Set {
  static constexpr Handler handler = setHandler<C, T>;
};

template <template <Compare, class> class Choose> Handler forType(Type type, Compare c, bool ftz) {
  if (ftz)
    return type == Type::F32   ? forCompare<Choose, FlushedF32>(c)
           : type == Type::F16 ? forCompare<Choose, FlushedF16>(c)
                               : nullptr;
  switch (type) {
  case Type::B16:
  case Type::U16:
    return forCompare<Choose, uint16_t>(c);
  case Type::S16:
    return forCompare<Choose, int16_t>(c);
  case Type::B32:
  case Type::U32:
    return forCompare<Choose, uint32_t>(c);
  case Type::S32:
    return forCompare<Choose, int32_t>(c);
  case Type::B64:
  case Type::U64:
    return forCompare<Choose, uint64_t>(c);
  case Type::S64:
    return forCompare<Choose, int64_t>(c);
  case Type::F16:
    return forCompare<Choose, F16Value>(c);
  case Type::BF16:
    return forCompare<Choose, Bf16Value>(c);
  case Type::F32:
    return forCompare<Choose, float>(c);
  case Type::F64:
    return forCompare<Choose, double>(c);
  default:
    return nullptr;
  }
}

// Bits have no order, and the names for unsigned comparisons belong to unsigned types.
bool hasComparison(Type type, Compare compare, bool unsignedName) {
  bool equality = compare == Compare::Eq || compare == Compare::Ne;
  return (kind(type) != TypeKind::Bits || equality) &&
         (!unsignedName || kind(type) == TypeKind::Unsigned);
}

// The comparison, how it is combined with a predicate, and .ftz.
bool comparison(Decoder &d, Compare &compare, bool &ftz, bool &unsignedName) {
  // lo, ls, hi, hs: the unsigned types' names of lt, le, gt, ge.
  int which = d.takeOne({"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu",
                         "geu", "num", "nan", "lo", "ls", "hi", "hs"});
  if (which < 0) {
    d.unknown();
    return false;
  }
  unsignedName = which >= 14;
  compare = unsignedName ? Compare(int(Compare::Lt) + which - 14) : Compare(which);
  d.inst.mode = uint8_t(1 + d.takeOne({"and", "or", "xor"}));
  ftz = d.take("ftz");
  return true;
}

void sourcesOf(Decoder &d, Type type) {
  bool combines = d.inst.mode != 0;
  d.expectOperands(combines ? 4 : 3);
  d.inst.a = d.source(1, type);
  d.inst.b = d.source(2, type);
  if (combines)
    d.inst.c = d.predicate(3, d.inst.flag);
}

void setp(Decoder &d) {
  Compare compare;
  bool ftz = false, unsignedName = false;
  if (!comparison(d, compare, ftz, unsignedName))
    return;
  Type type = d.takeType();
  const Operand &result = d.operand(0);
  bool half = bits(type) == 16 && isFloat(type); // its second result is that of a pair
  if (!hasComparison(type, compare, unsignedName) || (half && result.kind == Operand::Kind::Pair))
    return d.unknown();
  if (result.kind == Operand::Kind::Pair) {
    d.inst.d = d.predicateDestination(result.parts[0]);
    d.inst.e = d.predicateDestination(result.parts[1]);
  } else {
    d.inst.d = d.predicateDestination(result);
  }
  sourcesOf(d, type);
  d.emit(forType<Setp>(type, compare, ftz));
}

void set(Decoder &d) {
  Compare compare;
  bool ftz = false, unsignedName = false;
  if (!comparison(d, compare, ftz, unsignedName))
    return;
  Type result = d.takeType();
  Type type = d.takeType();
  if (bits(result) != 32 || !(isInteger(result) || result == Type::F32) ||
      !hasComparison(type, compare, unsignedName))
    return d.unknown();
  d.inst.aux = result == Type::F32 ? 0x3f800000u : ~0u;
  d.inst.d = d.destination(0, result);
  sourcesOf(d, type);
  d.emit(forType<Set>(type, compare, ftz));
}

template <class T> Flow selpHandler(Warp &w, const Inst &i, uint32_t mask) {
  const T *a = w.reg<T>(i.a), *b = w.reg<T>(i.b);
  uint32_t which = w.predicate(i.c, i.flag);
  forLanes(w.reg<T>(i.d), mask, [&](int l) { return which & laneBit[size_t(l)] ? a[l] : b[l]; });
  return Flow::Next;
}

void selp(Decoder &d) {
  Type type = d.takeType();
  d.expectOperands(4);
  d.inst.d = d.destination(0, type);
  d.inst.a = d.source(1, type);
  d.inst.b = d.source(2, type);
  d.inst.c = d.predicate(3, d.inst.flag);
  d.emit(bits(type) == 16   ? selpHandler<uint16_t>
         : bits(type) == 32 ? selpHandler<uint32_t>
         : bits(type) == 64 ? selpHandler<uint64_t>
                            : nullptr);
}

template <class T, class C> Flow slctHandler(Warp &w, const Inst &i, uint32_t mask) {
  const T *a = w.reg<T>(i.a), *b = w.reg<T>(i.b);
  const C *c = w.reg<C>(i.c);
  forLanes(w.reg<T>(i.d), mask, [&](int l) { return c[l] >= 0 ? a[l] : b[l]; });
  return Flow::Next;
}

template <class C> Handler slctOf(Type type) {
  return bits(type) == 32   ? slctHandler<uint32_t, C>
         : bits(type) == 64 ? slctHandler<uint64_t, C>
                            : nullptr;
}

void slct(Decoder &d) {
  bool ftz = d.take("ftz");
  Type type = d.takeType();
  Type by = d.takeType();
  d.operands(type, {type, type, by});
  d.emit(by == Type::F32           ? (ftz ? slctOf<FlushedF32>(type) : slctOf<float>(type))
         : by == Type::S32 && !ftz ? slctOf<int32_t>(type)
                                   : nullptr);
}

} // namespace

std::span<const Opcode> compareOpcodes() {
  static constexpr Opcode opcodes[] = {
      {"setp", setp}, {"set", set}, {"selp", selp}, {"slct", slct}};
  return opcodes;
}

} // namespace rho::emulator
