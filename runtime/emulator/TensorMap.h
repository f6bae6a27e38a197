// Tensor maps of the emulator: what the copies of tensor boxes read.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

namespace rho::emulator {

// Axis 0 is contiguous; strides[i] is the distance in bytes of axis i + 1.
struct TensorMap {
  uint32_t rank = 0, elementBytes = 0;
  uint64_t address = 0;
  std::array<uint64_t, 3> dims{};    // elements
  std::array<uint64_t, 2> strides{}; // bytes
  std::array<uint32_t, 3> box{};     // elements
  uint32_t swizzle = 0;              // bytes of a pattern: 0 (none) or 128
};

inline std::array<uint8_t, 128> encodeTensorMap(const TensorMap &map) {
  static_assert(sizeof(TensorMap) <= 128);
  std::array<uint8_t, 128> bytes{};
  std::memcpy(bytes.data(), &map, sizeof map);
  return bytes;
}

} // namespace rho::emulator
