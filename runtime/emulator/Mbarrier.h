// mbarrier objects for the instructions that arrive on them.
#pragma once

#include "runtime/emulator/Machine.h"

namespace rho::emulator {

// A transaction count stays within plus and minus this (PTX ISA, "Tx-count range").
constexpr int64_t maxTransactionBytes = (int64_t(1) << 20) - 1;

// The initialised mbarrier at an offset in the target's shared memory. Null: failed.
Mbarrier *findMbarrier(Warp &warp, const Inst &inst, int lane, Cta &target, uint64_t address);
// Whether a bulk copy may complete on it. False: failed.
bool signalledByBulk(Warp &warp, const Inst &inst, int lane, uint64_t address,
                     const Mbarrier &barrier);
// Adds bytes that are expected, or takes (negative) what has come. False: failed.
bool addTransaction(Warp &warp, const Inst &inst, int lane, uint64_t address, Mbarrier &barrier,
                    int64_t bytes);

} // namespace rho::emulator
