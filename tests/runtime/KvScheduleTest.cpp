// How attention divides sequences among CTAs.
#include "dsl/Division.h"
#include "runtime/KvCacheImpl.h"
#include "tests/runtime/KvFixture.h"

#include <random>
#include <set>

namespace rho {
namespace {

KvCache cacheOfHeads(const KvFixture &f, const char *format) {
  KvCacheOptions options = optionsFor(format, format);
  options.pageTokens = options.headDim = 128;
  options.kvHeads = 8;
  options.queryHeads = 32;
  return cacheOf(f, options);
}

int64_t partPages(const KvCache &cache, const std::vector<int64_t> &pages,
                  int64_t mostItems = INT32_MAX) {
  static const compiler::DeviceModel device = compiler::modelOf(*compiler::shippedDevice("h200"));
  return compiler::kvPartPages(cache.impl().layout, pages, mostItems,
                               cache.impl().attend->image.sharedBytes, device);
}

// On an H200, whose SMs hold three CTAs: what was fastest of those that were measured, or within a
// few percent of it (results/h200/kv_parts.csv).
TEST(KvSchedule, PartsFillTheDeviceAndAreNotMoreThanThat) {
  KvFixture f = KvFixture::make();
  auto parts = [&](const char *format, int64_t sequences, int64_t pages) {
    int64_t each = partPages(cacheOfHeads(f, format),
                             std::vector<int64_t>(static_cast<size_t>(sequences), pages));
    return std::max<int64_t>(1, divideUp(pages, each));
  };
  EXPECT_EQ(parts("kv4", 16, 8), 1);
  EXPECT_EQ(parts("kv4", 16, 32), 3);
  EXPECT_EQ(parts("kv4", 16, 128), 3);
  EXPECT_EQ(parts("kv4", 64, 8), 1);
  EXPECT_EQ(parts("kv8", 64, 32), 1);
  EXPECT_EQ(parts("f16", 16, 32), 1);
  EXPECT_EQ(parts("f16", 64, 128), 1);
  EXPECT_GE(parts("kv4", 1, 128), 12);
  EXPECT_LE(parts("kv4", 1, 128), 24);
  // Never more than there are pages, or none.
  EXPECT_EQ(parts("kv4", 1, 1), 1);
  EXPECT_EQ(parts("kv4", 1, 0), 1);
  EXPECT_EQ(parts("kv4", 65535, 1 << 20), 1);
}

// One sequence of 128 pages among many of few: its parts are no longer than what an SM has to do.
TEST(KvSchedule, ALongSequenceIsDividedAmongShortOnes) {
  KvFixture f = KvFixture::make();
  KvCache cache = cacheOfHeads(f, "kv4");
  std::vector<int64_t> pages(64, 8);
  EXPECT_EQ(partPages(cache, pages), 8);
  pages[40] = 128;
  EXPECT_LE(partPages(cache, pages), 16);
  EXPECT_EQ(partPages(cache, pages, 64), 128); // no room for parts
  EXPECT_LE(compiler::kvMostItems(pages, partPages(cache, pages, 70)), 70);
}

// Of any sequences, where there is room for one item of each at least.
TEST(KvSchedule, ItemsAreNoMoreThanThereIsRoomFor) {
  KvFixture f = KvFixture::make();
  KvCache cache = cacheOfHeads(f, "kv4");
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<int32_t> lengths(1 + random() % 20);
    std::vector<int64_t> pages;
    for (int32_t &length : lengths) {
      length = static_cast<int32_t>(1 + random() % (random() % 4 == 0 ? 40000 : 1000));
      pages.push_back(length / 128);
    }
    auto room = static_cast<int64_t>(lengths.size() + random() % 50);
    std::vector<compiler::KvItem> items =
        compiler::kvItems(cache.impl().layout.shape, lengths, partPages(cache, pages, room));
    EXPECT_LE(static_cast<int64_t>(items.size()), room);
  }
}

TEST(KvSchedule, ItemsHaveEachPageAndTailOnceTheLongestFirst) {
  compiler::KvShape shape{.pageTokens = 64, .headDim = 64, .kvHeads = 2, .queryHeads = 2};
  const std::vector<int32_t> lengths{63, 64 * 5 + 1, 64, 64 * 12, 1, 64 * 4 + 63, 64 * 9 + 2};
  std::vector<int64_t> pages;
  for (int32_t length : lengths)
    pages.push_back(length / 64);
  for (int64_t partPages : {1, 3, 4, 100}) {
    std::vector<compiler::KvItem> items = compiler::kvItems(shape, lengths, partPages);
    EXPECT_LE(static_cast<int64_t>(items.size()), compiler::kvMostItems(pages, partPages));
    std::vector<int32_t> tokens(lengths.size()), next(lengths.size());
    std::set<int32_t> places;
    int32_t before = INT32_MAX;
    for (const compiler::KvItem &item : items) {
      auto s = static_cast<size_t>(item.sequence);
      int32_t own = item.lastPage - item.firstPage;
      EXPECT_LE(own, partPages);
      EXPECT_LE(own + (item.tail > 0 ? 1 : 0), before);
      before = own + (item.tail > 0 ? 1 : 0);
      tokens[s] += own * 64 + item.tail;
      EXPECT_TRUE(places.insert(item.firstSums + item.part).second);
      EXPECT_GE(item.part, 0);
      EXPECT_LT(item.part, item.parts);
      EXPECT_EQ(item.firstPage, own > 0 ? item.part * partPages : 0);
      ++next[s];
      EXPECT_LE(next[s], item.parts);
      EXPECT_TRUE(item.tail == 0 || own == 0 || item.parts == 1);
    }
    EXPECT_EQ(tokens, lengths);
    EXPECT_EQ(*places.rbegin() + 1, static_cast<int32_t>(items.size()));
  }
}

} // namespace
} // namespace rho
