// What is made of the codes of a number's components: few of them occur, mostly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace rho::dsl {

// One `Made` for the codes of all components but the element, for the last of those with equal
// hashes. For one thread.
template <class Made> class KeptByCodes {
public:
  // Some 512 KB of tables of elements of so many bits.
  explicit KeptByCodes(int elementBits) : places(size_t(1) << std::max(0, 14 - elementBits)) {}

  // What is kept for these codes (codes[0] is not looked at); make(made) where that is something
  // else. Stays until the next call.
  template <class Make> Made &of(const std::vector<uint32_t> &codes, const Make &make) {
    if (kept.empty())
      kept.resize(places);
    uint64_t hash = 0;
    for (size_t i = 1; i < codes.size(); ++i)
      hash = (hash ^ codes[i]) * 0x9e3779b97f4a7c15;
    Entry &entry = kept[(hash >> 32) % places];
    if (!entry.isMade || !std::equal(entry.others.begin(), entry.others.end(), codes.begin() + 1)) {
      entry.others.assign(codes.begin() + 1, codes.end());
      entry.isMade = true;
      make(entry.made);
    }
    return entry.made;
  }

private:
  struct Entry {
    std::vector<uint32_t> others; // codes, without the element's
    bool isMade = false;
    Made made;
  };
  size_t places;
  std::vector<Entry> kept;
};

} // namespace rho::dsl
