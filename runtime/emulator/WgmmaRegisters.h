// Who may touch the registers of a wgmma, and when (PTX ISA, "Asynchronous Warpgroup Level Matrix
// Instructions: wgmma.fence and wait_group").
#pragma once

#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Machine.h"

#include <span>

namespace rho::emulator {

struct WgmmaRegisters {
  std::span<const uint32_t> results, fragments; // offsets of D and of A
  uint16_t shape = 0;
};

// Notes that the warp's wgmma has these from now on. False: failed.
bool claimRegisters(Warp &warp, const Inst &inst, const WgmmaRegisters &registers);
void releaseRegisters(Warp &warp, const WgmmaRegisters &registers);

} // namespace rho::emulator
