#include "runtime/emulator/Access.h"

#include "runtime/emulator/BankConflicts.h"
#include "runtime/emulator/Faults.h"

#include <algorithm>

namespace rho::emulator {

void laneAddresses(const Warp &warp, uint32_t base, int64_t offset, bool is32, LaneAddresses &out) {
  if (is32) {
    const auto *from = warp.reg<uint32_t>(base);
    for (int l = 0; l < 32; ++l)
      out.at[l] = uint32_t(from[l] + uint32_t(offset));
  } else {
    const auto *from = warp.reg<uint64_t>(base);
    for (int l = 0; l < 32; ++l)
      out.at[l] = from[l] + uint64_t(offset);
  }
}

bool misaligned(Warp &warp, const Inst &inst, int lane, const char *space, uint64_t address,
                uint32_t bytes) {
  if ((address & (bytes - 1)) == 0) [[likely]] // bytes is a power of two
    return false;
  warp.fail(inst, lane, DiagId::emulator_misaligned, {space, hex(address), std::to_string(bytes)});
  return true;
}

namespace {

// What the grid before a dependent one may still write or read, unless a griddepcontrol.wait came
// first. False: the warp failed.
bool checkDependency(Warp &warp, const Inst &inst, int lane, uint64_t address, uint32_t bytes,
                     AccessKind kind) {
  const std::optional<Launch::Ahead> &ahead = warp.cta->launch->ahead;
  if (!ahead) [[likely]]
    return true;
  if (kind == AccessKind::Read && address >= ahead->address &&
      address - ahead->address <= ahead->bytes && bytes <= ahead->address + ahead->bytes - address)
    return true;
  if (warp.cta->cluster->order.mayDepend(warp.id))
    return true;
  warp.fail(inst, lane, DiagId::emulator_before_wait,
            {kind == AccessKind::Read ? "read" : "written", hex(address), std::to_string(bytes),
             range(ahead->address, ahead->bytes)});
  return false;
}

} // namespace

uint8_t *resolveGlobal(Warp &warp, const Inst &inst, int lane, uint64_t address, uint32_t bytes,
                       AccessKind kind) {
  const Allocation *&recent = warp.cta->recent[inst.statement % std::size(warp.cta->recent)];
  if (!recent || !recent->contains(address, bytes))
    recent = warp.cta->state->map.before(address);
  const Allocation *found = recent;
  if (found && found->contains(address, bytes)) {
    if (!found->host) {
      warp.fail(inst, lane, DiagId::emulator_released,
                {hex(address), std::to_string(bytes), range(found->address, found->size)});
      return nullptr;
    }
    if (!found->constant && !checkDependency(warp, inst, lane, address, bytes, kind))
      return nullptr;
    if (kind == AccessKind::Read || !found->constant)
      return found->host.get() + (address - found->address);
  }
  // The nearer of the allocations on both sides.
  const Allocation *after = warp.cta->state->map.after(address);
  const Allocation *nearest = found ? found : after;
  if (found && after) {
    uint64_t past = address - std::min(address, found->address + found->size);
    if (after->address - address < past)
      nearest = after;
  }
  std::string limits =
      nearest ? "the nearest is " + range(nearest->address, nearest->size) : "there is none";
  if (nearest && nearest->constant && nearest->contains(address, bytes))
    limits = "only in the constant " + range(nearest->address, nearest->size);
  warp.fail(inst, lane, DiagId::emulator_global_bounds,
            {hex(address), std::to_string(bytes), limits});
  return nullptr;
}

bool reportShared(Warp &warp, const Inst &inst, int lane, const SharedMemory &shared,
                  uint64_t address, uint32_t bytes, uint32_t align) {
  uint32_t size = shared.size();
  if (address > size || bytes > size - address) {
    warp.fail(inst, lane, DiagId::emulator_shared_bounds,
              {hex(address), std::to_string(bytes), range(0, size)});
    return false;
  }
  return !misaligned(warp, inst, lane, "shared", address, align);
}

Cta *clusterTarget(Warp &warp, const Inst &inst, int lane, uint64_t &address) {
  address = ownShared(address);
  uint64_t segment = address / clusterStride;
  if (segment == 0)
    return warp.cta;
  std::vector<Cta> &ctas = warp.cta->cluster->ctas;
  if (segment > ctas.size()) {
    warp.fail(
        inst, lane, DiagId::emulator_cluster_address,
        {hex(address), "it is in none of the cluster's " + std::to_string(ctas.size()) + " ctas"});
    return nullptr;
  }
  Cta &target = ctas[segment - 1];
  if (std::all_of(target.warps.begin(), target.warps.end(),
                  [](const Warp &other) { return other.state == Warp::State::Done; })) {
    warp.fail(inst, lane, DiagId::emulator_cluster_address,
              {hex(address), "cta " + std::to_string(target.rank) +
                                 " of the cluster has exited, it must wait for its accesses"});
    return nullptr;
  }
  address %= clusterStride;
  return &target;
}

namespace {
// A warp of the cluster as the executing warp sees it.
std::string warpName(const Warp &warp, uint32_t id) {
  auto warps = uint32_t(warp.cta->warps.size());
  std::string name = std::to_string(id % warps);
  return id / warps == warp.cta->rank
             ? name
             : name + " of cta " + std::to_string(id / warps) + " of the cluster";
}
} // namespace

void reportFinding(Warp &warp, const Inst &inst, int lane, SharedMemory::Finding finding,
                   bool write) {
  std::string address = hex(finding.address), other = warpName(warp, finding.other);
  switch (finding.problem) {
  case SharedMemory::Problem::None:
    break;
  case SharedMemory::Problem::Unwritten:
    warp.fail(inst, lane, DiagId::emulator_unwritten_shared, {address});
    break;
  case SharedMemory::Problem::Pending:
    warp.fail(inst, lane,
              write ? DiagId::emulator_async_overwritten : DiagId::emulator_async_not_waited,
              {address, std::to_string(finding.other)});
    break;
  case SharedMemory::Problem::BulkPending:
    warp.fail(inst, lane, DiagId::emulator_bulk_not_waited, {address, write ? "written" : "read"});
    break;
  case SharedMemory::Problem::AsyncRead:
    warp.fail(inst, lane, DiagId::emulator_async_read, {address, other});
    break;
  case SharedMemory::Problem::Unfenced:
    warp.fail(inst, lane, DiagId::emulator_proxy_fence, {address, other});
    break;
  case SharedMemory::Problem::ReadAfterWrite:
    warp.fail(inst, lane, DiagId::emulator_race_read, {address, other});
    break;
  case SharedMemory::Problem::WriteAfterRead:
    warp.fail(inst, lane, DiagId::emulator_race_write_after_read, {address, other});
    break;
  case SharedMemory::Problem::WriteAfterWrite:
    warp.fail(inst, lane, DiagId::emulator_race_write, {address, other});
    break;
  }
}

namespace {

bool resolveGlobals(Warp &warp, const Inst &inst, uint32_t mask, uint32_t bytes, AccessKind kind,
                    const LaneAddresses &a, LanePointers &out) {
  uint64_t low = UINT64_MAX, high = 0, all = 0;
  for (int l = 0; l < 32; ++l) {
    bool active = mask >> l & 1;
    low = std::min(low, active ? a.at[l] : UINT64_MAX);
    high = std::max(high, active ? a.at[l] : 0);
    all |= active ? a.at[l] : 0;
  }
  const Allocation *&recent = warp.cta->recent[inst.statement % std::size(warp.cta->recent)];
  if (!recent || !recent->contains(low, bytes))
    recent = warp.cta->state->map.before(low);
  const bool mayDepend = !warp.cta->launch->ahead || warp.cta->cluster->order.mayDepend(warp.id);
  bool whole = mayDepend && recent && recent->host && recent->contains(low, bytes) &&
               recent->contains(high, bytes) && (all & (bytes - 1)) == 0 &&
               (kind == AccessKind::Read || !recent->constant);
  if (whole) [[likely]] {
    // Of numbers: the addresses of inactive lanes, whose pointers are not used, may be any.
    uint64_t offset = reinterpret_cast<uintptr_t>(recent->host.get()) - recent->address;
    for (int l = 0; l < 32; ++l)
      out.at[l] = reinterpret_cast<uint8_t *>(a.at[l] + offset);
    return true;
  }
  for (int l : SetBits{mask}) {
    if (misaligned(warp, inst, l, "global", a.at[l], bytes))
      return false;
    out.at[l] = resolveGlobal(warp, inst, l, a.at[l], bytes, kind);
    if (!out.at[l])
      return false;
  }
  return true;
}

bool resolveShared(Warp &warp, const Inst &inst, int l, SharedMemory &shared, uint64_t address,
                   uint32_t bytes, AccessKind kind, uint8_t *&out) {
  if (!checkShared(warp, inst, l, shared, address, bytes, bytes))
    return false;
  auto at = uint32_t(address);
  SharedMemory::Finding finding = kind == AccessKind::Read    ? shared.read(warp.id, at, bytes)
                                  : kind == AccessKind::Write ? shared.write(warp.id, at, bytes)
                                                              : shared.atomic(warp.id, at, bytes);
  if (!checkFinding(warp, inst, l, finding, kind != AccessKind::Read))
    return false;
  out = shared.data() + at;
  return true;
}

bool resolveLocal(Warp &warp, const Inst &inst, int l, uint64_t address, uint32_t bytes,
                  uint8_t *&out) {
  uint64_t size = warp.cta->entry->localBytes;
  if (address > size || bytes > size - address) {
    warp.fail(inst, l, DiagId::emulator_local_bounds,
              {hex(address), std::to_string(bytes), range(0, size)});
    return false;
  }
  if (misaligned(warp, inst, l, "local", address, bytes))
    return false;
  out = warp.cta->local.data() + size * (warp.index * 32 + uint32_t(l)) + address;
  return true;
}

bool resolveParameter(Warp &warp, const Inst &inst, int l, uint64_t address, uint32_t bytes,
                      AccessKind kind, uint8_t *&out) {
  uint64_t size = warp.cta->entry->parameterBytes;
  if (address > size || bytes > size - address || kind != AccessKind::Read) {
    warp.fail(inst, l, DiagId::emulator_parameter_bounds,
              {hex(address), std::to_string(bytes), range(0, size)});
    return false;
  }
  if (misaligned(warp, inst, l, "parameter", address, bytes))
    return false;
  // Only read: see above.
  out = const_cast<uint8_t *>(warp.cta->launch->parameters.data()) + address;
  return true;
}

} // namespace

bool resolve(Warp &warp, const Inst &inst, uint32_t mask, Space space, uint32_t bytes,
             AccessKind kind, const LaneAddresses &a, LanePointers &out) {
  if (space == Space::Global || space == Space::Const)
    return resolveGlobals(warp, inst, mask, bytes, kind, a, out);
  for (int l : SetBits{mask}) {
    uint64_t address = a.at[l];
    Space actual = space;
    if (space == Space::Generic) {
      uint64_t window = address / windowBytes;
      actual = window == 1   ? Space::SharedCluster
               : window == 2 ? Space::Local
               : window == 3 ? Space::Param
                             : Space::Global;
      if (actual != Space::Global)
        address %= windowBytes;
    }
    bool good = false;
    switch (actual) {
    case Space::Shared:
      good = resolveShared(warp, inst, l, warp.cta->shared, address, bytes, kind, out.at[l]);
      break;
    case Space::SharedCluster:
      if (Cta *target = clusterTarget(warp, inst, l, address))
        good = resolveShared(warp, inst, l, target->shared, address, bytes, kind, out.at[l]);
      break;
    case Space::Local:
      good = resolveLocal(warp, inst, l, address, bytes, out.at[l]);
      break;
    case Space::Param:
      good = resolveParameter(warp, inst, l, address, bytes, kind, out.at[l]);
      break;
    default:
      if (misaligned(warp, inst, l, "global", address, bytes))
        return false;
      out.at[l] = resolveGlobal(warp, inst, l, address, bytes, kind);
      good = out.at[l] != nullptr;
      break;
    }
    if (!good)
      return false;
  }
  if (space == Space::Shared && kind != AccessKind::Atomic)
    warp.bankConflicts += bankConflicts(a.at, mask, bytes);
  return true;
}

} // namespace rho::emulator
