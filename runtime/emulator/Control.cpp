// Branches and exits (PTX ISA, "Control Flow Instructions").
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Faults.h"
#include "runtime/emulator/Lanes.h"

#include <vector>

namespace rho::emulator {

namespace {

Flow braHandler(Warp &w, const Inst &i, uint32_t mask) {
  auto target = uint32_t(i.imm);
  if (mask == w.active) {
    w.pc = target;
    return Flow::Next;
  }
  for (int l : SetBits{w.active}) {
    w.pcs[l] = mask >> l & 1 ? target : w.pc;
  }
  w.active = 0;
  w.reschedule();
  return Flow::Next;
}

void bra(Decoder &d) {
  d.take("uni");
  d.expectOperands(1);
  uint32_t target = d.label(0);
  d.emitBranch(braHandler, target);
}

// Inst: a index, list targets, aux their number.
Flow brxHandler(Warp &w, const Inst &i, uint32_t mask) {
  const auto *index = w.reg<uint32_t>(i.a);
  for (int l : SetBits{w.active}) {
    w.pcs[l] = w.pc;
    if (!(mask >> l & 1))
      continue;
    if (index[l] >= i.aux)
      return w.fail(i, l, DiagId::emulator_branch_index,
                    {std::to_string(index[l]), std::to_string(i.aux)});
    w.pcs[l] = w.list(i.list)[index[l]];
  }
  w.active = 0;
  w.reschedule();
  return Flow::Next;
}

void brx(Decoder &d) {
  if (!d.take("idx"))
    return d.unknown();
  d.take("uni");
  d.expectOperands(2);
  d.inst.a = d.source(0, Type::U32);
  std::vector<uint32_t> targets;
  for (const Operand &target : d.branchTargets(1))
    targets.push_back(d.label(target));
  d.emitBranches(brxHandler, targets);
}

Flow exitHandler(Warp &w, const Inst &i, uint32_t mask) {
  for (const BulkRead &read : w.bulkReads)
    if (mask >> read.lane & 1)
      return w.fail(i, int(read.lane), DiagId::emulator_bulk_exit,
                    {range(read.address, read.bytes)});
  w.live &= ~mask;
  w.active &= ~mask;
  w.activeCount = uint32_t(std::popcount(w.active));
  if (w.active)
    return Flow::Next;
  if (w.reschedule()) {
    if (w.active)
      return Flow::Next;
    // Those that are left wait for these.
    uint32_t at = w.pcs[w.firstLane(w.parked)];
    const Inst &sync = w.cta->entry->code[at];
    w.checkMembers(sync, w.parkedAt(at), w.reg<uint32_t>(sync.a));
    return Flow::Leave;
  }
  w.state = Warp::State::Done;
  w.cta->cluster->completeBarrier();
  return Flow::Leave;
}

void exit(Decoder &d) {
  d.take("uni");
  d.expectOperands(0);
  d.emit(exitHandler);
}

Flow trapHandler(Warp &w, const Inst &i, uint32_t mask) {
  return w.fail(i, w.firstLane(mask), DiagId::emulator_trap, {});
}

void trap(Decoder &d) {
  d.expectOperands(0);
  d.emit(trapHandler);
}

// Others run, and the warp goes on in its next turn.
Flow sleepHandler(Warp &, const Inst &, uint32_t) { return Flow::Leave; }

void nanosleep(Decoder &d) {
  if (!d.take("u32"))
    return d.unknown();
  d.expectOperands(1);
  d.source(0, Type::U32);
  d.emit(sleepHandler);
}

} // namespace

std::span<const Opcode> controlOpcodes() {
  static constexpr Opcode opcodes[] = {{"bra", bra},   {"brx", brx},   {"ret", exit},
                                       {"exit", exit}, {"trap", trap}, {"nanosleep", nanosleep}};
  return opcodes;
}

} // namespace rho::emulator
