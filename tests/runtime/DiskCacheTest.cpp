#include "runtime/cache/DiskCache.h"

#include "dsl/Error.h"
#include "tests/runtime/CacheFixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

namespace rho::cache {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// What DiagId::cache_entry_unusable reads as.
std::string damaged(const std::string &path, const std::string &reason) {
  return "cache entry " + path + " is not used: " + reason;
}

class DiskCacheTest : public CacheFixture {
protected:
  void publish() {
    Warnings none;
    DiskCache(options()).store(key, sampleEntry(), none);
    ASSERT_THAT(none, IsEmpty());
  }
  // Expects a miss with this one warning, the entry gone, and that storing again repairs it.
  void expectDamage(const std::string &reason) {
    DiskCache cache(options());
    Warnings warnings;
    EXPECT_EQ(cache.load(key, warnings), std::nullopt);
    EXPECT_THAT(warnings, ElementsAre(damaged(path(), reason)));
    EXPECT_FALSE(fs::exists(path()));
    warnings.clear();
    cache.store(key, sampleEntry(), warnings);
    EXPECT_EQ(cache.load(key, warnings), sampleEntry());
    EXPECT_THAT(warnings, IsEmpty());
  }
};

TEST_F(DiskCacheTest, GivesBackWhatWasStored) {
  DiskCache cache(options());
  Warnings warnings;
  EXPECT_EQ(cache.load(key, warnings), std::nullopt);
  EXPECT_FALSE(fs::exists(options().directory)); // a look creates nothing
  Entry binary = {{"cubin", std::string("\0\x7f\xff\n\0", 5)}, {"empty", ""}};
  cache.store(key, binary, warnings);
  EXPECT_EQ(cache.load(key, warnings), binary);
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_TRUE(fs::is_empty(options().directory + "/staging"));
}

TEST_F(DiskCacheTest, ALaterEntryTakesThePlace) {
  publish();
  DiskCache cache(options());
  Warnings warnings;
  const Entry later = {{"facts", "rho kernel 2\n"}};
  EXPECT_TRUE(cache.store(key, later, warnings));
  EXPECT_EQ(cache.load(key, warnings), later);
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_TRUE(fs::is_empty(options().directory + "/staging"));
}

TEST_F(DiskCacheTest, ManifestText) {
  EXPECT_EQ(printManifest("00", {{"ptx", "abc"}}),
            "rho-cache 1\n"
            "key 00\n"
            "file ptx 3 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n"
            "sum 773d7da0923873e53c072cce8314b929d15db9725e3a0da700400ecbe6dddb91\n");
}

TEST_F(DiskCacheTest, TruncatedFileIsDamage) {
  publish();
  writeText(path("ptx"), ".version");
  expectDamage("ptx has fewer than its 13 bytes");
}

TEST_F(DiskCacheTest, LongerFileIsDamage) {
  publish();
  writeText(path("ptx"), ".version 7.0\nmore");
  expectDamage("ptx has more than its 13 bytes");
}

TEST_F(DiskCacheTest, ChangedByteIsDamage) {
  publish();
  writeText(path("ptx"), ".version 8.0\n");
  expectDamage("ptx has a wrong checksum");
}

TEST_F(DiskCacheTest, MissingFileIsDamage) {
  publish();
  fs::remove(path("facts"));
  expectDamage("facts is missing");
}

TEST_F(DiskCacheTest, MissingManifestIsDamage) {
  publish();
  fs::remove(path("manifest"));
  expectDamage("manifest is missing");
}

TEST_F(DiskCacheTest, TruncatedManifestIsDamage) {
  publish();
  std::string manifest = readText(path("manifest"));
  writeText(path("manifest"), manifest.substr(0, manifest.size() / 2));
  expectDamage("manifest is cut short");
}

TEST_F(DiskCacheTest, ChangedManifestIsDamage) {
  publish();
  std::string manifest = readText(path("manifest"));
  manifest.replace(manifest.find("file ptx"), 8, "file ptz");
  writeText(path("manifest"), manifest);
  expectDamage("manifest has a wrong checksum");
}

TEST_F(DiskCacheTest, EntryUnderAnotherKeyIsDamage) {
  publish();
  Warnings none;
  std::string other = keyOf("another spec");
  DiskCache(options()).store(other, {{"ptx", "other"}}, none);
  fs::remove_all(path());
  fs::rename(folder.path() + "/cache/" + other, path());
  expectDamage("manifest is of another key");
}

TEST_F(DiskCacheTest, ManifestOfAnotherVersionIsDamage) {
  publish();
  std::string body = "rho-cache 99\nkey " + key + "\n";
  writeText(path("manifest"), body + "sum " + hex(sha256(body)) + "\n");
  expectDamage("manifest is of another version");
}

TEST_F(DiskCacheTest, ManifestCannotNameFilesElsewhere) {
  publish();
  std::string body = "rho-cache 1\nkey " + key + "\nfile ../secret 1 00\n";
  writeText(path("manifest"), body + "sum " + hex(sha256(body)) + "\n");
  expectDamage("manifest has a bad line");
}

// Before anything of that size is read.
TEST_F(DiskCacheTest, ManifestCannotListMoreThanAnEntryHas) {
  publish();
  const std::string sum(64, '0');
  const std::string body =
      "rho-cache 1\nkey " + key + "\nfile a 200000000 " + sum + "\nfile b 200000000 " + sum + "\n";
  writeText(path("manifest"), body + "sum " + hex(sha256(body)) + "\n");
  expectDamage("manifest has a bad line");
}

TEST_F(DiskCacheTest, FileInTheEntrysPlaceIsDamage) {
  publish();
  fs::remove_all(path());
  writeText(path(), "not a folder");
  expectDamage("it is not a readable folder");
}

TEST_F(DiskCacheTest, ReadOnlyReadsAndChangesNothing) {
  publish();
  auto stamp = fs::file_time_type::clock::now() - std::chrono::hours(5);
  fs::last_write_time(path("used"), stamp);
  DiskCacheOptions readOnly = options();
  readOnly.readOnly = true;
  DiskCache cache(readOnly);
  Warnings warnings;
  EXPECT_EQ(cache.load(key, warnings), sampleEntry());
  EXPECT_EQ(fs::last_write_time(path("used")), stamp);
  std::string other = keyOf("another spec");
  EXPECT_FALSE(cache.lock(other, warnings).held());
  cache.store(other, sampleEntry(), warnings);
  EXPECT_FALSE(fs::exists(folder.path() + "/cache/" + other));
  EXPECT_THAT(warnings, IsEmpty());
  writeText(path("ptx"), "damaged");
  EXPECT_EQ(cache.load(key, warnings), std::nullopt);
  EXPECT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(fs::exists(path("ptx")));
}

// A folder that cannot be made stands for all that cannot be written: root ignores permissions.
TEST_F(DiskCacheTest, UnwritableFolderIsOneWarning) {
  writeText(folder.path() + "/file", "");
  DiskCacheOptions unwritable;
  unwritable.directory = folder.path() + "/file/cache";
  DiskCache cache(unwritable);
  Warnings warnings;
  EXPECT_EQ(cache.load(key, warnings), std::nullopt);
  EXPECT_FALSE(cache.lock(key, warnings).held());
  cache.store(key, sampleEntry(), warnings);
  cache.store(key, sampleEntry(), warnings);
  EXPECT_THAT(warnings, ElementsAre("cache folder " + unwritable.directory +
                                    " is not writable, nothing is kept on disk: " + folder.path() +
                                    "/file: Not a directory"));
}

// One that takes files below it, and no entries: in a process that permissions hold for.
TEST_F(DiskCacheTest, EntriesThatCannotTakeTheirPlaceAreOneWarning) {
  for (const char *below : {"staging", "locks"}) {
    fs::create_directories(options().directory + "/" + below);
    fs::permissions(options().directory + "/" + below, fs::perms::all);
  }
  fs::permissions(options().directory, fs::perms(0555));
  fs::permissions(folder.path(), fs::perms(0755));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr uid_t nobody = 65534;
    if (getuid() == 0 && setuid(nobody) != 0)
      _exit(3);
    DiskCache cache(options());
    Warnings warnings;
    const bool any =
        cache.store(key, sampleEntry(), warnings) || cache.store(key, sampleEntry(), warnings);
    _exit(any ? 2
          : warnings == Warnings{"cache folder " + options().directory +
                                 " is not writable, nothing is kept on disk: "
                                 "Permission denied"}
              ? 0
              : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(DiskCacheTest, NoDirectoryIsNoCache) {
  DiskCache cache(DiskCacheOptions{});
  Warnings warnings;
  cache.store(key, sampleEntry(), warnings);
  EXPECT_EQ(cache.load(key, warnings), std::nullopt);
  EXPECT_FALSE(cache.lock(key, warnings).held());
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(DiskCacheTest, LockTimesOutWithAWarning) {
  DiskCacheOptions hasty = options();
  hasty.lockTimeout = std::chrono::milliseconds(5);
  DiskCache first(options()), second(hasty);
  Warnings warnings;
  FileLock held = first.lock(key, warnings);
  EXPECT_TRUE(held.held());
  EXPECT_FALSE(second.lock(key, warnings).held());
  EXPECT_THAT(warnings, ElementsAre("cache lock " + folder.path() + "/cache/locks/" + key +
                                    " was not free within 5 ms, compiling without it"));
}

TEST_F(DiskCacheTest, AHitMakesAStampThatIsMissing) {
  publish();
  fs::remove(path("used"));
  Warnings warnings;
  EXPECT_TRUE(DiskCache(options()).load(key, warnings));
  EXPECT_TRUE(fs::exists(path("used")));
  // Not that of a file elsewhere.
  const std::string secret = folder.path() + "/secret";
  writeText(secret, "text");
  const auto before = fs::file_time_type::clock::now() - std::chrono::hours(5);
  fs::last_write_time(secret, before);
  fs::remove(path("used"));
  fs::create_symlink(secret, path("used"));
  EXPECT_TRUE(DiskCache(options()).load(key, warnings));
  EXPECT_EQ(fs::last_write_time(secret), before);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(DiskCacheTest, WhatIsInTheWayIsNamed) {
  fs::create_symlink("/nowhere/at/all", options().directory);
  Warnings warnings;
  EXPECT_FALSE(DiskCache(options()).store(key, sampleEntry(), warnings));
  EXPECT_THAT(warnings, ElementsAre("cache folder " + options().directory +
                                    " is not writable, nothing is kept on disk: " +
                                    options().directory + " is a link to nothing"));
  fs::remove(options().directory);
  fs::create_directory(options().directory);
  writeText(options().directory + "/locks", "");
  warnings.clear();
  EXPECT_FALSE(DiskCache(options()).store(key, sampleEntry(), warnings));
  EXPECT_THAT(warnings, ElementsAre("cache folder " + options().directory +
                                    " is not writable, nothing is kept on disk: " +
                                    options().directory + "/locks: Not a directory"));
}

TEST_F(DiskCacheTest, AFolderForAllHasFoldersForAll) {
  fs::create_directory(options().directory);
  fs::permissions(options().directory, fs::perms(01777));
  publish();
  for (const char *below : {"/staging", "/locks"})
    EXPECT_EQ(fs::status(options().directory + below).permissions(), fs::perms(01777)) << below;
}

// One that is to be read only and is not there is a mistake.
TEST_F(DiskCacheTest, NothingToReadIsOneWarning) {
  DiskCacheOptions missing = options();
  missing.readOnly = true;
  DiskCache cache(missing);
  Warnings warnings;
  EXPECT_EQ(cache.load(key, warnings), std::nullopt);
  EXPECT_EQ(cache.load(keyOf("other"), warnings), std::nullopt);
  EXPECT_THAT(warnings, ElementsAre("cache folder " + missing.directory +
                                    " cannot be read: No such file or directory"));
  DiskCacheOptions unnamed;
  unnamed.whyNone = "no cache folder is named";
  DiskCache none(unnamed);
  warnings.clear();
  EXPECT_FALSE(none.lock(key, warnings).held());
  EXPECT_FALSE(none.store(key, sampleEntry(), warnings));
  EXPECT_THAT(warnings, ElementsAre("no cache folder is named"));
}

// In a process that permissions hold for: another user's entries in a folder for all, which are
// neither readable nor replaceable.
TEST_F(DiskCacheTest, EntriesOfAnotherUserAreWarnings) {
  if (getuid() != 0)
    GTEST_SKIP() << "only root has files of several users";
  fs::create_directory(options().directory);
  fs::permissions(options().directory, fs::perms(01777));
  publish();
  fs::permissions(path(), fs::perms(0700));
  fs::permissions(folder.path(), fs::perms(0755));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr uid_t nobody = 65534;
    if (setuid(nobody) != 0)
      _exit(3);
    DiskCache cache(options());
    Warnings warnings;
    if (cache.load(key, warnings) || cache.store(key, sampleEntry(), warnings))
      _exit(2);
    const bool others = cache.store(keyOf("another spec"), sampleEntry(), warnings);
    const Warnings expected = {damaged(path(), "Permission denied"),
                               "cache entry " + path() +
                                   " cannot be replaced: Operation not permitted"};
    _exit(others && warnings == expected ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(DiskCacheTest, LeftoversOfKilledProcessesGo) {
  const std::string staging = options().directory + "/staging";
  const std::string killed = staging + "/0123456789abcdef-12-345-6";
  const auto longAgo = fs::file_time_type::clock::now() - std::chrono::hours(2);
  // Somebody's own folder may have the name of ours.
  const std::vector<std::string> others = {"old",
                                           "site-1-2-3",
                                           "0123456789abcdef-12-345",
                                           "0123456789abcdef-12-345-6-7",
                                           "0123456789ABCDEF-12-345-6",
                                           "0123456789abcdef-12-x-6",
                                           "0123456789abcdef--345-6"};
  for (const std::string &other : others) {
    fs::create_directories(staging + "/" + other);
    fs::last_write_time(staging + "/" + other, longAgo);
  }
  fs::create_directories(killed);
  fs::create_directories(staging + "/0123456789abcdef-12-345-7");
  fs::last_write_time(killed, longAgo);
  publish();
  EXPECT_FALSE(fs::exists(killed));
  EXPECT_TRUE(fs::exists(staging + "/0123456789abcdef-12-345-7"));
  for (const std::string &other : others)
    EXPECT_TRUE(fs::exists(staging + "/" + other)) << other;
}

// The protocol of the engine: look, lock, look again, build, store. True: this one built it.
bool lookOrBuild(const DiskCacheOptions &options, const std::string &key) {
  DiskCache cache(options);
  Warnings warnings;
  if (cache.load(key, warnings))
    return false;
  FileLock lock = cache.lock(key, warnings);
  if (cache.load(key, warnings))
    return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  cache.store(key, sampleEntry(), warnings);
  return true;
}

TEST_F(DiskCacheTest, ThreadsOnOneColdKeyBuildItOnce) {
  std::atomic<int> built{0};
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] { built += lookOrBuild(options(), key); });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(built, 1);
}

TEST_F(DiskCacheTest, ProcessesOnOneColdKeyBuildItOnce) {
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    pid_t child = ::fork();
    if (child == 0)
      ::_exit(lookOrBuild(options(), key) ? 1 : 0);
    children.push_back(child);
  }
  int built = 0;
  for (pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    built += WEXITSTATUS(status);
  }
  EXPECT_EQ(built, 1);
  Warnings warnings;
  EXPECT_EQ(DiskCache(options()).load(key, warnings), sampleEntry());
  EXPECT_THAT(warnings, IsEmpty());
}

// Without locks (a network file system) all build and publish: every reader still finds a whole
// entry or none.
TEST_F(DiskCacheTest, PublishersWithoutLocksDoNotDisturbReaders) {
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      DiskCache cache(options());
      Warnings warnings;
      for (int round = 0; round < 20; ++round)
        cache.store(key, sampleEntry(), warnings);
      wrong += static_cast<int>(warnings.size());
    });
  std::thread reader([&] {
    DiskCache cache(options());
    Warnings warnings;
    while (!stop)
      if (auto entry = cache.load(key, warnings); entry && *entry != sampleEntry())
        ++wrong;
    wrong += static_cast<int>(warnings.size());
  });
  for (std::thread &thread : threads)
    thread.join();
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
}

// Where the file system can exchange two folders there is one entry or the other at any time.
TEST_F(DiskCacheTest, ReadersFindWhatIsBeingReplaced) {
  const std::string one = options().directory + "/one", two = options().directory + "/two";
  fs::create_directories(one);
  fs::create_directories(two);
  if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, two.c_str(), RENAME_EXCHANGE) != 0)
    GTEST_SKIP() << "this file system exchanges no folders";
  publish();
  std::atomic<bool> stop{false};
  std::atomic<int> missing{0}, found{0};
  std::thread reader([&] {
    DiskCache cache(options());
    Warnings warnings;
    while (!stop)
      ++(cache.load(key, warnings) ? found : missing);
    missing += static_cast<int>(warnings.size());
  });
  DiskCache cache(options());
  Warnings warnings;
  for (int round = 0; round < 200 || found < 200; ++round)
    ASSERT_TRUE(cache.store(key, {{"facts", "rho kernel " + std::to_string(round % 2)}}, warnings));
  stop = true;
  reader.join();
  EXPECT_EQ(missing, 0);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST(DiskCacheDiagnostics, TheirWholeTexts) {
  EXPECT_EQ(makeDiagnostic(DiagId::cache_entry_unusable, {"/c/ab", "ptx is missing"}).rendered,
            "error: cache entry /c/ab is not used: ptx is missing "
            "[cache_entry_unusable]");
  EXPECT_EQ(makeDiagnostic(DiagId::cache_not_writable, {"/c", "No space left"}).rendered,
            "error: cache folder /c is not writable, nothing is kept on disk: No space left "
            "[cache_not_writable]");
  EXPECT_EQ(makeDiagnostic(DiagId::cache_not_readable, {"/c", "it is no folder"}).rendered,
            "error: cache folder /c cannot be read: it is no folder [cache_not_readable]");
  EXPECT_EQ(makeDiagnostic(DiagId::cache_entry_stays, {"/c/ab", "Permission denied"}).rendered,
            "error: cache entry /c/ab cannot be replaced: Permission denied [cache_entry_stays]");
  EXPECT_EQ(makeDiagnostic(DiagId::cache_lock_timeout, {"/c/l", "5"}).rendered,
            "error: cache lock /c/l was not free within 5 ms, compiling without it "
            "[cache_lock_timeout]");
}

} // namespace
} // namespace rho::cache
