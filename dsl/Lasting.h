// What is made once in a process.
#pragma once

#include <map>
#include <mutex>
#include <utility>

namespace rho::dsl {

// An object that is never destroyed, since threads may run on while a process ends: where a
// function keeps what it makes, `static auto &known = lasting(...)`.
template <class T> T &lasting(T made) { return *new T(std::move(made)); }

// What `make` makes of a key, for each once; nothing is known of a key whose `make` threw.
template <class Key, class Make> const auto &knownOr(const Key &key, const Make &make) {
  using Known = std::map<Key, decltype(make())>;
  static std::mutex mutex;
  static auto &known = lasting(Known());
  std::lock_guard lock(mutex);
  auto entry = known.find(key);
  if (entry == known.end())
    entry = known.emplace(key, make()).first;
  return entry->second;
}

} // namespace rho::dsl
