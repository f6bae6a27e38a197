#include "runtime/cache/MemoryCache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

namespace rho::cache {
namespace {

using Cache = MemoryCache<int, int>;

auto value(int number) {
  return [number]() -> Result<Cache::Pointer> { return std::make_shared<const int>(number); };
}

TEST(MemoryCache, ThreadsOnOneColdKeyComputeOnce) {
  Cache cache(10);
  std::atomic<int> computations{0};
  constexpr int count = 8;
  std::latch start(count);
  std::vector<std::thread> threads;
  threads.reserve(8);
  std::vector<Cache::Pointer> got(count);
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      got[static_cast<size_t>(i)] = *cache.get(1, [&] {
        ++computations;
        std::this_thread::sleep_for(std::chrono::milliseconds(20)); // so that the others arrive
        return value(7)();
      });
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(computations, 1);
  for (const Cache::Pointer &pointer : got)
    EXPECT_EQ(pointer, got[0]);
}

TEST(MemoryCache, ClearingForgetsWhatIsKept) {
  Cache cache(10);
  Cache::Pointer old = *cache.get(1, value(7));
  // A computation that goes on meanwhile is of what was before.
  Result<Cache::Pointer> begun = cache.get(2, [&] {
    cache.clear();
    return value(8)();
  });
  EXPECT_EQ(**begun, 8);
  EXPECT_EQ(cache.find(1), nullptr);
  EXPECT_EQ(cache.find(2), nullptr);
  EXPECT_EQ(*old, 7);
  EXPECT_EQ(**cache.get(1, value(9)), 9);
}

TEST(MemoryCache, WhoWaitsForAComputationThatThrowsBeginsItsOwn) {
  Cache cache(10);
  std::latch computing(1);
  std::thread first([&] {
    EXPECT_THROW((void)cache.get(1,
                                 [&]() -> Result<Cache::Pointer> {
                                   computing.count_down();
                                   std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                   throw std::bad_alloc();
                                 }),
                 std::bad_alloc);
  });
  computing.wait();
  EXPECT_EQ(**cache.get(1, value(3)), 3);
  first.join();
  EXPECT_EQ(*cache.find(1), 3);
}

TEST(MemoryCache, KeysDoNotWaitForEachOther) {
  Cache cache(10);
  std::latch inner(1);
  std::thread slow([&] {
    (void)cache.get(1, [&] {
      inner.wait();
      return value(1)();
    });
  });
  EXPECT_EQ(**cache.get(2, value(2)), 2);
  inner.count_down();
  slow.join();
  EXPECT_EQ(*cache.find(1), 1);
}

TEST(MemoryCache, FailuresReachTheCallerAndAreNotKept) {
  Cache cache(10);
  Result<Cache::Pointer> failed =
      cache.get(1, []() -> Result<Cache::Pointer> { return makeError(DiagId::no_gemm, {"it"}); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().diagnostics[0].id, DiagId::no_gemm);
  EXPECT_EQ(cache.find(1), nullptr);
  EXPECT_EQ(**cache.get(1, value(3)), 3);
}

TEST(MemoryCache, TheLeastRecentlyUsedGoes) {
  Cache cache(2);
  (void)cache.get(1, value(1));
  (void)cache.get(2, value(2));
  (void)cache.find(1);
  (void)cache.get(3, value(3));
  EXPECT_NE(cache.find(1), nullptr);
  EXPECT_EQ(cache.find(2), nullptr);
  EXPECT_NE(cache.find(3), nullptr);
}

} // namespace
} // namespace rho::cache
