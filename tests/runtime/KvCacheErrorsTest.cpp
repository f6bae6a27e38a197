// What a paged cache refuses.
#include "tests/runtime/KvFixture.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>

namespace rho {
namespace {

std::string messageOf(const Error &error) { return error.str(); }

TEST(KvCacheErrors, formatsThatCannotHoldACache) {
  KvFixture f = KvFixture::make();
  auto refused = [&](const char *format, const std::string &reason) {
    Result<KvCache> cache = KvCache::create(f.engine, f.module, optionsFor(format, "kv4"));
    ASSERT_FALSE(cache.ok()) << format;
    std::string message = messageOf(cache.error());
    EXPECT_NE(message.find(reason), std::string::npos) << message;
    EXPECT_EQ(message, "error: format '" + std::string(format) +
                           "' cannot hold keys of a cache: " + reason + " [kv_format]\n");
  };
  refused("by_channel", "'scale' is per channel, components of a cache are per k[G]");
  refused("by_8",
          "'scale' is per k[8], groups of tokens are multiples of 16 that divide the page of 64");
  refused("chosen", "the rule of 'scale' chooses among candidates");
  refused("bounded", "it has a requirement, which a kernel that quantizes cannot refuse to break");
  refused("masked",
          "its value is not a sum of products of components, with the element in some of them");
  refused("kv_beyond", "its element codebook [1000000, 2000000, -3000000, 0] has numbers beyond "
                       "those of f16");
  refused("books", "'scale' is a codebook, only elements are");
  refused("spare", "its element is remapped");
  refused("f32", "its element f32 has no decode to f16");
  refused("bf16", "its element bf16 has no decode to f16");
  Result<KvCache> cache = KvCache::create(f.engine, f.module, optionsFor("kv4", "kv5"));
  ASSERT_FALSE(cache.ok());
  EXPECT_NE(messageOf(cache.error()).find("no format 'kv5', there are f16, kv4, "),
            std::string::npos)
      << messageOf(cache.error());
  EXPECT_NE(messageOf(cache.error()).find("[kv_unknown_format]"), std::string::npos);
  Result<Module> general = Module::parse(
      "format any(G: int) { element: s4 scale: f16 per k[G] value = element * scale }");
  ASSERT_TRUE(general.ok());
  cache = KvCache::create(f.engine, *general, optionsFor("", "any"));
  ASSERT_FALSE(cache.ok());
  EXPECT_NE(messageOf(cache.error()).find("no format '', there are f16"), std::string::npos)
      << messageOf(cache.error());
}

TEST(KvCacheErrors, shapesOutOfRange) {
  KvFixture f = KvFixture::make();
  auto refused = [&](auto change, const std::string &reason) {
    KvCacheOptions options = optionsFor("kv4", "kv4");
    change(options);
    Result<KvCache> cache = KvCache::create(f.engine, f.module, options);
    ASSERT_FALSE(cache.ok()) << reason;
    std::string message = messageOf(cache.error());
    EXPECT_NE(message.find(reason), std::string::npos) << message;
    EXPECT_NE(message.find("[kv_shape]"), std::string::npos) << message;
  };
  using Options = KvCacheOptions;
  const int traps = feenableexcept(FE_DIVBYZERO | FE_INVALID); // as some callers have them
  refused([](Options &o) { o.headDim = 0; }, "the head dimension is 0, kernels have 64 and 128");
  refused([](Options &o) { o.headDim = -64; }, "the head dimension is -64, kernels have 64");
  fedisableexcept(FE_ALL_EXCEPT);
  feenableexcept(traps);
  refused([](Options &o) { o.headDim = 96; }, "the head dimension is 96, kernels have 64 and 128");
  refused([](Options &o) { o.pageTokens = 72; }, "the number of tokens of a page is 72");
  refused([](Options &o) { o.pageTokens = 0; }, "the number of tokens of a page is 0");
  refused([](Options &o) { o.kvHeads = 0; }, "the number of heads of the cache is 0");
  refused([](Options &o) { o.queryHeads = 5; }, "the number of query heads is 5");
  refused([](Options &o) { o.pages = 0; }, "the number of pages is 0");
  refused([](Options &o) { o.type = ScalarType::F32; }, "the type of numbers is f32");
  refused([](Options &o) { o.softmaxScale = NAN; }, "the softmax scale is nan");
  refused([](Options &o) { o.softmaxScale = -1; }, "the softmax scale is -1, it is between");
  refused([](Options &o) { o.softmaxScale = 1e-31; },
          "the softmax scale is 1e-31, it is between 1e-30 and 1e6 [kv_shape]");
}

TEST(KvCacheErrors, callsOutOfRange) {
  KvFixture f = KvFixture::make();
  Result<KvCache> made = KvCache::create(f.engine, f.module, optionsFor("kv4", "kv4"));
  ASSERT_GOOD(made);
  const KvCache &cache = *made;
  auto expect = [](const auto &result, const std::string &reason) {
    ASSERT_FALSE(result.ok()) << reason;
    std::string message = messageOf(result.error());
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  };
  using Jobs = std::vector<KvJob>;
  using Ints = std::vector<int32_t>;
  expect(cache.jobs(Jobs{}), "the number of jobs is 0, it is between 1 and 65535 [kv_shape]");
  expect(cache.jobs(Jobs{{0, 8}}),
         "that of job 0 is page 8, the cache has 8 pages, numbered from 0 [kv_page]");
  expect(cache.jobs(Jobs{{0, -1}}), "that of job 0 is page -1");
  expect(cache.jobs(Jobs{{-2, 0}}), "the block of job 0 is -2");
  Result<Buffer> room = f.device.allocate(4 * 64 * 1024);
  ASSERT_GOOD(room);
  const Buffer &tokens = *room;
  auto move = [&](const Jobs &jobs, bool quantizes) {
    Result<KvJobs> list = cache.jobs(jobs);
    EXPECT_TRUE(list);
    const DevicePointer at = tokens.address();
    const KvCacheOptions options = optionsFor("kv4", "kv4");
    const int64_t stride = options.kvHeads * options.headDim;
    return quantizes ? cache.quantize(*list, at, at, stride)
                     : cache.dequantize(*list, at, at + tokens.bytes() / 2, stride);
  };
  expect(move({{0, 3}, {1, 2}, {2, 3}}, true),
         "page 3 is written by jobs 0 and 2, a call writes each once [kv_written_twice]");
  expect(move({{0, 3}, {1, 2}, {1, 1}}, false),
         "block 1 is written by jobs 1 and 2, a call writes each once [kv_written_twice]");
  EXPECT_TRUE(move({{0, 3}, {1, 3}}, false)); // a page that sequences share
  expect(cache.batch(Ints{}, Ints{}, 0), "the number of sequences is 0");
  expect(cache.batch(Ints{5, -1}, Ints{}, 0),
         "sequence 1 has -1 tokens, it has between 0 and 63 [kv_length]");
  expect(cache.batch(Ints{128}, Ints{0}, 1), "sequence 0 has 128 tokens");
  expect(cache.batch(Ints{128}, Ints{0, 8}, 2), "entry 1 of sequence 0 is page 8");
  expect(cache.batch(Ints{128}, Ints{0, 1, 2}, 2),
         "the table has 3 entries, 2 are needed [kv_table_size]");
  expect(cache.batch(Ints{1}, Ints{}, -1), "the number of columns of the table is -1");
  expect(cache.batch(Ints{1}, Ints{}, 0, -1), "the number of parts is -1");
  expect(cache.batch(Ints(128, 1), Ints(size_t{128} * 65535), 65535, 65535),
         "the number of parts of all sequences is 8388608, it is at most 4194304 [kv_shape]");

  Result<KvJobs> jobs = cache.jobs(Jobs{{0, 0}});
  ASSERT_GOOD(jobs);
  Result<KvBatch> batch = cache.batch(Ints{1}, Ints{}, 0);
  ASSERT_GOOD(batch);
  Buffer data = std::move(*f.device.allocate(int64_t{1} << 20));
  DevicePointer at = data.address();
  expect(cache.update(*batch, Ints{1, 1}, Ints{}),
         "the list of lengths has 2 entries, 1 are needed [kv_table_size]");
  expect(cache.update(*batch, Ints{64}, Ints{}), "sequence 0 has 64 tokens");
  expect(cache.quantize(*jobs, at, at, 254), "the stride of tokens is 254");
  expect(cache.quantize(*jobs, at, at, 257), "the stride of tokens is 257");
  expect(cache.quantize(*jobs, 0, at, 256), "keys is null");
  expect(cache.dequantize(*jobs, at, at + 2, 256), "[misaligned_pointer]");
  expect(cache.dequantize(*jobs, at, at, 256),
         "values lies in the memory of keys, which a launch would write over [buffers_overlap]");
  // Two heads of 128 numbers a token: rows that take turns, or blocks that do, share nothing.
  const DevicePointer tokensAt = tokens.address();
  EXPECT_TRUE(cache.dequantize(*jobs, tokensAt, tokensAt + 512, 512));
  EXPECT_TRUE(cache.dequantize(*jobs, tokensAt, tokensAt + 32768, 256));
  for (auto [distance, stride] : {std::pair{496, 512}, {528, 512}, {32768 - 512, 256}}) {
    expect(cache.dequantize(*jobs, tokensAt, tokensAt + uint64_t(distance), stride),
           "[buffers_overlap]");
    expect(cache.dequantize(*jobs, tokensAt + uint64_t(distance), tokensAt, stride),
           "[buffers_overlap]");
  }
  Result<KvJobs> turns = cache.jobs(Jobs{{0, 0}, {2, 1}}), next = cache.jobs(Jobs{{0, 0}, {1, 1}});
  EXPECT_TRUE(cache.dequantize(*turns, tokensAt, tokensAt + 32768, 256));
  expect(cache.dequantize(*next, tokensAt, tokensAt + 32768, 256), "[buffers_overlap]");
  Result<KvJobs> far = cache.jobs(Jobs{{INT32_MAX, 0}});
  expect(cache.quantize(*far, at, at, int64_t{1} << 32),
         "a block is 2147483647, with this stride there are addresses for 1024 [kv_shape]");
  expect(cache.attend(*batch, at, at, at, at + 8), "[misaligned_pointer]");
  // One sequence: queries and output of 4 * 128 numbers, tails of 64 * 2 * 128.
  const DevicePointer behindTails = at + 32768, behind = behindTails + 1024;
  auto overlaps = [&](const char *what) {
    return "output lies in the memory of " + std::string(what) +
           ", which a launch would write over [buffers_overlap]";
  };
  expect(cache.attend(*batch, behind, at, at, behind), overlaps("queries"));
  expect(cache.attend(*batch, behind, at, behind + 1024, at + 32768 - 16), overlaps("tail keys"));
  expect(cache.attend(*batch, behind, at, at + 16, behindTails), overlaps("tail values"));
  EXPECT_TRUE(cache.attend(*batch, behind, at, at, behindTails));
  // Of another layer, in other formats.
  KvCacheOptions layer = optionsFor("kv8", "f16");
  layer.pages = 9;
  Result<KvCache> other = KvCache::create(f.engine, f.module, layer);
  ASSERT_GOOD(other);
  EXPECT_TRUE(other->quantize(*jobs, at, at, 256));
  EXPECT_TRUE(other->attend(*batch, behind, at, at, behindTails));
  expect(cache.quantize(*other->jobs(Jobs{{0, 8}}), at, at, 256),
         "the list of jobs (9 pages of 64 tokens, 4 heads to 2 of 128, f16) was made for another "
         "cache [kv_other_cache]");
  expect(cache.attend(*other->batch(Ints{64}, Ints{8}, 1), behind, at, at, behindTails),
         "the batch (9 pages of 64 tokens, 4 heads to 2 of 128, f16) was made for another cache");
  layer.queryHeads = 2;
  Result<KvCache> narrow = KvCache::create(f.engine, f.module, layer);
  ASSERT_GOOD(narrow);
  expect(narrow->attend(*batch, at, at, at, at), "4 heads to 2 of 128, f16) was made for another");
  KvFixture elsewhere = KvFixture::make();
  Result<KvCache> onOther =
      KvCache::create(elsewhere.engine, elsewhere.module, optionsFor("kv4", "kv4"));
  ASSERT_GOOD(onOther);
  expect(onOther->attend(*batch, at, at, at, at), "was made for another cache [kv_other_cache]");
  expect(other->attend(KvBatch(), at, at, at, at), "empty batch, it must come from");
  expect(KvCache().attend(*batch, at, at, at, at), "[empty_handle]");
}

} // namespace
} // namespace rho
