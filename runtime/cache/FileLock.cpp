#include "runtime/cache/FileLock.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace rho::cache {
namespace {

// Files that may be locked. A forked process has them open as well, and would keep their locks for
// as long as it lives: it closes them first.
class LockFiles {
public:
  // Errors: -1, as open() says.
  static int open(const std::string &path) {
    LockFiles &files = all();
    const std::scoped_lock guard(files.mutex);
    const int opened = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (opened >= 0)
      files.numbers.push_back(opened);
    return opened;
  }
  static void close(int opened) {
    LockFiles &files = all();
    const std::scoped_lock guard(files.mutex);
    // A forked process has closed it already, and may have another file of that number.
    const auto found = std::find(files.numbers.begin(), files.numbers.end(), opened);
    if (found == files.numbers.end())
      return;
    files.numbers.erase(found);
    ::close(opened);
  }

private:
  LockFiles() {
    pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                   [] {
                     for (const int opened : all().numbers)
                       ::close(opened);
                     all().numbers.clear();
                     all().mutex.unlock();
                   });
  }
  static LockFiles &all() {
    static auto *const files = new LockFiles; // threads that outlive main may hold locks
    return *files;
  }

  std::mutex mutex;
  std::vector<int> numbers;
};

// Whether it is a file that nobody has written to.
bool isEmptyFile(int opened, struct stat &found) {
  return ::fstat(opened, &found) == 0 && S_ISREG(found.st_mode) && found.st_size == 0;
}

// Whether a path names the open file, which is such a one.
bool isLock(int opened, const std::string &path) {
  struct stat ours = {}, named = {};
  return isEmptyFile(opened, ours) && ::lstat(path.c_str(), &named) == 0 &&
         ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

} // namespace

FileLock::Outcome FileLock::acquire(const std::string &file, std::chrono::milliseconds timeout) {
  release();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  do {
    const int lock = LockFiles::open(file);
    if (lock < 0)
      return Outcome::Impossible;
    auto gaveUp = [&](Outcome outcome) {
      LockFiles::close(lock);
      return outcome;
    };
    struct stat opened = {};
    if (!isEmptyFile(lock, opened))
      return gaveUp(Outcome::Impossible);
    while (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR)
        return gaveUp(Outcome::Impossible);
      if (std::chrono::steady_clock::now() >= deadline)
        return gaveUp(Outcome::TimedOut);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    // The holder before us removed the file that we waited on: then our lock excludes nobody.
    if (isLock(lock, file)) {
      descriptor = lock;
      path = file;
      return Outcome::Held;
    }
    LockFiles::close(lock);
  } while (std::chrono::steady_clock::now() < deadline); // a file system may number files anew
  return Outcome::TimedOut;
}

void FileLock::release() {
  if (!held())
    return;
  if (isLock(descriptor, path))
    ::unlink(path.c_str()); // while still held: nobody else can hold this file
  LockFiles::close(descriptor);
  descriptor = -1;
}

} // namespace rho::cache
