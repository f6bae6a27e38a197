// Instructions that look across the lanes of a warp (PTX ISA, "shfl.sync", "vote.sync",
// "match.sync", "activemask", "redux.sync", "elect.sync").
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Faults.h"
#include "runtime/emulator/Lanes.h"

#include <algorithm>

namespace rho::emulator {

// The lanes that a member mask names execute the instruction together.
bool Warp::checkMembers(const Inst &inst, uint32_t mask, const uint32_t *members) {
  for (int l : SetBits{mask}) {
    if ((members[l] & exists) == mask)
      continue;
    fail(inst, l, DiagId::emulator_wrong_members, {hex(members[l] & exists), hex(mask)});
    return false;
  }
  return true;
}

uint32_t Warp::parkedAt(uint32_t at) const {
  uint32_t lanes = 0;
  for (int lane : SetBits{parked})
    if (pcs[lane] == at)
      lanes |= 1u << lane;
  return lanes;
}

bool Warp::meetMembers(const Inst &inst, uint32_t mask, const uint32_t *members) {
  uint32_t at = pc - 1, here = mask | parkedAt(at);
  bool complete = true;
  for (int lane : SetBits{here})
    complete = complete && (members[lane] & exists) == here;
  if (complete) {
    parked &= ~here;
    active |= here;
    activeCount = uint32_t(std::popcount(active));
    return true;
  }
  for (int lane : SetBits{mask})
    pcs[lane] = at;
  parked |= mask;
  active &= ~mask;
  reschedule();
  return active || checkMembers(inst, here, members);
}

namespace {

enum class Shuffle : uint8_t { Up, Down, Butterfly, Index };

// Inst: d result, e predicate (0: none), a value, b lane operand, c clamp, aux member mask.
Flow shflHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.checkMembers(i, mask, w.reg<uint32_t>(i.aux)))
    return Flow::Leave;
  uint32_t value[32]; // d may be a
  std::copy_n(w.reg<uint32_t>(i.a), 32, value);
  const auto *b = w.reg<uint32_t>(i.b), *c = w.reg<uint32_t>(i.c);
  uint32_t inRange = 0;
  uint32_t result[32] = {};
  for (uint32_t lane : SetBits{mask}) {
    uint32_t by = b[lane] & 31, clamp = c[lane] & 31, segment = c[lane] >> 8 & 31;
    uint32_t highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
    uint32_t from = lane;
    bool within = false;
    switch (Shuffle(i.mode)) {
    case Shuffle::Up:
      from = lane - by;
      within = int32_t(from) >= int32_t(highest);
      break;
    case Shuffle::Down:
      from = lane + by;
      within = from <= highest;
      break;
    case Shuffle::Butterfly:
      from = lane ^ by;
      within = from <= highest;
      break;
    case Shuffle::Index:
      from = lowest | (by & ~segment);
      within = from <= highest;
      break;
    }
    if (!within)
      from = lane;
    if (!(mask >> from & 1))
      return w.fail(i, int(lane), DiagId::emulator_inactive_lane, {std::to_string(from)});
    inRange |= within ? 1u << lane : 0;
    result[lane] = value[from];
  }
  forLanes(w.reg<uint32_t>(i.d), mask, [&](int l) { return result[l]; });
  if (i.e)
    setPredicate(w.predicate(i.e), mask, inRange);
  return Flow::Next;
}

void shfl(Decoder &d) {
  if (!d.take("sync"))
    return d.unknown();
  int mode = d.takeOne({"up", "down", "bfly", "idx"});
  if (mode < 0 || !d.take("b32"))
    return d.unknown();
  d.expectOperands(5);
  const Operand &result = d.operand(0);
  if (result.kind == Operand::Kind::Pair) {
    d.inst.d = d.destination(result.parts[0], Type::B32);
    d.inst.e = d.predicateDestination(result.parts[1]);
  } else {
    d.inst.d = d.destination(result, Type::B32);
  }
  d.inst.a = d.source(1, Type::B32);
  d.inst.b = d.source(2, Type::B32);
  d.inst.c = d.source(3, Type::B32);
  d.inst.aux = d.source(4, Type::B32);
  d.inst.mode = uint8_t(mode);
  d.emit(shflHandler);
}

enum class Vote : uint8_t { All, Any, Uniform, Ballot };

Flow voteHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.checkMembers(i, mask, w.reg<uint32_t>(i.aux)))
    return Flow::Leave;
  uint32_t votes = w.predicate(i.a, i.flag) & mask;
  bool result = false;
  switch (Vote(i.mode)) {
  case Vote::All:
    result = votes == mask;
    break;
  case Vote::Any:
    result = votes != 0;
    break;
  case Vote::Uniform:
    result = votes == mask || votes == 0;
    break;
  case Vote::Ballot:
    forLanes(w.reg<uint32_t>(i.d), mask, [&](int) { return votes; });
    return Flow::Next;
  }
  setPredicate(w.predicate(i.d), mask, result ? ~0u : 0);
  return Flow::Next;
}

void vote(Decoder &d) {
  if (!d.take("sync"))
    return d.unknown();
  int mode = d.takeOne({"all", "any", "uni", "ballot"});
  bool ballot = Vote(mode) == Vote::Ballot;
  if (mode < 0 || !d.take(ballot ? "b32" : "pred"))
    return d.unknown();
  d.expectOperands(3);
  d.inst.d = ballot ? d.destination(0, Type::B32) : d.predicateDestination(d.operand(0));
  d.inst.a = d.predicate(1, d.inst.flag);
  d.inst.aux = d.source(2, Type::B32);
  d.inst.mode = uint8_t(mode);
  d.emit(voteHandler);
}

Flow activemaskHandler(Warp &w, const Inst &i, uint32_t mask) {
  forLanes(w.reg<uint32_t>(i.d), mask, [&](int) { return mask; });
  return Flow::Next;
}

void activemask(Decoder &d) {
  if (!d.take("b32"))
    return d.unknown();
  d.expectOperands(1);
  d.inst.d = d.destination(0, Type::B32);
  d.emit(activemaskHandler);
}

template <class T> Flow matchHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.checkMembers(i, mask, w.reg<uint32_t>(i.aux)))
    return Flow::Leave;
  const T *a = w.reg<T>(i.a);
  uint32_t result[32] = {};
  for (int lane : SetBits{mask}) {
    result[lane] = lanesWhere([&](int l) { return a[l] == a[lane]; }) & mask;
  }
  bool all = result[w.firstLane(mask)] == mask;
  forLanes(w.reg<uint32_t>(i.d), mask,
           [&](int l) { return i.mode == 0 ? result[l] : (all ? mask : 0u); });
  if (i.e)
    setPredicate(w.predicate(i.e), mask, all ? ~0u : 0);
  return Flow::Next;
}

void match(Decoder &d) {
  int mode = d.takeOne({"any", "all"});
  if (mode < 0 || !d.take("sync"))
    return d.unknown();
  Type type = d.takeType();
  if (type != Type::B32 && type != Type::B64)
    return d.unknown();
  d.expectOperands(3);
  const Operand &result = d.operand(0);
  if (mode == 1 && result.kind == Operand::Kind::Pair) {
    d.inst.d = d.destination(result.parts[0], Type::B32);
    d.inst.e = d.predicateDestination(result.parts[1]);
  } else {
    d.inst.d = d.destination(result, Type::B32);
  }
  d.inst.a = d.source(1, type);
  d.inst.aux = d.source(2, Type::B32);
  d.inst.mode = uint8_t(mode);
  d.emit(type == Type::B32 ? matchHandler<uint32_t> : matchHandler<uint64_t>);
}

enum class Reduction : uint8_t { Add, Min, Max, And, Or, Xor };

template <class T> Flow reduxHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.checkMembers(i, mask, w.reg<uint32_t>(i.aux)))
    return Flow::Leave;
  const T *a = w.reg<T>(i.a);
  T total = a[w.firstLane(mask)];
  for (int lane : SetBits{mask & (mask - 1)}) {
    T next = a[lane];
    switch (Reduction(i.mode)) {
    case Reduction::Add:
      total = T(uint32_t(total) + uint32_t(next));
      break;
    case Reduction::Min:
      total = std::min(total, next);
      break;
    case Reduction::Max:
      total = std::max(total, next);
      break;
    case Reduction::And:
      total &= next;
      break;
    case Reduction::Or:
      total |= next;
      break;
    case Reduction::Xor:
      total ^= next;
      break;
    }
  }
  forLanes(w.reg<T>(i.d), mask, [&](int) { return total; });
  return Flow::Next;
}

void redux(Decoder &d) {
  if (!d.take("sync"))
    return d.unknown();
  int mode = d.takeOne({"add", "min", "max", "and", "or", "xor"});
  Type type = d.takeType();
  bool logic = mode >= int(Reduction::And);
  bool known = mode >= 0 && (logic ? type == Type::B32 : type == Type::U32 || type == Type::S32);
  d.expectOperands(3);
  d.inst.d = d.destination(0, Type::B32);
  d.inst.a = d.source(1, Type::B32);
  d.inst.aux = d.source(2, Type::B32);
  d.inst.mode = uint8_t(mode);
  d.emit(!known ? nullptr : type == Type::S32 ? reduxHandler<int32_t> : reduxHandler<uint32_t>);
}

Flow electHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.checkMembers(i, mask, w.reg<uint32_t>(i.aux)))
    return Flow::Leave;
  auto leader = uint32_t(w.firstLane(mask));
  forLanes(w.reg<uint32_t>(i.d), mask, [&](int) { return leader; });
  setPredicate(w.predicate(i.e), mask, 1u << leader);
  return Flow::Next;
}

void elect(Decoder &d) {
  if (!d.take("sync"))
    return d.unknown();
  d.expectOperands(2);
  const Operand &result = d.operand(0);
  if (result.kind != Operand::Kind::Pair)
    return d.bad("the result is a register and a predicate");
  d.inst.d = d.destination(result.parts[0], Type::B32);
  d.inst.e = d.predicateDestination(result.parts[1]);
  d.inst.aux = d.source(1, Type::B32);
  d.emit(electHandler);
}

} // namespace

std::span<const Opcode> warpOpcodes() {
  static constexpr Opcode opcodes[] = {
      {"shfl", shfl},   {"vote", vote},   {"activemask", activemask},
      {"match", match}, {"redux", redux}, {"elect", elect}};
  return opcodes;
}

} // namespace rho::emulator
