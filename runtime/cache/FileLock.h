// An advisory lock between processes and threads (flock on a file of its own).
#pragma once

#include <chrono>
#include <string>
#include <utility>

namespace rho::cache {

// Held until destroyed. Who releases it removes the file, so that locks leave nothing behind; those
// who wait make a new one. A process that is forked meanwhile does not hold it. A file of somebody
// else's, which has content or is none, is no lock, and stays.
class FileLock {
public:
  FileLock() = default;
  FileLock(FileLock &&other) noexcept
      : descriptor(std::exchange(other.descriptor, -1)), path(std::move(other.path)) {}
  FileLock &operator=(FileLock &&) = delete;
  ~FileLock() { release(); }

  enum class Outcome : uint8_t { Held, TimedOut, Impossible };
  // Waits up to `timeout`. Impossible: the file system gives no locks here; callers go on without.
  Outcome acquire(const std::string &path, std::chrono::milliseconds timeout);
  bool held() const { return descriptor >= 0; }
  void release();

private:
  int descriptor = -1;
  std::string path;
};

} // namespace rho::cache
