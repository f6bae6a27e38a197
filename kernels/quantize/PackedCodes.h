// Codes of 1 to 32 bits without gaps. Bit j of code i is bit (i * bits + j) % 8 of byte
// (i * bits + j) / 8; the bits behind the last code are 0.
#pragma once

#include "dsl/Quantize.h"

namespace rho::kernels {

inline int64_t packedBytes(int64_t count, int bits) { return (count * bits + 7) / 8; }

// Packs the codes [begin, end) from the first bit of `to`, which has packedBytes of them. begin is
// a multiple of 8.
void packCodes(const dsl::CodeArray &codes, int bits, int64_t begin, int64_t end, uint8_t *to);
// The inverse: `from` holds packed codes for [begin, end).
void unpackCodes(const uint8_t *from, int bits, int64_t begin, int64_t end, dsl::CodeArray &codes);

} // namespace rho::kernels
