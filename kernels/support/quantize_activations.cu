// Quantizes activations: x [m][k] in f32, f16 or bf16 -> codes of a format, one CTA a row.
//
// Compiled by NVRTC at run time. "rho_format.cuh" is generated from the format's declaration by
// runtime/QuantizerSource.cpp; it defines Element, elementBits, groupsPerWord, scaleRun, elementScale(), encodeComponents() and
// the component parameters. The codes are bit for bit those of dsl::quantize on the host: the same
// operations in double in the same order, reductions whose order does not matter. Build with
// --fmad=false.
//
// Output, see compiler/Layout.h: element codes row-major, `pitch` bytes a row, sub-byte codes low
// nibble first, signed codes of fewer than elementBits bits sign-extended, zero past k; group components [ceil(k/(w G))][groupStride][w] with w = groupsPerWord, zero past the last group,
// row components [m].

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

// e8m0: the exponent alone; of a tie the even code.
struct PowerOfTwo {
  static constexpr int bits = 8;
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
using f32 = Float<32, 8, 23, 127, Special::Ieee, 0x7f7fffffu, 0x7fc00000u>;

// Division in encode rules: an all-zero group has scale 0.
__device__ inline double divide(double a, double b) { return a == 0 && b == 0 ? 0 : a / b; }

// bit_floor() in encode rules.
__device__ inline double bitFloor(double a) {
  const double positive = fabs(a);
  if (positive == 0 || !(positive < bitsToDouble(0x7ff0000000000000ull)))
    return positive;
  if (positive < powerOfTwo(-1022)) // a subnormal number, whose exponent field is 0
    return bitFloor(positive * powerOfTwo(200)) * powerOfTwo(-200);
  return bitsToDouble(doubleToBits(positive) & 0x7ff0000000000000ull);
}

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
  int groupsPerWord;
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
    if (Group == 0)
      return row;
    const long long group = column / (Group == 0 ? 1 : Group);
    return (group / groupsPerWord * groupStride + row) * groupsPerWord + group % groupsPerWord;
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

// The largest magnitude of floats as unsigned integers: their bits are ordered as they are, with NaN
// above infinity.
__device__ inline unsigned magnitudeBits(float x) {
  return static_cast<unsigned>(__float_as_int(x)) & 0x7fffffffu;
}

// The threads that share one extent: `Lanes` of a warp, or the whole CTA for Lanes == threads.
template <class Input, int Lanes> class Team {
public:
  __device__ Team(const Row<Input> &row, long long begin, long long end, int lane)
      : row(row), begin(begin), end(end), lane(lane) {}
  const Row<Input> &row;
  const long long begin, end; // columns
  const int lane;

  // Op over function(x) of all numbers of the extent.
  template <class Op, class Function> __device__ double reduce(Function function) const {
    using R = decltype(function(0.0f));
    R best = Op::template start<R>();
    visit([&](float x) { best = combine<Op>(best, Op::template prepare<R>(function(x))); });
    best = share(best, [](R a, R b) { return combine<Op>(a, b); });
    return static_cast<double>(best) + 0.0; // never -0: which zero is found depends on the order
  }
  // Absmax of the numbers themselves.
  __device__ double absmax() const {
    unsigned best = 0;
    visit([&](float x) { best = max(best, magnitudeBits(x)); });
    best = share(best, [](unsigned a, unsigned b) { return max(a, b); });
    return static_cast<double>(__uint_as_float(best));
  }

private:
  template <class Visitor> __device__ void visit(Visitor visitor) const {
    for (long long column = begin + lane * chunk; column < end; column += Lanes * chunk) {
      float x[chunk];
      row.load(column, end, x);
      if (column + chunk <= end) {
#pragma unroll
        for (int j = 0; j < chunk; ++j)
          visitor(x[j]);
      } else {
#pragma unroll
        for (int j = 0; j < chunk; ++j)
          if (column + j < end)
            visitor(x[j]);
      }
    }
  }

  // All threads' results as one, in all threads.
  template <class R, class Combine> __device__ R share(R best, Combine combine) const {
    constexpr int inWarp = Lanes < 32 ? Lanes : 32;
#pragma unroll
    for (int distance = inWarp / 2; distance > 0; distance /= 2)
      best = combine(best, __shfl_xor_sync(0xffffffffu, best, distance));
    if (Lanes > 32) {
      __shared__ R partial[threads / 32];
      __syncthreads(); // a previous reduction is read
      if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = best;
      __syncthreads();
      best = partial[0];
#pragma unroll
      for (int i = 1; i < threads / 32; ++i)
        best = combine(best, partial[i]);
    }
    return best;
  }
};

// Computes one component of the whole row. All threads take part; the codes are visible to all
// threads afterwards.
template <class Rule, class Input> __device__ void encodeComponent(const Row<Input> &row) {
  constexpr long long group = Rule::group;
  if (group == 0) {
    Team<Input, threads> team(row, 0, row.k, static_cast<int>(threadIdx.x));
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
    const long long stored = (groups + row.groupsPerWord - 1) / row.groupsPerWord * row.groupsPerWord;
    // Every lane makes every round: the shuffles are the whole warp's.
    for (long long first = 0; first < stored; first += threads / lanes) {
      long long mine = first + threadIdx.x / lanes;
      // A team past the last group reduces nothing; column 0 is there to be read.
      long long begin = mine < groups ? mine * step : 0;
      long long end = mine >= groups ? begin : begin + step < row.k ? begin + step : row.k;
      Team<Input, lanes> team(row, begin, end, static_cast<int>(threadIdx.x % lanes));
      double value = Rule::value(row, team);
      if (mine < stored && threadIdx.x % lanes == 0)
        row.template store<typename Rule::Type, group>(Rule::index, mine * step,
                                                       mine < groups ? value : 0);
    }
  }
  __syncthreads();
}

#include "rho_format.cuh"

// --- elements

// encode(x / scale), 0 where the scale is 0.
template <class Type> __device__ unsigned encodeExactly(float x, double scale) {
  return scale == 0 ? 0 : Type::encode(static_cast<double>(x) / scale);
}

// A chunk's codes and those among them (bits of `unsure`) that only encodeExactly() may decide.
struct Codes {
  unsigned unsure;
  unsigned codes[chunk];
};

// Integers: x times the reciprocal in float is off by at most 2^-23 of itself, so that after
// clamping to at most 8 bits it is off by less than 2^-15. Only within 2^-14 of a tie can that
// change the code.
template <int Bits, bool Signed, class Row>
__device__ void encodeChunk(Integer<Bits, Signed>, const Row &row, long long column,
                            const float (&x)[chunk], Codes &out) {
  using Type = Integer<Bits, Signed>;
  constexpr float magic = 12582912.0f; // 1.5 * 2^23: its last bit is 1
  float inverse = 0;
  bool usable = false;
  out.unsure = 0;
#pragma unroll
  for (int j = 0; j < chunk; ++j) {
    if (j % scaleRun == 0 && column + j < row.k) {
      const double scale = elementScale(row, column + j), positive = fabs(scale);
      usable = positive > 1e-30 && positive < 1e30;
      inverse = static_cast<float>(1.0 / scale);
    }
    const float quotient = x[j] * inverse;
    const float clamped = fminf(fmaxf(quotient, static_cast<float>(Type::low)),
                                static_cast<float>(Type::high));
    const float shifted = clamped + magic;
    const bool sure = usable && quotient == quotient &&
                      fabsf(clamped - (shifted - magic)) < 0.5f - 0x1p-14f;
    out.codes[j] = static_cast<unsigned>(__float_as_int(shifted)) & ((1u << Bits) - 1);
    out.unsure |= sure ? 0u : 1u << j;
  }
}

// Floats of at most 8 bits: the same quotient is off by less than 2^-18 of the step between codes.
// Adding 1.5 * 2^23 steps rounds it to a step; those above the smallest number of its exponent are
// the code's last bits.
template <int Bits, int ExponentBits, int MantissaBits, int Bias, Special special,
          unsigned MaxCode, unsigned NanCode, class Row>
__device__ void
encodeNarrow(Float<Bits, ExponentBits, MantissaBits, Bias, special, MaxCode, NanCode>,
             const Row &row, long long column, const float (&x)[chunk], Codes &out) {
  using Type = Float<Bits, ExponentBits, MantissaBits, Bias, special, MaxCode, NanCode>;
  constexpr int minField = 128 - Bias; // of f32's exponent at the smallest normal number
  const float largest = static_cast<float>(Type::magnitude(MaxCode));
  float inverse = 0;
  bool usable = false;
  out.unsure = 0;
#pragma unroll
  for (int j = 0; j < chunk; ++j) {
    if (j % scaleRun == 0 && column + j < row.k) {
      const double scale = elementScale(row, column + j), positive = fabs(scale);
      usable = positive > 1e-30 && positive < 1e30;
      inverse = static_cast<float>(1.0 / scale);
    }
    const float quotient = x[j] * inverse;
    const float positive = fminf(fabsf(quotient), largest);
    const int field = max(static_cast<int>(__float_as_int(positive) >> 23), minField);
    const float magic = __int_as_float((field + 23 - MantissaBits) << 23 | 0x400000);
    const float shifted = positive + magic, step = __int_as_float((field - MantissaBits) << 23);
    const bool sure = usable && quotient == quotient &&
                      fabsf(positive - (shifted - magic)) < step * (0.5f - 0x1p-14f);
    const unsigned sign = static_cast<unsigned>(__float_as_int(quotient)) >> 31;
    out.codes[j] = sign << (Bits - 1) | ((field - minField) << MantissaBits) +
                                            (__float_as_int(shifted) - __float_as_int(magic));
    out.unsure |= sure ? 0u : 1u << j;
  }
}

// Other floats: every code exactly.
template <class Type, class Row>
__device__ void encodeChunk(Type type, const Row &row, long long column, const float (&x)[chunk],
                            Codes &out) {
  if constexpr (Type::bits <= 8) {
    encodeNarrow(type, row, column, x, out);
  } else {
    double scale = 1;
    out.unsure = 0;
#pragma unroll
    for (int j = 0; j < chunk; ++j) {
      if (j % scaleRun == 0 && column + j < row.k)
        scale = elementScale(row, column + j);
      out.codes[j] = encodeExactly<Type>(x[j], scale);
    }
  }
}

// A code as it is stored: in elementBits bits.
template <class Type> __device__ unsigned widened(Type, unsigned code) { return code; }
template <int Bits> __device__ unsigned widened(Integer<Bits, true>, unsigned code) {
  constexpr unsigned signBit = 1u << (Bits - 1), mask = (1u << (elementBits - 1) << 1) - 1;
  return ((code ^ signBit) - signBit) & mask;
}

template <class Input>
__device__ void quantizeRow(const Row<Input> &row, long long pitch, unsigned char *codes) {
  encodeComponents(row);
  constexpr int bits = elementBits;
  constexpr int words = chunk * bits / 32;
  unsigned *out = reinterpret_cast<unsigned *>(codes + row.row * pitch);
  const long long chunks = (pitch + words * 4 - 1) / (words * 4); // the last may be cut short
  for (long long at = threadIdx.x; at < chunks; at += threads) {
    const long long column = at * chunk;
    const long long left = row.k - column; // numbers from here to the row's end
    float x[chunk];
    Codes found;
    row.load(column, row.k, x);
    encodeChunk(Element(), row, column, x, found);
    unsigned packed[words] = {};
#pragma unroll
    for (int j = 0; j < chunk; ++j)
      packed[j * bits / 32] |= (j < left ? widened(Element(), found.codes[j]) : 0u) << (j * bits % 32);
#pragma unroll
    for (int i = 0; i < words; ++i)
      if ((at * words + i) * 4 < pitch)
        out[at * words + i] = packed[i];
    // Rare, hence by way of memory: an index that varies would keep x and packed out of registers.
    for (unsigned unsure = found.unsure; unsure != 0; unsure &= unsure - 1) {
      const int j = __ffs(static_cast<int>(unsure)) - 1;
      if (j >= left)
        break;
      const unsigned code =
          widened(Element(), encodeExactly<Element>(toFloat(row.x[column + j]),
                                                    elementScale(row, column + j)));
      unsigned &word = out[at * words + j * bits / 32];
      const int shift = j * bits % 32;
      word = (word & ~(((1u << (bits - 1) << 1) - 1) << shift)) | code << shift;
    }
  }
}

#define RHO_QUANTIZE(name, Input)                                                                  \
  extern "C" __global__ void __launch_bounds__(threads)                                            \
      name(const Input *x, long long stride, long long k, long long pitch, long long groupStride,  \
           unsigned char *codes RHO_COMPONENT_PARAMETERS) {                                        \
    unsigned char *const components[] = {codes RHO_COMPONENT_ARGUMENTS};                           \
    const long long index = blockIdx.x;                                                            \
    quantizeRow(Row<Input>{x + index * stride, k, index, groupStride, groupsPerWord, components},  \
                pitch, codes);                                                                     \
  }
RHO_QUANTIZE(rho_quantize_f32, float)
RHO_QUANTIZE(rho_quantize_f16, InputF16)
RHO_QUANTIZE(rho_quantize_bf16, InputBf16)
