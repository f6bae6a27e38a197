// Which stores to global memory a load may rely on: those of its cluster that barriers order before
// it, and those of others that a fence and an atomic, there, and an atomic and a fence, here, order
// before it; a release is a fence before its store or atomic, an acquire one behind its load or
// atomic (PTX ISA, "Memory Consistency Model"). Scopes of the CTA and the cluster order within the
// cluster alone. Of kernels with atomics, releases or acquires; bulk copies and asynchronous ones
// are not looked at.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace rho::emulator {

// Stamps below which stores happened before, by cluster and warp: see Clock::seen.
using KnownStores = std::map<uint64_t, std::vector<uint32_t>>;
void merge(KnownStores &into, const KnownStores &from);

struct GlobalWriter {
  uint64_t cluster = 0;
  uint32_t warp = 0, stamp = 0; // stamp 0: nobody
};

// Of all clusters of a launch, which run on several host threads.
class GlobalOrder {
public:
  void wrote(uint64_t address, uint32_t bytes, const GlobalWriter &writer);
  // The first of the last writers of these bytes that isKnown() is false for.
  template <class IsKnown>
  std::optional<GlobalWriter> unknown(uint64_t address, uint32_t bytes,
                                      const IsKnown &isKnown) const {
    for (uint64_t at = address, end = address + bytes; at < end;) {
      const Shard &shard = shards[at / blockBytes % shardCount];
      std::lock_guard lock(shard.mutex);
      auto found = shard.blocks.find(at / blockBytes);
      const uint64_t next = std::min(end, (at / blockBytes + 1) * blockBytes);
      for (; found != shard.blocks.end() && at < next; ++at)
        if (const GlobalWriter &writer = found->second[at % blockBytes];
            writer.stamp != 0 && !isKnown(writer))
          return writer;
      at = next;
    }
    return std::nullopt;
  }

  // What atomics at an address tell each other: before one is executed, and after. Near ones tell
  // and hear their own cluster alone.
  void publish(uint64_t address, uint64_t cluster, bool isNear, const KnownStores &known);
  KnownStores published(uint64_t address, uint64_t cluster, bool isNear) const;

private:
  static constexpr uint64_t blockBytes = 256, shardCount = 64;
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<uint64_t, std::array<GlobalWriter, blockBytes>> blocks; // by byte
  };
  Shard shards[shardCount];
  mutable std::mutex mutex;
  struct Counter {
    KnownStores all;                           // but for what is near
    std::map<uint64_t, KnownStores> byCluster; // that told it
  };
  std::map<uint64_t, Counter> counters;
};

} // namespace rho::emulator
