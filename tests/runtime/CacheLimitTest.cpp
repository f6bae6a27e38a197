// What goes from a cache folder, and when it is looked for.
#include "tests/runtime/CacheFixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fs = std::filesystem;

namespace rho::cache {
namespace {

using testing::IsEmpty;

using CacheLimitTest = CacheFixture;

TEST_F(CacheLimitTest, TheLeastRecentlyUsedGoesPastTheLimit) {
  DiskCacheOptions small = options();
  small.limitBytes = 40000; // three entries of three blocks each
  DiskCache cache(small);
  Warnings warnings;
  std::vector<std::string> keys;
  auto entryPath = [&](int i) { return small.directory + "/" + keys[static_cast<size_t>(i)]; };
  for (int i = 0; i < 3; ++i) {
    keys.push_back(keyOf("spec " + std::to_string(i)));
    cache.store(keys.back(), {{"ptx", std::string(3000, 'x')}}, warnings);
    fs::last_write_time(entryPath(i) + "/used",
                        fs::file_time_type::clock::now() - std::chrono::hours(10 - i));
  }
  ASSERT_TRUE(cache.load(keys[0], warnings)); // now the most recently used
  writeText(small.directory + "/not-ours", std::string(20000, 'x'));
  keys.push_back(keyOf("spec 3"));
  cache.store(keys.back(), {{"ptx", std::string(3000, 'x')}}, warnings);
  EXPECT_TRUE(fs::exists(entryPath(0)));
  EXPECT_FALSE(fs::exists(entryPath(1)));
  EXPECT_TRUE(fs::exists(entryPath(2)));
  EXPECT_TRUE(fs::exists(entryPath(3)));
  EXPECT_TRUE(fs::exists(small.directory + "/not-ours"));
  EXPECT_THAT(warnings, IsEmpty());
}

// Not every store looks through the folder.
TEST_F(CacheLimitTest, TheLimitHoldsAfterEachStore) {
  DiskCacheOptions small = options();
  small.limitBytes = 400000;
  DiskCache cache(small);
  Warnings warnings;
  int64_t most = 0;
  for (int i = 0; i < 80; ++i) {
    cache.store(keyOf(std::to_string(i)),
                {{"ptx", std::string(static_cast<size_t>(100 + i * 37 % 1500), 'x')}}, warnings);
    const int64_t bytes = bytesOf(cache.entries());
    EXPECT_LE(bytes, small.limitBytes) << i;
    most = std::max(most, bytes);
  }
  EXPECT_GT(most, small.limitBytes * 9 / 10);
  EXPECT_THAT(warnings, IsEmpty());
}

// As many processes as there are do not look through the folder one after the other.
TEST_F(CacheLimitTest, WhatWasLookedThroughLatelyIsNotAgain) {
  DiskCacheOptions large = options();
  large.limitBytes = 64 * 20000;
  const std::string looked = large.directory + "/looked";
  const std::string killed = large.directory + "/staging/0123456789abcdef-12-345-6";
  const auto longAgo = fs::file_time_type::clock::now() - std::chrono::hours(2);
  Warnings warnings;
  DiskCache(large).store(keyOf("first"), entry, warnings);
  EXPECT_TRUE(fs::exists(looked));
  auto leave = [&] {
    fs::create_directories(killed);
    fs::last_write_time(killed, longAgo);
  };
  leave();
  DiskCache second(large);
  second.store(keyOf("second"), entry, warnings);
  EXPECT_TRUE(fs::exists(killed));
  second.store(keyOf("third"), entry, warnings); // more than a 64th
  EXPECT_FALSE(fs::exists(killed));
  leave();
  fs::last_write_time(looked, longAgo);
  DiskCache(large).store(keyOf("fourth"), entry, warnings);
  EXPECT_FALSE(fs::exists(killed));
  leave();
  fs::last_write_time(looked, fs::file_time_type::clock::now() + std::chrono::hours(1));
  DiskCache(large).store(keyOf("fifth"), entry, warnings);
  EXPECT_FALSE(fs::exists(killed));
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(CacheLimitTest, TimesOfAWrongClockAreTheEarliest) {
  DiskCacheOptions small = options();
  small.limitBytes = 40000;
  DiskCache cache(small);
  Warnings warnings;
  for (const char *name : {"a", "b", "c"})
    cache.store(keyOf(name), {{"ptx", "x"}}, warnings);
  fs::last_write_time(small.directory + "/" + keyOf("b") + "/used",
                      fs::file_time_type::clock::now() + std::chrono::hours(24));
  const std::string killed = small.directory + "/staging/0123456789abcdef-12-345-6";
  fs::create_directories(killed);
  fs::last_write_time(killed, fs::file_time_type::clock::now() + std::chrono::hours(24));
  cache.store(keyOf("d"), {{"ptx", "x"}}, warnings);
  EXPECT_EQ(cache.load(keyOf("b"), warnings), std::nullopt);
  EXPECT_TRUE(cache.load(keyOf("a"), warnings));
  EXPECT_FALSE(fs::exists(killed));
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(CacheLimitTest, AnEntryPastTheLimitByItselfStays) {
  DiskCacheOptions tiny = options();
  tiny.limitBytes = 1;
  DiskCache cache(tiny);
  Warnings warnings;
  cache.store(key, entry, warnings);
  EXPECT_EQ(cache.load(key, warnings), entry);
}

} // namespace
} // namespace rho::cache
