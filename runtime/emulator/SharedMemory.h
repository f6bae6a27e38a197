// The shared memory of one CTA, and the shadow that finds what hardware does not report.
//
// The shadow has one entry per granule (the narrowest shared access of the kernel, at most 16
// bytes, so every access covers whole granules). Ordering between warps is a vector clock: `now`
// counts barrier arrivals in the CTA, each access is stamped with it, and clock[w][u] says that all
// of u's accesses stamped below it happened before what w does now. Stamps keep growing from CTA
// to CTA so that nothing but the states needs a reset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rho::emulator {

constexpr int maxWarps = 32; // 1024 threads

struct Barrier {
  uint32_t expected = 0; // threads; 0: nobody has arrived
  uint32_t arrived = 0;
  uint32_t waiting = 0;          // warps
  uint32_t clock[maxWarps] = {}; // what the arrived warps know
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
  };
  struct Finding {
    Problem problem = Problem::None;
    uint32_t address = 0;
    uint32_t other = 0;
    explicit operator bool() const { return problem != Problem::None; }
  };

  void configure(uint32_t bytes, uint32_t granule, uint32_t warps);
  void startCta();

  uint8_t *data() { return bytesOfCta.data(); }
  uint32_t size() const { return length; }

  // All take ranges inside shared memory, aligned to the granule.
  Finding read(uint32_t warp, uint32_t address, uint32_t bytes) {
    for (uint32_t g = address >> shift, end = (address + bytes) >> shift; g < end; ++g) {
      Granule &entry = granules[g];
      if (entry.state < State::Written || unordered(warp, entry.writer, entry.writeStamp))
          [[unlikely]]
        return readProblem(g);
      entry.readStamp = now;
      reads[std::size_t(warp) * granules.size() + g] = now;
    }
    return {};
  }
  Finding write(uint32_t warp, uint32_t address, uint32_t bytes) {
    return overwrite(warp, address, bytes, State::Written, 0);
  }
  // Atomics of different warps need no order among themselves.
  Finding atomic(uint32_t warp, uint32_t address, uint32_t bytes);
  Finding beginAsync(uint32_t warp, uint32_t thread, uint32_t address, uint32_t bytes) {
    return overwrite(warp, address, bytes, State::Pending, uint16_t(thread));
  }
  void endAsync(uint32_t warp, uint32_t address, uint32_t bytes);

  // The warp's accesses so far are what others wait for.
  void arrive(uint32_t warp, Barrier &barrier);
  // The warp goes on after the barrier is complete.
  void pass(uint32_t warp, const Barrier &barrier);

private:
  enum class State : uint8_t { Unwritten, Pending, Written, Atomic };
  struct Granule {
    uint32_t writeStamp = 0;
    uint32_t readStamp = 0; // the latest of all warps
    uint16_t owner = 0;     // thread of a pending cp.async
    uint8_t writer = 0;     // warp
    State state = State::Unwritten;
  };

  bool unordered(uint32_t warp, uint32_t other, uint32_t stamp) const {
    return stamp >= oldest[warp] && other != warp && stamp >= clock[warp][other];
  }
  Finding readProblem(uint32_t granule) const;
  Finding overwrite(uint32_t warp, uint32_t address, uint32_t bytes, State state, uint16_t owner);
  Finding writeProblem(uint32_t warp, uint32_t granule, bool atomic) const;
  void updateOldest(uint32_t warp);

  std::vector<uint8_t> bytesOfCta;
  std::vector<Granule> granules;
  std::vector<uint32_t> reads; // [warp][granule] stamp of that warp's last read
  uint32_t length = 0, shift = 2, warps = 0;
  uint32_t now = 1;
  uint32_t clock[maxWarps][maxWarps] = {};
  uint32_t oldest[maxWarps] = {}; // the least of clock[w][u], u != w
};

} // namespace rho::emulator
