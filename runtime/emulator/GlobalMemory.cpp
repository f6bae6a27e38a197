#include "runtime/emulator/GlobalMemory.h"

#include "runtime/emulator/Faults.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace rho::emulator {

namespace {
// Below lie the windows of the other spaces (Machine.h).
constexpr uint64_t firstAddress = uint64_t(1) << 40;
constexpr uint64_t lastAddress = uint64_t(1) << 47;
constexpr uint64_t guardBytes = uint64_t(1) << 20;
// Released ranges that are remembered, to tell use after release from a wild address.
constexpr uint64_t maxReleased = 4096;

std::atomic<uint64_t> nextAddress{firstAddress};
} // namespace

uint64_t reserveAddresses(uint64_t bytes) {
  if (bytes > lastAddress / 2)
    return 0;
  uint64_t span = (bytes + 2 * guardBytes + 255) & ~uint64_t(255);
  uint64_t begin = nextAddress.load();
  do {
    if (begin > lastAddress - span)
      return 0;
  } while (!nextAddress.compare_exchange_weak(begin, begin + span));
  return begin + guardBytes;
}

std::shared_ptr<uint8_t> hostMemory(uint64_t bytes) {
  auto *memory = static_cast<uint8_t *>(std::calloc(std::max<uint64_t>(bytes, 1), 1));
  if (!memory)
    return nullptr;
  return {memory, [](uint8_t *p) { std::free(p); }};
}

Memory::Memory() : pimpl(std::make_unique<Impl>()) {}
Memory::~Memory() = default;

uint64_t Memory::allocate(int64_t bytes) {
  if (bytes < 0)
    return 0;
  std::shared_ptr<uint8_t> host = hostMemory(uint64_t(bytes));
  uint64_t address = host ? reserveAddresses(uint64_t(bytes)) : 0;
  if (!address)
    return 0;
  std::lock_guard lock(pimpl->mutex);
  pimpl->allocations.emplace(address, Allocation{address, uint64_t(bytes), std::move(host)});
  return address;
}

bool Memory::release(uint64_t address) {
  std::lock_guard lock(pimpl->mutex);
  auto found = pimpl->allocations.find(address);
  if (found == pimpl->allocations.end() || !found->second.host)
    return false;
  found->second.host.reset();
  if (++pimpl->released > maxReleased) {
    auto oldest = std::find_if(pimpl->allocations.begin(), pimpl->allocations.end(),
                               [](const auto &entry) { return !entry.second.host; });
    pimpl->allocations.erase(oldest);
    --pimpl->released;
  }
  return true;
}

namespace {
// Calls use(host bytes) for a range inside one allocation.
template <class Use>
Status onRange(const Memory::Impl &impl, uint64_t address, int64_t bytes, const Use &use) {
  std::lock_guard lock(impl.mutex);
  auto after = impl.allocations.upper_bound(address);
  const Allocation *found = after == impl.allocations.begin() ? nullptr : &std::prev(after)->second;
  if (bytes < 0 || !found || !found->host || !found->contains(address, uint64_t(bytes)))
    return makeError(DiagId::emulator_bad_range, {std::to_string(bytes), hex(address)});
  if (bytes > 0)
    use(found->host.get() + (address - found->address));
  return Done{};
}
} // namespace

Status Memory::write(uint64_t address, const void *from, int64_t bytes) {
  return onRange(*pimpl, address, bytes,
                 [&](uint8_t *host) { std::memcpy(host, from, size_t(bytes)); });
}

Status Memory::read(uint64_t address, void *to, int64_t bytes) const {
  return onRange(*pimpl, address, bytes,
                 [&](const uint8_t *host) { std::memcpy(to, host, size_t(bytes)); });
}

Status Memory::fill(uint64_t address, uint8_t value, int64_t bytes) {
  return onRange(*pimpl, address, bytes,
                 [&](uint8_t *host) { std::memset(host, value, size_t(bytes)); });
}

AddressMap::AddressMap(const Memory &memory) {
  const Memory::Impl &impl = memory.impl();
  std::lock_guard lock(impl.mutex);
  for (const auto &[address, allocation] : impl.allocations)
    sorted.push_back(allocation);
}

namespace {
bool startsAfter(uint64_t address, const Allocation &allocation) {
  return address < allocation.address;
}
} // namespace

void AddressMap::add(Allocation allocation) {
  auto place = std::upper_bound(sorted.begin(), sorted.end(), allocation.address, startsAfter);
  sorted.insert(place, std::move(allocation));
}

const Allocation *AddressMap::before(uint64_t address) const {
  auto after = std::upper_bound(sorted.begin(), sorted.end(), address, startsAfter);
  return after == sorted.begin() ? nullptr : &*std::prev(after);
}

const Allocation *AddressMap::after(uint64_t address) const {
  auto after = std::upper_bound(sorted.begin(), sorted.end(), address, startsAfter);
  return after == sorted.end() ? nullptr : &*after;
}

} // namespace rho::emulator
