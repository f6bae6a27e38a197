// atom and red (PTX ISA, "Parallel Synchronization and Communication Instructions"). Real host
// atomics: CTAs run on several host threads.
#include "runtime/emulator/Access.h"
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Lanes.h"
#include "runtime/emulator/Numbers.h"

namespace rho::emulator {

namespace {

enum class Operation : uint8_t { Add, Min, Max, And, Or, Xor, Exch, Cas, Inc, Dec };

template <class T, class Bits> T as(Bits bits) { return std::bit_cast<T>(bits); }

// The new value in memory; b and c are the operands.
template <class T> T updated(Operation operation, T old, T b, T c) {
  switch (operation) {
  case Operation::Add:
    return T(old + b);
  case Operation::Min:
    return b < old ? b : old;
  case Operation::Max:
    return old < b ? b : old;
  case Operation::Exch:
    return b;
  case Operation::Cas:
    return old == b ? c : old;
  default:
    break;
  }
  if constexpr (std::is_unsigned_v<T>) {
    switch (operation) {
    case Operation::And:
      return old & b;
    case Operation::Or:
      return old | b;
    case Operation::Xor:
      return old ^ b;
    case Operation::Inc:
      return old >= b ? T(0) : T(old + 1);
    case Operation::Dec:
      return old == 0 || old > b ? b : T(old - 1);
    default:
      break;
    }
  }
  return old;
}

template <uint16_t (*Narrow)(float), float (*Widen)(uint16_t)>
uint16_t addHalf(uint16_t a, uint16_t b) {
  return Narrow(Widen(a) + Widen(b));
}
uint16_t addF16(uint16_t a, uint16_t b) { return addHalf<f32ToF16, f16ToF32>(a, b); }
uint16_t addBf16(uint16_t a, uint16_t b) { return addHalf<f32ToBf16, bf16ToF32>(a, b); }
template <uint16_t (*AddOne)(uint16_t, uint16_t)> uint32_t addPair(uint32_t a, uint32_t b) {
  return uint32_t(AddOne(uint16_t(a >> 16), uint16_t(b >> 16))) << 16 |
         AddOne(uint16_t(a), uint16_t(b));
}

// Bits: the unsigned type in memory. Update: its new value, of global or other memory.
template <class Bits, class Update>
Flow atomicLanes(Warp &w, const Inst &i, uint32_t mask, Update update) {
  LaneAddresses addresses;
  LanePointers at;
  laneAddresses(w, i.a, i.imm, i.flag & addressIs32, addresses);
  if (!resolve(w, i, mask, Space(i.mode), sizeof(Bits), AccessKind::Atomic, addresses, at))
    return Flow::Leave;
  publishGlobal(w, i, mask, addresses);
  const Bits *b = w.reg<Bits>(i.b), *c = w.reg<Bits>(i.c ? i.c : i.b);
  for (int l : SetBits{mask}) {
    std::atomic_ref<Bits> cell(*reinterpret_cast<Bits *>(at.at[l]));
    Bits old = cell.load();
    bool isGlobal = isGlobalAddress(addresses.at[l]);
    while (!cell.compare_exchange_weak(old, update(old, b[l], c[l], isGlobal))) {
    }
    if (i.d)
      w.reg<Bits>(i.d)[l] = old;
  }
  showGlobal(w, i, mask, addresses);
  return Flow::Next;
}

template <class T, class Bits> Flow atomicHandler(Warp &w, const Inst &i, uint32_t mask) {
  auto operation = Operation(i.n);
  return atomicLanes<Bits>(w, i, mask, [operation](Bits old, Bits b, Bits c, bool) {
    return as<Bits>(updated<T>(operation, as<T>(old), as<T>(b), as<T>(c)));
  });
}
template <class Bits, Bits (*AddOne)(Bits, Bits)>
Flow atomicAdd(Warp &w, const Inst &i, uint32_t mask) {
  return atomicLanes<Bits>(w, i, mask, [](Bits old, Bits b, Bits, bool) { return AddOne(old, b); });
}
// "atom.add.f32 on global memory flushes subnormal inputs and results to sign-preserving zero;
// whereas, atom.add.f32 on shared memory supports subnormal inputs and results"; bulk copies keep
// them in either.
Flow atomicAddF32(Warp &w, const Inst &i, uint32_t mask) {
  return atomicLanes<uint32_t>(w, i, mask, [](uint32_t old, uint32_t b, uint32_t, bool isGlobal) {
    auto x = as<float>(old), y = as<float>(b);
    return as<uint32_t>(isGlobal ? flushF32(flushF32(x) + flushF32(y)) : x + y);
  });
}

Handler handlerOf(Operation operation, Type type) {
  bool wraps = operation == Operation::Inc || operation == Operation::Dec;
  bool logic = operation >= Operation::And && operation <= Operation::Xor;
  bool moves = operation == Operation::Exch || operation == Operation::Cas;
  if (wraps)
    return type == Type::U32 ? atomicHandler<uint32_t, uint32_t> : nullptr;
  if (logic || moves) {
    if (kind(type) != TypeKind::Bits && !(moves && isInteger(type)))
      return nullptr;
    return bits(type) == 32                                  ? atomicHandler<uint32_t, uint32_t>
           : bits(type) == 64                                ? atomicHandler<uint64_t, uint64_t>
           : bits(type) == 16 && operation == Operation::Cas ? atomicHandler<uint16_t, uint16_t>
                                                             : nullptr;
  }
  bool add = operation == Operation::Add;
  switch (type) {
  case Type::U32:
    return atomicHandler<uint32_t, uint32_t>;
  case Type::U64:
    return atomicHandler<uint64_t, uint64_t>;
  case Type::S32: // an addition wraps: the unsigned one
    return add ? atomicHandler<uint32_t, uint32_t> : atomicHandler<int32_t, uint32_t>;
  case Type::S64:
    return add ? atomicHandler<uint64_t, uint64_t> : atomicHandler<int64_t, uint64_t>;
  case Type::F32:
    return add ? atomicAddF32 : nullptr;
  case Type::F64:
    return add ? atomicHandler<double, uint64_t> : nullptr;
  case Type::F16:
    return add ? atomicAdd<uint16_t, addF16> : nullptr;
  case Type::BF16:
    return add ? atomicAdd<uint16_t, addBf16> : nullptr;
  case Type::F16x2:
    return add ? atomicAdd<uint32_t, addPair<addF16>> : nullptr;
  case Type::BF16x2:
    return add ? atomicAdd<uint32_t, addPair<addBf16>> : nullptr;
  default:
    return nullptr;
  }
}

template <bool Returns> void atomic(Decoder &d) {
  auto space = Space::Generic;
  uint8_t order = orderStrong;
  while (true) {
    int which = d.takeOne({"global", "shared::cluster", "shared", "shared::cta"});
    if (which >= 0)
      space = which == 0 ? Space::Global : which == 1 ? Space::SharedCluster : Space::Shared;
    else if (d.take("acquire"))
      order |= orderAcquires;
    else if (d.take("release"))
      order |= orderReleases;
    else if (d.take("acq_rel"))
      order |= orderAcquires | orderReleases;
    else if (d.takeOne({"cta", "cluster"}) >= 0)
      order |= orderNear;
    else if (d.takeOne({"relaxed", "gpu", "sys"}) < 0)
      break;
  }
  int which = d.takeOne({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  d.take("noftz");
  Type type = d.takeType();
  if (which < 0)
    return d.unknown();
  auto operation = Operation(which);
  bool cas = operation == Operation::Cas;
  size_t first = Returns ? 1 : 0;
  d.expectOperands(first + (cas ? 3 : 2));
  int baseBits = 64;
  if (Returns && d.operand(0).kind != Operand::Kind::Sink)
    d.inst.d = d.destination(0, type);
  d.inst.a = d.address(first, baseBits);
  d.inst.b = d.source(first + 1, type);
  if (cas)
    d.inst.c = d.source(first + 2, type);
  d.inst.n = uint8_t(operation);
  d.inst.mode = uint8_t(space);
  d.inst.flag = uint8_t(order | (baseBits == 32 ? addressIs32 : 0));
  d.noteSharedAccess(space, uint32_t(bits(type)) / 8);
  d.emit(handlerOf(operation, type));
}

} // namespace

std::span<const Opcode> atomicOpcodes() {
  static constexpr Opcode opcodes[] = {{"atom", atomic<true>}, {"red", atomic<false>}};
  return opcodes;
}

} // namespace rho::emulator
