// A map from key to shared value with at most one computation per key at a time: whoever asks for a
// key that another thread computes waits for that result. Failures reach all who wait and are not
// kept; of a computation that throws, those who wait begin their own. Thread-safe.
#pragma once

#include "dsl/Error.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>

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
    for (auto it = slots.find(key); it != slots.end(); it = slots.find(key)) {
      std::shared_ptr<Slot> slot = it->second;
      ready.wait(lock, [&] { return slot->value || slot->error || slot->abandoned; });
      if (slot->error)
        return *slot->error;
      if (!slot->value)
        continue;
      slot->used = ++clock;
      return slot->value;
    }
    auto slot = std::make_shared<Slot>();
    slots.emplace(key, slot);
    lock.unlock();
    try {
      Result<Pointer> result = compute();
      finish(key, *slot, [&] {
        if (result.ok())
          slot->value = *result;
        else
          slot->error = std::make_unique<Error>(result.error());
      });
      return result;
    } catch (...) {
      finish(key, *slot, [&] { slot->abandoned = true; });
      throw;
    }
  }

  // Forgets what is kept. Computations that go on reach those who wait for them, and are not kept.
  void clear() {
    std::lock_guard lock(mutex);
    slots.clear();
  }

private:
  struct Slot {
    Pointer value;
    std::unique_ptr<Error> error;
    bool abandoned = false; // by a computation that threw
    uint64_t used = 0;
  };

  template <class Settle> void finish(const Key &key, Slot &slot, const Settle &settle) {
    {
      std::lock_guard lock(mutex);
      settle();
      slot.used = ++clock;
      if (auto it = slots.find(key); !slot.value && it != slots.end() && it->second.get() == &slot)
        slots.erase(it);
      shrink();
    }
    ready.notify_all();
  }

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
