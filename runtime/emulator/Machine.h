// The state that instructions act on: a thread block and its warps.
#pragma once

#include "runtime/emulator/GlobalMemory.h"
#include "runtime/emulator/GlobalOrder.h"
#include "runtime/emulator/Program.h"
#include "runtime/emulator/SharedMemory.h"

#include <atomic>
#include <bit>
#include <map>
#include <optional>

namespace rho::emulator {

// Generic addresses: a window for each space that is no global memory.
constexpr uint64_t sharedWindow = uint64_t(1) << 32;
constexpr uint64_t localWindow = uint64_t(2) << 32;
constexpr uint64_t paramWindow = uint64_t(3) << 32;
constexpr uint64_t windowBytes = uint64_t(1) << 32;

constexpr uint32_t allLanes = ~0u;

// The bits that are set, from the lowest on, such as the lanes of a mask: for (int l :
// SetBits{mask}).
struct SetBits {
  uint32_t rest;
  SetBits begin() const { return *this; }
  SetBits end() const { return {0}; }
  bool operator==(const SetBits &) const = default;
  int operator*() const { return std::countr_zero(rest); }
  SetBits &operator++() {
    rest &= rest - 1;
    return *this;
  }
};

// Addresses in the window of shared memory: the executing CTA's own from 0, and from
// (rank + 1) * clusterStride those of each CTA of the cluster.
constexpr uint64_t clusterStride = uint64_t(1) << 24;
constexpr uint32_t maxClusterCtas = 8;
// Engines of the mbarriers of a CTA; with more mbarriers some share one, which hides findings.
constexpr uint32_t enginesOfCta = 64;

struct Cta;
struct Cluster;

// Copies of one cp.async instruction that are on their way, of lanes with one group number.
struct PendingCopy {
  uint32_t group = 0;
  uint32_t lanes = 0;
  uint32_t bytes = 0;
  uint32_t address[32]; // in shared memory
};

// An mbarrier object (PTX ISA, "mbarrier").
struct Mbarrier {
  uint32_t expected = 0, pending = 0; // arrivals
  int64_t bytes = 0;                  // that transactions have yet to complete
  uint64_t phase = 0;
  uint32_t initialiser = 0; // warp in the cluster
  bool fenced = false;      // by that warp since, so that bulk copies may signal it
  uint32_t engine = 0;      // agent of the bulk copies that complete on it
  Clock clock, completed;   // of this phase and all before; of the phases before
};

// A bulk copy from shared memory that may still read it.
struct BulkRead {
  uint32_t lane, group;
  uint32_t address, bytes;
};

// A wgmma that this warp has not waited for.
struct PendingWgmma {
  uint32_t group;
  const struct Inst *inst;
  struct Range {
    uint32_t address, bytes;
  };
  std::vector<Range> reads; // in shared memory
};

// What wgmma has to do with a register of the warp.
struct RegisterUse {
  bool touched = true;                 // by other instructions since the last wgmma.fence
  uint16_t results = 0, fragments = 0; // pending wgmma that have it in D or in A
  uint16_t shape = 0;                  // of those that have it in D
  uint32_t statement = 0;              // the last of these
};

struct Warp {
  // Waiting: for what only others can bring about. Polling: a test of an mbarrier was false, the
  // instruction runs again when one completes or nobody else can run.
  enum class State : uint8_t { Ready, Waiting, Polling, Done };

  Cta *cta = nullptr;
  uint8_t *registers = nullptr;
  uint32_t index = 0; // in the CTA
  uint32_t id = 0;    // in the cluster
  State state = State::Ready;
  bool giveUp = false; // a polling warp's test answers false

  // Lanes that exist and have not exited; those that run now share `pc`. The others wait at
  // pcs[lane]; mergePc is the least of these, where the running lanes stop and join.
  uint32_t exists = 0, live = 0, active = 0;
  uint32_t parked = 0;      // wait at a bar.warp.sync for others of their warp
  uint32_t activeCount = 0; // of active
  uint32_t pc = 0, mergePc = 0;
  uint32_t pcs[32] = {};

  uint64_t executed = 0;           // instructions
  uint64_t threadInstructions = 0; // times lanes
  uint64_t mmas = 0;               // mma.sync
  uint64_t bankConflicts = 0;      // passes that shared memory took beyond those needed

  uint32_t asyncGroup[32] = {}; // group number that the lane's next cp.async belongs to
  std::vector<PendingCopy> copies;
  uint32_t bulkGroup[32] = {}; // the same for bulk copies from shared memory
  std::vector<BulkRead> bulkReads;
  uint32_t wgmmaGroup = 0;
  std::vector<PendingWgmma> wgmmas;
  std::vector<RegisterUse> uses; // by offset / 64; empty where the entry has no wgmma
  // At barrier.cluster: has not arrived, has, waits too; the phase is complete, it has not waited.
  enum class Arrival : uint8_t { None, Arrived, Waiting, Complete } clusterArrival = Arrival::None;
  // Of stores to global memory: what the last fence makes known to others, and when it was.
  KnownStores released;
  uint32_t fencedAt = 0;
  uint32_t registersPerThread = 0;     // now; 0: the entry does not say
  const struct Inst *taking = nullptr; // setmaxnreg at which its warpgroup has met and it waits

  template <class T> T *reg(uint32_t offset) const {
    return reinterpret_cast<T *>(std::assume_aligned<64>(registers + offset));
  }
  uint32_t &predicate(uint32_t offset) const { return *reg<uint32_t>(offset); }
  uint32_t predicate(uint32_t offset, bool negated) const {
    return predicate(offset) ^ (negated ? ~0u : 0);
  }
  const uint32_t *list(uint32_t index) const;
  uint64_t clock() const { return executed; }

  // Chooses the lanes with the least pc, `active` is empty if all are parked. False: none is left.
  bool reschedule();
  // Ends the launch with this finding; the message's last argument tells instruction, CTA, thread
  // and origin.
  Flow fail(const Inst &inst, int lane, DiagId id, std::vector<std::string> args);
  // Every lane takes part, as instructions with .aligned ask; else the warp fails.
  bool converged(const Inst &inst, uint32_t mask);
  // Waits for the other three of four warps at the instruction. True: all are there and go on.
  // False: the warp waits or failed.
  bool meetGroup(const Inst &inst, uint32_t mask);
  // Each lane's member mask names exactly the lanes in `mask`; else the warp fails.
  bool checkMembers(const Inst &inst, uint32_t mask, const uint32_t *members);
  // The lanes wait for all that their member masks name, then go on together. False: the warp
  // failed.
  bool meetMembers(const Inst &inst, uint32_t mask, const uint32_t *members);
  uint32_t parkedAt(uint32_t at) const;
  int firstLane(uint32_t mask) const { return std::countr_zero(mask); }
};

// What all CTAs of a launch share.
struct LaunchState {
  const Program::Impl &program;
  const Entry &entry;
  const Launch &launch;
  AddressMap map;
  uint64_t clusters = 0;
  Dim3 gridClusters{};
  uint32_t sharedBytes = 0;
  GlobalOrder globalOrder{};
  std::atomic<uint64_t> nextCluster{0};
  std::atomic<uint64_t> failedCluster{UINT64_MAX}; // the lowest that failed; later ones stop
};

// Four warps that meet at an instruction.
struct WarpGroup {
  const Inst *inst = nullptr; // null: none has arrived
  uint32_t arrived = 0;
};

struct Cta {
  LaunchState *state = nullptr;
  const Entry *entry = nullptr;
  const Launch *launch = nullptr;
  Cluster *cluster = nullptr;
  uint32_t rank = 0; // in the cluster
  Dim3 index{0, 0, 0};
  uint32_t threads = 0;
  uint32_t worker = 0; // host thread, shown as %smid
  SharedMemory shared;
  std::vector<uint8_t> local; // [thread][localBytes]
  std::vector<Warp> warps;
  Barrier barriers[16];
  std::map<uint32_t, Mbarrier> mbarriers; // by address
  uint32_t enginesUsed = 0;
  WarpGroup groups[maxWarps / 4];
  int64_t freeRegisters = 0; // that setmaxnreg has given back
  std::optional<Error> error;
  // Allocations that instructions met last, by instruction.
  const Allocation *recent[64] = {};
};

// The CTAs of a cluster, which run together on one host thread.
struct Cluster {
  uint64_t number = 0;
  std::vector<Cta> ctas;
  Order order;
  Clock clock, completed; // of barrier.cluster: this phase, the one before
  uint64_t events = 0;    // arrivals and completed transactions, to tell polling from progress
  // Stores of other clusters that atomics have shown to a warp, and those that a warp has come to
  // know; since when.
  struct Seen {
    uint32_t warp, stamp;
    KnownStores stores;
  };
  std::vector<Seen> shown, acquired;

  void wakePolling();
  // The warp has fenced its initialisations of mbarriers.
  void fenceMbarriers(uint32_t warp);
  // barrier.cluster, once all warps that have not exited have arrived.
  void completeBarrier();
};

// The value of a special register that no instruction reads. Specials.cpp
uint32_t specialValue(const Cta &cta, const Warp &warp, Special special, uint32_t lane);

inline const uint32_t *Warp::list(uint32_t at) const { return cta->entry->lists.data() + at; }

} // namespace rho::emulator
