#include "runtime/emulator/SharedMemory.h"

#include <algorithm>
#include <bit>

namespace rho::emulator {

void SharedMemory::configure(uint32_t bytes, uint32_t granule, uint32_t warpCount) {
  length = bytes;
  shift = uint32_t(std::countr_zero(granule));
  warps = warpCount;
  bytesOfCta.assign(bytes + 16, 0);
  granules.assign((bytes + granule - 1) >> shift, Granule{});
  reads.assign(granules.size() * warps, 0);
  now = 1;
}

void SharedMemory::startCta() {
  if (now > UINT32_MAX / 2)
    configure(length, 1u << shift, warps);
  // Deterministic contents in case a check is ever missed.
  std::fill(bytesOfCta.begin(), bytesOfCta.end(), uint8_t(0xcd));
  for (Granule &entry : granules)
    entry.state = State::Unwritten;
  ++now;
  for (auto &row : clock)
    std::fill(std::begin(row), std::end(row), now);
  std::fill(std::begin(oldest), std::end(oldest), now);
}

SharedMemory::Finding SharedMemory::readProblem(uint32_t granule) const {
  const Granule &entry = granules[granule];
  uint32_t address = granule << shift;
  if (entry.state == State::Unwritten)
    return {Problem::Unwritten, address, 0};
  if (entry.state == State::Pending)
    return {Problem::Pending, address, entry.owner};
  return {Problem::ReadAfterWrite, address, entry.writer};
}

SharedMemory::Finding SharedMemory::writeProblem(uint32_t warp, uint32_t granule,
                                                 bool atomic) const {
  const Granule &entry = granules[granule];
  uint32_t address = granule << shift;
  if (entry.state == State::Pending)
    return {Problem::Pending, address, entry.owner};
  bool bothAtomic = atomic && entry.state == State::Atomic;
  if (entry.state != State::Unwritten && !bothAtomic &&
      unordered(warp, entry.writer, entry.writeStamp))
    return {Problem::WriteAfterWrite, address, entry.writer};
  if (entry.readStamp >= oldest[warp])
    for (uint32_t other = 0; other < warps; ++other)
      if (unordered(warp, other, reads[size_t(other) * granules.size() + granule]))
        return {Problem::WriteAfterRead, address, other};
  return {};
}

SharedMemory::Finding SharedMemory::overwrite(uint32_t warp, uint32_t address, uint32_t bytes,
                                              State state, uint16_t owner) {
  for (uint32_t g = address >> shift, end = (address + bytes) >> shift; g < end; ++g) {
    Granule &entry = granules[g];
    // Both stamps below what every warp is known to have finished: nothing to look at.
    bool old = entry.state != State::Pending && entry.writeStamp < oldest[warp] &&
               entry.readStamp < oldest[warp];
    if (!old) {
      Finding finding = writeProblem(warp, g, false);
      if (finding)
        return finding;
    }
    entry.writeStamp = now;
    entry.writer = uint8_t(warp);
    entry.owner = owner;
    entry.state = state;
  }
  return {};
}

SharedMemory::Finding SharedMemory::atomic(uint32_t warp, uint32_t address, uint32_t bytes) {
  for (uint32_t g = address >> shift, end = (address + bytes) >> shift; g < end; ++g) {
    Granule &entry = granules[g];
    if (entry.state == State::Unwritten)
      return {Problem::Unwritten, g << shift, 0};
    Finding finding = writeProblem(warp, g, true);
    if (finding)
      return finding;
    entry.writeStamp = now;
    entry.writer = uint8_t(warp);
    entry.state = State::Atomic;
  }
  return {};
}

void SharedMemory::endAsync(uint32_t warp, uint32_t address, uint32_t bytes) {
  for (uint32_t g = address >> shift, end = (address + bytes) >> shift; g < end; ++g) {
    Granule &entry = granules[g];
    entry.writeStamp = now;
    entry.writer = uint8_t(warp);
    entry.state = State::Written;
  }
}

void SharedMemory::arrive(uint32_t warp, Barrier &barrier) {
  clock[warp][warp] = ++now;
  for (uint32_t u = 0; u < warps; ++u)
    barrier.clock[u] = std::max(barrier.clock[u], clock[warp][u]);
}

void SharedMemory::pass(uint32_t warp, const Barrier &barrier) {
  for (uint32_t u = 0; u < warps; ++u)
    clock[warp][u] = std::max(clock[warp][u], barrier.clock[u]);
  updateOldest(warp);
}

void SharedMemory::updateOldest(uint32_t warp) {
  uint32_t least = UINT32_MAX;
  for (uint32_t u = 0; u < warps; ++u)
    if (u != warp)
      least = std::min(least, clock[warp][u]);
  oldest[warp] = least;
}

} // namespace rho::emulator
