// Runs a grid: CTAs on host threads, the warps of a CTA in turns, the lanes of a warp by least pc.
#include "runtime/emulator/Faults.h"
#include "runtime/emulator/Machine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

namespace rho::emulator {

bool Warp::reschedule() {
  for (uint32_t rest = active; rest; rest &= rest - 1)
    pcs[std::countr_zero(rest)] = pc;
  uint32_t least = UINT32_MAX, second = UINT32_MAX, chosen = 0;
  for (uint32_t rest = live; rest; rest &= rest - 1) {
    int lane = std::countr_zero(rest);
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

namespace {

// Instructions between two looks at whether the launch has failed elsewhere.
constexpr uint64_t cancelInterval = 1 << 14;

// Executes until the warp waits, exits or fails. False: the launch is over for this CTA.
bool runWarp(Cta &cta, Warp &warp) {
  const Inst *code = cta.entry->code.data();
  uint64_t limit = cta.launch->maxWarpInstructions;
  uint64_t nextCheck = std::min(limit, warp.executed + cancelInterval);
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
      nextCheck = std::min(limit, executed + cancelInterval);
      if (cta.state->failedCta.load(std::memory_order_relaxed) < cta.number) {
        goesOn = false;
        break;
      }
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

uint32_t specialValue(const Cta &cta, const Warp &warp, Special special, uint32_t lane) {
  const Launch &launch = *cta.launch;
  uint32_t thread = warp.index * 32 + lane;
  switch (special) {
  case Special::TidX:
    return thread % launch.block.x;
  case Special::TidY:
    return thread / launch.block.x % launch.block.y;
  case Special::TidZ:
    return thread / launch.block.x / launch.block.y;
  case Special::NtidX:
    return launch.block.x;
  case Special::NtidY:
    return launch.block.y;
  case Special::NtidZ:
    return launch.block.z;
  case Special::CtaidX:
    return cta.index.x;
  case Special::CtaidY:
    return cta.index.y;
  case Special::CtaidZ:
    return cta.index.z;
  case Special::NctaidX:
    return launch.grid.x;
  case Special::NctaidY:
    return launch.grid.y;
  case Special::NctaidZ:
    return launch.grid.z;
  case Special::LaneId:
    return lane;
  case Special::WarpId:
    return warp.index;
  case Special::WarpCount:
    return maxWarps;
  case Special::SmId:
    return cta.worker;
  case Special::SmCount:
    return std::max(1u, std::thread::hardware_concurrency());
  case Special::MaskEq:
    return 1u << lane;
  case Special::MaskLe:
    return (2u << lane) - 1;
  case Special::MaskLt:
    return (1u << lane) - 1;
  case Special::MaskGe:
    return ~0u << lane;
  case Special::MaskGt:
    return ~0u << lane << 1;
  case Special::DynamicShared:
    return uint32_t(launch.sharedBytes);
  case Special::TotalShared:
    return cta.state->sharedBytes;
  default: // the grid has no number; clocks are read by instructions
    return 0;
  }
}

bool is64Bit(Special special) { return special == Special::GridId; }

// What a worker keeps from CTA to CTA.
struct Worker {
  LaunchState &state;
  Cta cta;
  std::vector<uint8_t> storage; // register files, 64-byte aligned inside
  uint8_t *files = nullptr;
  LaunchStats stats;

  Worker(LaunchState &state, uint32_t index) : state(state) {
    const Launch &launch = state.launch;
    cta.state = &state;
    cta.entry = &state.entry;
    cta.launch = &launch;
    cta.worker = index;
    cta.threads = launch.block.x * launch.block.y * launch.block.z;
    uint32_t warps = (cta.threads + 31) / 32;
    cta.shared.configure(state.sharedBytes, state.entry.sharedGranule, warps);
    cta.warps.resize(warps);
    size_t fileBytes = state.entry.registers.size();
    storage.resize(warps * fileBytes + 64);
    files = storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64;
    for (uint32_t w = 0; w < warps; ++w) {
      Warp &warp = cta.warps[w];
      warp.cta = &cta;
      warp.index = w;
      warp.registers = files + w * fileBytes;
    }
  }

  void startCta(uint64_t number) {
    const Launch &launch = state.launch;
    cta.number = number;
    cta.index =
        Dim3{uint32_t(number % launch.grid.x), uint32_t(number / launch.grid.x % launch.grid.y),
             uint32_t(number / launch.grid.x / launch.grid.y)};
    cta.shared.startCta();
    cta.local.assign(state.entry.localBytes * cta.threads, 0);
    for (Barrier &barrier : cta.barriers)
      barrier = Barrier{};
    for (Warp &warp : cta.warps) {
      // Registers start as zero on every CTA: results never depend on what ran before.
      std::memcpy(warp.registers, state.entry.registers.data(), state.entry.registers.size());
      uint32_t lanes = std::min(32u, cta.threads - warp.index * 32);
      warp.exists = warp.live = lanes == 32 ? allLanes : (1u << lanes) - 1;
      warp.active = warp.live;
      warp.activeCount = lanes;
      warp.pc = 0;
      warp.mergePc = UINT32_MAX;
      warp.state = Warp::State::Ready;
      warp.executed = 0;
      warp.copies.clear();
      std::fill(std::begin(warp.asyncGroup), std::end(warp.asyncGroup), 0);
      for (const SpecialSlot &slot : state.entry.specials)
        for (uint32_t lane = 0; lane < 32; ++lane) {
          uint32_t value = specialValue(cta, warp, slot.special, lane);
          if (is64Bit(slot.special))
            warp.reg<uint64_t>(slot.offset)[lane] = value;
          else
            warp.reg<uint32_t>(slot.offset)[lane] = value;
        }
    }
  }

  // Every live warp waits at a barrier that cannot fill.
  void deadlock() {
    std::string held;
    uint32_t exited = 0;
    const Warp *waiting = nullptr;
    for (const Warp &warp : cta.warps) {
      exited += uint32_t(std::popcount(warp.exists & ~warp.live));
      if (warp.state == Warp::State::Waiting && !waiting)
        waiting = &warp;
    }
    for (int b = 0; b < 16; ++b) {
      const Barrier &barrier = cta.barriers[b];
      if (barrier.expected)
        held += (held.empty() ? "" : ", ") + ("barrier " + std::to_string(b)) + " has " +
                std::to_string(barrier.arrived) + " of " + std::to_string(barrier.expected) +
                " threads";
    }
    Warp &warp = cta.warps[waiting->index];
    const Inst &inst = state.entry.code[warp.pc - 1];
    warp.fail(inst, warp.firstLane(warp.active), DiagId::emulator_deadlock,
              {held, std::to_string(exited)});
  }

  void runCta(uint64_t number) {
    startCta(number);
    for (bool progress = true; progress;) {
      progress = false;
      bool waiting = false;
      for (Warp &warp : cta.warps) {
        if (warp.state == Warp::State::Ready) {
          progress = true;
          if (!runWarp(cta, warp))
            return;
        }
        waiting |= warp.state == Warp::State::Waiting;
      }
      if (!progress && waiting)
        deadlock();
    }
  }

  void run(std::mutex &mutex, std::optional<Error> &error) {
    while (true) {
      uint64_t number = state.nextCta.fetch_add(1);
      if (number >= state.ctas || number > state.failedCta.load())
        break;
      runCta(number);
      ++stats.ctas;
      for (Warp &warp : cta.warps) {
        stats.threadInstructions += warp.threadInstructions;
        warp.threadInstructions = 0;
        stats.bankConflicts += warp.bankConflicts;
        warp.bankConflicts = 0;
      }
      if (!cta.error)
        continue;
      // The lowest CTA's error is the launch's: the same on every run, whatever the host's timing.
      std::lock_guard lock(mutex);
      if (number < state.failedCta.load()) {
        state.failedCta.store(number);
        error = std::move(cta.error);
      }
      break;
    }
  }
};

// Shared memory that one CTA may have (CUDA C++ Programming Guide, compute capabilities).
int64_t maxSharedBytes(std::string_view target) {
  if (target.starts_with("sm_80") || target.starts_with("sm_87"))
    return int64_t(163) * 1024;
  if (target.starts_with("sm_86") || target.starts_with("sm_89") || target.starts_with("sm_12"))
    return int64_t(99) * 1024;
  return int64_t(227) * 1024;
}

std::string shape(const uint32_t (&d)[3]) {
  return std::to_string(d[0]) + "x" + std::to_string(d[1]) + "x" + std::to_string(d[2]);
}

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
  uint64_t allowed = uint64_t(entry.maxThreads[0]) * entry.maxThreads[1] * entry.maxThreads[2];
  if (allowed && threads > allowed)
    return "block " + shape(block) + ", .maxntid allows " + std::to_string(allowed) + " threads";
  if (entry.requiredThreads[0] && !std::equal(block, block + 3, entry.requiredThreads))
    return "block " + shape(block) + ", .reqntid asks for " + shape(entry.requiredThreads);
  int64_t shared = launch.sharedBytes, limit = maxSharedBytes(program.target);
  if (shared < 0 || shared > limit || entry.staticShared + uint64_t(shared) > uint64_t(limit))
    return std::to_string(shared) + " bytes of dynamic and " + std::to_string(entry.staticShared) +
           " of static shared memory, " + program.target + " has " + std::to_string(limit);
  if (launch.parameters.size() < entry.parameterBytes)
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
  state.ctas = uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
  state.sharedBytes = uint32_t(entry->staticShared + uint64_t(launch.sharedBytes));

  uint64_t hosts =
      threads > 0 ? uint64_t(threads) : std::max(1u, std::thread::hardware_concurrency());
  hosts = std::min<uint64_t>({hosts, state.ctas, 256});
  std::mutex mutex;
  std::optional<Error> error;
  LaunchStats stats;
  auto work = [&](uint32_t index) {
    Worker worker(state, index);
    worker.run(mutex, error);
    std::lock_guard lock(mutex);
    stats.threadInstructions += worker.stats.threadInstructions;
    stats.bankConflicts += worker.stats.bankConflicts;
    stats.ctas += worker.stats.ctas;
  };
  std::vector<std::thread> others;
  for (uint32_t i = 1; i < hosts; ++i)
    others.emplace_back(work, i);
  work(0);
  for (std::thread &thread : others)
    thread.join();
  stats.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (error)
    return std::move(*error);
  return stats;
}

} // namespace rho::emulator
