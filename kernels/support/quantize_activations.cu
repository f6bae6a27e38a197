// Quantizes activations: x [m][k] in f32, f16 or bf16 -> codes of a format, one CTA a row.
//
// Compiled by NVRTC at run time. "rho_format.cuh" is generated from the format's declaration by
// runtime/QuantizerSource.cpp; it defines Element, scaleRun, elementScale(), encodeComponents() and
// the component parameters. The codes are bit for bit those of dsl::quantize on the host: the same
// operations in double in the same order, reductions whose order does not matter. Build with
// --fmad=false.
//
// Output, see compiler/Layout.h: element codes row-major, `pitch` bytes a row, sub-byte codes low
// nibble first, zero past k; group components [ceil(k/G)][groupStride], row components [m].

constexpr int threads = 256;
constexpr int chunk = 16; // numbers that a thread takes at once

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

template <int Bits, bool Signed> struct Integer {
  static constexpr int bits = Bits;
  static constexpr int low = Signed ? -(1 << (Bits - 1)) : 0;
  static constexpr int high = Signed ? (1 << (Bits - 1)) - 1 : (1 << Bits) - 1;
  static __device__ double decode(unsigned code) {
    int value = static_cast<int>(code & ((1u << Bits) - 1));
    return Signed ? (value ^ (1 << (Bits - 1))) - (1 << (Bits - 1)) : value;
  }
  static __device__ unsigned encode(double value) {
    if (value != value)
      return 0;
    double clamped = value < low ? low : value > high ? high : value;
    return static_cast<unsigned>(static_cast<int>(roundToMultiple(clamped, 0))) &
           ((1u << Bits) - 1);
  }
};

enum class Special { None, NanOnly, Ieee };

template <int Bits, int ExponentBits, int MantissaBits, int Bias, Special special,
          unsigned MaxCode, unsigned NanCode>
struct Float {
  static constexpr int bits = Bits;
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
    constexpr unsigned signBit = 1u << (Bits - 1);
    double value = magnitude(code & (signBit - 1));
    return code & signBit ? -value : value;
  }
  static __device__ unsigned encode(double value) {
    if (value != value)
      return NanCode;
    unsigned long long raw = doubleToBits(value);
    unsigned sign = static_cast<unsigned>(raw >> 63) << (Bits - 1);
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
    return sign | field << MantissaBits | mantissa;
  }
};

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
using f16 = Float<16, 5, 10, 15, Special::Ieee, 0x7bff, 0x7e00>;
using bf16 = Float<16, 8, 7, 127, Special::Ieee, 0x7f7f, 0x7fc0>;
using f32 = Float<32, 8, 23, 127, Special::Ieee, 0x7f7fffffu, 0x7fc00000u>;

// Division in encode rules: an all-zero group has scale 0.
__device__ inline double divide(double a, double b) { return a == 0 && b == 0 ? 0 : a / b; }

// --- input numbers, all exact in float

struct InputF16 {
  unsigned short bits;
};
struct InputBf16 {
  unsigned short bits;
};
__device__ inline float toFloat(float x) { return x; }
__device__ inline float toFloat(InputF16 x) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
}
__device__ inline float toFloat(InputBf16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}

// --- one row

template <class Input> struct Row {
  const Input *x;
  long long k;
  long long row;
  long long groupStride;
  unsigned char *const *components;

  // chunk numbers from `column` on; those at `end` and after are 0.
  __device__ void load(long long column, long long end, float (&out)[chunk]) const {
    const Input *from = x + column;
    if (column + chunk <= end && reinterpret_cast<unsigned long long>(from) % 16 == 0) {
      constexpr int perVector = 16 / sizeof(Input);
#pragma unroll
      for (int i = 0; i < chunk / perVector; ++i) {
        union {
          uint4 vector;
          Input numbers[perVector];
        } loaded;
        loaded.vector = reinterpret_cast<const uint4 *>(from)[i];
#pragma unroll
        for (int j = 0; j < perVector; ++j)
          out[i * perVector + j] = toFloat(loaded.numbers[j]);
      }
      return;
    }
#pragma unroll
    for (int j = 0; j < chunk; ++j)
      out[j] = column + j < end ? toFloat(from[j]) : 0.0f;
  }

  // Where the code of a component for `column` lies; Group 0: one for the whole row.
  template <long long Group> __device__ long long place(long long column) const {
    return Group == 0 ? row : column / (Group == 0 ? 1 : Group) * groupStride + row;
  }
  template <class Type, long long Group>
  __device__ double component(int index, long long column) const {
    long long at = place<Group>(column);
    if (Type::bits <= 8)
      return Type::decode(components[index][at]);
    if (Type::bits <= 16)
      return Type::decode(reinterpret_cast<const unsigned short *>(components[index])[at]);
    return Type::decode(reinterpret_cast<const unsigned *>(components[index])[at]);
  }
  template <class Type, long long Group>
  __device__ void store(int index, long long column, double value) const {
    long long at = place<Group>(column);
    unsigned code = Type::encode(value);
    if (Type::bits <= 8)
      components[index][at] = static_cast<unsigned char>(code);
    else if (Type::bits <= 16)
      reinterpret_cast<unsigned short *>(components[index])[at] = static_cast<unsigned short>(code);
    else
      reinterpret_cast<unsigned *>(components[index])[at] = code;
  }
};

// --- reductions: NaN wins, so that no input hides it

struct Absmax {
  template <class R> static __device__ R start() { return 0; }
  template <class R> static __device__ R prepare(R x) { return x < 0 ? -x : x; }
  template <class R> static __device__ bool better(R a, R b) { return a > b; }
};
struct Min {
  template <class R> static __device__ R start() { return __int_as_float(0x7f800000); }
  template <class R> static __device__ R prepare(R x) { return x; }
  template <class R> static __device__ bool better(R a, R b) { return a < b; }
};
struct Max {
  template <class R> static __device__ R start() { return __int_as_float(0xff800000); }
  template <class R> static __device__ R prepare(R x) { return x; }
  template <class R> static __device__ bool better(R a, R b) { return a > b; }
};
template <class Op, class R> __device__ R combine(R a, R b) {
  return b != b || Op::template better<R>(b, a) ? (a != a ? a : b) : a;
}

// The threads that share one extent: `Lanes` of a warp, or the whole CTA for Lanes == threads.
template <class Input, int Lanes> struct Team {
  const Row<Input> &row;
  long long begin, end; // columns
  int lane;

  template <class Op, class Function> __device__ double reduce(Function function) const {
    using R = decltype(function(0.0f));
    R best = Op::template start<R>();
    for (long long column = begin + lane * chunk; column < end; column += Lanes * chunk) {
      float x[chunk];
      row.load(column, end, x);
#pragma unroll
      for (int j = 0; j < chunk; ++j)
        if (column + j < end)
          best = combine<Op>(best, Op::template prepare<R>(function(x[j])));
    }
    constexpr int inWarp = Lanes < 32 ? Lanes : 32;
#pragma unroll
    for (int distance = inWarp / 2; distance > 0; distance /= 2)
      best = combine<Op>(best, __shfl_xor_sync(0xffffffffu, best, distance));
    if (Lanes > 32) {
      __shared__ R partial[threads / 32];
      __syncthreads(); // a previous reduction is read
      if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = best;
      __syncthreads();
      best = partial[0];
#pragma unroll
      for (int i = 1; i < threads / 32; ++i)
        best = combine<Op>(best, partial[i]);
    }
    return static_cast<double>(best) + 0.0; // never -0: which zero is found depends on the order
  }
};

// Computes one component of the whole row. All threads take part; the codes are visible to all
// threads afterwards.
template <class Rule, class Input> __device__ void encodeComponent(const Row<Input> &row) {
  constexpr long long group = Rule::group;
  if (group == 0) {
    Team<Input, threads> team{row, 0, row.k, static_cast<int>(threadIdx.x)};
    double value = Rule::value(row, team);
    if (threadIdx.x == 0)
      row.template store<typename Rule::Type, group>(Rule::index, 0, value);
  } else {
    constexpr int lanes = group >= 512   ? 32
                          : group >= 256 ? 16
                          : group >= 128 ? 8
                          : group >= 64  ? 4
                          : group >= 32  ? 2
                                         : 1;
    constexpr long long step = group == 0 ? 1 : group;
    const long long groups = (row.k + step - 1) / step;
    // Every lane makes every round: the shuffles are the whole warp's.
    for (long long first = 0; first < groups; first += threads / lanes) {
      long long mine = first + threadIdx.x / lanes;
      // A team past the last group reduces nothing; column 0 is there to be read.
      long long begin = mine < groups ? mine * step : 0;
      long long end = mine >= groups ? begin : begin + step < row.k ? begin + step : row.k;
      Team<Input, lanes> team{row, begin, end, static_cast<int>(threadIdx.x % lanes)};
      double value = Rule::value(row, team);
      if (mine < groups && threadIdx.x % lanes == 0)
        row.template store<typename Rule::Type, group>(Rule::index, begin, value);
    }
  }
  __syncthreads();
}

#include "rho_format.cuh"

// --- elements

struct Scale {
  double value;
  float inverse; // 0 where only the exact division is right
};

__device__ inline Scale makeScale(double value) {
  double positive = fabs(value);
  bool usable = positive > 1e-30 && positive < 1e30;
  return {value, usable ? static_cast<float>(1.0 / value) : 0.0f};
}

// encode(x / scale), 0 where the scale is 0. For integers the float quotient is off by less than 2^-10 while it is below
// 4096, so that it decides wherever it is farther than that from a tie.
template <int Bits, bool Signed>
__device__ unsigned encodeQuotient(Integer<Bits, Signed>, float x, const Scale &scale) {
  using Type = Integer<Bits, Signed>;
  float quotient = x * scale.inverse;
  float nearest = rintf(quotient);
  if (scale.inverse != 0.0f && fabsf(quotient) < 4096.0f && fabsf(quotient - nearest) < 0.49f) {
    int value = static_cast<int>(nearest);
    value = value < Type::low ? Type::low : value > Type::high ? Type::high : value;
    return static_cast<unsigned>(value) & ((1u << Bits) - 1);
  }
  return scale.value == 0 ? 0 : Type::encode(static_cast<double>(x) / scale.value);
}
template <class Type> __device__ unsigned encodeQuotient(Type, float x, const Scale &scale) {
  return scale.value == 0 ? 0 : Type::encode(static_cast<double>(x) / scale.value);
}

template <class Input>
__device__ void quantizeRow(const Row<Input> &row, long long pitch, unsigned char *codes) {
  encodeComponents(row);
  constexpr int words = chunk * Element::bits / 32;
  unsigned *out = reinterpret_cast<unsigned *>(codes + row.row * pitch);
  const long long chunks = (pitch + words * 4 - 1) / (words * 4); // the last may be cut short
  for (long long at = threadIdx.x; at < chunks; at += threads) {
    const long long column = at * chunk;
    float x[chunk];
    row.load(column, row.k, x);
    unsigned packed[words] = {};
    Scale scale{1.0, 0.0f};
#pragma unroll
    for (int j = 0; j < chunk; ++j) {
      if (column + j >= row.k)
        continue;
      if (hasScale && j % scaleRun == 0)
        scale = makeScale(elementScale(row, column + j));
      unsigned code = hasScale ? encodeQuotient(Element(), x[j], scale)
                               : Element::encode(static_cast<double>(x[j]));
      packed[j * Element::bits / 32] |= code << (j * Element::bits % 32);
    }
#pragma unroll
    for (int i = 0; i < words; ++i)
      if ((at * words + i) * 4 < pitch)
        out[at * words + i] = packed[i];
  }
}

#define RHO_QUANTIZE(name, Input)                                                                  \
  extern "C" __global__ void __launch_bounds__(threads)                                            \
      name(const Input *x, long long stride, long long k, long long pitch, long long groupStride,  \
           unsigned char *codes RHO_COMPONENT_PARAMETERS) {                                        \
    unsigned char *const components[] = {codes RHO_COMPONENT_ARGUMENTS};                           \
    const long long index = blockIdx.x;                                                            \
    quantizeRow(Row<Input>{x + index * stride, k, index, groupStride, components}, pitch, codes);  \
  }
RHO_QUANTIZE(rho_quantize_f32, float)
RHO_QUANTIZE(rho_quantize_f16, InputF16)
RHO_QUANTIZE(rho_quantize_bf16, InputBf16)
