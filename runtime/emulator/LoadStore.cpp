// ld, st, prefetch (PTX ISA, "Data Movement and Conversion Instructions").
#include "runtime/emulator/Access.h"
#include "runtime/emulator/Bulk.h"
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Lanes.h"

#include <cstring>

namespace rho::emulator {

namespace {

// Inst: a base, imm offset, list registers, n their number, width bytes of one, mode space, flag
// order.

bool pointers(Warp &w, const Inst &i, uint32_t mask, AccessKind kind, LaneAddresses &addresses,
              LanePointers &out) {
  laneAddresses(w, i.a, i.imm, i.flag & addressIs32, addresses);
  const uint32_t bytes = uint32_t(i.n) * i.width;
  return resolve(w, i, mask, Space(i.mode), bytes, kind, addresses, out) &&
         (Space(i.mode) != Space::Global || i.flag & orderStrong ||
          orderGlobal(w, i, mask, bytes, kind, addresses));
}

template <class Memory, class Register> Flow loadHandler(Warp &w, const Inst &i, uint32_t mask) {
  LaneAddresses addresses;
  LanePointers from;
  if (!pointers(w, i, mask, AccessKind::Read, addresses, from))
    return Flow::Leave;
  for (uint32_t v = 0; v < i.n; ++v) {
    auto *d = w.reg<Register>(w.list(i.list)[v]);
    auto load = [&](int l) {
      Memory value;
      std::memcpy(&value, from.at[l] + v * sizeof(Memory), sizeof value);
      return Register(value); // extends by Memory's sign
    };
    if (mask == allLanes) {
      for (int l = 0; l < 32; ++l)
        d[l] = load(l);
    } else {
      for (int lane : SetBits{mask})
        d[lane] = load(lane);
    }
  }
  if (i.flag & orderAcquires)
    std::atomic_thread_fence(std::memory_order_acquire);
  if (i.flag & orderStrong)
    showGlobal(w, i, mask, addresses);
  return Flow::Next;
}

template <class Memory, class Register> Flow storeHandler(Warp &w, const Inst &i, uint32_t mask) {
  LaneAddresses addresses;
  LanePointers to;
  if (!pointers(w, i, mask, AccessKind::Write, addresses, to))
    return Flow::Leave;
  if (i.flag & orderReleases)
    std::atomic_thread_fence(std::memory_order_release);
  if (i.flag & orderStrong)
    publishGlobal(w, i, mask, addresses);
  for (uint32_t v = 0; v < i.n; ++v) {
    const auto *s = w.reg<Register>(w.list(i.list)[v]);
    for (int l : SetBits{mask}) {
      auto value = Memory(s[l]);
      std::memcpy(to.at[l] + v * sizeof(Memory), &value, sizeof value);
    }
  }
  return Flow::Next;
}

template <class Memory> Handler loadInto(int registerBits) {
  if (registerBits < int(sizeof(Memory)) * 8)
    return nullptr;
  switch (registerBits) {
  case 8:
    return loadHandler<Memory, uint8_t>;
  case 16:
    return loadHandler<Memory, uint16_t>;
  case 32:
    return loadHandler<Memory, uint32_t>;
  default:
    return loadHandler<Memory, uint64_t>;
  }
}

Handler loadOf(Type type, int registerBits) {
  switch (bits(type)) {
  case 8:
    return isSigned(type) ? loadInto<int8_t>(registerBits) : loadInto<uint8_t>(registerBits);
  case 16:
    return isSigned(type) ? loadInto<int16_t>(registerBits) : loadInto<uint16_t>(registerBits);
  case 32:
    return isSigned(type) ? loadInto<int32_t>(registerBits) : loadInto<uint32_t>(registerBits);
  case 64:
    return loadInto<uint64_t>(registerBits);
  default:
    return nullptr;
  }
}

template <class Memory> Handler storeFrom(int registerBits) {
  switch (registerBits) {
  case 8:
    return storeHandler<Memory, uint8_t>;
  case 16:
    return storeHandler<Memory, uint16_t>;
  case 32:
    return storeHandler<Memory, uint32_t>;
  default:
    return storeHandler<Memory, uint64_t>;
  }
}

Handler storeOf(Type type, int registerBits) {
  switch (bits(type)) {
  case 8:
    return storeFrom<uint8_t>(registerBits);
  case 16:
    return storeFrom<uint16_t>(registerBits);
  case 32:
    return storeFrom<uint32_t>(registerBits);
  case 64:
    return storeFrom<uint64_t>(registerBits);
  default:
    return nullptr;
  }
}

bool takeSpace(Decoder &d, Space &space) {
  int which = d.takeOne({"global", "shared", "shared::cta", "shared::cluster", "local", "param",
                         "param::entry", "const"});
  constexpr Space spaces[] = {Space::Global, Space::Shared, Space::Shared, Space::SharedCluster,
                              Space::Local,  Space::Param,  Space::Param,  Space::Const};
  if (which >= 0)
    space = spaces[which];
  return which >= 0;
}

struct AccessForm {
  Space space = Space::Generic;
  uint8_t flag = 0;
  uint32_t count = 1;
  bool cachePolicy = false;
};

// Order of memory operations and cache hints, in any order: they change no value here, where one
// warp runs at a time and CTAs meet only in atomics and fences.
AccessForm takeForm(Decoder &d) {
  AccessForm form;
  while (true) {
    if (takeSpace(d, form.space) || (!d.peekModifier().ends_with("cache_hint") &&
                                     (d.takePrefix("L1::") || d.takePrefix("L2::"))))
      continue;
    if (d.take("acquire"))
      form.flag |= orderAcquires | orderStrong;
    else if (d.take("release"))
      form.flag |= orderReleases | orderStrong;
    else if (d.takeOne({"volatile", "relaxed"}) >= 0)
      form.flag |= orderStrong;
    else if (d.takeOne({"cta", "cluster"}) >= 0)
      form.flag |= orderNear;
    else if (d.takeOne({"weak", "gpu", "sys", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt"}) >= 0)
      continue;
    else if (d.take("L2::cache_hint"))
      form.cachePolicy = true;
    else if (d.take("v2"))
      form.count = 2;
    else if (d.take("v4"))
      form.count = 4;
    else if (d.take("v8"))
      form.count = 8;
    else
      break;
  }
  return form;
}

// Registers of a vector all have one width, which may exceed the type's.
uint32_t registers(Decoder &d, size_t operand, uint32_t count, Type type, bool store,
                   int &registerBits) {
  const Operand &whole = d.operand(operand);
  const Operand *parts = &whole;
  size_t have = 1;
  if (whole.kind == Operand::Kind::Vector) {
    parts = whole.parts.data();
    have = whole.parts.size();
  }
  if (have != count)
    d.bad(std::to_string(have) + " registers where " + std::to_string(count) + " belong");
  // Sinks and immediates take any width: the first register decides.
  registerBits = 0;
  std::vector<uint32_t> offsets;
  std::vector<size_t> sinks;
  for (size_t p = 0; p < have; ++p) {
    int width = 0;
    if (parts[p].kind != Operand::Kind::Register && parts[p].kind != Operand::Kind::Special) {
      sinks.push_back(p);
      offsets.push_back(0);
      continue;
    }
    offsets.push_back(store ? d.wideSource(parts[p], type, width)
                            : d.wideDestination(parts[p], type, width));
    if (registerBits && width != registerBits)
      d.bad("registers of different widths");
    registerBits = width;
  }
  if (!registerBits)
    registerBits = std::max(bits(type), 8);
  for (size_t p : sinks) {
    Type wide = registerBits == bits(type) ? type
                : registerBits == 16       ? Type::B16
                : registerBits == 32       ? Type::B32
                                           : Type::B64;
    int width = 0;
    offsets[p] =
        store ? d.wideSource(parts[p], wide, width) : d.wideDestination(parts[p], wide, width);
  }
  return d.addList(offsets);
}

template <bool Store> void access(Decoder &d) {
  if (Store && d.take("async"))
    return decodeStoreAsync(d);
  AccessForm form = takeForm(d);
  Type type = d.takeType();
  if (bits(type) < 8 || kind(type) == TypeKind::Packed)
    return d.unknown();
  size_t operands = form.cachePolicy ? 3 : 2;
  d.expectOperands(operands);
  int baseBits = 64, registerBits = 0;
  d.inst.list = registers(d, Store ? 1 : 0, form.count, type, Store, registerBits);
  d.inst.a = d.address(Store ? 0 : 1, baseBits);
  d.inst.n = uint8_t(form.count);
  d.inst.width = uint8_t(bits(type) / 8);
  d.inst.mode = uint8_t(form.space);
  d.inst.flag = uint8_t(form.flag | (baseBits == 32 ? addressIs32 : 0));
  if (form.count * d.inst.width > 32)
    return d.unknown();
  d.noteSharedAccess(form.space, form.count * d.inst.width);
  d.emit(Store ? storeOf(type, registerBits) : loadOf(type, registerBits));
}

// A prefetch of any address is allowed and has no effect that a kernel could see.
void prefetch(Decoder &d) {
  Space space;
  takeSpace(d, space);
  if (d.takeOne({"L1", "L2", "L2::evict_last", "L2::evict_normal", "tensormap"}) < 0)
    return d.unknown();
  d.expectOperands(1);
  int baseBits = 64;
  d.address(0, baseBits);
  d.emit(nothing);
}

} // namespace

std::span<const Opcode> memoryOpcodes() {
  static constexpr Opcode opcodes[] = {
      {"ld", access<false>}, {"ldu", access<false>}, {"st", access<true>}, {"prefetch", prefetch}};
  return opcodes;
}

} // namespace rho::emulator
