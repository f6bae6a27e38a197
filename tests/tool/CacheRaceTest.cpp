// Processes of the built executable that meet at one cold key, are stopped, killed, or find the
// disk full.
#include "runtime/cache/DiskCache.h"
#include "tests/runtime/TemporaryFolder.h"
#include "tests/tool/RunTool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <sys/resource.h>
#include <thread>

namespace fs = std::filesystem;

using namespace rho;
using namespace rho::test;
using testing::HasSubstr;
using testing::Not;

namespace {

class CacheRaceTest : public testing::Test {
protected:
  std::vector<std::string> arguments(const std::string &cache) const {
    return {"run",         shipped("kernels/gemms/int4_g128_f16.rho"),
            "--m",         "1",
            "--n",         "64",
            "--k",         "128",
            "--device",    "sm_80",
            "--cache-dir", cache};
  }
  // Without the plans beside them.
  static std::vector<cache::StoredEntry> kernels(const std::string &cache) {
    std::vector<cache::StoredEntry> entries = cache::storedEntries(cache);
    std::erase_if(entries, [&](const cache::StoredEntry &each) {
      return !fs::exists(cache + "/" + each.key + "/ptx");
    });
    return entries;
  }
  // The key of this gemm, as found in a folder of its own.
  static std::string onlyKey(const std::string &cache) {
    const std::vector<cache::StoredEntry> entries = kernels(cache);
    EXPECT_EQ(entries.size(), 1U);
    return entries.empty() ? "" : entries[0].key;
  }
  std::string key() const {
    std::string apart = folder.path() + "/apart";
    EXPECT_EQ(runTool(arguments(apart)).code, 0);
    return onlyKey(apart);
  }
  // Whether it waits for this file's lock, or holds it.
  static bool hasOpen(pid_t process, const std::string &file) {
    std::error_code error;
    for (fs::directory_iterator it("/proc/" + std::to_string(process) + "/fd", error), end;
         !error && it != end; it.increment(error)) {
      std::error_code ignored;
      if (fs::read_symlink(it->path(), ignored) == fs::path(file))
        return true;
    }
    return false;
  }
  static bool eventually(const std::function<bool()> &condition) {
    for (int i = 0; i < 110000; ++i) {
      if (condition())
        return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  struct Outcome {
    int compiled = 0, loaded = 0, other = 0;
  };
  // `warning` is one that may be printed once; none other.
  static void count(const ToolResult &result, Outcome &outcome, const std::string &warning = "") {
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, HasSubstr("result      PASS: "));
    std::string out = result.out;
    if (size_t at = out.find(warning); !warning.empty() && at != std::string::npos)
      out.erase(at, warning.size());
    EXPECT_THAT(out, Not(HasSubstr("warning")));
    if (result.out.find("cache       miss, compiled") != std::string::npos)
      ++outcome.compiled;
    else if (result.out.find("cache       hit, from disk") != std::string::npos)
      ++outcome.loaded;
    else
      ++outcome.other;
  }
  // All wait at the key's lock until none is missing. Damaged: they find an entry without its PTX.
  void race(int processes, bool damaged = false) const {
    const std::string cache = folder.path() + "/cache", coldKey = key();
    const std::string lockFile = cache + "/locks/" + coldKey;
    fs::create_directories(cache + "/locks");
    std::string warning;
    if (damaged) {
      fs::copy(folder.path() + "/apart/" + coldKey, cache + "/" + coldKey);
      fs::remove(cache + "/" + coldKey + "/ptx");
      warning =
          "warning     cache entry " + cache + "/" + coldKey + " is not used: ptx is missing\n";
    }
    cache::FileLock gate;
    ASSERT_EQ(gate.acquire(lockFile, std::chrono::milliseconds(0)), cache::FileLock::Outcome::Held);
    std::vector<ToolProcess> started;
    for (int i = 0; i < processes; ++i)
      started.push_back(startTool(arguments(cache)));
    for (const ToolProcess &process : started)
      EXPECT_TRUE(eventually([&] { return hasOpen(process.child, lockFile); }));
    gate.release();
    Outcome outcome;
    for (ToolProcess &process : started)
      count(process.wait(), outcome, warning);
    EXPECT_EQ(outcome.compiled, 1);
    EXPECT_EQ(outcome.loaded, processes - 1);
    EXPECT_EQ(outcome.other, 0);
    EXPECT_EQ(onlyKey(cache), coldKey);
    EXPECT_TRUE(fs::is_empty(cache + "/staging"));
    EXPECT_TRUE(fs::is_empty(cache + "/locks"));
  }
  // A process that stands still with the key's lock, somewhere between the first look and the
  // entry; in a cold folder of its own.
  ToolProcess stoppedHolder(const std::string &coldKey, std::string &cache) const {
    for (int attempt = 0; attempt < 50; ++attempt) {
      cache = folder.path() + "/cache" + std::to_string(attempt);
      const std::string lockFile = cache + "/locks/" + coldKey;
      ToolProcess holder = startTool(arguments(cache));
      while (!fs::exists(lockFile) && !fs::exists(cache + "/" + coldKey))
        std::this_thread::yield();
      ::kill(holder.child, SIGSTOP);
      cache::FileLock probe;
      if (fs::exists(lockFile) && !fs::exists(cache + "/" + coldKey) &&
          probe.acquire(lockFile, std::chrono::milliseconds(0)) ==
              cache::FileLock::Outcome::TimedOut)
        return holder;
      ::kill(holder.child, SIGCONT); // it was too fast, or not there yet
      holder.wait();
    }
    ADD_FAILURE() << "no process was caught with the lock";
    return {};
  }

  TemporaryFolder folder;
};

TEST_F(CacheRaceTest, TwoOnOneColdKeyCompileOnce) { race(2); }
TEST_F(CacheRaceTest, SixteenOnOneColdKeyCompileOnce) { race(16); }

TEST_F(CacheRaceTest, SixteenOnOneDamagedEntryRebuildItOnce) { race(16, true); }

TEST_F(CacheRaceTest, OneThatIsStoppedIsWaitedFor) {
  std::string cache;
  const std::string coldKey = key();
  ToolProcess first = stoppedHolder(coldKey, cache);
  ASSERT_GT(first.child, 0);
  ToolProcess second = startTool(arguments(cache));
  EXPECT_TRUE(eventually([&] { return hasOpen(second.child, cache + "/locks/" + coldKey); }));
  ::kill(first.child, SIGCONT);
  Outcome outcome;
  count(first.wait(), outcome);
  count(second.wait(), outcome);
  EXPECT_EQ(outcome.compiled, 1);
  EXPECT_EQ(outcome.loaded, 1);
}

TEST_F(CacheRaceTest, OneThatIsKilledWithTheLockIsReplaced) {
  std::string cache;
  const std::string coldKey = key();
  ToolProcess first = stoppedHolder(coldKey, cache);
  ASSERT_GT(first.child, 0);
  ToolProcess second = startTool(arguments(cache));
  EXPECT_TRUE(eventually([&] { return hasOpen(second.child, cache + "/locks/" + coldKey); }));
  ::kill(first.child, SIGKILL);
  EXPECT_EQ(first.wait().code, -1);
  Outcome outcome;
  count(second.wait(), outcome);
  count(runTool(arguments(cache)), outcome);
  EXPECT_EQ(outcome.compiled, 1);
  EXPECT_EQ(outcome.loaded, 1);
  EXPECT_TRUE(fs::is_empty(cache + "/locks"));
}

// 4000 bytes a file are less than the PTX has: the disk is full in the middle of it.
TEST_F(CacheRaceTest, AFullDiskCostsTheEntryAndNothingElse) {
  const std::string cache = folder.path() + "/cache";
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit tight = {4000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  ToolProcess process = startTool(arguments(cache));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ToolResult result = process.wait();
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("warning     cache folder " + cache +
                                    " is not writable, nothing is kept on disk: File too large\n"));
  EXPECT_THAT(result.out, HasSubstr("result      PASS: "));
  EXPECT_TRUE(kernels(cache).empty()); // there may be room for its plan
  EXPECT_TRUE(fs::is_empty(cache + "/staging"));
  EXPECT_THAT(runTool(arguments(cache)).out, HasSubstr("cache       miss, compiled"));
  EXPECT_THAT(runTool(arguments(cache)).out, HasSubstr("cache       hit, from disk"));
}

} // namespace
