// cp.async.bulk and its groups (PTX ISA, "Data Movement and Conversion Instructions: Bulk copy").
#include "runtime/emulator/Bulk.h"

#include "runtime/emulator/Access.h"
#include "runtime/emulator/Faults.h"
#include "runtime/emulator/Lanes.h"
#include "runtime/emulator/Mbarrier.h"

#include <cstring>

namespace rho::emulator {

uint64_t globalOperand(const Warp &w, const Inst &i, int lane) {
  return laneAddress(w, i.b, int64_t(int32_t(i.list2)), false, lane);
}

bool refuseBulk(Warp &w, const Inst &i, int lane, const std::string &what) {
  w.fail(i, lane, DiagId::emulator_bulk_operand, {what});
  return false;
}

namespace {

// Between dense bytes and a range of shared memory, whose address decides the permutation.
template <class Copy> void pieces(uint32_t address, size_t bytes, Swizzle swizzle, Copy copy) {
  if (swizzle == Swizzle::None)
    return copy(address, size_t(0), bytes);
  for (size_t at = 0; at < bytes; at += 16)
    copy(uint32_t(swizzled(address + at, swizzle)), at, size_t(16));
}

bool deliverTo(Warp &w, const Inst &i, int lane, Cta &target, uint64_t address, uint64_t barrierAt,
               std::span<const uint8_t> bytes, uint32_t align, Swizzle swizzle) {
  auto length = uint32_t(bytes.size());
  if (!checkShared(w, i, lane, target.shared, address, length, align) ||
      !checkShared(w, i, lane, target.shared, barrierAt, 8, 8))
    return false;
  Mbarrier *barrier = findMbarrier(w, i, lane, target, barrierAt);
  if (!barrier || !signalledByBulk(w, i, lane, barrierAt, *barrier))
    return false;
  auto at = uint32_t(address);
  if (!checkFinding(w, i, lane, target.shared.bulkWrite(w.id, barrier->engine, at, length), true))
    return false;
  uint8_t *to = target.shared.data();
  pieces(at, bytes.size(), swizzle, [&](uint32_t place, size_t from, size_t count) {
    std::memcpy(to + place, bytes.data() + from, count);
  });
  w.cta->cluster->order.complete(barrier->engine, barrier->clock);
  return addTransaction(w, i, lane, barrierAt, *barrier, -int64_t(length));
}

} // namespace

bool deliver(Warp &w, const Inst &i, int lane, std::span<const uint8_t> bytes, uint32_t align,
             Swizzle swizzle) {
  uint64_t address = laneAddress(w, i.a, i.imm, i.flag & addressIs32, lane);
  uint64_t barrierAt = laneAddress(w, i.c, int64_t(int32_t(i.aux)), i.flag & mbarrierIs32, lane);
  Cta *own = clusterTarget(w, i, lane, address);
  Cta *signalled = own ? clusterTarget(w, i, lane, barrierAt) : nullptr;
  if (!signalled)
    return false;
  if (own != signalled)
    return refuseBulk(w, i, lane,
                      "an mbarrier in cta " + std::to_string(signalled->rank) +
                          " of the cluster, it lies in the destination's cta " +
                          std::to_string(own->rank));
  if (!i.d)
    return deliverTo(w, i, lane, *own, address, barrierAt, bytes, align, swizzle);
  uint32_t mask = w.reg<uint16_t>(i.d)[lane];
  auto ctas = uint32_t(w.cta->cluster->ctas.size());
  if (mask == 0 || mask >> ctas)
    return refuseBulk(w, i, lane,
                      "cta mask " + hex(mask) + ", the cluster has " + std::to_string(ctas) +
                          " ctas");
  for (int rank : SetBits{mask}) {
    uint64_t there = address + (uint64_t(rank) + 1) * clusterStride;
    Cta *target = clusterTarget(w, i, lane, there);
    if (!target || !deliverTo(w, i, lane, *target, there, barrierAt, bytes, align, swizzle))
      return false;
  }
  return true;
}

bool collect(Warp &w, const Inst &i, int lane, std::span<uint8_t> bytes, uint32_t align,
             Swizzle swizzle) {
  uint64_t address = ownShared(laneAddress(w, i.a, i.imm, i.flag & addressIs32, lane));
  auto length = uint32_t(bytes.size());
  SharedMemory &shared = w.cta->shared;
  if (!checkShared(w, i, lane, shared, address, length, align))
    return false;
  auto at = uint32_t(address);
  if (!checkFinding(w, i, lane, shared.beginAsyncRead(w.id, at, length), false))
    return false;
  shared.holdAsyncRead(w.id, at, length);
  w.bulkReads.push_back({uint32_t(lane), w.bulkGroup[lane], at, length});
  const uint8_t *from = shared.data();
  pieces(at, bytes.size(), swizzle, [&](uint32_t place, size_t to, size_t count) {
    std::memcpy(bytes.data() + to, from + place, count);
  });
  return true;
}

namespace {

// e: number of bytes. 0: failed.
uint32_t length(Warp &w, const Inst &i, int lane) {
  uint32_t bytes = w.reg<uint32_t>(i.e)[lane];
  uint64_t global = globalOperand(w, i, lane);
  if (bytes == 0 || bytes % 16 != 0) {
    refuseBulk(w, i, lane, std::to_string(bytes) + " bytes, a bulk copy takes a multiple of 16");
    return 0;
  }
  return misaligned(w, i, lane, "global", global, 16) ? 0 : bytes;
}

Flow bulkLoadHandler(Warp &w, const Inst &i, uint32_t mask) {
  for (int l : SetBits{mask}) {
    uint32_t bytes = length(w, i, l);
    if (!bytes)
      return Flow::Leave;
    const uint8_t *from = resolveGlobal(w, i, l, globalOperand(w, i, l), bytes, AccessKind::Read);
    if (!from || !deliver(w, i, l, {from, bytes}, 16, Swizzle::None))
      return Flow::Leave;
  }
  return Flow::Next;
}

template <bool Adds> Flow bulkStoreHandler(Warp &w, const Inst &i, uint32_t mask) {
  std::vector<uint8_t> staged;
  for (int l : SetBits{mask}) {
    staged.resize(length(w, i, l));
    if (staged.empty() || !collect(w, i, l, staged, 16, Swizzle::None))
      return Flow::Leave;
    auto bytes = uint32_t(staged.size());
    uint8_t *to = resolveGlobal(w, i, l, globalOperand(w, i, l), bytes,
                                Adds ? AccessKind::Atomic : AccessKind::Write);
    if (!to)
      return Flow::Leave;
    if (!Adds) {
      std::memcpy(to, staged.data(), bytes);
      continue;
    }
    for (uint32_t at = 0; at < bytes; at += 4) {
      float value = 0;
      std::memcpy(&value, staged.data() + at, 4);
      std::atomic_ref<float>(*reinterpret_cast<float *>(to + at)).fetch_add(value);
    }
  }
  return Flow::Next;
}

// list, n: the values of st.async, of `width` bytes each.
Flow storeAsyncHandler(Warp &w, const Inst &i, uint32_t mask) {
  for (int l : SetBits{mask}) {
    uint8_t bytes[16];
    for (uint32_t v = 0; v < i.n; ++v)
      std::memcpy(bytes + size_t(v) * i.width,
                  w.reg<uint8_t>(w.list(i.list)[v]) + size_t(l) * i.width, i.width);
    uint32_t length = uint32_t(i.n) * i.width;
    if (!deliver(w, i, l, {bytes, length}, length, Swizzle::None))
      return Flow::Leave;
  }
  return Flow::Next;
}

Flow bulkCommitHandler(Warp &w, const Inst &, uint32_t mask) {
  for (int lane : SetBits{mask})
    ++w.bulkGroup[lane];
  return Flow::Next;
}

// Completes each lane's groups but the last inst.imm ones. With or without .read: what was read has
// been written too.
Flow bulkWaitHandler(Warp &w, const Inst &i, uint32_t mask) {
  std::erase_if(w.bulkReads, [&](const BulkRead &read) {
    if (!(mask >> read.lane & 1) || int64_t(read.group) + i.imm >= int64_t(w.bulkGroup[read.lane]))
      return false;
    w.cta->shared.endAsyncRead(w.id, read.address, read.bytes);
    return true;
  });
  return Flow::Next;
}

// [address], size
void prefetchBulk(Decoder &d) {
  if (!d.take("L2") || !d.take("global"))
    return d.unknown();
  bool policy = d.take("L2::cache_hint");
  d.expectOperands(policy ? 3 : 2);
  decodeGlobalOperand(d, 0);
  d.source(1, Type::U32);
  d.emit(nothing);
}

void load(Decoder &d) {
  if (!d.take("global") || !d.take("mbarrier::complete_tx::bytes"))
    return d.unknown();
  decodeLoadOperands(d, 4, 3);
  decodeGlobalOperand(d, 1);
  decodeSharedOperand(d, 0);
  d.inst.e = d.source(2, Type::U32);
  d.emit(bulkLoadHandler);
}

void store(Decoder &d, bool adds) {
  if (!d.take("shared::cta") || !d.take("bulk_group"))
    return d.unknown();
  bool policy = d.take("L2::cache_hint");
  if (adds && (!d.take("add") || !d.take("f32")))
    return d.unknown();
  d.expectOperands(policy ? 4 : 3);
  decodeGlobalOperand(d, 0);
  decodeSharedOperand(d, 1);
  d.inst.e = d.source(2, Type::U32);
  d.emit(adds ? bulkStoreHandler<true> : bulkStoreHandler<false>);
}

} // namespace

void decodeLoadOperands(Decoder &d, size_t firstAfter, size_t barrierOperand) {
  bool multicast = d.take("multicast::cluster"), policy = d.take("L2::cache_hint");
  d.expectOperands(firstAfter + (multicast ? 1 : 0) + (policy ? 1 : 0));
  int baseBits = 64;
  d.inst.c = d.address(barrierOperand, baseBits);
  d.inst.aux = d.narrowOffset();
  d.inst.flag |= baseBits == 32 ? mbarrierIs32 : 0;
  if (multicast)
    d.inst.d = d.source(firstAfter, Type::B16);
}

void decodeSharedOperand(Decoder &d, size_t operand) {
  int baseBits = 64;
  d.inst.a = d.address(operand, baseBits);
  d.inst.flag |= baseBits == 32 ? addressIs32 : 0;
  d.noteSharedAccess(Space::Shared, 8); // the mbarrier's
}

void decodeGlobalOperand(Decoder &d, size_t operand) {
  int baseBits = 64;
  d.inst.b = d.address(operand, baseBits);
  if (baseBits != 64)
    d.bad("a global address has 64 bits");
  d.inst.list2 = d.narrowOffset();
}

void decodeBulk(Decoder &d) {
  if (d.take("commit_group")) {
    d.expectOperands(0);
    return d.emit(bulkCommitHandler);
  }
  if (d.take("wait_group")) {
    d.take("read");
    return decodeWaitGroup(d, bulkWaitHandler);
  }
  if (d.take("tensor"))
    return decodeBulkTensor(d);
  if (d.take("prefetch"))
    return d.take("tensor") ? decodeBulkPrefetchTensor(d) : prefetchBulk(d);
  if (d.takeOne({"shared::cluster", "shared::cta"}) >= 0)
    return load(d);
  if (d.take("global"))
    return store(d, false);
  d.unknown();
}

void decodeWaitGroup(Decoder &d, Handler handler) {
  d.expectOperands(1);
  d.inst.imm = d.immediate(0);
  if (d.inst.imm < 0 || d.inst.imm > INT32_MAX)
    d.bad("a number of groups is not negative");
  d.emit(handler);
}

void decodeStoreAsync(Decoder &d) {
  d.take("weak");
  if (!d.take("shared::cluster") || !d.take("mbarrier::complete_tx::bytes"))
    return d.unknown();
  int vector = d.takeOne({"v2", "v4"});
  Type type = d.takeType();
  if (bits(type) != 32 && bits(type) != 64)
    return d.unknown();
  size_t count = vector < 0 ? 1 : size_t(2) << vector;
  if (count * size_t(bits(type)) > 128)
    return d.unknown();
  decodeLoadOperands(d, 3, 2);
  decodeSharedOperand(d, 0);
  d.inst.list = d.sources(1, count, type);
  d.inst.n = uint8_t(count);
  d.inst.width = uint8_t(bits(type) / 8);
  d.noteSharedAccess(Space::Shared, d.inst.width * uint32_t(count));
  d.emit(storeAsyncHandler);
}

void decodeBulkReduce(Decoder &d) {
  if (!d.take("global"))
    return d.unknown();
  store(d, true);
}

} // namespace rho::emulator
