// The shared memory of one CTA, and the shadow that finds what hardware does not report.
//
// The shadow has one entry per granule (the narrowest shared access of the kernel, at most 16
// bytes, so every access covers whole granules). Warps are numbered through the cluster: those of
// other CTAs reach this memory too.
#pragma once

#include "runtime/emulator/Order.h"

#include <cstddef>

namespace rho::emulator {

constexpr int maxWarps = 32; // of a CTA: 1024 threads

struct Barrier {
  uint32_t expected = 0; // threads; 0: nobody has arrived
  uint32_t arrived = 0;
  uint32_t waiting = 0; // warps
  Clock clock;          // what the arrived warps know
};

class SharedMemory {
public:
  enum class Problem : uint8_t {
    None,
    Unwritten,      // a read before any write
    Pending,        // touched while a cp.async writes it; other: that thread
    ReadAfterWrite, // other: the warp on the other side, for these three
    WriteAfterRead,
    WriteAfterWrite,
    BulkPending, // touched with no wait for the mbarrier of the bulk copy that wrote it
    AsyncRead,   // written while a wgmma or bulk copy of warp `other` reads it
    Unfenced,    // read by the async proxy; warp `other` wrote it and has not fenced
  };
  struct Finding {
    Problem problem = Problem::None;
    uint32_t address = 0;
    uint32_t other = 0;
    explicit operator bool() const { return problem != Problem::None; }
  };

  void configure(uint32_t bytes, uint32_t granule, Order &clusterOrder);
  void startCta();
  // Forgets all stamps.
  void reset();

  uint8_t *data() { return bytesOfCta.data(); }
  uint32_t size() const { return length; }

  // All take ranges inside shared memory, aligned to the granule.
  Finding read(uint32_t warp, uint32_t address, uint32_t bytes) {
    for (uint32_t g = address >> shift, end = (address + bytes) >> shift; g < end; ++g) {
      Granule &entry = granules[g];
      if (entry.state < State::Written || order->unordered(warp, entry.writer, entry.writeStamp))
          [[unlikely]]
        return readProblem(g);
      entry.readStamp = order->now();
      reads[std::size_t(warp) * granules.size() + g] = order->now();
    }
    return {};
  }
  Finding write(uint32_t warp, uint32_t address, uint32_t bytes) {
    return overwrite(warp, warp, address, bytes, State::Written, 0);
  }
  // Atomics of different warps need no order among themselves.
  Finding atomic(uint32_t warp, uint32_t address, uint32_t bytes);
  Finding beginAsync(uint32_t warp, uint32_t thread, uint32_t address, uint32_t bytes) {
    return overwrite(warp, warp, address, bytes, State::Pending, uint16_t(thread));
  }
  void endAsync(uint32_t warp, uint32_t address, uint32_t bytes);

  // An mbarrier at the address is used: its initialisation happened before.
  Finding use(uint32_t warp, uint32_t address) const;
  // A bulk copy that the warp issued writes as this engine.
  Finding bulkWrite(uint32_t warp, uint32_t engine, uint32_t address, uint32_t bytes) {
    return overwrite(warp, engine, address, bytes, State::Written, 0);
  }
  // The async proxy reads for the warp, from now to endAsyncRead with the same numbers. These take
  // any ranges.
  Finding beginAsyncRead(uint32_t warp, uint32_t address, uint32_t bytes);
  void holdAsyncRead(uint32_t warp, uint32_t address, uint32_t bytes);
  void endAsyncRead(uint32_t warp, uint32_t address, uint32_t bytes);

private:
  enum class State : uint8_t { Unwritten, Pending, Written, Atomic };
  struct Granule {
    uint32_t writeStamp = 0;
    uint32_t readStamp = 0; // the latest of all warps
    uint16_t owner = 0;     // thread of a pending cp.async
    uint16_t writer = 0;    // agent
    State state = State::Unwritten;
  };
  struct AsyncRead {
    uint32_t warp, begin, end;
    bool operator==(const AsyncRead &) const = default;
  };

  Finding readProblem(uint32_t granule) const;
  Finding asyncReadProblem(uint32_t address, uint32_t bytes) const;
  Finding overwrite(uint32_t warp, uint32_t agent, uint32_t address, uint32_t bytes, State state,
                    uint16_t owner);
  Finding writeProblem(uint32_t warp, uint32_t granule, bool atomic) const;

  Order *order = nullptr;
  std::vector<uint8_t> bytesOfCta;
  std::vector<Granule> granules;
  std::vector<uint32_t> reads; // [warp][granule] stamp of that warp's last read
  std::vector<AsyncRead> asyncReads;
  uint32_t length = 0, shift = 2;
};

} // namespace rho::emulator
