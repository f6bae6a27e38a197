// mbarrier (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier"). The
// objects live beside shared memory; their 8 bytes only take part in the shadow.
#include "runtime/emulator/Mbarrier.h"

#include "runtime/emulator/Access.h"
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Faults.h"
#include "runtime/emulator/Lanes.h"

#include <cstdlib>

namespace rho::emulator {

namespace {

constexpr uint32_t objectBytes = 8;
constexpr uint32_t maxArrivals = (1u << 20) - 1;

bool refuse(Warp &w, const Inst &i, int lane, uint64_t address, const std::string &what) {
  w.fail(i, lane, DiagId::emulator_mbarrier, {hex(address), what});
  return false;
}

// After an arrival or a transaction. False: failed.
bool settle(Warp &w, const Inst &i, int lane, uint64_t address, Mbarrier &barrier) {
  Cluster &cluster = *w.cta->cluster;
  ++cluster.events;
  if (barrier.pending > 0 || barrier.bytes > 0)
    return true;
  if (barrier.bytes < 0)
    return refuse(w, i, lane, address,
                  std::to_string(-barrier.bytes) +
                      " bytes more have come than its phase expects, all arrivals are there");
  ++barrier.phase;
  barrier.pending = barrier.expected;
  barrier.completed = barrier.clock;
  cluster.wakePolling();
  return true;
}

// Inst: a base, imm offset, mode space, b count, bytes, parity or state (0: none).
enum MbarrierFlag : uint8_t { Relaxed = 1, Parity = 2 };

// The CTA that a lane's operand names; `address` is the offset there. Null: failed.
Cta *target(Warp &w, const Inst &i, int lane, uint64_t &address) {
  address = laneAddress(w, i.a, i.imm, i.flag & addressIs32, lane);
  Cta *cta = w.cta;
  if (Space(i.mode) == Space::Shared)
    address = ownShared(address);
  else
    cta = clusterTarget(w, i, lane, address);
  return cta && checkShared(w, i, lane, cta->shared, address, objectBytes, objectBytes) ? cta
                                                                                        : nullptr;
}

Flow initHandler(Warp &w, const Inst &i, uint32_t mask) {
  for (int l : SetBits{mask}) {
    uint64_t address = 0;
    Cta *cta = target(w, i, l, address);
    if (!cta)
      return Flow::Leave;
    auto at = uint32_t(address);
    uint32_t count = w.reg<uint32_t>(i.b)[l];
    if (count == 0 || count > maxArrivals) {
      refuse(w, i, l, at,
             std::to_string(count) + " arrivals, it takes 1 to " + std::to_string(maxArrivals));
      return Flow::Leave;
    }
    auto [known, fresh] = cta->mbarriers.try_emplace(at);
    Mbarrier &barrier = known->second;
    if (!fresh && (barrier.pending != barrier.expected || barrier.bytes != 0)) {
      refuse(w, i, l, at, "is initialised again in the middle of a phase");
      return Flow::Leave;
    }
    if (!checkFinding(w, i, l, cta->shared.write(w.id, at, objectBytes), true))
      return Flow::Leave;
    uint32_t engine = fresh ? cta->enginesUsed++ % enginesOfCta : 0;
    uint32_t base = w.cta->cluster->order.warps() + cta->rank * enginesOfCta;
    engine = fresh ? base + engine : barrier.engine;
    barrier = Mbarrier{};
    barrier.expected = barrier.pending = count;
    barrier.engine = engine;
    barrier.initialiser = w.id;
  }
  return Flow::Next;
}

Flow invalHandler(Warp &w, const Inst &i, uint32_t mask) {
  for (int l : SetBits{mask}) {
    uint64_t address = 0;
    Cta *cta = target(w, i, l, address);
    if (!cta || !findMbarrier(w, i, l, *cta, address))
      return Flow::Leave;
    cta->mbarriers.erase(uint32_t(address));
  }
  return Flow::Next;
}

// n: what the instruction does besides an arrival.
enum class Action : uint8_t { Arrive, ArriveExpect, Expect, Complete };

Flow mbarrierArriveHandler(Warp &w, const Inst &i, uint32_t mask) {
  auto action = Action(i.n);
  Cluster &cluster = *w.cta->cluster;
  for (int l : SetBits{mask}) {
    uint64_t address = 0;
    Cta *cta = target(w, i, l, address);
    Mbarrier *barrier = cta ? findMbarrier(w, i, l, *cta, address) : nullptr;
    if (!barrier)
      return Flow::Leave;
    uint32_t operand = i.b ? w.reg<uint32_t>(i.b)[l] : 1;
    if (action != Action::Arrive) {
      if (operand > maxTransactionBytes) {
        refuse(w, i, l, address,
               std::to_string(operand) + " bytes, a transaction has at most " +
                   std::to_string(maxTransactionBytes));
        return Flow::Leave;
      }
      int64_t bytes = action == Action::Complete ? -int64_t(operand) : int64_t(operand);
      if (!addTransaction(w, i, l, address, *barrier, bytes))
        return Flow::Leave;
    }
    if (action == Action::Expect || action == Action::Complete)
      continue;
    uint32_t count = action == Action::Arrive ? operand : 1;
    if (count == 0 || count > barrier->pending) {
      refuse(w, i, l, address,
             std::to_string(count) + " arrivals, the phase lacks " +
                 std::to_string(barrier->pending) + " of " + std::to_string(barrier->expected));
      return Flow::Leave;
    }
    if (i.d)
      w.reg<uint64_t>(i.d)[l] = barrier->phase;
    if (i.flag & Relaxed)
      cluster.order.arriveRelaxed(w.id, barrier->clock);
    else
      cluster.order.arrive(w.id, barrier->clock);
    barrier->pending -= count;
    if (!settle(w, i, l, address, *barrier))
      return Flow::Leave;
  }
  return Flow::Next;
}

// A false test gives the warp's turn away: on hardware try_wait sleeps too, and a loop around
// test_wait would run for nothing.
Flow mbarrierWaitHandler(Warp &w, const Inst &i, uint32_t mask) {
  Order &order = w.cta->cluster->order;
  uint32_t complete = 0;
  const Mbarrier *passed = nullptr;
  for (int l : SetBits{mask}) {
    uint64_t address = 0;
    Cta *cta = target(w, i, l, address);
    const Mbarrier *barrier = cta ? findMbarrier(w, i, l, *cta, address) : nullptr;
    if (!barrier)
      return Flow::Leave;
    bool over = i.flag & Parity ? (barrier->phase & 1) != (w.reg<uint32_t>(i.b)[l] & 1)
                                : barrier->phase != w.reg<uint64_t>(i.b)[l];
    if (!over)
      continue;
    complete |= laneBit[size_t(l)];
    if (barrier != passed && !(i.flag & Relaxed))
      order.pass(w.id, barrier->completed);
    passed = barrier;
  }
  if (!complete && !w.giveUp) {
    w.state = Warp::State::Polling;
    --w.pc;
    return Flow::Leave;
  }
  w.giveUp = false;
  setPredicate(w.predicate(i.d), mask, complete);
  return Flow::Next;
}

// [.sem] [.scope] [.space] .b64 and the address, which all forms share.
void form(Decoder &d, size_t addressOperand) {
  int order = d.takeOne({"acquire", "release", "relaxed"});
  d.takeOne({"cta", "cluster"});
  int space = d.takeOne({"shared", "shared::cta", "shared::cluster"});
  if (!d.take("b64"))
    d.unknown();
  int baseBits = 64;
  d.inst.a = d.address(addressOperand, baseBits);
  d.inst.flag |= uint8_t((order == 2 ? uint8_t(Relaxed) : 0) | (baseBits == 32 ? addressIs32 : 0));
  d.inst.mode = uint8_t(space < 0    ? Space::Generic
                        : space == 2 ? Space::SharedCluster
                                     : Space::Shared);
  d.noteSharedAccess(Space::Shared, objectBytes);
}

void arrive(Decoder &d) {
  bool expects = d.take("expect_tx");
  d.inst.n = uint8_t(expects ? Action::ArriveExpect : Action::Arrive);
  d.expectOperands(expects ? 3 : 2, 3);
  form(d, 1);
  if (d.operandCount() == 3)
    d.inst.b = d.source(2, Type::U32);
  if (d.operand(0).kind != Operand::Kind::Sink) {
    if (Space(d.inst.mode) == Space::SharedCluster)
      return d.bad("an arrival at another cta returns no state");
    d.inst.d = d.destination(0, Type::B64);
  }
  d.emit(mbarrierArriveHandler);
}

void transaction(Decoder &d, Action action) {
  d.inst.n = uint8_t(action);
  d.expectOperands(2);
  form(d, 0);
  d.inst.b = d.source(1, Type::U32);
  d.emit(mbarrierArriveHandler);
}

void wait(Decoder &d, bool suspends) {
  bool parity = d.take("parity");
  d.inst.flag = parity ? uint8_t(Parity) : 0;
  d.expectOperands(3, suspends ? 4 : 3);
  form(d, 1);
  d.inst.d = d.predicateDestination(d.operand(0));
  d.inst.b = d.source(2, parity ? Type::U32 : Type::B64);
  if (d.operandCount() == 4)
    d.source(3, Type::U32); // how long to sleep at most
  d.emit(mbarrierWaitHandler);
}

void mbarrier(Decoder &d) {
  if (d.take("init")) {
    d.expectOperands(2);
    form(d, 0);
    d.inst.b = d.source(1, Type::U32);
    return d.emit(initHandler);
  }
  if (d.take("inval")) {
    d.expectOperands(1);
    form(d, 0);
    return d.emit(invalHandler);
  }
  if (d.take("arrive"))
    return arrive(d);
  if (d.take("expect_tx"))
    return transaction(d, Action::Expect);
  if (d.take("complete_tx"))
    return transaction(d, Action::Complete);
  int waits = d.takeOne({"test_wait", "try_wait"});
  if (waits < 0)
    return d.unknown();
  wait(d, waits == 1);
}

} // namespace

Mbarrier *findMbarrier(Warp &w, const Inst &i, int lane, Cta &target, uint64_t address) {
  auto found = target.mbarriers.find(uint32_t(address));
  if (found == target.mbarriers.end()) {
    refuse(w, i, lane, address, "is not initialised");
    return nullptr;
  }
  if (!checkFinding(w, i, lane, target.shared.use(w.id, uint32_t(address)), false))
    return nullptr;
  return &found->second;
}

bool signalledByBulk(Warp &w, const Inst &i, int lane, uint64_t address, const Mbarrier &barrier) {
  return barrier.fenced ||
         refuse(w, i, lane, address,
                "is signalled by a bulk copy, with no fence.mbarrier_init or fence.proxy.async "
                "behind its initialisation");
}

void Cluster::fenceMbarriers(uint32_t warp) {
  for (Cta &cta : ctas)
    for (auto &[address, barrier] : cta.mbarriers)
      barrier.fenced |= barrier.initialiser == warp;
}

bool addTransaction(Warp &w, const Inst &i, int lane, uint64_t address, Mbarrier &barrier,
                    int64_t bytes) {
  int64_t total = barrier.bytes + bytes;
  if (std::abs(total) > maxTransactionBytes)
    return refuse(w, i, lane, address,
                  std::to_string(total) + " bytes to come, a phase has at most " +
                      std::to_string(maxTransactionBytes));
  barrier.bytes = total;
  return settle(w, i, lane, address, barrier);
}

std::span<const Opcode> mbarrierOpcodes() {
  static constexpr Opcode opcodes[] = {{"mbarrier", mbarrier}};
  return opcodes;
}

} // namespace rho::emulator
