#include "runtime/emulator/MatrixDescriptor.h"

#include "runtime/emulator/Faults.h"

namespace rho::emulator {

MatrixDescriptor::MatrixDescriptor(uint64_t bits)
    : start(uint32_t(bits & 0x3fff) << 4), leadingOffset(uint32_t(bits >> 16 & 0x3fff) << 4),
      strideOffset(uint32_t(bits >> 32 & 0x3fff) << 4), baseOffset(uint32_t(bits >> 49 & 7)) {
  constexpr Swizzle layouts[] = {Swizzle::None, Swizzle::Span128, Swizzle::Span64, Swizzle::Span32};
  swizzle = layouts[bits >> 62];
}

std::string MatrixDescriptor::problem() const {
  if (swizzle == Swizzle::None)
    return {};
  uint32_t span = 16u << swizzleBits(swizzle);
  std::string of = " of a layout with rows of " + std::to_string(span) + " bytes";
  if (baseOffset != 0)
    return "base offset " + std::to_string(baseOffset) + of + ", only 0 is known here";
  if (start % (8 * span) > span - wgmmaRowBytes)
    return "start " + hex(start) + of + ", its 32 bytes lie in the first of 8 aligned rows";
  if (strideOffset % (8 * span) != 0)
    return "stride " + std::to_string(strideOffset) + of + ", it is a multiple of 8 rows";
  return {};
}

uint64_t MatrixDescriptor::piece(uint32_t row, uint32_t half) const {
  uint64_t group = start + uint64_t(row / 8) * strideOffset;
  if (swizzle == Swizzle::None)
    return group + uint64_t(half) * leadingOffset + uint64_t(row % 8) * 16;
  uint64_t span = uint64_t(16) << swizzleBits(swizzle);
  return swizzled(group + row % 8 * span + uint64_t(half) * 16, swizzle);
}

} // namespace rho::emulator
