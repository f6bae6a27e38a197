// Clusters of CTAs: barrier.cluster and addresses in other CTAs; dependent grids (PTX ISA,
// "barrier.cluster", "mapa", "getctarank", "griddepcontrol").
#include "runtime/emulator/Access.h"
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Faults.h"
#include "runtime/emulator/Lanes.h"

namespace rho::emulator {

void Cluster::completeBarrier() {
  bool any = false;
  for (const Cta &cta : ctas)
    for (const Warp &warp : cta.warps) {
      if (warp.state == Warp::State::Done)
        continue;
      if (warp.clusterArrival != Warp::Arrival::Arrived &&
          warp.clusterArrival != Warp::Arrival::Waiting)
        return;
      any = true;
    }
  if (!any)
    return;
  ++events;
  completed = clock;
  for (Cta &cta : ctas)
    for (Warp &warp : cta.warps) {
      if (warp.state == Warp::State::Done)
        continue;
      if (warp.clusterArrival == Warp::Arrival::Waiting) {
        warp.clusterArrival = Warp::Arrival::None;
        warp.state = Warp::State::Ready;
        order.pass(warp.id, completed);
      } else {
        warp.clusterArrival = Warp::Arrival::Complete;
      }
    }
}

namespace {

bool together(Warp &w, const Inst &i, uint32_t mask, bool inTurn) {
  if (mask == w.live && inTurn)
    return true;
  if (mask != w.live)
    w.fail(i, w.firstLane(mask), DiagId::emulator_divergent_barrier,
           {"of the cluster", std::to_string(std::popcount(mask)),
            std::to_string(std::popcount(w.live)), std::to_string(w.index)});
  else
    w.fail(i, w.firstLane(mask), DiagId::emulator_barrier_operand,
           {"out of turn, a thread arrives at the barrier of the cluster and then waits"});
  return false;
}

// Inst: flag relaxed.
Flow clusterArriveHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!together(w, i, mask, w.clusterArrival == Warp::Arrival::None))
    return Flow::Leave;
  Cluster &cluster = *w.cta->cluster;
  w.clusterArrival = Warp::Arrival::Arrived;
  ++cluster.events;
  if (i.flag)
    cluster.order.arriveRelaxed(w.id, cluster.clock);
  else
    cluster.order.arrive(w.id, cluster.clock);
  cluster.completeBarrier();
  return Flow::Next;
}

Flow clusterWaitHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!together(w, i, mask, w.clusterArrival != Warp::Arrival::None))
    return Flow::Leave;
  Cluster &cluster = *w.cta->cluster;
  if (w.clusterArrival == Warp::Arrival::Complete) {
    w.clusterArrival = Warp::Arrival::None;
    cluster.order.pass(w.id, cluster.completed);
    return Flow::Next;
  }
  w.clusterArrival = Warp::Arrival::Waiting;
  w.state = Warp::State::Waiting;
  return Flow::Leave;
}

// Inst: a address, b rank. A generic address stays one.
template <class Address> Flow mapaHandler(Warp &w, const Inst &i, uint32_t mask) {
  const auto *a = w.reg<Address>(i.a);
  const auto *ranks = w.reg<uint32_t>(i.b);
  for (int l : SetBits{mask}) {
    uint64_t address = a[l], ctas = w.cta->cluster->ctas.size();
    uint64_t inCta = ownShared(address) % clusterStride;
    if (ranks[l] >= ctas)
      return w.fail(i, l, DiagId::emulator_cluster_address,
                    {hex(address), "rank " + std::to_string(ranks[l]) + " of the cluster's " +
                                       std::to_string(ctas) + " ctas"});
    w.reg<Address>(i.d)[l] =
        Address((address - ownShared(address)) + (uint64_t(ranks[l]) + 1) * clusterStride + inCta);
  }
  return Flow::Next;
}

void mapa(Decoder &d) {
  bool generic = d.takeOne({"shared::cluster", "shared"}) < 0;
  Type type = d.takeType();
  if (type != Type::U64 && (type != Type::U32 || generic))
    return d.unknown();
  d.operands(type, {type, Type::U32});
  d.emit(type == Type::U64 ? mapaHandler<uint64_t> : mapaHandler<uint32_t>);
}

template <class Address> Flow ctaRankHandler(Warp &w, const Inst &i, uint32_t mask) {
  const auto *a = w.reg<Address>(i.a);
  uint32_t own = w.cta->rank;
  forLanes(w.reg<uint32_t>(i.d), mask, [&](int l) {
    auto segment = uint32_t(ownShared(a[l]) / clusterStride);
    return segment == 0 ? own : segment - 1;
  });
  return Flow::Next;
}

void ctaRank(Decoder &d) {
  d.takeOne({"shared::cluster", "shared"});
  Type type = d.takeType();
  if (type != Type::U64 && type != Type::U32)
    return d.unknown();
  d.operands(Type::U32, {type});
  d.emit(type == Type::U64 ? ctaRankHandler<uint64_t> : ctaRankHandler<uint32_t>);
}

Flow gridWaitHandler(Warp &w, const Inst &, uint32_t) {
  w.cta->cluster->order.dependency(w.id);
  return Flow::Next;
}

// Grids run one after the other here, but what a grid touches before it waits is checked.
void gridDependency(Decoder &d) {
  const int which = d.takeOne({"wait", "launch_dependents"});
  if (which < 0)
    return d.unknown();
  d.expectOperands(0);
  d.emit(which == 0 ? gridWaitHandler : nothing);
}

} // namespace

void decodeClusterBarrier(Decoder &d) {
  bool arrives = d.take("arrive");
  if (!arrives && !d.take("wait"))
    return d.unknown();
  if (arrives)
    d.inst.flag = d.takeOne({"release", "relaxed"}) == 1;
  else
    d.take("acquire");
  d.take("aligned");
  d.expectOperands(0);
  d.emit(arrives ? clusterArriveHandler : clusterWaitHandler);
}

std::span<const Opcode> clusterOpcodes() {
  static constexpr Opcode opcodes[] = {
      {"mapa", mapa}, {"getctarank", ctaRank}, {"griddepcontrol", gridDependency}};
  return opcodes;
}

} // namespace rho::emulator
