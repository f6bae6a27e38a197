// What stands behind simulated global addresses.
#pragma once

#include "runtime/emulator/Emulator.h"

#include <map>
#include <mutex>

namespace rho::emulator {

struct Allocation {
  uint64_t address = 0;
  uint64_t size = 0;
  std::shared_ptr<uint8_t> host; // null once released
  bool constant = false;

  bool contains(uint64_t at, uint64_t bytes) const {
    return at >= address && bytes <= size && at - address <= size - bytes;
  }
};

// Takes `bytes` of the process's simulated addresses, which are never given twice, with guard space
// on both sides. 0 when they are used up.
uint64_t reserveAddresses(uint64_t bytes);
// Zeroed host memory, aligned for every atomic type; null when there is none left.
std::shared_ptr<uint8_t> hostMemory(uint64_t bytes);

struct Memory::Impl {
  mutable std::mutex mutex;
  std::map<uint64_t, Allocation> allocations; // by address, released ones included
  uint64_t released = 0;                      // entries without host memory
};

// The allocations as they are when a launch begins; keeps their host memory alive.
class AddressMap {
public:
  explicit AddressMap(const Memory &memory);
  void add(Allocation allocation); // keeps the order
  // The allocation at or before `address`; null when there is none.
  const Allocation *before(uint64_t address) const;
  const Allocation *after(uint64_t address) const;

private:
  std::vector<Allocation> sorted;
};

} // namespace rho::emulator
