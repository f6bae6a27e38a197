// What cp.async.bulk.tensor copies between: a tensor in global memory and boxes of it.
#pragma once

#include "dsl/Error.h"

#include <array>
#include <cstdint>
#include <span>

namespace rho::emulator {

constexpr size_t tensorMapBytes = 128;
constexpr uint32_t maxTensorRank = 3;

// How 16-byte pieces of a box's rows are permuted in shared memory: for a span of 2^n * 16 bytes,
// the lowest n bits of the piece's number (from bit 4 of the address) are xored with those from
// bit 7.
enum class Swizzle : uint8_t { None, Span32, Span64, Span128 };
constexpr uint32_t swizzleBits(Swizzle swizzle) { return uint32_t(swizzle); }
constexpr uint64_t swizzled(uint64_t address, Swizzle swizzle) {
  return address ^ ((address >> 7 & ((uint64_t(1) << swizzleBits(swizzle)) - 1)) << 4);
}

// Dimension 0 is the innermost and contiguous.
struct TensorMap {
  uint32_t rank = 1;         // 1 to 3
  uint32_t elementBytes = 1; // 1, 2, 4 or 8
  uint64_t address = 0;      // in global memory
  uint64_t dims[maxTensorRank] = {1, 1, 1};
  uint64_t strides[maxTensorRank] = {}; // bytes between elements of dimension i; [0] is not used
  uint32_t box[maxTensorRank] = {1, 1, 1};
  Swizzle swizzle = Swizzle::None;

  uint64_t boxBytes() const { return uint64_t(box[0]) * box[1] * box[2] * elementBytes; }
};

// The opaque object that a kernel takes, aligned to 64 bytes. Error emulator_tensor_map for what
// cuTensorMapEncodeTiled refuses too.
Result<std::array<uint8_t, tensorMapBytes>> encodeTensorMap(const TensorMap &map);
// Error emulator_tensor_map when encodeTensorMap did not make the bytes.
Result<TensorMap> decodeTensorMap(std::span<const uint8_t, tensorMapBytes> bytes);

} // namespace rho::emulator
