// mma.sync (PTX ISA, "Matrix multiply-accumulate operation using mma instruction").
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Fragments.h"
#include "runtime/emulator/Lanes.h"
#include "runtime/emulator/Numbers.h"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace rho::emulator {

namespace {

// Inst: list registers of D, then A, B and C; n registers of A; width columns of A; flag satfinite.
template <class A, class B> Flow integerHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.converged(i, mask))
    return Flow::Leave;
  ++w.mmas;
  int k = i.width, countA = i.n;
  const uint32_t *list = w.list(i.list);
  // |sum| <= 64 * 255 * 255 < 2^24: exact in float.
  alignas(64) float a[16 * maxK], b[maxK * 8], sum[16 * 8] = {};
  unpackA<A>(w, list + 4, countA, a);
  unpackB<B>(w, list + 4 + countA, countA / 2, b);
  multiply(a, b, sum, k, 4 * A::perRegister);
  const uint32_t *listC = list + 4 + countA + countA / 2;
  int32_t c[4][32]; // whole before D is written, which may be C in another order
  for (int r = 0; r < 4; ++r)
    std::copy_n(w.reg<int32_t>(listC[r]), 32, c[r]);
  for (int r = 0; r < 4; ++r) {
    auto *d = w.reg<int32_t>(list[r]);
    for (int l = 0; l < 32; ++l) {
      int64_t total = int64_t(sum[(l / 4 + 8 * (r >> 1)) * 8 + 2 * (l % 4) + (r & 1)]) + c[r][l];
      if (i.flag)
        total = std::clamp<int64_t>(total, std::numeric_limits<int32_t>::min(),
                                    std::numeric_limits<int32_t>::max());
      d[l] = int32_t(uint32_t(total));
    }
  }
  return Flow::Next;
}

template <class A, class B, bool Half> Flow floatHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.converged(i, mask))
    return Flow::Leave;
  ++w.mmas;
  int k = i.width, countA = i.n;
  constexpr int count = Half ? 2 : 4; // of C and of D
  const uint32_t *list = w.list(i.list);
  alignas(64) double a[16 * maxK], b[maxK * 8], sum[16 * 8] = {};
  unpackA<A>(w, list + count, countA, a);
  unpackB<B>(w, list + count + countA, std::max(countA / 2, 1), b);
  multiply(a, b, sum, k, 4 * A::perRegister);
  const uint32_t *listC = list + count + countA + std::max(countA / 2, 1);
  for (int r = 0; r < count; ++r)
    for (int l = 0; l < 32; ++l) {
      if constexpr (Half) {
        double *at = sum + ptrdiff_t(l / 4 + 8 * r) * 8 + 2 * ptrdiff_t(l % 4);
        uint32_t c = w.reg<uint32_t>(listC[r])[l];
        at[0] += double(f16ToF32(uint16_t(c)));
        at[1] += double(f16ToF32(uint16_t(c >> 16)));
      } else {
        sum[(l / 4 + 8 * (r >> 1)) * 8 + 2 * (l % 4) + (r & 1)] +=
            double(w.reg<float>(listC[r])[l]);
      }
    }
  for (int r = 0; r < count; ++r)
    for (int l = 0; l < 32; ++l) {
      if constexpr (Half) {
        const double *at = sum + ptrdiff_t(l / 4 + 8 * r) * 8 + 2 * ptrdiff_t(l % 4);
        w.reg<uint32_t>(list[r])[l] = uint32_t(f64ToF16(at[1])) << 16 | uint32_t(f64ToF16(at[0]));
      } else {
        w.reg<float>(list[r])[l] = float(sum[(l / 4 + 8 * (r >> 1)) * 8 + 2 * (l % 4) + (r & 1)]);
      }
    }
  return Flow::Next;
}

template <class A> Handler integerWith(Type b) {
  switch (b) {
  case Type::U8:
    return integerHandler<A, ByteElement<uint8_t>>;
  case Type::S8:
    return integerHandler<A, ByteElement<int8_t>>;
  default:
    return nullptr;
  }
}
template <class A> Handler integer4With(Type b) {
  switch (b) {
  case Type::U4:
    return integerHandler<A, NibbleElement<false>>;
  case Type::S4:
    return integerHandler<A, NibbleElement<true>>;
  default:
    return nullptr;
  }
}

template <class A, class B> Handler floatOf(Type c, Type d) {
  if (c == Type::F32 && d == Type::F32)
    return floatHandler<A, B, false>;
  if constexpr (!std::is_same_v<A, Bf16Element> && !std::is_same_v<A, Tf32Element>)
    if (c == Type::F16 && d == Type::F16)
      return floatHandler<A, B, true>;
  return nullptr;
}

// One row per instruction family of the ISA's table of mma shapes.
struct Shape {
  std::string_view name;
  int k;
};
constexpr Shape shapes[] = {
    {"m16n8k4", 4}, {"m16n8k8", 8}, {"m16n8k16", 16}, {"m16n8k32", 32}, {"m16n8k64", 64}};

Handler handlerOf(Type a, Type b, Type c, Type d) {
  switch (a) {
  case Type::F16:
    return b == a ? floatOf<F16Element, F16Element>(c, d) : nullptr;
  case Type::BF16:
    return b == a ? floatOf<Bf16Element, Bf16Element>(c, d) : nullptr;
  case Type::TF32:
    return b == a ? floatOf<Tf32Element, Tf32Element>(c, d) : nullptr;
  case Type::E4M3:
    return b == Type::E4M3   ? floatOf<E4m3Element, E4m3Element>(c, d)
           : b == Type::E5M2 ? floatOf<E4m3Element, E5m2Element>(c, d)
                             : nullptr;
  case Type::E5M2:
    return b == Type::E4M3   ? floatOf<E5m2Element, E4m3Element>(c, d)
           : b == Type::E5M2 ? floatOf<E5m2Element, E5m2Element>(c, d)
                             : nullptr;
  default:
    break;
  }
  if (c != Type::S32 || d != Type::S32)
    return nullptr;
  switch (a) {
  case Type::U8:
    return integerWith<ByteElement<uint8_t>>(b);
  case Type::S8:
    return integerWith<ByteElement<int8_t>>(b);
  case Type::U4:
    return integer4With<NibbleElement<false>>(b);
  case Type::S4:
    return integer4With<NibbleElement<true>>(b);
  default:
    return nullptr;
  }
}

void mma(Decoder &d) {
  if (!d.take("sync") || !d.take("aligned"))
    return d.unknown();
  int k = 0;
  for (const Shape &shape : shapes)
    if (d.take(shape.name))
      k = shape.k;
  if (k == 0 || !d.take("row") || !d.take("col"))
    return d.unknown();
  if (isBlockScaled(d))
    return decodeBlockScaledMma(d, k);
  bool saturate = d.take("satfinite");
  bool mixed = d.take("kind::f8f6f4");
  Type typeD = d.takeType(), typeA = d.takeType(), typeB = d.takeType(), typeC = d.takeType();
  if (d.failed())
    return;
  // A has 16 k elements in 32 lanes; the shapes of each type have 1 (tf32 k4: 2), 2 or 4 registers.
  int elementBits = typeA == Type::TF32 ? 32 : bits(typeA);
  int countA = 16 * k * elementBits / 32 / 32;
  bool shapeExists = (countA == 4 || countA == 2) && 16 * k * elementBits == countA * 1024;
  bool floats = isFloat(typeA);
  if (!shapeExists || (saturate && floats) || (mixed && bits(typeA) != 8) ||
      (elementBits == 8 && floats && k != 32 && k != 16))
    return d.unknown();
  Handler handler = handlerOf(typeA, typeB, typeC, typeD);
  if (!handler)
    return d.unknown();
  d.expectOperands(4);
  auto countC = size_t(typeC == Type::F16 ? 2 : 4); // D has as many
  // One after the other in Entry::lists.
  d.inst.list = d.destinations(0, countC, Type::B32);
  d.sources(1, size_t(countA), Type::B32);
  d.sources(2, size_t(countA / 2), Type::B32);
  d.sources(3, countC, Type::B32);
  d.inst.n = uint8_t(countA);
  d.inst.width = uint8_t(k);
  d.inst.flag = saturate;
  d.emit(handler);
}

} // namespace

std::span<const Opcode> mmaOpcodes() {
  static constexpr Opcode opcodes[] = {{"mma", mma}};
  return opcodes;
}

} // namespace rho::emulator
