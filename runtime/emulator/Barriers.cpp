// Barriers of a CTA and memory fences (PTX ISA, "Parallel Synchronization and Communication
// Instructions"). All live threads of a warp must arrive together, also at barrier without
// .aligned.
#include "runtime/emulator/Access.h"
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Lanes.h"

namespace rho::emulator {

namespace {

// Inst: a barrier number, b thread count (0: all threads).
bool arriveAt(Warp &w, const Inst &i, uint32_t mask, uint32_t &number) {
  int first = w.firstLane(mask);
  const auto *numbers = w.reg<uint32_t>(i.a);
  const auto *counts = i.b ? w.reg<uint32_t>(i.b) : nullptr;
  number = numbers[first];
  uint32_t threads = w.cta->threads;
  uint32_t count = counts ? counts[first] : threads;
  auto refuse = [&](int lane, const std::string &what) {
    w.fail(i, lane, DiagId::emulator_barrier_operand, {what});
    return false;
  };
  if (number >= 16)
    return refuse(first, "barrier " + std::to_string(number) + ", there are barriers 0 to 15");
  if (counts && (count == 0 || count % 32 != 0 || count > (threads + 31) / 32 * 32))
    return refuse(first, std::to_string(count) +
                             " threads, a barrier takes a multiple of 32 up to " +
                             std::to_string(threads));
  for (int l : SetBits{mask}) {
    if (numbers[l] != number || (counts && counts[l] != count))
      return refuse(l, "different operands in one warp, its threads arrive together");
  }
  if (mask != w.live) {
    w.fail(i, first, DiagId::emulator_divergent_barrier,
           {std::to_string(number), std::to_string(std::popcount(mask)),
            std::to_string(std::popcount(w.live)), std::to_string(w.index)});
    return false;
  }
  Barrier &barrier = w.cta->barriers[number];
  if (barrier.expected && barrier.expected != count)
    return refuse(first, std::to_string(count) + " threads at barrier " + std::to_string(number) +
                             ", others wait for " + std::to_string(barrier.expected));
  barrier.expected = count;
  // Counted barriers count warps of 32 threads; exited threads never arrive.
  barrier.arrived += counts && mask == w.exists ? 32 : uint32_t(std::popcount(mask));
  w.cta->cluster->order.arrive(w.id, barrier.clock);
  ++w.cta->cluster->events;
  return true;
}

// Lets everybody go on once the last one is there.
bool complete(Cta &cta, uint32_t number) {
  Barrier &barrier = cta.barriers[number];
  if (barrier.arrived < barrier.expected)
    return false;
  for (int index : SetBits{barrier.waiting}) {
    Warp &warp = cta.warps[size_t(index)];
    warp.state = Warp::State::Ready;
    cta.cluster->order.pass(warp.id, barrier.clock);
  }
  barrier.expected = barrier.arrived = barrier.waiting = 0;
  barrier.clock.clear();
  return true;
}

Flow syncHandler(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t number = 0;
  if (!arriveAt(w, i, mask, number))
    return Flow::Leave;
  w.cta->barriers[number].waiting |= 1u << w.index;
  w.state = Warp::State::Waiting;
  return complete(*w.cta, number) ? Flow::Next : Flow::Leave;
}

Flow barrierArriveHandler(Warp &w, const Inst &i, uint32_t mask) {
  uint32_t number = 0;
  if (!arriveAt(w, i, mask, number))
    return Flow::Leave;
  complete(*w.cta, number);
  return Flow::Next;
}

Flow warpSyncHandler(Warp &w, const Inst &i, uint32_t mask) {
  return w.meetMembers(i, mask, w.reg<uint32_t>(i.a)) ? Flow::Next : Flow::Leave;
}

void barrier(Decoder &d) {
  if (d.take("warp")) {
    if (!d.take("sync"))
      return d.unknown();
    d.expectOperands(1);
    d.inst.a = d.source(0, Type::B32);
    return d.emit(warpSyncHandler);
  }
  if (d.take("cluster"))
    return decodeClusterBarrier(d);
  d.take("cta");
  int action = d.takeOne({"sync", "arrive"});
  if (action < 0)
    return d.unknown();
  d.take("aligned");
  d.expectOperands(action == 0 ? 1 : 2, 2);
  d.inst.a = d.source(0, Type::U32);
  if (d.operandCount() == 2)
    d.inst.b = d.source(1, Type::U32);
  d.emit(action == 0 ? syncHandler : barrierArriveHandler);
}

// flag: of the CTA's threads alone.
Flow fenceHandler(Warp &w, const Inst &i, uint32_t) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  w.cta->cluster->order.release(w.id);
  if (i.flag == 0)
    fenceGlobal(w);
  return Flow::Next;
}

void membar(Decoder &d) {
  const int scope = d.takeOne({"cta", "gl", "sys"});
  if (scope < 0)
    return d.unknown();
  d.expectOperands(0);
  d.inst.flag = scope == 0;
  d.emit(fenceHandler);
}

// Stands before relaxed arrivals, as other fences do.
Flow mbarrierFenceHandler(Warp &w, const Inst &, uint32_t) {
  w.cta->cluster->fenceMbarriers(w.id);
  w.cta->cluster->order.release(w.id);
  return Flow::Next;
}

Flow proxyFenceHandler(Warp &w, const Inst &, uint32_t) {
  w.cta->cluster->order.fence(w.id);
  w.cta->cluster->fenceMbarriers(w.id);
  return Flow::Next;
}

Flow globalProxyFenceHandler(Warp &, const Inst &, uint32_t) { return Flow::Next; }

void fence(Decoder &d) {
  if (d.take("proxy")) {
    if (!d.take("async"))
      return d.unknown();
    bool global = d.take("global");
    if (!global)
      d.takeOne({"shared::cta", "shared::cluster"});
    d.expectOperands(0);
    return d.emit(global ? globalProxyFenceHandler : proxyFenceHandler);
  }
  if (d.take("mbarrier_init")) {
    if (!d.take("release") || !d.take("cluster"))
      return d.unknown();
    d.expectOperands(0);
    return d.emit(mbarrierFenceHandler);
  }
  d.takeOne({"sc", "acq_rel", "acquire", "release"});
  const int scope = d.takeOne({"cta", "cluster", "gpu", "sys"});
  if (scope < 0)
    return d.unknown();
  d.expectOperands(0);
  d.inst.flag = scope <= 1;
  d.emit(fenceHandler);
}

} // namespace

std::span<const Opcode> barrierOpcodes() {
  static constexpr Opcode opcodes[] = {
      {"bar", barrier}, {"barrier", barrier}, {"membar", membar}, {"fence", fence}};
  return opcodes;
}

} // namespace rho::emulator
