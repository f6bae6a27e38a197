// cvt (PTX ISA, "Data Movement and Conversion Instructions: cvt").
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Lanes.h"
#include "runtime/emulator/Numbers.h"

#include <algorithm>

namespace rho::emulator {

namespace {

// A cvt in general goes through 64-bit integers or doubles, which hold every source exactly.
// Inst: n source type, width result type, mode rounding, list and list2 register widths.

template <class T> void loadIntegers(const void *from, int64_t *to) {
  const T *lanes = static_cast<const T *>(from);
  for (int l = 0; l < 32; ++l)
    to[l] = int64_t(lanes[l]);
}

void extend(int64_t *values, Type type) {
  int shift = 64 - bits(type);
  if (isSigned(type)) {
    for (int l = 0; l < 32; ++l)
      values[l] = int64_t(uint64_t(values[l]) << shift) >> shift;
  } else {
    for (int l = 0; l < 32; ++l)
      values[l] = int64_t(uint64_t(values[l]) << shift >> shift);
  }
}

void loadRegister(const Warp &w, uint32_t offset, uint32_t registerBits, int64_t *to) {
  switch (registerBits) {
  case 8:
    return loadIntegers<uint8_t>(w.reg<uint8_t>(offset), to);
  case 16:
    return loadIntegers<uint16_t>(w.reg<uint16_t>(offset), to);
  case 32:
    return loadIntegers<uint32_t>(w.reg<uint32_t>(offset), to);
  default:
    return loadIntegers<uint64_t>(w.reg<uint64_t>(offset), to);
  }
}

void storeRegister(Warp &w, const Inst &i, uint32_t mask, const int64_t *from) {
  switch (i.list2) {
  case 8:
    return forLanes(w.reg<uint8_t>(i.d), mask, [&](int l) { return uint8_t(from[l]); });
  case 16:
    return forLanes(w.reg<uint16_t>(i.d), mask, [&](int l) { return uint16_t(from[l]); });
  case 32:
    return forLanes(w.reg<uint32_t>(i.d), mask, [&](int l) { return uint32_t(from[l]); });
  default:
    return forLanes(w.reg<uint64_t>(i.d), mask, [&](int l) { return uint64_t(from[l]); });
  }
}

double numberOf(uint64_t pattern, Type type) {
  switch (type) {
  case Type::F16:
    return double(f16ToF32(uint16_t(pattern)));
  case Type::BF16:
    return double(bf16ToF32(uint16_t(pattern)));
  case Type::F32:
    return double(std::bit_cast<float>(uint32_t(pattern)));
  default:
    return std::bit_cast<double>(pattern);
  }
}

uint64_t patternOf(double x, Type type, Rounding rounding) {
  switch (type) {
  case Type::F16:
    return f64ToF16(rounding == Rounding::Nearest ? x : roundTo(x, formatF16, rounding));
  case Type::BF16:
    return f64ToBf16(rounding == Rounding::Nearest ? x : roundTo(x, formatBf16, rounding));
  case Type::F32:
    return std::bit_cast<uint32_t>(
        float(rounding == Rounding::Nearest ? x : roundTo(x, formatF32, rounding)));
  default:
    return std::bit_cast<uint64_t>(x);
  }
}

double roundIntegral(double x, Rounding rounding) {
  switch (rounding) {
  case Rounding::Nearest:
    return std::nearbyint(x);
  case Rounding::Zero:
    return std::trunc(x);
  case Rounding::Down:
    return std::floor(x);
  case Rounding::Up:
    return std::ceil(x);
  }
  return x;
}

// The integer as a double whose last bit is sticky, so that one later rounding is the only one.
double integerToDouble(int64_t value, bool isUnsigned) {
  bool negative = !isUnsigned && value < 0;
  uint64_t magnitude = negative ? 0 - uint64_t(value) : uint64_t(value);
  if (magnitude >> 53)
    magnitude = (magnitude >> 11 | ((magnitude & 0x7ff) != 0)) << 11;
  return negative ? -double(magnitude) : double(magnitude);
}

// Rounded once to 53 bits.
double integerToF64(int64_t value, bool isUnsigned, Rounding rounding) {
  bool negative = !isUnsigned && value < 0;
  uint64_t magnitude = negative ? 0 - uint64_t(value) : uint64_t(value);
  if (int drop = 11 - std::countl_zero(magnitude); drop > 0) {
    uint64_t rest = magnitude & ((uint64_t(1) << drop) - 1), half = uint64_t(1) << (drop - 1);
    magnitude ^= rest;
    bool up = rounding == Rounding::Nearest
                  ? rest > half || (rest == half && magnitude >> drop & 1)
                  : rest != 0 && rounding == (negative ? Rounding::Down : Rounding::Up);
    // The last step alone may leave 64 bits.
    double rounded = double(magnitude) + (up ? std::ldexp(1.0, drop) : 0.0);
    return negative ? -rounded : rounded;
  }
  return negative ? -double(magnitude) : double(magnitude);
}

// NaN is the least integer where either side has 64 bits, else 0: the PTX ISA says so only of some,
// an H200 of all, also of unsigned types and with .sat.
int64_t clampToInteger(double x, Type type, Type from) {
  int width = bits(type);
  if (std::isnan(x))
    return width == 64 || from == Type::F64 ? int64_t(uint64_t(1) << (width - 1)) : 0;
  if (isSigned(type)) {
    double limit = std::ldexp(1.0, width - 1);
    if (x >= limit)
      return int64_t((uint64_t(1) << (width - 1)) - 1);
    return x < -limit ? -int64_t(uint64_t(1) << (width - 2)) * 2 : int64_t(x);
  }
  if (x <= 0)
    return 0;
  if (x >= std::ldexp(1.0, width))
    return int64_t(width == 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1);
  return int64_t(uint64_t(x));
}

int64_t saturateInteger(int64_t value, bool fromUnsigned, Type type) {
  int width = bits(type);
  if (isSigned(type)) {
    int64_t high = int64_t((uint64_t(1) << (width - 1)) - 1);
    if (fromUnsigned)
      return uint64_t(value) > uint64_t(high) ? high : value;
    return std::clamp(value, -high - 1, high);
  }
  if (!fromUnsigned && value < 0)
    return 0;
  uint64_t high = width == 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
  return uint64_t(value) > high ? int64_t(high) : value;
}

// Of -0, too, .relu makes +0.
double positive(double x) { return x <= 0 ? 0.0 : x; }

double flush(double x, Type type) {
  return type == Type::F32 && std::fabs(x) < 0x1p-126 ? std::copysign(0.0, x) : x;
}

Flow stagedHandler(Warp &w, const Inst &i, uint32_t mask) {
  Type from = Type(i.n), to = Type(i.width);
  auto rounding = Rounding(i.mode);
  int64_t values[32];
  loadRegister(w, i.a, i.list, values);
  if (!isFloat(from))
    extend(values, from);
  bool fromUnsigned = !isSigned(from);
  for (int64_t &value : values) {
    if (!isFloat(from) && !isFloat(to)) {
      if (i.flag & Sat)
        value = saturateInteger(value, fromUnsigned, to);
      continue;
    }
    double x =
        isFloat(from) ? numberOf(uint64_t(value), from) : integerToDouble(value, fromUnsigned);
    // ptxas drops the modifier where the result is f16, which shows where rounding is directed.
    if (i.flag & Ftz && to != Type::F16)
      x = flush(x, from);
    if (i.flag & Integral)
      x = roundIntegral(x, rounding);
    if (!isFloat(to)) {
      value = clampToInteger(x, to, from);
      continue;
    }
    if (to == Type::F64 && !isFloat(from)) // a sticky bit is no number
      x = integerToF64(value, fromUnsigned, rounding);
    if (i.flag & Sat)
      x = x > 0 ? std::min(x, 1.0) : 0.0;
    if (i.flag & Relu)
      x = positive(x);
    bool narrows = !(i.flag & Integral);
    value = int64_t(patternOf(x, to, narrows ? rounding : Rounding::Nearest));
    if (i.flag & Ftz)
      value = int64_t(patternOf(flush(numberOf(uint64_t(value), to), to), to, Rounding::Nearest));
  }
  if (!isFloat(to))
    extend(values, to);
  storeRegister(w, i, mask, values);
  return Flow::Next;
}

// The frequent forms, directly.
struct F16ToF32 {
  static float apply(uint16_t x) { return f16ToF32(x); }
};
struct Bf16ToF32 {
  static float apply(uint16_t x) { return bf16ToF32(x); }
};
struct F32ToF16 {
  static uint16_t apply(float x) { return f32ToF16(x); }
};
struct F32ToBf16 {
  static uint16_t apply(float x) { return f32ToBf16(x); }
};
template <class D, class S> struct Cast {
  static D apply(S x) { return D(x); }
};
template <class D, class S> constexpr Handler castOf = unaryHandler<D, S, Cast<D, S>>;

template <class S> Handler castFrom(Type to) {
  switch (bits(to)) { // the result's sign does not matter when registers are as wide as types
  case 16:
    return castOf<uint16_t, S>;
  case 32:
    return castOf<uint32_t, S>;
  case 64:
    return castOf<uint64_t, S>;
  default:
    return nullptr;
  }
}

Handler directInteger(Type to, Type from) {
  switch (from) {
  case Type::U16:
    return castFrom<uint16_t>(to);
  case Type::S16:
    return castFrom<int16_t>(to);
  case Type::U32:
    return castFrom<uint32_t>(to);
  case Type::S32:
    return castFrom<int32_t>(to);
  case Type::U64:
  case Type::S64:
    return castFrom<uint64_t>(to);
  default:
    return nullptr;
  }
}

Handler direct(Type to, Type from) {
  if (isInteger(to) && isInteger(from))
    return directInteger(to, from);
  if (to == Type::F32)
    return from == Type::F16    ? unaryHandler<float, uint16_t, F16ToF32>
           : from == Type::BF16 ? unaryHandler<float, uint16_t, Bf16ToF32>
           : from == Type::S32  ? castOf<float, int32_t>
           : from == Type::U32  ? castOf<float, uint32_t>
                                : nullptr;
  if (from == Type::F32)
    return to == Type::F16    ? unaryHandler<uint16_t, float, F32ToF16>
           : to == Type::BF16 ? unaryHandler<uint16_t, float, F32ToBf16>
                              : nullptr;
  return nullptr;
}

// Packing: d = {a, b} with b in the low half.
uint32_t packOne(double x, const Inst &i) {
  Type element = Type(i.width);
  if (i.flag & Relu)
    x = positive(x);
  if (element == Type::E4M3)
    return toE4m3(x);
  if (element == Type::E5M2)
    return toE5m2(x);
  if (i.flag & SatFinite) {
    double limit = element == Type::F16 ? formatF16.maxFinite : formatBf16.maxFinite;
    x = std::isnan(x) ? x : std::clamp(x, -limit, limit);
  }
  return uint32_t(patternOf(x, element, Rounding(i.mode)));
}

template <class D> Flow packHandler(Warp &w, const Inst &i, uint32_t mask) {
  const float *a = w.reg<float>(i.a), *b = w.reg<float>(i.b);
  constexpr int half = int(sizeof(D)) * 4;
  forLanes(w.reg<D>(i.d), mask,
           [&](int l) { return D(packOne(double(a[l]), i) << half | packOne(double(b[l]), i)); });
  return Flow::Next;
}

template <class F> Flow packNearest(Warp &w, const Inst &i, uint32_t mask) {
  const float *a = w.reg<float>(i.a), *b = w.reg<float>(i.b);
  forLanes(w.reg<uint32_t>(i.d), mask,
           [&](int l) { return uint32_t(F::apply(a[l])) << 16 | F::apply(b[l]); });
  return Flow::Next;
}

// e4m3x2.f16x2, and back.
Flow narrowPairHandler(Warp &w, const Inst &i, uint32_t mask) {
  const auto *a = w.reg<uint32_t>(i.a);
  forLanes(w.reg<uint16_t>(i.d), mask, [&](int l) {
    double low = f16ToF32(uint16_t(a[l])), high = f16ToF32(uint16_t(a[l] >> 16));
    return uint16_t(packOne(high, i) << 8 | packOne(low, i));
  });
  return Flow::Next;
}
Flow widenPairHandler(Warp &w, const Inst &i, uint32_t mask) {
  const auto *a = w.reg<uint16_t>(i.a);
  bool e4m3 = Type(i.width) == Type::E4M3;
  bool relu = i.flag & Relu;
  forLanes(w.reg<uint32_t>(i.d), mask, [&](int l) {
    uint32_t result = 0;
    for (int h = 0; h < 2; ++h) {
      auto code = uint8_t(a[l] >> 8 * h);
      float x = e4m3 ? e4m3ToF32(code) : e5m2ToF32(code);
      result |= uint32_t(f32ToF16(relu && x <= 0 ? 0.0f : x)) << 16 * h;
    }
    return result;
  });
  return Flow::Next;
}

// Round to nearest, ties away from zero, to 10 explicit significand bits. NaN keeps those of its
// bits that remain, and is infinity if none does: ptxas makes the conversion of integer
// instructions.
struct ToTf32 {
  static uint32_t apply(uint32_t x) {
    return ((x & 0x7fffffff) >= 0x7f800000u ? x : x + 0x1000u) & 0xffffe000u;
  }
};

struct Request {
  int rounding = -1; // as written: rn rz rm rp, then the same with i, then rna
  uint8_t flag = 0;

  bool isNone() const { return rounding < 0; }
  bool isNarrowing() const { return rounding >= 0 && rounding < 4; }
  bool isIntegral() const { return rounding >= 4 && rounding < 8; }
  bool nearestOrZero() const { return rounding == 0 || rounding == 1; }
  bool hasOnly(int flags) const { return (flag & ~flags) == 0; }
};

Request modifiers(Decoder &d) {
  Request request;
  while (true) {
    int rounding = d.takeOne({"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "rna"});
    if (rounding >= 0 && request.rounding < 0)
      request.rounding = rounding;
    else if (d.take("ftz"))
      request.flag |= Ftz;
    else if (d.take("satfinite"))
      request.flag |= SatFinite;
    else if (d.take("sat"))
      request.flag |= Sat;
    else if (d.take("relu"))
      request.flag |= Relu;
    else
      return request;
  }
}

Type elementOf(Type pair) {
  switch (pair) {
  case Type::F16x2:
    return Type::F16;
  case Type::BF16x2:
    return Type::BF16;
  case Type::E4M3x2:
    return Type::E4M3;
  case Type::E5M2x2:
    return Type::E5M2;
  default:
    return Type::None;
  }
}

void pack(Decoder &d, Type to, Type from, const Request &request) {
  Type element = elementOf(to);
  bool small = bits(element) == 8, widens = bits(elementOf(from)) == 8;
  bool exists = small    ? request.rounding == 0 && (request.flag | Relu) == (SatFinite | Relu)
                : widens ? request.rounding == 0 && request.hasOnly(Relu)
                         : request.nearestOrZero() && request.hasOnly(Relu | SatFinite);
  if (!exists)
    return d.unknown();
  d.inst.width = uint8_t(element);
  if (from == Type::F32 && element != Type::None) {
    d.operands(small ? Type::B16 : Type::B32, {Type::F32, Type::F32});
    bool nearest = d.inst.mode == uint8_t(Rounding::Nearest) && d.inst.flag == 0;
    return d.emit(small                  ? packHandler<uint16_t>
                  : !nearest             ? packHandler<uint32_t>
                  : element == Type::F16 ? packNearest<F32ToF16>
                                         : packNearest<F32ToBf16>);
  }
  if (small && from == Type::F16x2) {
    d.operands(Type::B16, {Type::B32});
    return d.emit(narrowPairHandler);
  }
  if (to == Type::F16x2 && widens) {
    d.inst.width = uint8_t(elementOf(from));
    d.operands(Type::B32, {Type::B16});
    return d.emit(widenPairHandler);
  }
  d.unknown();
}

bool scalar(Type type) {
  return (isInteger(type) && kind(type) != TypeKind::Bits && bits(type) >= 8) ||
         type == Type::F16 || type == Type::BF16 || type == Type::F32 || type == Type::F64;
}

// Whether a cvt of these scalar types has these modifiers. ptxas also refuses a .sat that changes
// nothing.
bool takesModifiers(Type to, Type from, const Request &request) {
  bool brain = to == Type::BF16 || from == Type::BF16;
  if ((request.flag & Ftz && to != Type::F32 && from != Type::F32) ||
      (brain && (request.flag & Sat || bits(to) == 8 || bits(from) == 8)))
    return false;
  if (request.flag & Relu)
    return from == Type::F32 && isFloat(to) && bits(to) == 16 && request.nearestOrZero() &&
           request.hasOnly(Relu);
  if (!isFloat(to))
    return isFloat(from) ? request.isIntegral() : request.isNone();
  if (!isFloat(from))
    return request.isNarrowing();
  if (to == from)
    return request.isNone() || request.isIntegral();
  if (from == Type::BF16 || (brain && bits(from) == 16))
    return request.isNone() || request.isNarrowing();
  return bits(to) > bits(from) ? request.isNone() : request.isNarrowing();
}

void cvt(Decoder &d) {
  if (d.peekModifier() == "pack")
    return d.unknown();
  Request request = modifiers(d);
  Type to = d.takeType(), from = d.takeType();
  d.inst.flag = request.flag;
  d.inst.mode = uint8_t(request.rounding < 0 ? 0 : request.rounding & 3);
  if (request.isIntegral())
    d.inst.flag |= Integral;
  if (kind(to) == TypeKind::Packed)
    return pack(d, to, from, request);
  if (to == Type::TF32) {
    if (request.rounding != 8 || from != Type::F32 || request.flag)
      return d.unknown();
    d.operands(Type::B32, {Type::B32});
    return d.emit(unaryHandler<uint32_t, uint32_t, ToTf32>);
  }
  if (!scalar(to) || !scalar(from) || request.flag & SatFinite ||
      !takesModifiers(to, from, request))
    return d.unknown();
  d.expectOperands(2);
  int toBits = 0, fromBits = 0;
  d.inst.d = d.wideDestination(d.operand(0), to, toBits);
  d.inst.a = d.wideSource(d.operand(1), from, fromBits);
  d.inst.n = uint8_t(from);
  d.inst.width = uint8_t(to);
  d.inst.list = uint32_t(fromBits);
  d.inst.list2 = uint32_t(toBits);
  bool exactWidths = toBits == bits(to) && fromBits == bits(from);
  bool common = d.inst.mode == 0 && d.inst.flag == 0 && exactWidths;
  Handler handler = common ? direct(to, from) : nullptr;
  d.emit(handler ? handler : stagedHandler);
}

} // namespace

std::span<const Opcode> convertOpcodes() {
  static constexpr Opcode opcodes[] = {{"cvt", cvt}};
  return opcodes;
}

} // namespace rho::emulator
