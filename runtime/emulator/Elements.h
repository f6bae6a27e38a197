// The types of matrix elements: how 128 packed bytes, such as the 32 lanes of one register, become
// numbers that hold them exactly.
#pragma once

#include "runtime/emulator/Matrix.h"
#include "runtime/emulator/Numbers.h"

#include <array>

namespace rho::emulator {

struct F16Element {
  static constexpr int perRegister = 2;
  static void unpack(const uint32_t *lanes, double *to) {
    widenF16(reinterpret_cast<const uint16_t *>(lanes), to, 64);
  }
};
struct Bf16Element {
  static constexpr int perRegister = 2;
  static void unpack(const uint32_t *lanes, double *to) {
    widenBf16(reinterpret_cast<const uint16_t *>(lanes), to, 64);
  }
};
struct Tf32Element { // the low 13 bits are ignored
  static constexpr int perRegister = 1;
  static void unpack(const uint32_t *lanes, double *to) {
    for (int l = 0; l < 32; ++l)
      to[l] = double(std::bit_cast<float>(lanes[l] & 0xffffe000u));
  }
};
template <class T> struct ByteElement {
  static constexpr int perRegister = 4;
  static void unpack(const uint32_t *lanes, float *to) {
    const T *bytes = reinterpret_cast<const T *>(lanes);
    for (int i = 0; i < 128; ++i)
      to[i] = float(bytes[i]);
  }
};
template <bool Signed> struct NibbleElement {
  static constexpr int perRegister = 8;
  static void unpack(const uint32_t *lanes, float *to) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(lanes);
    for (int i = 0; i < 128; ++i) {
      int low = bytes[i] & 15, high = bytes[i] >> 4;
      *to++ = float(Signed ? (low ^ 8) - 8 : low);
      *to++ = float(Signed ? (high ^ 8) - 8 : high);
    }
  }
};
struct E2m1Element {
  static constexpr int perRegister = 8;
  static void unpack(const uint32_t *lanes, double *to) {
    constexpr double values[] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6};
    const auto *bytes = reinterpret_cast<const uint8_t *>(lanes);
    for (int i = 0; i < 128; ++i) {
      *to++ = values[bytes[i] & 15];
      *to++ = values[bytes[i] >> 4];
    }
  }
};
template <float (*Value)(uint8_t)> struct Fp8Element {
  static constexpr int perRegister = 4;
  static void unpack(const uint32_t *lanes, double *to) {
    static const std::array<double, 256> table = [] {
      std::array<double, 256> all{};
      for (size_t code = 0; code < 256; ++code)
        all[code] = double(Value(uint8_t(code)));
      return all;
    }();
    const auto *bytes = reinterpret_cast<const uint8_t *>(lanes);
    for (int i = 0; i < 128; ++i)
      to[i] = table[bytes[i]];
  }
};
using E4m3Element = Fp8Element<e4m3ToF32>;
using E5m2Element = Fp8Element<e5m2ToF32>;

} // namespace rho::emulator
