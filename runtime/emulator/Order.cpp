#include "runtime/emulator/Order.h"

#include <algorithm>

namespace rho::emulator {

void mergeStamps(std::vector<uint32_t> &into, const std::vector<uint32_t> &from) {
  if (into.size() < from.size())
    into.resize(from.size(), 0);
  for (size_t i = 0; i < from.size(); ++i)
    into[i] = std::max(into[i], from[i]);
}

void Clock::merge(const Clock &other) {
  mergeStamps(seen, other.seen);
  mergeStamps(fenced, other.fenced);
}

void Clock::clear() {
  seen.clear();
  fenced.clear();
}

void Order::configure(uint32_t warps, uint32_t engines) {
  warpCount = warps;
  engineCount = engines;
  clocks.assign(warps, Clock{});
  released.assign(warps, Clock{});
  oldestOf.assign(warps, 0);
  waited.assign(warps, 0);
  depends.assign(warps, false);
}

bool Order::start() {
  bool reset = stamp > UINT32_MAX / 2;
  stamp = reset ? 1 : stamp + 1;
  for (Clock &clock : clocks) {
    clock.seen.assign(warpCount + engineCount, stamp);
    clock.fenced.assign(warpCount, stamp);
  }
  for (Clock &clock : released)
    clock.clear();
  std::fill(oldestOf.begin(), oldestOf.end(), stamp);
  std::fill(waited.begin(), waited.end(), 0);
  std::fill(depends.begin(), depends.end(), false);
  return reset;
}

bool Order::mayDepend(uint32_t warp) {
  for (uint32_t u = 0; u < warpCount && !depends[warp]; ++u)
    depends[warp] = waited[u] != 0 && !unordered(warp, u, waited[u]);
  return depends[warp];
}

void Order::arrive(uint32_t warp, Clock &into) {
  clocks[warp].seen[warp] = ++stamp;
  into.merge(clocks[warp]);
}

void Order::pass(uint32_t warp, const Clock &from) {
  Clock &clock = clocks[warp];
  clock.merge(from);
  uint32_t least = UINT32_MAX;
  for (uint32_t u = 0; u < warpCount; ++u)
    if (u != warp)
      least = std::min(least, clock.seen[u]);
  oldestOf[warp] = least;
}

void Order::release(uint32_t warp) {
  clocks[warp].seen[warp] = ++stamp;
  released[warp] = clocks[warp];
}

void Order::complete(uint32_t engine, Clock &into) {
  if (into.seen.empty())
    into.seen.assign(warpCount + engineCount, 0);
  into.seen[engine] = ++stamp;
}

} // namespace rho::emulator
