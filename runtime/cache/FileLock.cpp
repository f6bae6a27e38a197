#include "runtime/cache/FileLock.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace rho::cache {

FileLock::FileLock(FileLock &&other) noexcept
    : descriptor(std::exchange(other.descriptor, -1)), path(std::move(other.path)) {}

FileLock &FileLock::operator=(FileLock &&other) noexcept {
  if (this != &other) {
    release();
    descriptor = std::exchange(other.descriptor, -1);
    path = std::move(other.path);
  }
  return *this;
}

FileLock::~FileLock() { release(); }

FileLock::Outcome FileLock::acquire(const std::string &file, std::chrono::milliseconds timeout) {
  release();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
      return Outcome::Impossible;
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        ::close(fd);
        return Outcome::Impossible;
      }
      if (std::chrono::steady_clock::now() >= deadline) {
        ::close(fd);
        return Outcome::TimedOut;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    // The holder before us removed the file that we waited on: then our lock excludes nobody.
    struct stat ours = {}, named = {};
    if (::fstat(fd, &ours) == 0 && ::stat(file.c_str(), &named) == 0 &&
        ours.st_ino == named.st_ino && ours.st_dev == named.st_dev) {
      descriptor = fd;
      path = file;
      return Outcome::Held;
    }
    ::close(fd);
  }
}

void FileLock::release() {
  if (descriptor < 0)
    return;
  ::unlink(path.c_str()); // while still held: nobody else can hold this file
  ::close(descriptor);
  descriptor = -1;
}

} // namespace rho::cache
