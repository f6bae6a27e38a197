// Runs a grid: CTAs on host threads, the warps of a CTA in turns, the lanes of a warp by least pc.
#include "dsl/Device.h"
#include "dsl/Parallel.h"
#include "runtime/emulator/Faults.h"
#include "runtime/emulator/Machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace rho::emulator {

bool Warp::reschedule() {
  for (int lane : SetBits{active})
    pcs[lane] = pc;
  uint32_t least = UINT32_MAX, second = UINT32_MAX, chosen = 0;
  for (int lane : SetBits{live & ~parked}) {
    uint32_t at = pcs[lane];
    if (at < least) {
      second = least;
      least = at;
      chosen = 0;
    }
    if (at == least)
      chosen |= 1u << lane;
    else
      second = std::min(second, at);
  }
  active = chosen;
  activeCount = uint32_t(std::popcount(chosen));
  pc = least;
  mergePc = second;
  return live != 0;
}

void Cluster::wakePolling() {
  for (Cta &cta : ctas)
    for (Warp &warp : cta.warps)
      if (warp.state == Warp::State::Polling)
        warp.state = Warp::State::Ready;
}

namespace {

// Instructions after which another warp's turn comes, which may be what this one spins for.
constexpr uint64_t turn = 1 << 14;
// Rounds in which all warps only test mbarriers and nothing arrives anywhere: a loop around a test
// that ends by itself is shorter.
constexpr uint32_t maxIdleRounds = 1 << 12;

// Executes until the warp waits, exits or fails or its turn is over. False: the launch is over for
// this cluster.
bool runWarp(Cta &cta, Warp &warp) {
  const Inst *code = cta.entry->code.data();
  uint64_t limit = cta.launch->maxWarpInstructions;
  uint64_t nextCheck = std::min(limit, warp.executed + turn);
  uint64_t &executed = warp.executed, threadInstructions = 0;
  bool goesOn = true;
  while (true) {
    if (warp.pc >= warp.mergePc) [[unlikely]]
      warp.reschedule();
    const Inst &inst = code[warp.pc];
    if (executed >= nextCheck) [[unlikely]] {
      if (executed >= limit) {
        warp.fail(inst, warp.firstLane(warp.active), DiagId::emulator_no_progress,
                  {std::to_string(limit)});
        goesOn = false;
        break;
      }
      goesOn = cta.state->failedCluster.load(std::memory_order_relaxed) >= cta.cluster->number;
      break;
    }
    ++executed;
    ++warp.pc;
    uint32_t mask = warp.active;
    threadInstructions += warp.activeCount;
    if (inst.guard)
      mask &= warp.predicate(inst.guard) ^ inst.guardFlip;
    if (!mask)
      continue;
    if (inst.run(warp, inst, mask) != Flow::Next) {
      goesOn = !cta.error;
      break;
    }
  }
  warp.threadInstructions += threadInstructions;
  return goesOn;
}

// How far warps fall behind each other: a GPU promises nothing, and what waits for the wrong phase
// of a barrier, or for none, shows only where one of them is late. By chance, the same in every
// run.
class Lags {
public:
  void start(uint64_t seed, size_t warps) {
    state = (seed + 1) * 0x9e3779b97f4a7c15U;
    rounds.assign(warps, 0);
  }

  // Whether a warp that could go on stays where it is for a round.
  bool holds(const Warp &warp) {
    uint16_t &left = rounds[warp.id];
    if (left > 0) {
      --left;
      return true;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    if ((state >> 40 & (oneIn - 1)) == 0)
      left = static_cast<uint16_t>(state >> 20 & (mostRounds - 1));
    return false;
  }

  void end() { std::fill(rounds.begin(), rounds.end(), 0); }

private:
  static constexpr uint64_t oneIn = 32, mostRounds = 64; // powers of two
  uint64_t state = 0;
  std::vector<uint16_t> rounds; // by warp
};

bool is64Bit(Special special) { return special == Special::GridId; }

// What a worker keeps from cluster to cluster.
struct Worker {
  LaunchState &state;
  Cluster cluster;
  Lags lags;
  std::vector<uint8_t> storage; // register files, 64-byte aligned inside
  LaunchStats stats;

  Worker(LaunchState &state, uint32_t index) : state(state) {
    const Launch &launch = state.launch;
    uint32_t threads = launch.block.x * launch.block.y * launch.block.z;
    uint32_t warps = (threads + 31) / 32;
    cluster.ctas.resize(size_t(launch.cluster.x) * launch.cluster.y * launch.cluster.z);
    auto ctas = uint32_t(cluster.ctas.size());
    cluster.order.configure(ctas * warps, ctas * enginesOfCta);
    size_t fileBytes = state.entry.registers.size();
    storage.resize(size_t(ctas) * warps * fileBytes + 64);
    uint8_t *file = storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64;
    for (uint32_t rank = 0; rank < ctas; ++rank) {
      Cta &cta = cluster.ctas[rank];
      cta.state = &state;
      cta.entry = &state.entry;
      cta.launch = &launch;
      cta.cluster = &cluster;
      cta.rank = rank;
      cta.worker = index;
      cta.threads = threads;
      cta.shared.configure(state.sharedBytes, state.entry.sharedGranule, cluster.order);
      cta.warps.resize(warps);
      for (uint32_t w = 0; w < warps; ++w, file += fileBytes) {
        Warp &warp = cta.warps[w];
        warp.cta = &cta;
        warp.index = w;
        warp.id = rank * warps + w;
        warp.registers = file;
      }
    }
  }

  void startCluster(uint64_t number) {
    const Dim3 &grid = state.gridClusters, &shape = state.launch.cluster;
    cluster.number = number;
    lags.start(number, cluster.ctas.size() * cluster.ctas[0].warps.size());
    Dim3 first{uint32_t(number % grid.x) * shape.x, uint32_t(number / grid.x % grid.y) * shape.y,
               uint32_t(number / grid.x / grid.y) * shape.z};
    if (cluster.order.start())
      for (Cta &cta : cluster.ctas)
        cta.shared.reset();
    cluster.clock.clear();
    cluster.completed.clear();
    cluster.shown.clear();
    cluster.acquired.clear();
    for (Cta &cta : cluster.ctas) {
      cta.index = Dim3{first.x + cta.rank % shape.x, first.y + cta.rank / shape.x % shape.y,
                       first.z + cta.rank / shape.x / shape.y};
      startCta(cta);
    }
  }

  void startCta(Cta &cta) {
    cta.shared.startCta();
    cta.local.assign(state.entry.localBytes * cta.threads, 0);
    for (Barrier &barrier : cta.barriers)
      barrier = Barrier{};
    cta.mbarriers.clear();
    cta.enginesUsed = 0;
    for (WarpGroup &group : cta.groups)
      group = WarpGroup{};
    cta.freeRegisters = 0;
    for (Warp &warp : cta.warps)
      startWarp(cta, warp);
  }

  void startWarp(const Cta &cta, Warp &warp) {
    // Registers start as zero on every CTA: results never depend on what ran before.
    std::memcpy(warp.registers, state.entry.registers.data(), state.entry.registers.size());
    uint32_t lanes = std::min(32u, cta.threads - warp.index * 32);
    warp.exists = warp.live = lanes == 32 ? allLanes : (1u << lanes) - 1;
    warp.active = warp.live;
    warp.parked = 0;
    warp.activeCount = lanes;
    warp.pc = 0;
    warp.mergePc = UINT32_MAX;
    warp.state = Warp::State::Ready;
    warp.giveUp = false;
    warp.executed = 0;
    warp.copies.clear();
    std::fill(std::begin(warp.asyncGroup), std::end(warp.asyncGroup), 0);
    warp.bulkReads.clear();
    std::fill(std::begin(warp.bulkGroup), std::end(warp.bulkGroup), 0);
    warp.wgmmas.clear();
    warp.wgmmaGroup = 0;
    warp.uses.assign(state.entry.usesWgmma ? state.entry.registers.size() / 64 : 0, RegisterUse{});
    warp.clusterArrival = Warp::Arrival::None;
    warp.registersPerThread = state.entry.registersPerThread;
    warp.taking = nullptr;
    warp.released.clear();
    warp.fencedAt = 0;
    for (const SpecialSlot &slot : state.entry.specials)
      for (uint32_t lane = 0; lane < 32; ++lane) {
        uint32_t value = specialValue(cta, warp, slot.special, lane);
        if (is64Bit(slot.special))
          warp.reg<uint64_t>(slot.offset)[lane] = value;
        else
          warp.reg<uint32_t>(slot.offset)[lane] = value;
      }
  }

  // What the barriers of a CTA lack.
  std::string missing(const Cta &cta) const {
    std::string held;
    auto add = [&](const std::string &what) { held += (held.empty() ? "" : ", ") + what; };
    std::string where =
        cluster.ctas.size() > 1 ? " of cta " + std::to_string(cta.rank) + " of the cluster" : "";
    for (int b = 0; b < 16; ++b) {
      const Barrier &barrier = cta.barriers[b];
      if (barrier.expected)
        add("barrier " + std::to_string(b) + where + " has " + std::to_string(barrier.arrived) +
            " of " + std::to_string(barrier.expected) + " threads");
    }
    for (const Warp &warp : cta.warps)
      if (warp.taking)
        add("warps " + std::to_string(warp.index / 4 * 4) + " to " +
            std::to_string(warp.index / 4 * 4 + 3) + where + " want " +
            std::to_string(warp.taking->imm) + " registers a thread, they have " +
            std::to_string(warp.registersPerThread) + " and " + std::to_string(cta.freeRegisters) +
            " are free");
    for (const auto &[address, barrier] : cta.mbarriers)
      add("mbarrier " + hex(address) + where + " lacks " + std::to_string(barrier.pending) +
          " of " + std::to_string(barrier.expected) + " arrivals and " +
          std::to_string(barrier.bytes) + " bytes");
    return held;
  }

  // No warp can ever go on.
  void deadlock() {
    std::string held;
    uint32_t exited = 0;
    Warp *waiting = nullptr;
    for (Cta &cta : cluster.ctas) {
      std::string lacks = missing(cta);
      held += (held.empty() || lacks.empty() ? "" : ", ") + lacks;
      for (Warp &warp : cta.warps) {
        exited += uint32_t(std::popcount(warp.exists & ~warp.live));
        if (warp.state != Warp::State::Done && !waiting)
          waiting = &warp;
      }
    }
    if (!waiting)
      return;
    bool polls = waiting->state == Warp::State::Polling; // its pc is the test itself
    const Inst &inst = state.entry.code[waiting->pc - (polls ? 0 : 1)];
    waiting->fail(inst, waiting->firstLane(waiting->active), DiagId::emulator_deadlock,
                  {held, std::to_string(exited)});
  }

  // One turn for each warp that can go on. False: the launch is over for this cluster.
  bool runReady(bool &progress, bool &waiting) {
    bool held = false;
    for (Cta &cta : cluster.ctas)
      for (Warp &warp : cta.warps) {
        waiting |= warp.state != Warp::State::Done;
        if (warp.state != Warp::State::Ready)
          continue;
        if (lags.holds(warp)) {
          held = true;
          continue;
        }
        progress = true;
        if (!runWarp(cta, warp))
          return false;
      }
    if (held && !progress) // nobody else can go on
      lags.end();
    progress |= held;
    return true;
  }

  // Tests of mbarriers that nobody else can make true answer false. False: there are none.
  bool answerPolling() {
    bool any = false;
    for (Cta &cta : cluster.ctas)
      for (Warp &warp : cta.warps)
        if (warp.state == Warp::State::Polling) {
          warp.state = Warp::State::Ready;
          warp.giveUp = any = true;
        }
    return any;
  }

  void runCluster(uint64_t number) {
    startCluster(number);
    uint64_t events = cluster.events;
    uint32_t idleRounds = 0;
    while (true) {
      bool progress = false, waiting = false;
      if (!runReady(progress, waiting) || !waiting)
        return;
      if (progress)
        continue;
      idleRounds = events == cluster.events ? idleRounds + 1 : 0;
      events = cluster.events;
      if (idleRounds > maxIdleRounds || !answerPolling())
        return deadlock();
    }
  }

  std::optional<Error> *failure() {
    for (Cta &cta : cluster.ctas)
      if (cta.error)
        return &cta.error;
    return nullptr;
  }

  void run(std::mutex &mutex, std::optional<Error> &error) {
    while (true) {
      uint64_t number = state.nextCluster.fetch_add(1);
      if (number >= state.clusters || number > state.failedCluster.load())
        break;
      runCluster(number);
      for (Cta &cta : cluster.ctas) {
        ++stats.ctas;
        uint64_t mmas = 0;
        for (Warp &warp : cta.warps) {
          mmas += std::exchange(warp.mmas, 0);
          stats.threadInstructions += warp.threadInstructions;
          warp.threadInstructions = 0;
          stats.bankConflicts += warp.bankConflicts;
          warp.bankConflicts = 0;
        }
        stats.mostMmas = std::max(stats.mostMmas, mmas);
      }
      std::optional<Error> *failed = failure();
      if (!failed)
        continue;
      // The lowest cluster's error is the launch's: the same on every run, whatever the host's
      // timing.
      std::lock_guard lock(mutex);
      if (number < state.failedCluster.load()) {
        state.failedCluster.store(number);
        error = std::move(*failed);
      }
      break;
    }
  }
};

std::string shape(const uint32_t (&d)[3]) {
  return std::to_string(d[0]) + "x" + std::to_string(d[1]) + "x" + std::to_string(d[2]);
}

// CUDA C++ Programming Guide, "Maximum amount of local memory per thread".
constexpr uint64_t mostLocalBytes = 512 * 1024;

// What makes a launch impossible; empty: nothing.
std::string launchProblem(const Program::Impl &program, const Entry &entry, const Launch &launch) {
  uint32_t block[3] = {launch.block.x, launch.block.y, launch.block.z};
  uint32_t grid[3] = {launch.grid.x, launch.grid.y, launch.grid.z};
  uint64_t threads = uint64_t(block[0]) * block[1] * block[2];
  for (int i = 0; i < 3; ++i)
    if (block[i] == 0 || block[i] > (i == 2 ? 64u : 1024u) || threads > 1024)
      return "block " + shape(block) + ", a block has 1 to 1024 threads and at most 64 in z";
  for (int i = 0; i < 3; ++i)
    if (grid[i] == 0 || grid[i] > (i == 0 ? 0x7fffffffu : 65535u))
      return "grid " + shape(grid) + ", a grid has at least 1 and at most 2147483647x65535x65535";
  uint32_t cluster[3] = {launch.cluster.x, launch.cluster.y, launch.cluster.z};
  for (int i = 0; i < 3; ++i)
    if (cluster[i] == 0 || cluster[i] > maxClusterCtas || grid[i] % cluster[i] != 0)
      return "clusters " + shape(cluster) + " in grid " + shape(grid) +
             ", a cluster divides the grid";
  if (cluster[0] * cluster[1] * cluster[2] > maxClusterCtas)
    return "clusters " + shape(cluster) + ", a cluster has at most " +
           std::to_string(maxClusterCtas) + " ctas";
  if (entry.requiredCluster[0] && !std::equal(cluster, cluster + 3, entry.requiredCluster))
    return "clusters " + shape(cluster) + ", .reqnctapercluster asks for " +
           shape(entry.requiredCluster);
  uint64_t allowed = uint64_t(entry.maxThreads[0]) * entry.maxThreads[1] * entry.maxThreads[2];
  if (allowed && threads > allowed)
    return "block " + shape(block) + ", .maxntid allows " + std::to_string(allowed) + " threads";
  if (entry.requiredThreads[0] && !std::equal(block, block + 3, entry.requiredThreads))
    return "block " + shape(block) + ", .reqntid asks for " + shape(entry.requiredThreads);
  int64_t shared = launch.sharedBytes;
  const int64_t limit =
      launch.mostSharedBytes > 0 ? launch.mostSharedBytes : dsl::mostSharedPerCta(program.target);
  if (shared < 0 || shared > limit || entry.staticShared + uint64_t(shared) > uint64_t(limit))
    return std::to_string(shared) + " bytes of dynamic and " + std::to_string(entry.staticShared) +
           " of static shared memory, a block may have " + std::to_string(limit);
  if (entry.localBytes > mostLocalBytes)
    return std::to_string(entry.localBytes) + " bytes of local memory, a thread may have " +
           std::to_string(mostLocalBytes);
  if (launch.parameters.size() != entry.parameterBytes)
    return std::to_string(launch.parameters.size()) + " bytes of parameters, the entry takes " +
           std::to_string(entry.parameterBytes);
  return {};
}

} // namespace

Result<LaunchStats> run(const Program &program, Memory &memory, const Launch &launch, int threads) {
  const Program::Impl &impl = program.impl();
  auto entry = std::find_if(impl.entries.begin(), impl.entries.end(),
                            [&](const Entry &e) { return e.name == launch.entry; });
  if (entry == impl.entries.end()) {
    std::string names;
    for (const Entry &e : impl.entries)
      names += (names.empty() ? "`" : ", `") + e.name + "`";
    return makeError(DiagId::emulator_unknown_entry,
                     {launch.entry, names.empty() ? "no entry" : names});
  }
  std::string problem = launchProblem(impl, *entry, launch);
  if (!problem.empty())
    return makeError(DiagId::emulator_bad_launch, {launch.entry, problem});

  auto start = std::chrono::steady_clock::now();
  LaunchState state{impl, *entry, launch, AddressMap(memory)};
  for (const ModuleVariable &variable : impl.variables) {
    Allocation allocation{variable.address, variable.size, hostMemory(variable.size),
                          variable.constant};
    if (!allocation.host || !variable.address)
      return makeError(DiagId::emulator_bad_launch,
                       {launch.entry, std::to_string(variable.size) +
                                          " bytes for a variable, there is no memory for them"});
    std::copy(variable.initial.begin(), variable.initial.end(), allocation.host.get());
    state.map.add(std::move(allocation));
  }
  state.gridClusters = Dim3{launch.grid.x / launch.cluster.x, launch.grid.y / launch.cluster.y,
                            launch.grid.z / launch.cluster.z};
  state.clusters = uint64_t(state.gridClusters.x) * state.gridClusters.y * state.gridClusters.z;
  state.sharedBytes = uint32_t(entry->staticShared + uint64_t(launch.sharedBytes));

  uint64_t hosts =
      threads > 0 ? uint64_t(threads) : std::max(1u, std::thread::hardware_concurrency());
  hosts = std::min<uint64_t>({hosts, state.clusters, 256});
  std::mutex mutex;
  std::optional<Error> error;
  LaunchStats stats;
  std::atomic<uint32_t> workers = 0;
  dsl::parallel(static_cast<int64_t>(hosts), static_cast<unsigned>(hosts), [&](const auto &) {
    Worker worker(state, workers++);
    worker.run(mutex, error);
    std::lock_guard lock(mutex);
    stats.threadInstructions += worker.stats.threadInstructions;
    stats.bankConflicts += worker.stats.bankConflicts;
    stats.mostMmas = std::max(stats.mostMmas, worker.stats.mostMmas);
    stats.ctas += worker.stats.ctas;
  });
  stats.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (error)
    return std::move(*error);
  return stats;
}

} // namespace rho::emulator
