// Executes PTX on the CPU, thread block by thread block, and checks what hardware does not say.
#pragma once

#include "dsl/Error.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rho::emulator {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

// Simulated global memory: allocations with guard space between them, so that any access outside
// one is found. Addresses are 256-byte aligned and never reused while the process lives.
class Memory {
public:
  Memory();
  ~Memory();
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  uint64_t allocate(int64_t bytes);
  bool release(uint64_t address); // false: not the start of an allocation
  // Host side copies; error emulator_bad_range outside an allocation.
  Status write(uint64_t address, const void *from, int64_t bytes);
  Status read(uint64_t address, void *to, int64_t bytes) const;
  Status fill(uint64_t address, uint8_t value, int64_t bytes);

  struct Impl;
  Impl &impl() const { return *pimpl; }

private:
  std::unique_ptr<Impl> pimpl;
};

// A parsed PTX module.
class Program {
public:
  // Refuses what it does not know by name: error emulator_unknown_instruction with the PTX line.
  static Result<Program> parse(std::string_view ptx);
  std::vector<std::string> entries() const;

  struct Impl;
  const Impl &impl() const { return *pimpl; }

private:
  Program() = default; // every Program comes from parse
  std::shared_ptr<const Impl> pimpl;
};

struct Launch {
  std::string entry;
  Dim3 grid, block;                 // the grid in CTAs, also with clusters
  Dim3 cluster;                     // in CTAs; .reqnctapercluster must say the same
  int64_t sharedBytes = 0;          // dynamic
  int64_t mostSharedBytes = 0;      // of a CTA; 0: what the target of the PTX has
  std::vector<uint8_t> parameters;  // the parameter buffer with the PTX ABI's alignment
  std::vector<std::string> origins; // see compiler::KernelImage::origins
  // Of a programmatic dependent launch: what no grid before it writes. Until griddepcontrol.wait it
  // may be read, and nothing else be read or written.
  struct Ahead {
    uint64_t address, bytes;
  };
  std::optional<Ahead> ahead = {};
  // Watchdog: instructions one CTA may execute per warp before emulator_no_progress.
  uint64_t maxWarpInstructions = uint64_t(1) << 34;
};

struct LaunchStats {
  uint64_t threadInstructions = 0; // executed instructions times active threads
  uint64_t bankConflicts = 0; // passes of shared memory beyond those that the accesses' sizes need
  uint64_t mostMmas = 0;      // mma.sync instructions of the CTA that executed most of them
  uint64_t ctas = 0;
  double seconds = 0;
};

// Runs the grid. CTAs run on `threads` host threads (0: all cores). An error names the check, the
// PTX instruction and line, the CTA and thread, the address and its limits, and the origin
// ("weight.scale") of the instruction from its .loc line.
Result<LaunchStats> run(const Program &program, Memory &memory, const Launch &launch,
                        int threads = 0);

} // namespace rho::emulator
