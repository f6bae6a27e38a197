// cp.async and its groups (PTX ISA, "Data Movement and Conversion Instructions: Asynchronous
// copy"). The bytes are copied at once, which the ISA allows, but count as being written until the
// issuing thread waits for their group.
#include "runtime/emulator/Access.h"
#include "runtime/emulator/Bulk.h"
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Lanes.h"

#include <cstring>

namespace rho::emulator {

namespace {

// Inst: a destination, imm its offset; b source, aux its offset; width bytes; c source size, or
// the predicate that ignores the source.
enum class SourceSize : uint8_t { All, Register, IgnorePredicate };
constexpr uint8_t sourceIs32 = 0x40;

// Appends to the copies of each lane's open group.
void remember(Warp &w, uint32_t mask, uint32_t bytes, const LaneAddresses &to) {
  while (mask) {
    uint32_t group = w.asyncGroup[std::countr_zero(mask)];
    PendingCopy &copy = w.copies.emplace_back();
    copy.group = group;
    copy.bytes = bytes;
    for (int l : SetBits{mask}) {
      if (w.asyncGroup[l] != group)
        continue;
      copy.lanes |= 1u << l;
      copy.address[l] = uint32_t(to.at[l]);
    }
    mask &= ~copy.lanes;
  }
}

uint32_t sourceBytes(const Warp &w, const Inst &i, int l) {
  switch (SourceSize(i.n)) {
  case SourceSize::All:
    break;
  case SourceSize::Register:
    return w.reg<uint32_t>(i.c)[l];
  case SourceSize::IgnorePredicate:
    return w.predicate(i.c, i.mode) >> l & 1 ? 0 : i.width;
  }
  return i.width;
}

Flow copyHandler(Warp &w, const Inst &i, uint32_t mask) {
  LaneAddresses to, from;
  laneAddresses(w, i.a, i.imm, i.flag & addressIs32, to);
  laneAddresses(w, i.b, int64_t(int32_t(i.aux)), i.flag & sourceIs32, from);
  SharedMemory &shared = w.cta->shared;
  uint32_t bytes = i.width;
  for (int l : SetBits{mask}) {
    uint64_t address = to.at[l] = ownShared(to.at[l]);
    if (!checkShared(w, i, l, address, bytes))
      return Flow::Leave;
    uint32_t thread = w.index * 32 + uint32_t(l);
    if (!checkFinding(w, i, l, shared.beginAsync(w.id, thread, uint32_t(address), bytes), true))
      return Flow::Leave;
    uint8_t *host = shared.data() + address;
    uint32_t read = sourceBytes(w, i, l);
    if (read > bytes)
      return w.fail(i, l, DiagId::emulator_value,
                    {std::to_string(read) + " bytes of the source where " + std::to_string(bytes) +
                     " are copied"});
    if (read > 0) {
      if (misaligned(w, i, l, "global", from.at[l], bytes))
        return Flow::Leave;
      const uint8_t *source = resolveGlobal(w, i, l, from.at[l], read, AccessKind::Read);
      if (!source)
        return Flow::Leave;
      std::memcpy(host, source, read);
    }
    std::memset(host + read, 0, bytes - read);
  }
  remember(w, mask, bytes, to);
  return Flow::Next;
}

Flow asyncCommitHandler(Warp &w, const Inst &i, uint32_t mask) {
  for (int lane : SetBits{mask})
    ++w.asyncGroup[lane];
  return Flow::Next;
}

// Completes each lane's groups but the last inst.imm ones.
Flow asyncWaitHandler(Warp &w, const Inst &i, uint32_t mask) {
  size_t kept = 0;
  for (size_t c = 0; c < w.copies.size(); ++c) {
    PendingCopy &copy = w.copies[c];
    uint32_t done = 0;
    for (int l : SetBits{copy.lanes & mask}) {
      if (int64_t(copy.group) + i.imm < int64_t(w.asyncGroup[l])) {
        done |= 1u << l;
        w.cta->shared.endAsync(w.id, copy.address[l], copy.bytes);
      }
    }
    copy.lanes &= ~done;
    if (copy.lanes) {
      if (kept != c)
        w.copies[kept] = copy;
      ++kept;
    }
  }
  w.copies.resize(kept);
  return Flow::Next;
}

Flow waitAllHandler(Warp &w, const Inst &i, uint32_t mask) {
  asyncCommitHandler(w, i, mask);
  return asyncWaitHandler(w, i, mask);
}

void copy(Decoder &d, bool cacheAll) {
  if (!d.take("shared") && !d.take("shared::cta"))
    return d.unknown();
  if (!d.take("global"))
    return d.unknown();
  bool policy = false;
  while (true) {
    if (d.take("L2::cache_hint"))
      policy = true;
    else if (!d.takePrefix("L2::"))
      break;
  }
  size_t operands = d.operandCount() - (policy ? 1 : 0);
  d.expectOperands(policy ? 4 : 3, policy ? 5 : 4);
  int sourceBits = 64, destinationBits = 64;
  d.inst.b = d.address(1, sourceBits);
  d.inst.aux = d.narrowOffset();
  d.inst.a = d.address(0, destinationBits);
  int64_t bytes = d.immediate(2);
  if (bytes != 16 && !(cacheAll && (bytes == 4 || bytes == 8)))
    d.bad(std::to_string(bytes) + " bytes are copied, " +
          (cacheAll ? ".ca copies 4, 8 or 16" : ".cg copies 16"));
  if (operands > 3) {
    if (d.isPredicate(d.operand(3))) {
      d.inst.n = uint8_t(SourceSize::IgnorePredicate);
      d.inst.c = d.predicate(3, d.inst.mode);
    } else {
      d.inst.n = uint8_t(SourceSize::Register);
      d.inst.c = d.source(3, Type::U32);
    }
  }
  d.inst.width = uint8_t(bytes);
  d.inst.flag =
      uint8_t((destinationBits == 32 ? addressIs32 : 0) | (sourceBits == 32 ? sourceIs32 : 0));
  d.noteSharedAccess(Space::Shared, uint32_t(bytes > 0 ? bytes : 16));
  d.emit(copyHandler);
}

void cp(Decoder &d) {
  if (d.take("reduce"))
    return d.take("async") && d.take("bulk") ? decodeBulkReduce(d) : d.unknown();
  if (!d.take("async"))
    return d.unknown();
  if (d.take("ca"))
    return copy(d, true);
  if (d.take("cg"))
    return copy(d, false);
  if (d.take("bulk"))
    return decodeBulk(d);
  if (d.take("commit_group")) {
    d.expectOperands(0);
    return d.emit(asyncCommitHandler);
  }
  if (d.take("wait_all")) {
    d.expectOperands(0);
    return d.emit(waitAllHandler);
  }
  if (d.take("wait_group"))
    return decodeWaitGroup(d, asyncWaitHandler);
  d.unknown();
}

} // namespace

std::span<const Opcode> asyncOpcodes() {
  static constexpr Opcode opcodes[] = {{"cp", cp}};
  return opcodes;
}

} // namespace rho::emulator
