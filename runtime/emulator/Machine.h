// The state that instructions act on: a thread block and its warps.
#pragma once

#include "runtime/emulator/GlobalMemory.h"
#include "runtime/emulator/Program.h"
#include "runtime/emulator/SharedMemory.h"

#include <atomic>
#include <bit>
#include <optional>

namespace rho::emulator {

// Generic addresses: a window for each space that is no global memory.
constexpr uint64_t sharedWindow = uint64_t(1) << 32;
constexpr uint64_t localWindow = uint64_t(2) << 32;
constexpr uint64_t paramWindow = uint64_t(3) << 32;
constexpr uint64_t windowBytes = uint64_t(1) << 32;

constexpr uint32_t allLanes = ~0u;

struct Cta;

// Copies of one cp.async instruction that are on their way, of lanes with one group number.
struct PendingCopy {
  uint32_t group = 0;
  uint32_t lanes = 0;
  uint32_t bytes = 0;
  uint32_t address[32]; // in shared memory
};

struct Warp {
  enum class State : uint8_t { Ready, Waiting, Done };

  Cta *cta = nullptr;
  uint8_t *registers = nullptr;
  uint32_t index = 0;
  State state = State::Ready;
  uint32_t barrier = 0; // what a waiting warp waits for

  // Lanes that exist and have not exited; those that run now share `pc`. The others wait at
  // pcs[lane]; mergePc is the least of these, where the running lanes stop and join.
  uint32_t exists = 0, live = 0, active = 0;
  uint32_t activeCount = 0; // of active
  uint32_t pc = 0, mergePc = 0;
  uint32_t pcs[32] = {};

  uint64_t executed = 0;           // instructions
  uint64_t threadInstructions = 0; // times lanes
  uint64_t bankConflicts = 0;      // passes that shared memory took beyond those needed

  uint32_t asyncGroup[32] = {}; // group number that the lane's next cp.async belongs to
  std::vector<PendingCopy> copies;

  template <class T> T *reg(uint32_t offset) const {
    return reinterpret_cast<T *>(std::assume_aligned<64>(registers + offset));
  }
  uint32_t &predicate(uint32_t offset) const { return *reg<uint32_t>(offset); }
  const uint32_t *list(uint32_t index) const;
  uint64_t clock() const { return executed; }

  // Chooses the lanes with the least pc. False: none is left.
  bool reschedule();
  // Ends the launch with this finding; the message's last argument tells instruction, CTA, thread
  // and origin.
  Flow fail(const Inst &inst, int lane, DiagId id, std::vector<std::string> args);
  // Each lane's member mask names exactly the lanes in `mask`; else the warp fails.
  bool checkMembers(const Inst &inst, uint32_t mask, const uint32_t *members);
  int firstLane(uint32_t mask) const { return std::countr_zero(mask); }
};

// What all CTAs of a launch share.
struct LaunchState {
  const Program::Impl &program;
  const Entry &entry;
  const Launch &launch;
  AddressMap map;
  uint64_t ctas = 0;
  uint32_t sharedBytes = 0;
  std::atomic<uint64_t> nextCta{0};
  std::atomic<uint64_t> failedCta{UINT64_MAX}; // the lowest that failed; later ones stop
};

struct Cta {
  LaunchState *state = nullptr;
  const Entry *entry = nullptr;
  const Launch *launch = nullptr;
  uint64_t number = 0;
  Dim3 index{0, 0, 0};
  uint32_t threads = 0;
  uint32_t worker = 0; // host thread, shown as %smid
  SharedMemory shared;
  std::vector<uint8_t> local; // [thread][localBytes]
  std::vector<Warp> warps;
  Barrier barriers[16];
  std::optional<Error> error;
  // Allocations that instructions met last, by instruction.
  const Allocation *recent[64] = {};
};

inline const uint32_t *Warp::list(uint32_t at) const { return cta->entry->lists.data() + at; }

} // namespace rho::emulator
