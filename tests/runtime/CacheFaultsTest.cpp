// What the system does to a disk cache: full disks, denied rights, killed and stopped processes,
// too few descriptors, and things in an entry's place that are no files. Each in a process of its
// own.
#include "runtime/cache/DiskCache.h"
#include "tests/runtime/CacheFixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

namespace rho::cache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CacheFaultsTest : public CacheFixture {
protected:
  void publish(const std::string &key) const {
    Warnings none;
    ASSERT_TRUE(DiskCache(options()).store(key, entry, none));
    ASSERT_THAT(none, IsEmpty());
  }
  // Runs the body, whose result is the exit code, in a process of its own.
  static pid_t start(const std::function<int()> &body) {
    pid_t child = ::fork();
    if (child == 0)
      ::_exit(body());
    return child;
  }
  static int wait(pid_t child) {
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // Stores until one fails. 0: `least` were stored, the failure gave this one warning, what was
  // stored before it is there, and the failed one left nothing behind; further ones are silent.
  int fillUp(const std::string &reason, int least) const {
    DiskCache cache(options());
    Warnings warnings;
    Entry large = {{"ptx", std::string(20000, 'x')}};
    int stored = 0;
    while (stored < 1000 && cache.store(keyOf(std::to_string(stored)), large, warnings))
      ++stored;
    if (stored < least ||
        warnings != Warnings{"cache folder " + options().directory +
                             " is not writable, nothing is kept on disk: " + reason})
      return 1;
    if (cache.store(keyOf("another"), large, warnings) || warnings.size() != 1)
      return 2;
    for (int i = 0; i < stored; ++i)
      if (cache.load(keyOf(std::to_string(i)), warnings) != large)
        return 3;
    std::error_code error;
    if (!namesIn(options().directory + "/staging", error).empty() || error ||
        cache.entries().size() != static_cast<size_t>(stored) || warnings.size() != 1)
      return 4;
    // With room again, another process goes on where this one stopped.
    cache.remove(keyOf("0"));
    Warnings fresh;
    return stored == 0 || DiskCache(options()).store(keyOf("0"), large, fresh) ? 0 : 5;
  }
};

// Writes fail in the middle of a file, as on a disk that is full.
TEST_F(CacheFaultsTest, AFileThatMayNotGrowIsOneWarning) {
  publish(key);
  int code = wait(start([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit = {1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    DiskCache reader(options());
    Warnings warnings;
    return reader.load(key, warnings) == entry && warnings.empty() ? 0 : 9;
  }));
  EXPECT_EQ(code, 0);
  fs::remove_all(options().directory);
  code = wait(start([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit = {1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    return fillUp("File too large", 0);
  }));
  EXPECT_EQ(code, 0);
}

// A file system of 256 KB, where the system lets a process have one.
TEST_F(CacheFaultsTest, AFullDiskIsOneWarning) {
  constexpr int noMounts = 77;
  int code = wait(start([&] {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
      return noMounts;
    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0)
      return noMounts;
    return fillUp("No space left on device", 3);
  }));
  if (code == noMounts)
    GTEST_SKIP() << "no mounts here";
  EXPECT_EQ(code, 0);
}

TEST_F(CacheFaultsTest, AFolderWithoutWriteRightsIsReadWithOneWarning) {
  publish(key);
  for (const auto &inside : fs::recursive_directory_iterator(options().directory))
    if (inside.is_directory())
      fs::permissions(inside, fs::perms(0555));
  fs::permissions(options().directory, fs::perms(0555));
  fs::permissions(folder.path(), fs::perms(0755));
  int code = wait(start([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) // rights do not bind root
      return 9;
    DiskCache cache(options());
    Warnings warnings;
    if (cache.load(key, warnings) != entry || !warnings.empty())
      return 1;
    std::string other = keyOf("other");
    if (cache.lock(other, warnings).held() || cache.store(other, entry, warnings) ||
        cache.store(other, entry, warnings))
      return 2;
    if (warnings != Warnings{"cache folder " + options().directory +
                             " is not writable, nothing is kept on disk: " + options().directory +
                             "/staging: Permission denied"})
      return 3;
    return cache.remove(key) ? 4 : 0;
  }));
  for (const auto &inside : fs::recursive_directory_iterator(options().directory))
    if (inside.is_directory())
      fs::permissions(inside, fs::perms(0755));
  EXPECT_EQ(code, 0);
  Warnings warnings;
  EXPECT_EQ(DiskCache(options()).load(key, warnings), entry);
}

// Nor are they gone: a list has them, and says so.
TEST_F(CacheFaultsTest, EntriesWithoutReadRightsAreListed) {
  publish(key);
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(path(), fs::perms(0000));
  const int code = wait(start([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0)
      return 9;
    const std::vector<StoredEntry> all = DiskCache(options()).entries();
    return all.size() == 1 && all[0].key == key && all[0].noAccess == "Permission denied" ? 0 : 1;
  }));
  fs::permissions(path(), fs::perms(0755));
  EXPECT_EQ(code, 0);
}

// Not more often than once for each entry.
TEST_F(CacheFaultsTest, FoldersThatAreDeletedWhileAnEntryIsWrittenAreMadeAgain) {
  constexpr int stores = 120;
  std::atomic<int> stored = 0;
  std::thread other([&] {
    for (int next = 0; stored < stores;)
      if (stored >= next) {
        std::error_code none;
        const std::string gone = folder.path() + "/gone" + std::to_string(next);
        fs::rename(options().directory + "/staging", gone, none);
        fs::remove_all(gone, none); // all but what is written there meanwhile
        next = stored + 3;
      }
  });
  DiskCache cache(options());
  Warnings warnings;
  int kept = 0;
  for (; stored < stores; ++stored)
    kept += cache.store(keyOf(std::to_string(stored)), entry, warnings) ? 1 : 0;
  other.join();
  EXPECT_EQ(kept, stores);
  EXPECT_EQ(warnings, Warnings());
}

// A process with no descriptor left reads nothing, but must not take the entry for damaged.
TEST_F(CacheFaultsTest, TooManyOpenFilesAreNoDamage) {
  publish(key);
  for (rlim_t left : {0, 1, 2}) { // fails at the folder, at its manifest, nowhere
    SCOPED_TRACE(left);
    int code = wait(start([&] {
      int next = ::open("/dev/null", O_RDONLY);
      rlimit limit = {static_cast<rlim_t>(next) + left, static_cast<rlim_t>(next) + left};
      ::close(next);
      ::setrlimit(RLIMIT_NOFILE, &limit);
      DiskCache cache(options());
      Warnings warnings;
      bool found = cache.load(key, warnings).has_value();
      const bool told = warnings.size() == 1 && warnings[0].ends_with("Too many open files");
      return found && warnings.empty() ? 10 : !found && told ? 0 : 1;
    }));
    EXPECT_EQ(code, left == 2 ? 10 : 0);
    Warnings warnings;
    EXPECT_EQ(DiskCache(options()).load(key, warnings), entry);
  }
}

TEST_F(CacheFaultsTest, ThingsThatAreNoFilesDoNotBlock) {
  const std::vector<std::pair<std::string, std::function<void(const std::string &)>>> things = {
      {"pipe", [](const std::string &at) { ::mkfifo(at.c_str(), 0600); }},
      {"folder", [](const std::string &at) { fs::create_directory(at); }},
      {"link", [](const std::string &at) { fs::create_symlink("/dev/zero", at); }},
  };
  for (const auto &[name, make] : things)
    for (const char *file : {"ptx", "manifest"}) {
      SCOPED_TRACE(name + " " + file);
      publish(key);
      fs::remove(path(file));
      make(path(file));
      DiskCache cache(options());
      Warnings warnings;
      EXPECT_EQ(cache.load(key, warnings), std::nullopt);
      EXPECT_THAT(warnings, ElementsAre(HasSubstr(std::string(file) + " is no file")));
      EXPECT_FALSE(fs::exists(path()));
    }
  // An entry that is a link to a sound one elsewhere: only the link goes.
  publish(key);
  fs::rename(path(), folder.path() + "/elsewhere");
  fs::create_directory_symlink(folder.path() + "/elsewhere", path());
  Warnings warnings;
  EXPECT_EQ(DiskCache(options()).load(key, warnings), std::nullopt);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("it is not a readable folder")));
  EXPECT_FALSE(fs::is_symlink(path()));
  EXPECT_TRUE(fs::exists(folder.path() + "/elsewhere/ptx"));
}

// Killed in the middle of publishing: with the lock, a staged entry and half of its files.
TEST_F(CacheFaultsTest, AKilledBuilderLeavesNothingInTheWay) {
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  const std::string staged = options().directory + "/staging/0123456789abcdef-1-2-3";
  pid_t child = start([&] {
    DiskCache cache(options());
    Warnings warnings;
    FileLock lock = cache.lock(key, warnings);
    fs::create_directory(staged);
    writeText(staged + "/ptx", ".vers");
    char held = lock.held() ? 'y' : 'n';
    if (::write(pipes[1], &held, 1) == 1)
      ::pause();
    return 0;
  });
  char held = 0;
  ASSERT_EQ(::read(pipes[0], &held, 1), 1);
  EXPECT_EQ(held, 'y');
  DiskCacheOptions hasty = options();
  hasty.lockTimeout = std::chrono::milliseconds(5);
  Warnings warnings;
  EXPECT_FALSE(DiskCache(hasty).lock(key, warnings).held());
  EXPECT_EQ(warnings.size(), 1U);
  ::kill(child, SIGKILL);
  EXPECT_EQ(wait(child), 128 + SIGKILL);

  DiskCache cache(options());
  warnings.clear();
  FileLock lock = cache.lock(key, warnings);
  EXPECT_TRUE(lock.held());
  EXPECT_EQ(cache.load(key, warnings), std::nullopt);
  EXPECT_TRUE(cache.store(key, entry, warnings));
  lock.release();
  EXPECT_EQ(cache.load(key, warnings), entry);
  EXPECT_THAT(warnings, IsEmpty());
  fs::last_write_time(staged, fs::file_time_type::clock::now() - std::chrono::hours(2));
  cache.removeLeftovers();
  EXPECT_FALSE(fs::exists(staged));
  ::close(pipes[0]);
  ::close(pipes[1]);
}

TEST_F(CacheFaultsTest, LocksOfKilledProcessesGoAndHeldOnesStay) {
  DiskCache cache(options());
  Warnings warnings;
  std::string abandoned = options().directory + "/locks/" + keyOf("abandoned");
  FileLock held = cache.lock(key, warnings);
  writeText(abandoned, "");
  cache.removeLeftovers();
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(options().directory + "/locks/" + key));
}

// Whoever finds an entry damaged does not delete what another puts in its place.
TEST_F(CacheFaultsTest, ADamagedEntryUnderAnothersLockIsLeftToThem) {
  publish(key);
  writeText(path("ptx"), "nonsense");
  DiskCache builder(options()), reader(options());
  Warnings warnings, building;
  {
    FileLock lock = builder.lock(key, building);
    EXPECT_EQ(reader.load(key, warnings), std::nullopt);
    EXPECT_EQ(reader.load(key, warnings), std::nullopt);
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("ptx has fewer than its 13 bytes")));
    EXPECT_TRUE(fs::exists(path("ptx")));
    EXPECT_TRUE(builder.store(key, entry, building));
  }
  EXPECT_EQ(reader.load(key, warnings), entry);
  EXPECT_THAT(building, IsEmpty());
}

// Deleted under a running process, as by `rm -r ~/.cache`.
TEST_F(CacheFaultsTest, ADeletedFolderIsMadeAgain) {
  DiskCache cache(options());
  Warnings warnings;
  EXPECT_TRUE(cache.store(key, entry, warnings));
  fs::remove_all(options().directory);
  EXPECT_EQ(cache.load(key, warnings), std::nullopt);
  EXPECT_TRUE(cache.lock(key, warnings).held());
  EXPECT_TRUE(cache.store(key, entry, warnings));
  EXPECT_EQ(cache.load(key, warnings), entry);
  EXPECT_THAT(warnings, IsEmpty());
}

// Names like keys are common: containers, objects of other stores.
TEST_F(CacheFaultsTest, FoldersThatOnlyLookLikeEntriesAreNotTouched) {
  std::string foreign = options().directory + "/" + keyOf("a container");
  fs::create_directories(foreign);
  writeText(foreign + "/config.json", std::string(5000, 'x'));
  writeText(foreign + "/used", "on Tuesday"); // an entry's is empty
  const std::string lock = options().directory + "/locks/" + keyOf("a note");
  fs::create_directories(options().directory + "/locks");
  writeText(lock, "mine");
  DiskCacheOptions tiny = options();
  tiny.limitBytes = 1;
  DiskCache cache(tiny);
  Warnings warnings;
  cache.store(keyOf("1"), entry, warnings);
  cache.store(keyOf("2"), entry, warnings);
  ASSERT_EQ(cache.entries().size(), 1U);
  EXPECT_EQ(cache.entries()[0].key, keyOf("2"));
  EXPECT_TRUE(fs::exists(foreign + "/config.json"));
  EXPECT_TRUE(fs::exists(lock));
}

} // namespace
} // namespace rho::cache
