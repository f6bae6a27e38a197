// An advisory lock between processes and threads (flock on a file of its own).
#pragma once

#include "runtime/files/Descriptor.h"

#include <chrono>
#include <string>

namespace rho::cache {

// Held until destroyed. Who releases it removes the file, so that locks leave nothing behind; those
// who wait make a new one.
class FileLock {
public:
  FileLock() = default;
  FileLock(FileLock &&) noexcept = default;
  FileLock &operator=(FileLock &&) = delete;
  ~FileLock() { release(); }

  enum class Outcome : uint8_t { Held, TimedOut, Impossible };
  // Waits up to `timeout`. Impossible: the file system gives no locks here; callers go on without.
  Outcome acquire(const std::string &path, std::chrono::milliseconds timeout);
  bool held() const { return descriptor.get() >= 0; }
  void release();

private:
  files::Descriptor descriptor{-1};
  std::string path;
};

} // namespace rho::cache
