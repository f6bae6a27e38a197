// Which accesses of a cluster happened before which: vector clocks.
//
// Agents are the warps of all the cluster's CTAs and, behind them, the engines that bulk copies
// write shared memory with: one for each mbarrier, since only who has seen that mbarrier's phase
// complete may look. `now` counts synchronisations in the cluster and each access is stamped with
// it. Stamps keep growing from cluster to cluster, so that only states need a reset.
#pragma once

#include <cstdint>
#include <vector>

namespace rho::emulator {

// Of each agent the later of two stamps; of those that are missing in one, the other's.
void mergeStamps(std::vector<uint32_t> &into, const std::vector<uint32_t> &from);

// What is known at a point of synchronisation, by agent. Empty: nothing.
struct Clock {
  std::vector<uint32_t> seen;   // accesses stamped below happened before
  std::vector<uint32_t> fenced; // so did a fence.proxy.async behind writes stamped below
  void merge(const Clock &other);
  void clear();
};

class Order {
public:
  void configure(uint32_t warps, uint32_t engines);
  // Before a cluster starts: nothing of the one before is unordered. True: stamps were reset.
  bool start();

  uint32_t warps() const { return warpCount; }
  uint32_t engines() const { return engineCount; }
  uint32_t now() const { return stamp; }

  // Whether `at`, a stamp of the agent's access, is not known to have happened before what the
  // warp does now.
  bool unordered(uint32_t warp, uint32_t agent, uint32_t at) const {
    return agent != warp && at >= clocks[warp].seen[agent];
  }
  // Whether the async proxy may miss a write of another warp or of this one.
  bool unfenced(uint32_t warp, uint32_t agent, uint32_t at) const {
    return agent < warpCount && at >= clocks[warp].fenced[agent];
  }
  // Below this stamp, reads of all warps happened before.
  uint32_t oldest(uint32_t warp) const { return oldestOf[warp]; }

  // griddepcontrol.wait, and whether one is known to have happened before what the warp does now.
  void dependency(uint32_t warp) { waited[warp] = stamp; }
  bool mayDepend(uint32_t warp);

  // The warp's accesses so far become known to whoever passes `into`.
  void arrive(uint32_t warp, Clock &into);
  void pass(uint32_t warp, const Clock &from);
  // A fence, and an arrival that is relaxed: what came before the last fence becomes known.
  void release(uint32_t warp);
  // What the warp knows of its cluster, and what its last fence makes known.
  const std::vector<uint32_t> &knownTo(uint32_t warp) const { return clocks[warp].seen; }
  const std::vector<uint32_t> &releasedBy(uint32_t warp) const { return released[warp].seen; }
  // A store or an atomic that releases: what becomes known to whoever acquires it.
  const std::vector<uint32_t> &tell(uint32_t warp) {
    clocks[warp].seen[warp] = ++stamp;
    return clocks[warp].seen;
  }
  void arriveRelaxed(uint32_t warp, Clock &into) const { into.merge(released[warp]); }
  // fence.proxy.async
  void fence(uint32_t warp) { clocks[warp].fenced[warp] = ++stamp; }
  // The engine's writes so far become known to whoever passes `into`.
  void complete(uint32_t engine, Clock &into);

private:
  uint32_t warpCount = 0, engineCount = 0;
  uint32_t stamp = 1;
  std::vector<Clock> clocks;      // of each warp
  std::vector<Clock> released;    // the same at its last fence
  std::vector<uint32_t> oldestOf; // the least of clocks[w].seen[u] over warps u != w
  std::vector<uint32_t> waited;   // stamps of each warp's last griddepcontrol.wait; 0: none
  std::vector<bool> depends;      // warps that one is known to
};

} // namespace rho::emulator
