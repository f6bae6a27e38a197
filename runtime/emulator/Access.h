// From PTX addresses to host memory, with every check of a memory access.
#pragma once

#include "runtime/emulator/Machine.h"

namespace rho::emulator {

enum class AccessKind : uint8_t { Read, Write, Atomic };

struct LaneAddresses {
  uint64_t at[32];
};
// One lane's.
inline uint64_t laneAddress(const Warp &warp, uint32_t base, int64_t offset, bool is32, int lane) {
  return is32 ? uint32_t(warp.reg<uint32_t>(base)[lane] + uint32_t(offset))
              : warp.reg<uint64_t>(base)[lane] + uint64_t(offset);
}
struct LanePointers {
  uint8_t *at[32];
};

// base register + inst.imm for each lane; inst.flag & addressIs32 tells the base's width.
constexpr uint8_t addressIs32 = 0x80;
void laneAddresses(const Warp &warp, uint32_t base, int64_t offset, bool is32, LaneAddresses &out);

// Of a generic address, or one in any space: whether it is global memory's (see Machine.h).
inline bool isGlobalAddress(uint64_t address) { return address >= paramWindow + windowBytes; }

// Host pointers for the `bytes` (a power of two) at each active lane's address in `space`. False:
// a check failed and the warp has the error.
bool resolve(Warp &warp, const Inst &inst, uint32_t mask, Space space, uint32_t bytes,
             AccessKind kind, const LaneAddresses &addresses, LanePointers &out);

// The part of resolve for one lane in global memory, any length and alignment; null: failed.
uint8_t *resolveGlobal(Warp &warp, const Inst &inst, int lane, uint64_t address, uint32_t bytes,
                       AccessKind kind);
// Order of global memory among CTAs, see GlobalOrder.h. An access of lanes; false: a load finds
// what nothing orders before it, and the warp has the error.
bool orderGlobal(Warp &warp, const Inst &inst, uint32_t mask, uint32_t bytes, AccessKind kind,
                 const LaneAddresses &addresses);
// A fence for threads of other CTAs.
void fenceGlobal(Warp &warp);
// The order that atomics and other accesses have, in Inst::flag beside addressIs32. Strong:
// volatile, relaxed or more. Near: the scope is the CTA or the cluster.
constexpr uint8_t orderAcquires = 1, orderReleases = 2, orderStrong = 4, orderNear = 8;
// Atomics and strong stores, before they are executed; atomics and strong loads, after that.
void publishGlobal(Warp &warp, const Inst &inst, uint32_t mask, const LaneAddresses &addresses);
void showGlobal(Warp &warp, const Inst &inst, uint32_t mask, const LaneAddresses &addresses);
// Bounds and alignment in a CTA's shared memory; false: failed. `align` is a power of two.
bool reportShared(Warp &warp, const Inst &inst, int lane, const SharedMemory &shared,
                  uint64_t address, uint32_t bytes, uint32_t align);
inline bool checkShared(Warp &warp, const Inst &inst, int lane, const SharedMemory &shared,
                        uint64_t address, uint32_t bytes, uint32_t align) {
  uint64_t size = shared.size();
  if ((address & (align - 1)) == 0 && address < size && bytes <= size - address) [[likely]]
    return true;
  return reportShared(warp, inst, lane, shared, address, bytes, align);
}
inline bool checkShared(Warp &warp, const Inst &inst, int lane, uint64_t address, uint32_t bytes) {
  return checkShared(warp, inst, lane, warp.cta->shared, address, bytes, bytes);
}
// The CTA of a cluster address (see Machine.h), which becomes the offset there. Null: failed.
Cta *clusterTarget(Warp &warp, const Inst &inst, int lane, uint64_t &address);
// What a shared address is in the executing CTA, which may also have a generic one.
inline uint64_t ownShared(uint64_t address) {
  return address / windowBytes == sharedWindow / windowBytes ? address % windowBytes : address;
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
