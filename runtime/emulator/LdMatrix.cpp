// ldmatrix, stmatrix and movmatrix of 8x8 matrices of 16-bit elements (PTX ISA, "Warp-level matrix
// load instruction: ldmatrix"). Lane 8 i + r has the address of row r of matrix i; lane l holds
// elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4.
#include "runtime/emulator/Access.h"
#include "runtime/emulator/BankConflicts.h"
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Lanes.h"

#include <cstring>

namespace rho::emulator {

namespace {

constexpr uint32_t rowBytes = 16;

// The rows' host addresses. Inst: a base, imm offset, list registers, n matrices, mode transposed.
bool rowAddresses(Warp &w, const Inst &i, uint32_t mask, bool write, uint8_t *(&out)[32]) {
  if (!w.converged(i, mask))
    return false;
  LaneAddresses addresses;
  laneAddresses(w, i.a, i.imm, i.flag & addressIs32, addresses);
  SharedMemory &shared = w.cta->shared;
  for (int l = 0; l < 8 * i.n; ++l) {
    uint64_t address = ownShared(addresses.at[l]);
    if (!checkShared(w, i, l, address, rowBytes))
      return false;
    auto at = uint32_t(address);
    SharedMemory::Finding finding =
        write ? shared.write(w.id, at, rowBytes) : shared.read(w.id, at, rowBytes);
    if (!checkFinding(w, i, l, finding, write))
      return false;
    out[l] = shared.data() + at;
  }
  uint32_t addressing = i.n == 4 ? allLanes : (1u << (8 * i.n)) - 1;
  w.bankConflicts += bankConflicts(addresses.at, addressing, rowBytes);
  return true;
}

template <bool Transposed> Flow matrixLoadHandler(Warp &w, const Inst &i, uint32_t mask) {
  uint8_t *row[32];
  if (!rowAddresses(w, i, mask, false, row))
    return Flow::Leave;
  for (ptrdiff_t m = 0; m < i.n; ++m) {
    auto *d = w.reg<uint32_t>(w.list(i.list)[m]);
    for (int l = 0; l < 32; ++l) {
      ptrdiff_t group = l / 4, quad = l % 4;
      uint16_t pair[2];
      if (Transposed) {
        const uint8_t *const *pairOfRows = row + 8 * m + 2 * quad;
        std::memcpy(&pair[0], pairOfRows[0] + 2 * group, 2);
        std::memcpy(&pair[1], pairOfRows[1] + 2 * group, 2);
      } else {
        std::memcpy(pair, row[8 * m + group] + 4 * quad, 4);
      }
      d[l] = uint32_t(pair[1]) << 16 | pair[0];
    }
  }
  return Flow::Next;
}

template <bool Transposed> Flow matrixStoreHandler(Warp &w, const Inst &i, uint32_t mask) {
  uint8_t *row[32];
  if (!rowAddresses(w, i, mask, true, row))
    return Flow::Leave;
  for (ptrdiff_t m = 0; m < i.n; ++m) {
    const auto *s = w.reg<uint32_t>(w.list(i.list)[m]);
    for (int l = 0; l < 32; ++l) {
      ptrdiff_t group = l / 4, quad = l % 4;
      uint16_t pair[2] = {uint16_t(s[l]), uint16_t(s[l] >> 16)};
      if (Transposed) {
        uint8_t *const *pairOfRows = row + 8 * m + 2 * quad;
        std::memcpy(pairOfRows[0] + 2 * group, &pair[0], 2);
        std::memcpy(pairOfRows[1] + 2 * group, &pair[1], 2);
      } else {
        std::memcpy(row[8 * m + group] + 4 * quad, pair, 4);
      }
    }
  }
  return Flow::Next;
}

template <bool Store> void matrix(Decoder &d) {
  if (!d.take("sync") || !d.take("aligned") || !d.take("m8n8"))
    return d.unknown();
  int which = d.takeOne({"x1", "x2", "x4"});
  if (which < 0)
    return d.unknown();
  bool transposed = d.take("trans");
  if (!d.take("shared"))
    d.take("shared::cta");
  if (!d.take("b16"))
    return d.unknown();
  d.expectOperands(2);
  int baseBits = 64;
  auto count = size_t(1) << which;
  d.inst.list = Store ? d.sources(1, count, Type::B32) : d.destinations(0, count, Type::B32);
  d.inst.a = d.address(Store ? 0 : 1, baseBits);
  d.inst.n = uint8_t(count);
  d.inst.flag = baseBits == 32 ? addressIs32 : 0;
  d.noteSharedAccess(Space::Shared, rowBytes);
  d.emit(Store ? (transposed ? matrixStoreHandler<true> : matrixStoreHandler<false>)
               : (transposed ? matrixLoadHandler<true> : matrixLoadHandler<false>));
}

Flow transposeHandler(Warp &w, const Inst &i, uint32_t mask) {
  if (!w.converged(i, mask))
    return Flow::Leave;
  uint16_t rowsOfA[64]; // d may be a
  std::memcpy(rowsOfA, w.reg<uint32_t>(i.a), sizeof rowsOfA);
  auto *d = w.reg<uint32_t>(i.d);
  for (size_t l = 0; l < 32; ++l) {
    const uint16_t *first = rowsOfA + 2 * (l % 4) * 8 + l / 4;
    d[l] = uint32_t(first[8]) << 16 | first[0];
  }
  return Flow::Next;
}

void moveMatrix(Decoder &d) {
  if (!d.take("sync") || !d.take("aligned") || !d.take("m8n8") || !d.take("trans") ||
      !d.take("b16"))
    return d.unknown();
  d.operands(Type::B32, {Type::B32});
  d.emit(transposeHandler);
}

} // namespace

std::span<const Opcode> matrixOpcodes() {
  static constexpr Opcode opcodes[] = {
      {"ldmatrix", matrix<false>}, {"stmatrix", matrix<true>}, {"movmatrix", moveMatrix}};
  return opcodes;
}

} // namespace rho::emulator
