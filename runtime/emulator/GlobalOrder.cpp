#include "runtime/emulator/GlobalOrder.h"

#include "runtime/emulator/Access.h"
#include "runtime/emulator/Faults.h"

#include <algorithm>
#include <utility>

namespace rho::emulator {

void merge(KnownStores &into, const KnownStores &from) {
  for (const auto &[cluster, stamps] : from)
    mergeStamps(into[cluster], stamps);
}

void GlobalOrder::wrote(uint64_t address, uint32_t bytes, const GlobalWriter &writer) {
  for (uint64_t at = address, end = address + bytes; at < end;) {
    Shard &shard = shards[at / blockBytes % shardCount];
    std::lock_guard lock(shard.mutex);
    std::array<GlobalWriter, blockBytes> &block = shard.blocks[at / blockBytes];
    for (const uint64_t next = std::min(end, (at / blockBytes + 1) * blockBytes); at < next; ++at)
      block[at % blockBytes] = writer;
  }
}

void GlobalOrder::publish(uint64_t address, uint64_t cluster, bool isNear,
                          const KnownStores &known) {
  std::lock_guard lock(mutex);
  Counter &counter = counters[address];
  if (!isNear)
    merge(counter.all, known);
  merge(counter.byCluster[cluster], known);
}

KnownStores GlobalOrder::published(uint64_t address, uint64_t cluster, bool isNear) const {
  std::lock_guard lock(mutex);
  auto found = counters.find(address);
  if (found == counters.end())
    return {};
  KnownStores stores = isNear ? KnownStores() : found->second.all;
  auto own = found->second.byCluster.find(cluster);
  if (own != found->second.byCluster.end())
    merge(stores, own->second);
  return stores;
}

namespace {

bool isBefore(const Warp &warp, const Cluster::Seen &seen) {
  return !warp.cta->cluster->order.unordered(warp.id, seen.warp, seen.stamp);
}

bool isKnown(const Warp &warp, const GlobalWriter &writer) {
  const Cluster &cluster = *warp.cta->cluster;
  if (writer.cluster == cluster.number &&
      !cluster.order.unordered(warp.id, writer.warp, writer.stamp))
    return true;
  return std::any_of(cluster.acquired.begin(), cluster.acquired.end(),
                     [&](const Cluster::Seen &each) {
                       auto stores = each.stores.find(writer.cluster);
                       return stores != each.stores.end() && writer.warp < stores->second.size() &&
                              stores->second[writer.warp] > writer.stamp && isBefore(warp, each);
                     });
}

// Addresses of global memory that lanes of the mask have, each once.
std::vector<uint64_t> globalOnes(uint32_t mask, const LaneAddresses &addresses) {
  std::vector<uint64_t> all;
  for (int lane : SetBits{mask}) {
    uint64_t address = addresses.at[lane];
    if (isGlobalAddress(address) && std::find(all.begin(), all.end(), address) == all.end())
      all.push_back(address);
  }
  return all;
}

// A loop that waits sees the same many times.
void note(std::vector<Cluster::Seen> &all, const Warp &warp, KnownStores stores) {
  const bool isOld = std::any_of(all.begin(), all.end(), [&](const Cluster::Seen &each) {
    return each.warp == warp.id && each.stores == stores;
  });
  if (!stores.empty() && !isOld)
    all.push_back({warp.id, warp.cta->cluster->order.now(), std::move(stores)});
}

// What the warp knows, `own` of its cluster.
void mergeKnown(KnownStores &into, const Warp &warp, const std::vector<uint32_t> &own) {
  const Cluster &cluster = *warp.cta->cluster;
  for (const Cluster::Seen &each : cluster.acquired)
    if (isBefore(warp, each))
      merge(into, each.stores);
  merge(into, {{cluster.number, own}});
}

} // namespace

bool orderGlobal(Warp &warp, const Inst &inst, uint32_t mask, uint32_t bytes, AccessKind kind,
                 const LaneAddresses &addresses) {
  if (!warp.cta->entry->usesAtomics)
    return true;
  const Cluster &cluster = *warp.cta->cluster;
  GlobalOrder &global = warp.cta->state->globalOrder;
  for (int lane : SetBits{mask}) {
    if (kind == AccessKind::Write) {
      global.wrote(addresses.at[lane], bytes, {cluster.number, warp.id, cluster.order.now()});
      continue;
    }
    std::optional<GlobalWriter> found =
        global.unknown(addresses.at[lane], bytes,
                       [&](const GlobalWriter &writer) { return isKnown(warp, writer); });
    if (!found)
      continue;
    const auto warps = uint32_t(warp.cta->warps.size());
    const auto ctas = uint32_t(cluster.ctas.size());
    warp.fail(inst, lane, DiagId::emulator_race_global,
              {hex(addresses.at[lane]), std::to_string(found->warp % warps),
               std::to_string(found->cluster * ctas + found->warp / warps)});
    return false;
  }
  return true;
}

void fenceGlobal(Warp &warp) {
  if (!warp.cta->entry->usesAtomics)
    return;
  Cluster &cluster = *warp.cta->cluster;
  for (const Cluster::Seen &each : cluster.shown) // to this warp, or to one behind a barrier
    if (isBefore(warp, each))
      note(cluster.acquired, warp, each.stores);
  mergeKnown(warp.released, warp, cluster.order.releasedBy(warp.id));
  warp.fencedAt = cluster.order.now();
}

void publishGlobal(Warp &warp, const Inst &inst, uint32_t mask, const LaneAddresses &addresses) {
  const std::vector<uint64_t> counters = globalOnes(mask, addresses);
  if (counters.empty()) // of shared memory
    return;
  Cluster &cluster = *warp.cta->cluster;
  const std::vector<uint32_t> &known = cluster.order.knownTo(warp.id);
  // Other warps may have fenced their stores themselves, before a barrier.
  KnownStores released = warp.released;
  std::vector<uint32_t> fenced;
  for (const Cta &cta : cluster.ctas)
    for (const Warp &other : cta.warps)
      fenced.push_back(std::min(known[other.id], other.fencedAt));
  merge(released, {{cluster.number, fenced}});
  if (inst.flag & orderReleases) // to those who read here, unlike a fence
    mergeKnown(released, warp, cluster.order.tell(warp.id));
  for (uint64_t address : counters)
    warp.cta->state->globalOrder.publish(address, cluster.number, inst.flag & orderNear, released);
}

void showGlobal(Warp &warp, const Inst &inst, uint32_t mask, const LaneAddresses &addresses) {
  Cluster &cluster = *warp.cta->cluster;
  for (uint64_t address : globalOnes(mask, addresses))
    note(inst.flag & orderAcquires ? cluster.acquired : cluster.shown, warp,
         warp.cta->state->globalOrder.published(address, cluster.number, inst.flag & orderNear));
}

} // namespace rho::emulator
