#include "runtime/emulator/TensorMap.h"

#include "runtime/emulator/Faults.h"

#include <bit>
#include <cstring>

namespace rho::emulator {

namespace {

constexpr uint64_t magic = 0x50414d5f4f4852ull; // "RHO_MAP"

struct Encoded {
  uint64_t magic;
  TensorMap map;
};
static_assert(sizeof(Encoded) <= tensorMapBytes);

// Empty: nothing.
std::string problem(const TensorMap &map) {
  auto number = [](uint64_t value) { return std::to_string(value); };
  if (map.rank < 1 || map.rank > maxTensorRank)
    return "rank " + number(map.rank) + ", a tensor has 1 to " + number(maxTensorRank);
  if (!std::has_single_bit(map.elementBytes) || map.elementBytes > 8)
    return "elements of " + number(map.elementBytes) + " bytes, they have 1, 2, 4 or 8";
  if (map.address % 16 != 0)
    return "address " + hex(map.address) + ", it is a multiple of 16";
  for (uint32_t i = 0; i < map.rank; ++i) {
    std::string which = " in dimension " + number(i);
    if (map.dims[i] < 1 || map.dims[i] > uint64_t(1) << 32)
      return "size " + number(map.dims[i]) + which + ", it is 1 to 2^32";
    if (map.box[i] < 1 || map.box[i] > 256)
      return "box of " + number(map.box[i]) + which + ", it is 1 to 256";
    if (i > 0 && (map.strides[i] % 16 != 0 || map.strides[i] >= uint64_t(1) << 40))
      return "stride " + number(map.strides[i]) + which + ", it is a multiple of 16 below 2^40";
  }
  for (uint32_t i = map.rank; i < maxTensorRank; ++i)
    if (map.dims[i] != 1 || map.box[i] != 1)
      return "more than one element in dimension " + number(i) + " of rank " + number(map.rank);
  uint64_t row = uint64_t(map.box[0]) * map.elementBytes;
  if (row % 16 != 0)
    return "box rows of " + number(row) + " bytes, they are a multiple of 16";
  uint64_t span = uint64_t(16) << swizzleBits(map.swizzle);
  if (map.swizzle != Swizzle::None && row > span)
    return "box rows of " + number(row) + " bytes, the swizzle takes " + number(span);
  return {};
}

} // namespace

Result<std::array<uint8_t, tensorMapBytes>> encodeTensorMap(const TensorMap &map) {
  std::string refused = problem(map);
  if (!refused.empty())
    return makeError(DiagId::emulator_tensor_map, {refused});
  Encoded encoded{magic, map};
  std::array<uint8_t, tensorMapBytes> bytes{};
  std::memcpy(bytes.data(), &encoded, sizeof encoded);
  return bytes;
}

Result<TensorMap> decodeTensorMap(std::span<const uint8_t, tensorMapBytes> bytes) {
  Encoded encoded{0, {}};
  std::memcpy(&encoded, bytes.data(), sizeof encoded);
  if (encoded.magic != magic)
    return makeError(DiagId::emulator_tensor_map, {"other bytes, the backend encodes tensor maps"});
  std::string refused = problem(encoded.map);
  if (!refused.empty())
    return makeError(DiagId::emulator_tensor_map, {refused});
  return encoded.map;
}

} // namespace rho::emulator
