// How many passes an access to shared memory takes beyond those that its size needs anyway.
#pragma once

#include <cstdint>

namespace rho::emulator {

// Shared memory has 32 banks of 4 bytes and serves 128 bytes a pass: 32 lanes with up to 4 bytes
// each, 16 with 8, 8 with 16 (CUDA C++ programming guide, "Shared memory"). Within a pass, lanes
// that want different words of one bank take turns; equal words are one. `addresses` are those of
// the 32 lanes, of which `mask` takes part with `bytes` (a power of two, at most 16) each.
uint32_t bankConflicts(const uint64_t *addresses, uint32_t mask, uint32_t bytes);

} // namespace rho::emulator
