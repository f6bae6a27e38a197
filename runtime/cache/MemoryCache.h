// A map from key to shared value with at most one computation per key at a time: whoever asks for a
// key that another thread computes waits for that result. Failures reach all who wait and are not
// kept. Thread-safe.
#pragma once

#include "dsl/Error.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace rho::cache {

template <class Key, class Value, class Hash = std::hash<Key>> class MemoryCache {
public:
  using Pointer = std::shared_ptr<const Value>;

  // Holds at most `capacity` values; past it the least recently used goes (its owners keep it).
  explicit MemoryCache(size_t capacity) : capacity(capacity) {}

  // The value kept for the key, or null. Never waits for a computation.
  Pointer find(const Key &key) {
    std::lock_guard lock(mutex);
    auto it = slots.find(key);
    if (it == slots.end() || !it->second->value)
      return nullptr;
    it->second->used = ++clock;
    return it->second->value;
  }

  // find(), else compute() -> Result<Pointer>. compute must not ask for the same key.
  template <class Compute> Result<Pointer> get(const Key &key, Compute &&compute) {
    std::unique_lock lock(mutex);
    auto it = slots.find(key);
    if (it != slots.end()) {
      std::shared_ptr<Slot> slot = it->second;
      ready.wait(lock, [&] { return slot->value || slot->error; });
      if (slot->error)
        return *slot->error;
      slot->used = ++clock;
      return slot->value;
    }
    auto slot = std::make_shared<Slot>();
    slots.emplace(key, slot);
    lock.unlock();
    Result<Pointer> result = compute();
    lock.lock();
    if (result.ok()) {
      slot->value = *result;
      slot->used = ++clock;
      shrink();
    } else {
      slot->error = std::make_unique<Error>(result.error());
      slots.erase(key);
    }
    lock.unlock();
    ready.notify_all();
    return result;
  }

  // Forgets what is kept; computations that go on are kept when they are done.
  void clear() {
    std::lock_guard lock(mutex);
    std::erase_if(slots, [](const auto &slot) { return slot.second->value != nullptr; });
  }

private:
  struct Slot {
    Pointer value;
    std::unique_ptr<Error> error;
    uint64_t used = 0;
  };

  void shrink() {
    while (slots.size() > capacity) {
      auto oldest = slots.end();
      for (auto it = slots.begin(); it != slots.end(); ++it)
        if (it->second->value && (oldest == slots.end() || it->second->used < oldest->second->used))
          oldest = it;
      if (oldest == slots.end() || oldest->second->used == clock)
        return;
      slots.erase(oldest);
    }
  }

  const size_t capacity;
  std::mutex mutex;
  std::condition_variable ready;
  std::unordered_map<Key, std::shared_ptr<Slot>, Hash> slots;
  uint64_t clock = 0;
};

} // namespace rho::cache
