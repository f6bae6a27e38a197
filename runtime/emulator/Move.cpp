// mov, address conversion, clocks (PTX ISA, "mov", "cvta", "isspacep").
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Lanes.h"

#include <algorithm>
#include <chrono>

namespace rho::emulator {

namespace {

struct Copy {
  template <class T> static T apply(T a) { return a; }
};

Flow movePredicate(Warp &w, const Inst &i, uint32_t mask) {
  setPredicate(w.predicate(i.d), mask, w.predicate(i.a, i.flag));
  return Flow::Next;
}

// d = {a, b, ...}, the first in the lowest bits; and its inverse.
template <class Whole, class Part> Flow packHandler(Warp &w, const Inst &i, uint32_t mask) {
  constexpr size_t count = sizeof(Whole) / sizeof(Part);
  const Part *parts[count];
  for (size_t p = 0; p < count; ++p)
    parts[p] = w.reg<Part>(w.list(i.list)[p]);
  forLanes(w.reg<Whole>(i.d), mask, [&](int l) {
    Whole result = 0;
    for (size_t p = 0; p < count; ++p)
      result |= Whole(Whole(parts[p][l]) << (8 * sizeof(Part) * p));
    return result;
  });
  return Flow::Next;
}
template <class Whole, class Part> Flow unpackHandler(Warp &w, const Inst &i, uint32_t mask) {
  Whole source[32]; // a part may be the source register
  std::copy_n(w.reg<Whole>(i.a), 32, source);
  for (size_t p = 0; p < sizeof(Whole) / sizeof(Part); ++p)
    forLanes(w.reg<Part>(w.list(i.list)[p]), mask,
             [&](int l) { return Part(source[l] >> (8 * sizeof(Part) * p)); });
  return Flow::Next;
}

Handler packOf(int whole, int part, bool unpack) {
  if (whole == 32 && part == 16)
    return unpack ? unpackHandler<uint32_t, uint16_t> : packHandler<uint32_t, uint16_t>;
  if (whole == 64 && part == 32)
    return unpack ? unpackHandler<uint64_t, uint32_t> : packHandler<uint64_t, uint32_t>;
  if (whole == 64 && part == 16)
    return unpack ? unpackHandler<uint64_t, uint16_t> : packHandler<uint64_t, uint16_t>;
  return nullptr;
}

void mov(Decoder &d) {
  Type type = d.takeType();
  d.expectOperands(2);
  const Operand &to = d.operand(0), &from = d.operand(1);
  if (type == Type::Pred) {
    d.inst.d = d.predicateDestination(to);
    d.inst.a = d.predicate(1, d.inst.flag);
    return d.emit(movePredicate);
  }
  bool unpack = to.kind == Operand::Kind::Vector;
  if (unpack || from.kind == Operand::Kind::Vector) {
    size_t count = unpack ? to.parts.size() : from.parts.size();
    int part = bits(type) / int(count);
    Type partType = part == 16 ? Type::B16 : Type::B32;
    if (unpack) {
      d.inst.list = d.destinations(0, count, partType);
      d.inst.a = d.source(1, type);
    } else {
      d.inst.d = d.destination(0, type);
      d.inst.list = d.sources(1, count, partType);
    }
    return d.emit(packOf(bits(type), part, unpack));
  }
  d.operands(type, {type});
  d.emit(bits(type) == 16   ? unaryHandler<uint16_t, uint16_t, Copy>
         : bits(type) == 32 ? unaryHandler<uint32_t, uint32_t, Copy>
         : bits(type) == 64 ? unaryHandler<uint64_t, uint64_t, Copy>
                            : nullptr);
}

uint64_t windowOf(int space) {
  switch (space) {
  case 0:
  case 1:
  case 2:
    return sharedWindow;
  case 3:
    return localWindow;
  case 4:
    return paramWindow;
  default:
    return 0; // global and const addresses are generic as they are
  }
}
int takeSpace(Decoder &d) {
  return d.takeOne(
      {"shared", "shared::cta", "shared::cluster", "local", "param", "global", "const"});
}

Flow cvtaHandler(Warp &w, const Inst &i, uint32_t mask) {
  const auto *a = w.reg<uint64_t>(i.a);
  auto offset = uint64_t(i.imm);
  forLanes(w.reg<uint64_t>(i.d), mask, [&](int l) { return a[l] + offset; });
  return Flow::Next;
}

void cvta(Decoder &d) {
  bool to = d.take("to");
  int space = takeSpace(d);
  if (space < 0 || d.takeType() != Type::U64)
    return d.unknown();
  d.operands(Type::U64, {Type::U64});
  uint64_t window = windowOf(space);
  d.inst.imm = int64_t(to ? 0 - window : window);
  d.emit(cvtaHandler);
}

Flow isspacepHandler(Warp &w, const Inst &i, uint32_t mask) {
  const auto *a = w.reg<uint64_t>(i.a);
  auto window = uint64_t(i.imm);
  uint64_t end = window ? window + windowBytes : ~uint64_t(0);
  uint64_t begin = window ? window : paramWindow + windowBytes;
  setPredicate(w.predicate(i.d), mask,
               lanesWhere([&](int l) { return a[l] >= begin && a[l] < end; }));
  return Flow::Next;
}

// Addresses of constants are global ones, as the variables that they lie in tell.
Flow isConstantHandler(Warp &w, const Inst &i, uint32_t mask) {
  const auto *a = w.reg<uint64_t>(i.a);
  uint32_t result = 0;
  for (int l = 0; l < 32; ++l)
    if (const Allocation *found = w.cta->state->map.before(a[l]))
      result |= found->constant && found->contains(a[l], 1) ? laneBit[size_t(l)] : 0;
  setPredicate(w.predicate(i.d), mask, result);
  return Flow::Next;
}

void isspacep(Decoder &d) {
  bool isConstant = d.take("const");
  int space = isConstant ? 0 : takeSpace(d);
  if (space < 0)
    return d.unknown();
  d.expectOperands(2);
  d.inst.d = d.predicateDestination(d.operand(0));
  d.inst.a = d.source(1, Type::U64);
  d.inst.imm = int64_t(windowOf(space));
  d.emit(isConstant ? isConstantHandler : isspacepHandler);
}

// Cache policies change no value.
Flow createPolicyHandler(Warp &w, const Inst &i, uint32_t mask) {
  forLanes(w.reg<uint64_t>(i.d), mask, [](int) { return uint64_t(0); });
  return Flow::Next;
}

void createPolicy(Decoder &d) {
  if (!d.take("fractional") || !d.takePrefix("L2::"))
    return d.unknown();
  d.takePrefix("L2::");
  if (!d.take("b64"))
    return d.unknown();
  d.expectOperands(1, 2);
  d.inst.d = d.destination(0, Type::B64);
  d.emit(createPolicyHandler);
}

} // namespace

// Clocks count the warp's instructions, so that a run can be repeated; only %globaltimer is time.
Flow readClock(Warp &w, const Inst &i, uint32_t) {
  auto special = Special(i.mode);
  uint64_t value = w.clock();
  if (special >= Special::Timer)
    value = uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count());
  if (special == Special::ClockHigh || special == Special::TimerHigh)
    value >>= 32;
  if (special == Special::Clock64 || special == Special::Timer)
    std::fill_n(w.reg<uint64_t>(i.d), 32, value);
  else
    std::fill_n(w.reg<uint32_t>(i.d), 32, uint32_t(value));
  return Flow::Next;
}

std::span<const Opcode> moveOpcodes() {
  static constexpr Opcode opcodes[] = {
      {"mov", mov}, {"cvta", cvta}, {"isspacep", isspacep}, {"createpolicy", createPolicy}};
  return opcodes;
}

} // namespace rho::emulator
