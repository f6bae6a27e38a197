#include "runtime/emulator/SharedMemory.h"

#include <algorithm>
#include <bit>

namespace rho::emulator {

void SharedMemory::configure(uint32_t bytes, uint32_t granule, Order &clusterOrder) {
  order = &clusterOrder;
  length = bytes;
  shift = uint32_t(std::countr_zero(granule));
  bytesOfCta.assign(bytes + 16, 0);
  granules.resize((bytes + granule - 1) >> shift);
  reset();
}

void SharedMemory::reset() {
  std::fill(granules.begin(), granules.end(), Granule{});
  reads.assign(granules.size() * order->warps(), 0);
}

void SharedMemory::startCta() {
  // Deterministic contents in case a check is ever missed.
  std::fill(bytesOfCta.begin(), bytesOfCta.end(), uint8_t(0xcd));
  for (Granule &entry : granules)
    entry.state = State::Unwritten;
  asyncReads.clear();
}

SharedMemory::Finding SharedMemory::readProblem(uint32_t granule) const {
  const Granule &entry = granules[granule];
  uint32_t address = granule << shift;
  if (entry.state == State::Unwritten)
    return {Problem::Unwritten, address, 0};
  if (entry.state == State::Pending)
    return {Problem::Pending, address, entry.owner};
  if (entry.writer >= order->warps())
    return {Problem::BulkPending, address, 0};
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
      order->unordered(warp, entry.writer, entry.writeStamp))
    return {entry.writer < order->warps() ? Problem::WriteAfterWrite : Problem::BulkPending,
            address, entry.writer};
  if (entry.readStamp >= order->oldest(warp))
    for (uint32_t other = 0; other < order->warps(); ++other)
      if (order->unordered(warp, other, reads[size_t(other) * granules.size() + granule]))
        return {Problem::WriteAfterRead, address, other};
  return {};
}

SharedMemory::Finding SharedMemory::asyncReadProblem(uint32_t address, uint32_t bytes) const {
  for (const AsyncRead &read : asyncReads)
    if (address < read.end && read.begin < address + bytes)
      return {Problem::AsyncRead, std::max(address, read.begin), read.warp};
  return {};
}

SharedMemory::Finding SharedMemory::overwrite(uint32_t warp, uint32_t agent, uint32_t address,
                                              uint32_t bytes, State state, uint16_t owner) {
  if (Finding finding = asyncReadProblem(address, bytes))
    return finding;
  for (uint32_t g = address >> shift, end = (address + bytes) >> shift; g < end; ++g) {
    Granule &entry = granules[g];
    // Everything that happened to it is known to have happened before: nothing to look at.
    bool old = entry.state != State::Pending && entry.readStamp < order->oldest(warp) &&
               entry.writeStamp < order->oldest(warp) && entry.writer < order->warps();
    if (!old) {
      Finding finding = writeProblem(warp, g, false);
      if (finding)
        return finding;
    }
    entry.writeStamp = order->now();
    entry.writer = uint16_t(agent);
    entry.owner = owner;
    entry.state = state;
  }
  return {};
}

SharedMemory::Finding SharedMemory::atomic(uint32_t warp, uint32_t address, uint32_t bytes) {
  if (Finding finding = asyncReadProblem(address, bytes))
    return finding;
  for (uint32_t g = address >> shift, end = (address + bytes) >> shift; g < end; ++g) {
    Granule &entry = granules[g];
    if (entry.state == State::Unwritten)
      return {Problem::Unwritten, g << shift, 0};
    Finding finding = writeProblem(warp, g, true);
    if (finding)
      return finding;
    entry.writeStamp = order->now();
    entry.writer = uint16_t(warp);
    entry.state = State::Atomic;
  }
  return {};
}

void SharedMemory::endAsync(uint32_t warp, uint32_t address, uint32_t bytes) {
  for (uint32_t g = address >> shift, end = (address + bytes) >> shift; g < end; ++g) {
    Granule &entry = granules[g];
    entry.writeStamp = order->now();
    entry.writer = uint16_t(warp);
    entry.state = State::Written;
  }
}

SharedMemory::Finding SharedMemory::use(uint32_t warp, uint32_t address) const {
  const Granule &entry = granules[address >> shift];
  if (entry.state < State::Written || order->unordered(warp, entry.writer, entry.writeStamp))
    return readProblem(address >> shift);
  return {};
}

SharedMemory::Finding SharedMemory::beginAsyncRead(uint32_t warp, uint32_t address,
                                                   uint32_t bytes) {
  uint32_t granule = 1u << shift, first = address & ~(granule - 1);
  Finding finding = read(warp, first, (address + bytes - first + granule - 1) & ~(granule - 1));
  if (finding)
    return finding;
  for (uint32_t g = address >> shift; g << shift < address + bytes; ++g)
    if (order->unfenced(warp, granules[g].writer, granules[g].writeStamp))
      return {Problem::Unfenced, g << shift, granules[g].writer};
  return {};
}

void SharedMemory::holdAsyncRead(uint32_t warp, uint32_t address, uint32_t bytes) {
  asyncReads.push_back({warp, address, address + bytes});
}

// What others wait for is this end, not the instruction that began the read.
void SharedMemory::endAsyncRead(uint32_t warp, uint32_t address, uint32_t bytes) {
  auto found =
      std::find(asyncReads.begin(), asyncReads.end(), AsyncRead{warp, address, address + bytes});
  if (found != asyncReads.end()) {
    *found = asyncReads.back();
    asyncReads.pop_back();
  }
  for (uint32_t g = address >> shift; g << shift < address + bytes; ++g) {
    granules[g].readStamp = order->now();
    reads[size_t(warp) * granules.size() + g] = order->now();
  }
}

} // namespace rho::emulator
