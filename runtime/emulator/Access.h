// From PTX addresses to host memory, with every check of a memory access.
#pragma once

#include "runtime/emulator/Machine.h"

namespace rho::emulator {

enum class AccessKind : uint8_t { Read, Write, Atomic };

struct LaneAddresses {
  uint64_t at[32];
};
struct LanePointers {
  uint8_t *at[32];
};

// base register + inst.imm for each lane; inst.flag & addressIs32 tells the base's width.
constexpr uint8_t addressIs32 = 0x80;
void laneAddresses(const Warp &warp, const Inst &inst, uint32_t base, int64_t offset, bool is32,
                   LaneAddresses &out);

// Host pointers for the `bytes` (a power of two) at each active lane's address in `space`. False:
// a check failed and the warp has the error.
bool resolve(Warp &warp, const Inst &inst, uint32_t mask, Space space, uint32_t bytes,
             AccessKind kind, const LaneAddresses &addresses, LanePointers &out);

// The part of resolve for one lane in global memory, any length and alignment; null: failed.
uint8_t *resolveGlobal(Warp &warp, const Inst &inst, int lane, uint64_t address, uint32_t bytes,
                       AccessKind kind);
// Bounds and alignment in shared memory; false: failed. `bytes` is a power of two.
bool reportShared(Warp &warp, const Inst &inst, int lane, uint64_t address, uint32_t bytes);
inline bool checkShared(Warp &warp, const Inst &inst, int lane, uint64_t address, uint32_t bytes) {
  uint64_t size = warp.cta->shared.size();
  if ((address & (bytes - 1)) == 0 && address < size && bytes <= size - address) [[likely]]
    return true;
  return reportShared(warp, inst, lane, address, bytes);
}
bool misaligned(Warp &warp, const Inst &inst, int lane, const char *space, uint64_t address,
                uint32_t bytes);
// Reports what the shadow found; false when it found something.
void reportFinding(Warp &warp, const Inst &inst, int lane, SharedMemory::Finding finding,
                   bool write);
inline bool checkFinding(Warp &warp, const Inst &inst, int lane, SharedMemory::Finding finding,
                         bool write) {
  if (!finding) [[likely]]
    return true;
  reportFinding(warp, inst, lane, finding, write);
  return false;
}

} // namespace rho::emulator
