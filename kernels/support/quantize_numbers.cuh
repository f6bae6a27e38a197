// Numbers and their codes, bit for bit as dsl/ElementType.cpp and dsl/EncodeRule.cpp have them.
// Part of quantize_activations.cu.

constexpr int threads = 512;
constexpr int chunk = 8; // numbers that a thread takes at once

// --- encodings: ports of dsl/ElementType.cpp

__device__ inline double bitsToDouble(unsigned long long bits) {
  return __longlong_as_double(static_cast<long long>(bits));
}
__device__ inline unsigned long long doubleToBits(double value) {
  return static_cast<unsigned long long>(__double_as_longlong(value));
}
__device__ inline double powerOfTwo(int e) {
  return bitsToDouble(static_cast<unsigned long long>(e + 1023) << 52);
}
// To a multiple of 2^exponent, ties to even.
__device__ inline double roundToMultiple(double value, int exponent) {
  double magic = 1.5 * powerOfTwo(52 + exponent);
  return (value + magic) - magic;
}

__device__ constexpr int lowest(int bits, bool isSigned) {
  return isSigned ? -(1 << (bits - 1)) : 0;
}
__device__ constexpr int highest(int bits, bool isSigned) {
  return (1 << (isSigned ? bits - 1 : bits)) - 1;
}

// `Real` of a type holds the numbers of all of its codes. Codes are of integers from Low to High.
template <int Bits, bool Signed, int Low = lowest(Bits, Signed), int High = highest(Bits, Signed)>
struct Integer {
  static constexpr int bits = Bits;
  using Real = float;
  static constexpr int low = Low, high = High;
  static __device__ double decode(unsigned code) {
    int value = static_cast<int>(code & ((1u << Bits) - 1));
    return Signed ? (value ^ (1 << (Bits - 1))) - (1 << (Bits - 1)) : value;
  }
  static __device__ unsigned encode(double value) {
    if (value != value)
      value = 0;
    double clamped = value < low ? low : value > high ? high : value;
    return static_cast<unsigned>(static_cast<int>(roundToMultiple(clamped, 0))) &
           ((1u << Bits) - 1);
  }
};

enum class Special { None, NanOnly, Ieee };

// Where infinity has no code, the last of 8 bits of exponent is one of numbers, too.
template <bool beyondFloat> struct RealOf {
  using Type = float;
};
template <> struct RealOf<true> {
  using Type = double;
};
template <int exponentBits, Special special>
using FloatReal = typename RealOf<exponentBits == 8 && special == Special::None>::Type;

template <int Bits, int ExponentBits, int MantissaBits, int Bias, Special special, unsigned MaxCode,
          unsigned NanCode, bool Signed = true>
struct Float {
  static constexpr int bits = Bits;
  using Real = FloatReal<ExponentBits, special>;
  static __device__ double magnitude(unsigned code) {
    unsigned exponent = code >> MantissaBits, mantissa = code & ((1u << MantissaBits) - 1);
    if (special == Special::Ieee && exponent == (1u << ExponentBits) - 1)
      return mantissa ? bitsToDouble(0x7ff8000000000000ull) : bitsToDouble(0x7ff0000000000000ull);
    if (special == Special::NanOnly && code == NanCode)
      return bitsToDouble(0x7ff8000000000000ull);
    if (exponent == 0)
      return mantissa * powerOfTwo(1 - Bias - MantissaBits);
    return bitsToDouble(static_cast<unsigned long long>(static_cast<int>(exponent) - Bias + 1023)
                            << 52 |
                        static_cast<unsigned long long>(mantissa) << (52 - MantissaBits));
  }
  static __device__ double decode(unsigned code) {
    constexpr unsigned signBit = Signed ? 1u << (Bits - 1) : 0, rest = (1u << (Bits - Signed)) - 1;
    double value = magnitude(code & rest);
    return code & signBit ? -value : value;
  }
  static __device__ unsigned encode(double value) {
    if (value != value)
      return NanCode;
    if (!Signed && value <= 0)
      return 0;
    unsigned long long raw = doubleToBits(value);
    unsigned sign = Signed ? static_cast<unsigned>(raw >> 63) << (Bits - 1) : 0;
    double positive = fabs(value);
    if (positive == bitsToDouble(0x7ff0000000000000ull))
      return sign | (special == Special::Ieee ? MaxCode + 1 : MaxCode);
    if (positive >= magnitude(MaxCode))
      return sign | MaxCode;
    constexpr int minExponent = 1 - Bias;
    int exponent = static_cast<int>((raw >> 52) & 0x7ff) - 1023;
    if (exponent < minExponent)
      exponent = minExponent;
    double rounded = roundToMultiple(positive, exponent - MantissaBits);
    if (rounded < powerOfTwo(minExponent))
      return sign | static_cast<unsigned>(rounded * powerOfTwo(MantissaBits - minExponent));
    unsigned long long r = doubleToBits(rounded);
    unsigned field = static_cast<unsigned>(static_cast<int>(r >> 52) - 1023 + Bias);
    unsigned mantissa =
        static_cast<unsigned>(r >> (52 - MantissaBits)) & ((1u << MantissaBits) - 1);
    const unsigned code = field << MantissaBits | mantissa;
    // Without mantissa a tie between powers of two was rounded up; the even code may be below.
    const bool tie =
        MantissaBits == 0 && code % 2 != 0 && positive - magnitude(code - 1) == rounded - positive;
    return sign | (tie ? code - 1 : code);
  }
};

// Of equal values the even code is taken, then the lower.
__device__ inline bool isBefore(unsigned a, unsigned b) {
  return a % 2 != b % 2 ? a % 2 == 0 : a < b;
}

// The codes that a number may get, in some order.
template <class Type> struct Candidates {
  static constexpr int count = 1 << Type::bits;
  static constexpr unsigned lowest = 0;
  static __device__ unsigned at(int i) { return static_cast<unsigned>(i); }
};
template <int Bits, bool Signed, int Low, int High>
struct Candidates<Integer<Bits, Signed, Low, High>> {
  static constexpr int count = High - Low + 1;
  static constexpr unsigned mask = (1u << Bits) - 1;
  static constexpr unsigned lowest =
      Low <= 0 && High >= 0 ? 0 : static_cast<unsigned>(Low) & mask; // -1 is above 0
  static __device__ unsigned at(int i) { return static_cast<unsigned>(Low + i) & mask; }
};

// Of the codes codeOf(0), codeOf(1), ... that with the finite value nearest to x: of two equally
// near ones the even code, then the lower. `none` where none is finite.
template <class CodeOf, class ValueOf>
__device__ unsigned nearestOf(int count, const CodeOf &codeOf, const ValueOf &valueOf, double x,
                              unsigned none) {
  bool hasLower = false, hasUpper = false;
  unsigned lower = none, upper = none;
  double below = 0, above = 0;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    const unsigned code = codeOf(i);
    const double value = valueOf(code);
    if (!(fabs(value) < bitsToDouble(0x7ff0000000000000ull)))
      continue;
    if (value < x) {
      if (!hasLower || value > below || (value == below && isBefore(code, lower))) {
        lower = code;
        below = value;
      }
      hasLower = true;
    } else {
      if (!hasUpper || value < above || (value == above && isBefore(code, upper))) {
        upper = code;
        above = value;
      }
      hasUpper = true;
    }
  }
  if (!hasLower || !hasUpper)
    return hasUpper ? upper : lower;
  const double up = above - x, down = x - below;
  if (up != down)
    return up < down ? upper : lower;
  return isBefore(upper, lower) ? upper : lower;
}

// A codebook; `Table` has its bits and the values of its codes. A port of dsl/Codebook.cpp.
template <class Table> struct Codebook {
  static constexpr int bits = Table::bits;
  static constexpr int codes = 1 << bits;
  using Real = double;
  static __device__ double decode(unsigned code) { return Table::values(code & (codes - 1u)); }
  static __device__ unsigned encode(double value) {
    return nearestOf(
        codes, [](int i) { return static_cast<unsigned>(i); },
        [](unsigned code) { return Table::values(code); }, value == value ? value : 0, 0);
  }
};

// e8m0: the exponent alone; of a tie the even code.
struct PowerOfTwo {
  static constexpr int bits = 8;
  using Real = float;
  static __device__ double decode(unsigned code) {
    return code == 0xff ? bitsToDouble(0x7ff8000000000000ull)
                        : powerOfTwo(static_cast<int>(code) - 127);
  }
  static __device__ unsigned encode(double value) {
    if (value != value)
      return 0xff;
    if (value <= powerOfTwo(-127))
      return 0;
    if (value >= powerOfTwo(127))
      return 0xfe;
    const int exponent = static_cast<int>(doubleToBits(value) >> 52) - 1023;
    const unsigned code = static_cast<unsigned>(exponent + 127);
    const double middle = 1.5 * powerOfTwo(exponent);
    return value < middle ? code : value > middle ? code + 1 : code + code % 2;
  }
};

struct f32 {
  static constexpr int bits = 32;
  using Real = float;
  static __device__ double decode(unsigned code) { return __uint_as_float(code); }
  static __device__ unsigned encode(double value) {
    if (value != value)
      return 0x7fc00000u;
    const unsigned code = __float_as_uint(static_cast<float>(value));
    const bool overflows =
        (code & 0x7fffffffu) == 0x7f800000u && fabs(value) < bitsToDouble(0x7ff0000000000000ull);
    return overflows ? code - 1 : code; // to the largest
  }
};

using u1 = Integer<1, false>;
using s2 = Integer<2, true>;
using s3 = Integer<3, true>;
using s4 = Integer<4, true>;
using s5 = Integer<5, true>;
using s6 = Integer<6, true>;
using s7 = Integer<7, true>;
using s8 = Integer<8, true>;
using u2 = Integer<2, false>;
using u3 = Integer<3, false>;
using u4 = Integer<4, false>;
using u5 = Integer<5, false>;
using u6 = Integer<6, false>;
using u7 = Integer<7, false>;
using u8 = Integer<8, false>;
using e2m1 = Float<4, 2, 1, 1, Special::None, 0x7, 0>;
using e4m3 = Float<8, 4, 3, 7, Special::NanOnly, 0x7e, 0x7f>;
using e8m0 = PowerOfTwo;
using f16 = Float<16, 5, 10, 15, Special::Ieee, 0x7bff, 0x7e00>;
using bf16 = Float<16, 8, 7, 127, Special::Ieee, 0x7f7f, 0x7fc0>;

// What the value of a number is: the element times its scales, Part::product(); a line in an
// element of integers; or neither.
enum class Value { Product, Line, Other };

// Division in encode rules: what a scale that is 0 multiplies is 0.
__device__ inline double divide(double a, double b) { return b == 0 ? 0 : a / b; }

// The squared error of a candidate of best(): with NaN it is as far off as can be.
__device__ inline double farOrNear(double error) {
  return error == error ? error : bitsToDouble(0x7ff0000000000000ull);
}

// min() and max() of two numbers in encode rules: NaN where one is.
__device__ inline double smaller(double a, double b) { return a != a || a < b ? a : b; }
__device__ inline double larger(double a, double b) { return a != a || a > b ? a : b; }

// bit_floor() in encode rules.
__device__ inline double bitFloor(double a) {
  const double positive = fabs(a);
  if (positive == 0 || !(positive < bitsToDouble(0x7ff0000000000000ull)))
    return positive;
  const bool subnormal = positive < powerOfTwo(-1022); // then its exponent field is 0
  const double normal = subnormal ? positive * powerOfTwo(200) : positive;
  const double power = bitsToDouble(doubleToBits(normal) & 0x7ff0000000000000ull);
  return subnormal ? power * powerOfTwo(-200) : power;
}

// --- input numbers, all exact in float

enum class Input : long long { F32, F16, Bf16 }; // as rho::ScalarType

__device__ inline float halfToFloat(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
