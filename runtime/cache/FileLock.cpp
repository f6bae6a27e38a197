#include "runtime/cache/FileLock.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace rho::cache {

FileLock::Outcome FileLock::acquire(const std::string &file, std::chrono::milliseconds timeout) {
  release();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  do {
    files::Descriptor lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (lock.get() < 0)
      return Outcome::Impossible;
    while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR)
        return Outcome::Impossible;
      if (std::chrono::steady_clock::now() >= deadline)
        return Outcome::TimedOut;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    // The holder before us removed the file that we waited on: then our lock excludes nobody.
    struct stat ours = {}, named = {};
    if (::fstat(lock.get(), &ours) == 0 && ::stat(file.c_str(), &named) == 0 &&
        ours.st_ino == named.st_ino && ours.st_dev == named.st_dev) {
      descriptor = std::move(lock);
      path = file;
      return Outcome::Held;
    }
  } while (std::chrono::steady_clock::now() < deadline); // a file system may number files anew
  return Outcome::TimedOut;
}

void FileLock::release() {
  if (held())
    ::unlink(path.c_str()); // while still held: nobody else can hold this file
  descriptor = files::Descriptor(-1);
}

} // namespace rho::cache
