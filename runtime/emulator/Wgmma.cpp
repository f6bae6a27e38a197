// wgmma and setmaxnreg (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"). The product
// is computed at once when the four warps have met; until a warp has waited for its group, its
// registers and the operands in shared memory count as in use.
//
// Numerics are those of mma (Matrix.h). Warp w of the four has rows 16 w to 16 w + 15 in the
// fragments of mma.m16n8, one after the other along N.
#include "runtime/emulator/Access.h"
#include "runtime/emulator/Elements.h"
#include "runtime/emulator/Faults.h"
#include "runtime/emulator/Lanes.h"
#include "runtime/emulator/MatrixDescriptor.h"
#include "runtime/emulator/WgmmaRegisters.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <type_traits>

namespace rho::emulator {

bool Warp::meetGroup(const Inst &inst, uint32_t mask) {
  if (!converged(inst, mask))
    return false;
  auto refuse = [&](const std::string &what) {
    fail(inst, firstLane(mask), DiagId::emulator_warpgroup, {what});
    return false;
  };
  uint32_t first = index / 4 * 4;
  if (first + 4 > cta->warps.size())
    return refuse("warp " + std::to_string(index) + " of " + std::to_string(cta->warps.size()));
  WarpGroup &group = cta->groups[index / 4];
  if (group.inst && group.inst != &inst)
    return refuse("others of warps " + std::to_string(first) + " to " + std::to_string(first + 3) +
                  " wait at another one, on ptx line " +
                  std::to_string(cta->entry->statements[group.inst->statement].line));
  group.inst = &inst;
  if (++group.arrived < 4) {
    state = State::Waiting;
    return false;
  }
  group = WarpGroup{};
  for (uint32_t w = first; w < first + 4; ++w)
    cta->warps[w].state = State::Ready;
  ++cta->cluster->events;
  return true;
}

namespace {

// Inst of mma_async: list D, then A where it is in registers; a, b descriptors, c predicate that
// keeps D; n columns / 8.
enum WgmmaFlag : uint8_t { RegistersA = 1, NegateA = 2, NegateB = 4, ScaleFlip = 8, Integer = 16 };

constexpr uint32_t groupRows = 64, warpRows = 16;
constexpr uint32_t maxColumns = 256;

WgmmaRegisters registersOf(const Warp &w, const Inst &i) {
  size_t results = size_t(i.n) * 4;
  return {{w.list(i.list), results},
          {w.list(i.list) + results, i.flag & RegistersA ? size_t(4) : 0},
          uint16_t(i.n * 2 + (i.flag & Integer ? 1 : 0))};
}

// Packed rows of an operand.
template <uint32_t Rows> struct PackedRows {
  alignas(64) uint8_t bytes[size_t(Rows) * wgmmaRowBytes];
};

// The async proxy's reads of the rows from `first`, for this warp. False: failed.
bool beginReads(Warp &w, const Inst &i, const MatrixDescriptor &matrix, uint32_t first,
                uint32_t rows, std::vector<PendingWgmma::Range> &held) {
  SharedMemory &shared = w.cta->shared;
  int lane = w.firstLane(w.active);
  for (uint32_t group = first; group < first + rows; group += 8) {
    uint64_t low = UINT64_MAX, high = 0;
    for (uint32_t row = group; row < group + 8; ++row)
      for (uint32_t half = 0; half < 2; ++half) {
        uint64_t at = matrix.piece(row, half);
        if (!checkShared(w, i, lane, at, 16) ||
            !checkFinding(w, i, lane, shared.beginAsyncRead(w.id, uint32_t(at), 16), false))
          return false;
        low = std::min(low, at);
        high = std::max(high, at + 16);
      }
    // Of rows with a swizzle, those of other instructions lie in between.
    if (!held.empty() && held.back().address <= low &&
        low <= held.back().address + held.back().bytes + 128)
      held.back().bytes = std::max(held.back().bytes, uint32_t(high) - held.back().address);
    else
      held.push_back({uint32_t(low), uint32_t(high - low)});
  }
  return true;
}

void gather(Warp &w, const MatrixDescriptor &matrix, uint32_t rows, uint8_t *to) {
  const uint8_t *from = w.cta->shared.data();
  for (uint32_t row = 0; row < rows; ++row)
    for (uint32_t half = 0; half < 2; ++half, to += 16)
      std::memcpy(to, from + matrix.piece(row, half), 16);
}

// Fragments of A: as mma's, register r of lane 4 g + t holds row g + 8 (r & 1), bytes
// 16 (r >> 1) + 4 t.
void gatherFragments(const Warp &w, std::span<const uint32_t> registers, uint8_t *to) {
  for (size_t r = 0; r < registers.size(); ++r) {
    const auto *lanes = w.reg<uint32_t>(registers[r]);
    for (size_t l = 0; l < 32; ++l)
      std::memcpy(to + (l / 4 + 8 * (r & 1)) * wgmmaRowBytes + 16 * (r >> 1) + 4 * (l % 4),
                  lanes + l, 4);
  }
}

template <class Element, class Number>
void unpackRows(const uint8_t *bytes, uint32_t rows, bool negate, Number *to) {
  constexpr size_t perChunk = size_t(32) * Element::perRegister;
  uint32_t words[32];
  for (size_t at = 0; at < size_t(rows) * wgmmaRowBytes; at += sizeof words, to += perChunk) {
    std::memcpy(words, bytes + at, sizeof words);
    Element::unpack(words, to);
    if (negate)
      for (size_t e = 0; e < perChunk; ++e)
        to[e] = -to[e];
  }
}

// The first of the four warps, which lie behind one another.
Warp *groupOf(Warp &w) { return &w.cta->warps[size_t(w.index / 4) * 4]; }

// The operands of one instruction as all four warps see them.
struct Descriptors {
  MatrixDescriptor a, b;
};

uint64_t uniform(Warp &w, const Inst &i, uint32_t slot, bool &same) {
  const Warp *first = groupOf(w);
  uint64_t value = first->reg<uint64_t>(slot)[0];
  for (uint32_t k = 0; k < 4; ++k)
    for (int l = 0; l < 32; ++l)
      same &= first[k].reg<uint64_t>(slot)[l] == value;
  return value;
}

// Checks and holds what the four warps' instruction reads and writes. False: failed.
bool begin(Warp &w, const Inst &i, const Descriptors &operands) {
  auto refuse = [&](const std::string &what) {
    w.fail(i, w.firstLane(w.active), DiagId::emulator_wgmma_operand, {what});
    return false;
  };
  bool inShared = !(i.flag & RegistersA);
  for (const MatrixDescriptor *matrix : {&operands.a, &operands.b}) {
    std::string problem = matrix == &operands.b || inShared ? matrix->problem() : std::string();
    if (!problem.empty())
      return refuse(problem);
  }
  Warp *first = groupOf(w);
  for (uint32_t k = 0; k < 4; ++k) {
    Warp &each = first[k];
    PendingWgmma pending{each.wgmmaGroup, &i, {}};
    if (!claimRegisters(each, i, registersOf(each, i)) ||
        (inShared && !beginReads(each, i, operands.a, warpRows * k, warpRows, pending.reads)) ||
        !beginReads(each, i, operands.b, 0, uint32_t(i.n) * 8, pending.reads))
      return false;
    for (const PendingWgmma::Range &range : pending.reads)
      w.cta->shared.holdAsyncRead(each.id, range.address, range.bytes);
    each.wgmmas.push_back(std::move(pending));
  }
  return true;
}

// D of one warp's 16 rows and 8 columns: sums are row-major.
template <class Number>
void accumulate(Warp &w, const uint32_t *registers, const Number *sums, bool keep) {
  using Result = std::conditional_t<std::is_same_v<Number, float>, uint32_t, float>;
  for (size_t r = 0; r < 4; ++r) {
    auto *d = w.reg<Result>(registers[r]);
    for (size_t l = 0; l < 32; ++l) {
      Number sum = sums[(l / 4 + 8 * (r >> 1)) * 8 + 2 * (l % 4) + (r & 1)];
      if constexpr (std::is_same_v<Number, float>)
        d[l] = (keep ? d[l] : 0) + uint32_t(int32_t(sum)); // wraps
      else
        d[l] = float((keep ? double(d[l]) : 0) + sum);
    }
  }
}

// Number: float for integers, whose sums of 32 products it holds exactly.
template <class A, class B, class Number>
Flow productHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.meetGroup(i, mask))
    return Flow::Leave;
  bool same = true, inShared = !(i.flag & RegistersA);
  Descriptors operands{MatrixDescriptor(inShared ? uniform(w, i, i.a, same) : 0),
                       MatrixDescriptor(uniform(w, i, i.b, same))};
  if (!same)
    return w.fail(i, w.firstLane(mask), DiagId::emulator_wgmma_operand,
                  {"descriptors that differ between threads, all four warps pass the same"});
  if (!begin(w, i, operands))
    return Flow::Leave;

  constexpr uint32_t k = 8 * A::perRegister;
  uint32_t columns = uint32_t(i.n) * 8;
  PackedRows<groupRows> packedA;
  PackedRows<maxColumns> packedB;
  alignas(64) Number a[groupRows * k], rowsOfB[maxColumns * k];
  gather(w, operands.b, columns, packedB.bytes);
  Warp *first = groupOf(w);
  if (inShared)
    gather(w, operands.a, groupRows, packedA.bytes);
  else
    for (size_t m = 0; m < 4; ++m)
      gatherFragments(first[m], registersOf(first[m], i).fragments,
                      packedA.bytes + m * warpRows * wgmmaRowBytes);
  unpackRows<A>(packedA.bytes, groupRows, i.flag & NegateA, a);
  unpackRows<B>(packedB.bytes, columns, i.flag & NegateB, rowsOfB);

  for (uint32_t tile = 0; tile < i.n; ++tile) {
    alignas(64) Number b[k * 8];
    const Number *rows = rowsOfB + size_t(tile) * 8 * k;
    for (uint32_t n = 0; n < 8; ++n)
      for (uint32_t e = 0; e < k; ++e)
        b[e * 8 + n] = rows[n * k + e];
    for (size_t m = 0; m < 4; ++m) {
      alignas(64) Number sums[warpRows * 8] = {};
      multiply(a + m * warpRows * k, b, sums, int(k), int(k));
      uint32_t keep = first[m].predicate(i.c, i.flag & ScaleFlip);
      accumulate(first[m], first[m].list(i.list) + size_t(tile) * 4, sums, keep & 1);
    }
  }
  return Flow::Next;
}

Flow wgmmaFenceHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.converged(i, mask))
    return Flow::Leave;
  for (RegisterUse &use : w.uses)
    use.touched = false;
  return Flow::Next;
}

Flow wgmmaCommitHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.converged(i, mask))
    return Flow::Leave;
  ++w.wgmmaGroup;
  return Flow::Next;
}

// Completes the groups but the last inst.imm ones.
Flow wgmmaWaitHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.converged(i, mask))
    return Flow::Leave;
  std::erase_if(w.wgmmas, [&](const PendingWgmma &pending) {
    if (int64_t(pending.group) + i.imm >= int64_t(w.wgmmaGroup))
      return false;
    releaseRegisters(w, registersOf(w, *pending.inst));
    for (const PendingWgmma::Range &range : pending.reads)
      w.cta->shared.endAsyncRead(w.id, range.address, range.bytes);
    return true;
  });
  return Flow::Next;
}

template <class A> Handler bytesWith(Type b) {
  return b == Type::S8   ? productHandler<A, ByteElement<int8_t>, float>
         : b == Type::U8 ? productHandler<A, ByteElement<uint8_t>, float>
                         : nullptr;
}
template <class A> Handler fp8With(Type b) {
  return b == Type::E4M3   ? productHandler<A, E4m3Element, double>
         : b == Type::E5M2 ? productHandler<A, E5m2Element, double>
                           : nullptr;
}

Handler handlerOf(Type d, Type a, Type b) {
  if (d == Type::S32)
    return a == Type::S8   ? bytesWith<ByteElement<int8_t>>(b)
           : a == Type::U8 ? bytesWith<ByteElement<uint8_t>>(b)
                           : nullptr;
  if (d != Type::F32)
    return nullptr;
  switch (a) {
  case Type::F16:
    return b == a ? productHandler<F16Element, F16Element, double> : nullptr;
  case Type::BF16:
    return b == a ? productHandler<Bf16Element, Bf16Element, double> : nullptr;
  case Type::E4M3:
    return fp8With<E4m3Element>(b);
  case Type::E5M2:
    return fp8With<E5m2Element>(b);
  default:
    return nullptr;
  }
}

// "m64n128k16": the columns of a shape with this k; 0: it is none.
uint32_t columnsOf(std::string_view shape, std::string_view k, bool integer) {
  if (!shape.starts_with("m64n") || !shape.ends_with(k))
    return 0;
  shape = shape.substr(4, shape.size() - 4 - k.size());
  uint32_t columns = 0;
  auto [end, error] = std::from_chars(shape.data(), shape.data() + shape.size(), columns);
  if (error != std::errc() || end != shape.data() + shape.size())
    return 0;
  uint32_t step = integer && columns > 32 ? 16 : 8;
  return columns % step == 0 && columns <= maxColumns ? columns : 0;
}

// 1 or -1.
bool takesNegative(Decoder &d, size_t operand) {
  int64_t scale = d.immediate(operand);
  if (scale != 1 && scale != -1)
    d.bad("a scale is 1 or -1");
  return scale == -1;
}

void product(Decoder &d) {
  if (!d.take("sync") || !d.take("aligned"))
    return d.unknown();
  std::string_view shape = d.peekModifier();
  if (!d.takePrefix("m64n"))
    return d.unknown();
  Type typeD = d.takeType(), typeA = d.takeType(), typeB = d.takeType();
  Handler handler = handlerOf(typeD, typeA, typeB);
  bool integer = typeD == Type::S32, half = bits(typeA) == 16;
  uint32_t columns = columnsOf(shape, half ? "k16" : "k32", integer);
  if (!handler || columns == 0)
    return d.unknown();
  bool registersA = d.operand(1).kind == Operand::Kind::Vector;
  size_t operands = integer ? 4 : !half ? 6 : registersA ? 7 : 8;
  d.expectOperands(operands);
  // One after the other in Entry::lists.
  d.inst.list = d.destinations(0, columns / 2, Type::B32);
  if (registersA)
    d.sources(1, 4, Type::B32);
  else
    d.inst.a = d.source(1, Type::B64);
  d.inst.b = d.source(2, Type::B64);
  uint8_t flipped = 0;
  d.inst.c = d.predicate(3, flipped);
  bool negateA = !integer && takesNegative(d, 4), negateB = !integer && takesNegative(d, 5);
  for (size_t transposes = 6; transposes < operands; ++transposes)
    if (d.immediate(transposes) != 0)
      return d.unknown(); // rows that are contiguous in M or N
  d.inst.n = uint8_t(columns / 8);
  d.inst.flag =
      uint8_t((registersA ? RegistersA : 0) | (negateA ? NegateA : 0) | (negateB ? NegateB : 0) |
              (flipped ? ScaleFlip : 0) | (integer ? Integer : 0));
  d.noteWgmma(d.inst.list, columns / 2 + (registersA ? 4 : 0));
  d.emit(handler);
}

void wgmma(Decoder &d) {
  if (d.take("mma_async"))
    return product(d);
  int which = d.takeOne({"fence", "commit_group", "wait_group"});
  if (which < 0 || !d.take("sync") || !d.take("aligned"))
    return d.unknown();
  d.expectOperands(which == 2 ? 1 : 0);
  if (which == 2) {
    d.inst.imm = d.immediate(0);
    if (d.inst.imm < 0 || d.inst.imm > 7)
      d.bad("0 to 7 groups are left");
  }
  d.emit(which == 0 ? wgmmaFenceHandler : which == 1 ? wgmmaCommitHandler : wgmmaWaitHandler);
}

// Inst: imm registers of a thread, flag: takes some.
//
// The last of the four warps moves the registers of all, between them and those that the CTA has
// free: it waits until others have given back what it takes. Without .maxnreg nothing moves.
Flow maxRegistersHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (w.taking != &i && !w.meetGroup(i, mask))
    return Flow::Leave;
  w.taking = nullptr;
  if (w.registersPerThread == 0)
    return Flow::Next;
  constexpr int64_t groupThreads = 4 * 32;
  Cta &cta = *w.cta;
  const int64_t more = (i.imm - int64_t(w.registersPerThread)) * groupThreads;
  if (i.flag ? more < 0 : more > 0)
    return w.fail(i, w.firstLane(mask), DiagId::emulator_value,
                  {std::to_string(i.imm) + " registers a thread where each has " +
                   std::to_string(w.registersPerThread)});
  if (more > cta.freeRegisters) {
    w.taking = &i;
    w.giveUp = false;
    w.state = Warp::State::Polling;
    --w.pc;
    return Flow::Leave;
  }
  cta.freeRegisters -= more;
  for (uint32_t other = w.index / 4 * 4; other < w.index / 4 * 4 + 4; ++other)
    cta.warps[other].registersPerThread = uint32_t(i.imm);
  cta.cluster->wakePolling();
  return Flow::Next;
}

void setMaxRegisters(Decoder &d) {
  const int which = d.takeOne({"inc", "dec"});
  if (which < 0 || !d.take("sync") || !d.take("aligned") || !d.take("u32"))
    return d.unknown();
  d.inst.flag = which == 0;
  d.expectOperands(1);
  const int64_t count = d.inst.imm = d.immediate(0);
  if (count < 24 || count > 256 || count % 8 != 0)
    d.bad(std::to_string(count) + " registers, a multiple of 8 from 24 to 256 belongs");
  d.emit(maxRegistersHandler);
}

} // namespace

std::span<const Opcode> wgmmaOpcodes() {
  static constexpr Opcode opcodes[] = {{"wgmma", wgmma}, {"setmaxnreg", setMaxRegisters}};
  return opcodes;
}

} // namespace rho::emulator
