#include "runtime/cache/FileLock.h"

#include "tests/runtime/TemporaryFolder.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace rho::cache {
namespace {

using std::chrono::milliseconds;

TEST(FileLock, ExcludesAndTimesOut) {
  TemporaryFolder folder;
  std::string path = folder.path() + "/lock";
  FileLock first, second;
  EXPECT_EQ(first.acquire(path, milliseconds(0)), FileLock::Outcome::Held);
  EXPECT_EQ(second.acquire(path, milliseconds(5)), FileLock::Outcome::TimedOut);
  EXPECT_FALSE(second.held());
  first.release();
  EXPECT_EQ(second.acquire(path, milliseconds(0)), FileLock::Outcome::Held);
}

TEST(FileLock, LeavesNoFileBehind) {
  TemporaryFolder folder;
  std::string path = folder.path() + "/lock";
  {
    FileLock lock;
    ASSERT_EQ(lock.acquire(path, milliseconds(0)), FileLock::Outcome::Held);
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(FileLock, IsFreeAgainWhenItsHolderDies) {
  TemporaryFolder folder;
  std::string path = folder.path() + "/lock";
  pid_t child = ::fork();
  if (child == 0) {
    FileLock lock;
    ::_exit(lock.acquire(path, milliseconds(0)) == FileLock::Outcome::Held ? 0 : 1); // no release
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  FileLock lock;
  EXPECT_EQ(lock.acquire(path, milliseconds(0)), FileLock::Outcome::Held);
}

// Servers fork at any time; their children live as long as they like.
TEST(FileLock, AForkedProcessDoesNotHoldIt) {
  TemporaryFolder folder;
  std::string path = folder.path() + "/lock";
  int begun[2], ended[2];
  ASSERT_EQ(::pipe(begun), 0);
  ASSERT_EQ(::pipe(ended), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    FileLock lock;
    if (lock.acquire(path, milliseconds(0)) != FileLock::Outcome::Held)
      ::_exit(1);
    if (::fork() == 0) { // lives until the test lets it go
      char byte = 0;
      ::close(ended[1]);
      ::_exit(::write(begun[1], "x", 1) == 1 && ::read(ended[0], &byte, 1) == 0 ? 0 : 1);
    }
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(begun[0], &byte, 1), 1);
  ASSERT_EQ(::waitpid(holder, nullptr, 0), holder);
  FileLock lock;
  EXPECT_EQ(lock.acquire(path, milliseconds(0)), FileLock::Outcome::Held);
  for (const int end : {begun[0], begun[1], ended[0], ended[1]})
    ::close(end);
}

TEST(FileLock, LinksAndOtherFilesAreNone) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/lock", elsewhere = folder.path() + "/elsewhere";
  std::filesystem::create_symlink(elsewhere, path);
  FileLock lock;
  EXPECT_EQ(lock.acquire(path, milliseconds(0)), FileLock::Outcome::Impossible);
  EXPECT_FALSE(std::filesystem::exists(elsewhere));
  writeText(elsewhere, "mine");
  EXPECT_EQ(lock.acquire(elsewhere, milliseconds(0)), FileLock::Outcome::Impossible);
  EXPECT_TRUE(std::filesystem::exists(elsewhere));
}

TEST(FileLock, ImpossibleWithoutItsFolder) {
  FileLock lock;
  EXPECT_EQ(lock.acquire("/nonexistent/folder/lock", milliseconds(0)),
            FileLock::Outcome::Impossible);
}

// Every holder removes the file: a waiter that locked the removed one must look again.
TEST(FileLock, ExcludesWhileFilesComeAndGo) {
  TemporaryFolder folder;
  std::string path = folder.path() + "/lock";
  int counter = 0; // unprotected but for the lock
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 25; ++round) {
        FileLock lock;
        if (lock.acquire(path, milliseconds(60000)) != FileLock::Outcome::Held)
          return;
        int seen = counter;
        std::this_thread::yield();
        counter = seen + 1;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(counter, 100);
}

} // namespace
} // namespace rho::cache
