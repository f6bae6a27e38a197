// cp.async.bulk.tensor of tiles (PTX ISA, "Data Movement and Conversion Instructions: Tensor
// copy"). Elements of a box outside the tensor are read as zero and not written.
#include "runtime/emulator/Bulk.h"

#include "runtime/emulator/Access.h"
#include "runtime/emulator/Faults.h"
#include "runtime/emulator/Lanes.h"

#include <algorithm>
#include <cstring>

namespace rho::emulator {

namespace {

constexpr uint32_t tileAlign = 128;

// Inst besides Bulk.h: list coordinates, n their number.
bool findMap(Warp &w, const Inst &i, int lane, TensorMap &out) {
  uint64_t address = globalOperand(w, i, lane);
  if (address < windowBytes) // the address of a parameter in its own space
    address += paramWindow;
  LaneAddresses addresses{};
  LanePointers pointers{};
  if (misaligned(w, i, lane, "tensor map", address, 64))
    return false;
  // Its last bytes: all 128 are there, since no memory ends inside 64 aligned bytes.
  for (uint64_t half : {uint64_t(64), uint64_t(0)}) {
    addresses.at[lane] = address + half;
    if (!resolve(w, i, laneBit[size_t(lane)], Space::Generic, 64, AccessKind::Read, addresses,
                 pointers))
      return false;
  }
  Result<TensorMap> map =
      decodeTensorMap(std::span<const uint8_t, tensorMapBytes>(pointers.at[lane], tensorMapBytes));
  if (!map)
    return refuseBulk(w, i, lane, map.error().str());
  out = *map;
  if (out.rank != i.n)
    return refuseBulk(w, i, lane,
                      "a tensor of rank " + std::to_string(out.rank) + ", the instruction has " +
                          std::to_string(i.n) + " coordinates");
  return true;
}

// Calls row(place in the box, global address, bytes) for what lies inside the tensor.
template <class Row>
bool forRows(const Warp &w, const Inst &i, int lane, const TensorMap &map, Row row) {
  int64_t at[maxTensorRank] = {};
  for (uint32_t r = 0; r < map.rank; ++r)
    at[r] = w.reg<int32_t>(w.list(i.list)[r])[lane];
  int64_t begin = std::max<int64_t>(at[0], 0);
  int64_t end = std::min(at[0] + map.box[0], int64_t(map.dims[0]));
  if (begin >= end)
    return true;
  uint64_t rowBytes = uint64_t(map.box[0]) * map.elementBytes;
  for (int64_t z = 0; z < map.box[2]; ++z)
    for (int64_t y = 0; y < map.box[1]; ++y) {
      int64_t atY = at[1] + y, atZ = at[2] + z;
      if (atY < 0 || atZ < 0 || atY >= int64_t(map.dims[1]) || atZ >= int64_t(map.dims[2]))
        continue;
      uint64_t place =
          uint64_t(z * map.box[1] + y) * rowBytes + uint64_t(begin - at[0]) * map.elementBytes;
      uint64_t address = map.address + uint64_t(atZ) * map.strides[2] +
                         uint64_t(atY) * map.strides[1] + uint64_t(begin) * map.elementBytes;
      if (!row(place, address, uint32_t(end - begin) * map.elementBytes))
        return false;
    }
  return true;
}

Flow tensorLoadHandler(Warp &w, const Inst &i, uint32_t mask) {
  for (int l : SetBits{mask}) {
    TensorMap map;
    if (!findMap(w, i, l, map))
      return Flow::Leave;
    std::vector<uint8_t> box(map.boxBytes(), 0);
    bool good = forRows(w, i, l, map, [&](uint64_t place, uint64_t address, uint32_t bytes) {
      const uint8_t *from = resolveGlobal(w, i, l, address, bytes, AccessKind::Read);
      if (from)
        std::memcpy(box.data() + place, from, bytes);
      return from != nullptr;
    });
    if (!good || !deliver(w, i, l, box, tileAlign, map.swizzle))
      return Flow::Leave;
  }
  return Flow::Next;
}

Flow tensorStoreHandler(Warp &w, const Inst &i, uint32_t mask) {
  for (int l : SetBits{mask}) {
    TensorMap map;
    if (!findMap(w, i, l, map))
      return Flow::Leave;
    std::vector<uint8_t> box(map.boxBytes());
    if (!collect(w, i, l, box, tileAlign, map.swizzle))
      return Flow::Leave;
    bool good = forRows(w, i, l, map, [&](uint64_t place, uint64_t address, uint32_t bytes) {
      uint8_t *to = resolveGlobal(w, i, l, address, bytes, AccessKind::Write);
      if (to)
        std::memcpy(to, box.data() + place, bytes);
      return to != nullptr;
    });
    if (!good)
      return Flow::Leave;
  }
  return Flow::Next;
}

// The number of dimensions; 0: unknown.
uint32_t takeRank(Decoder &d) { return uint32_t(d.takeOne({"1d", "2d", "3d"}) + 1); }

void tensorOperand(Decoder &d, size_t operand, uint32_t rank) {
  d.inst.n = uint8_t(rank);
  d.inst.b = d.tensor(operand, rank, d.inst.list);
  d.inst.list2 = d.narrowOffset();
}

} // namespace

void decodeBulkTensor(Decoder &d) {
  uint32_t rank = takeRank(d);
  int direction = d.takeOne({"shared::cluster", "shared::cta", "global"});
  if (rank == 0 || direction < 0)
    return d.unknown();
  if (direction < 2) {
    if (!d.take("global"))
      return d.unknown();
    d.take("tile");
    if (!d.take("mbarrier::complete_tx::bytes"))
      return d.unknown();
    decodeLoadOperands(d, 3, 2);
    tensorOperand(d, 1, rank);
    decodeSharedOperand(d, 0);
    return d.emit(tensorLoadHandler);
  }
  if (!d.take("shared::cta"))
    return d.unknown();
  d.take("tile");
  if (!d.take("bulk_group"))
    return d.unknown();
  bool policy = d.take("L2::cache_hint");
  d.expectOperands(policy ? 3 : 2);
  tensorOperand(d, 0, rank);
  decodeSharedOperand(d, 1);
  d.emit(tensorStoreHandler);
}

void decodeBulkPrefetchTensor(Decoder &d) {
  uint32_t rank = takeRank(d);
  if (rank == 0 || !d.take("L2") || !d.take("global"))
    return d.unknown();
  d.take("tile");
  bool policy = d.take("L2::cache_hint");
  d.expectOperands(policy ? 2 : 1);
  tensorOperand(d, 0, rank);
  d.emit(nothing);
}

} // namespace rho::emulator
