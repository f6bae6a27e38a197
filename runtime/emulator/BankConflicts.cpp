#include "runtime/emulator/BankConflicts.h"

#include <algorithm>

namespace rho::emulator {

namespace {

constexpr uint32_t banks = 32, wordBytes = 4;

// Words that one pass asks of each bank.
struct Pass {
  uint64_t words[banks][banks];
  uint32_t counts[banks] = {};

  void add(uint64_t word) {
    uint64_t bank = word % banks;
    uint64_t *known = words[bank];
    uint32_t &count = counts[bank];
    if (std::find(known, known + count, word) == known + count)
      known[count++] = word;
  }
  uint32_t turns() const { return *std::max_element(counts, counts + banks); }
};

} // namespace

uint32_t bankConflicts(const uint64_t *addresses, uint32_t mask, uint32_t bytes) {
  uint32_t lanesPerPass = bytes <= wordBytes ? 32 : 32 * wordBytes / bytes;
  uint32_t conflicts = 0;
  for (uint32_t first = 0; first < 32; first += lanesPerPass) {
    Pass pass;
    for (uint32_t lane = first; lane < first + lanesPerPass; ++lane)
      if (mask >> lane & 1)
        for (uint32_t offset = 0; offset < std::max(bytes, wordBytes); offset += wordBytes)
          pass.add((addresses[lane] + offset) / wordBytes);
    uint32_t turns = pass.turns();
    conflicts += turns > 1 ? turns - 1 : 0;
  }
  return conflicts;
}

} // namespace rho::emulator
