// What attention makes of numbers that are hard to weigh: on the emulator, of one head.
#include "runtime/cuda/Timing.h"
#include "tests/runtime/KvFixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace rho {
namespace {

using OfToken = std::function<double(int64_t token, int64_t channel)>;

struct Head {
  explicit Head(ScalarType type) {
    options = optionsFor(type == ScalarType::F16 ? "f16" : "bf16", "bf16");
    options.values = options.keys;
    options.type = type;
    options.headDim = 64;
    options.pageTokens = 16;
    options.kvHeads = options.queryHeads = 1;
    cache = cacheOf(f, options);
  }

  // The output of one sequence of numbers that `type` has.
  std::vector<double> output(int64_t tokens, const OfToken &key, const OfToken &value,
                             const OfToken &query, int64_t parts = 1) const {
    const auto type = dsl::ElementType::get(options.keys);
    const int64_t dim = options.headDim, page = options.pageTokens, pages = tokens / page;
    auto numbers = [&](int64_t first, int64_t count, const OfToken &of) {
      KvNumbers made(type, static_cast<size_t>(std::max<int64_t>(count, page) * dim));
      for (int64_t i = 0; i < count * dim; ++i)
        made.codes[static_cast<size_t>(i)] =
            static_cast<uint16_t>(type.encode(of(first + i / dim, i % dim)));
      return f.upload(made);
    };
    const Buffer keys = numbers(0, pages * page, key), values = numbers(0, pages * page, value);
    const Buffer tailKeys = numbers(pages * page, tokens % page, key),
                 tailValues = numbers(pages * page, tokens % page, value);
    const Buffer queries = numbers(0, 1, query);
    std::vector<KvJob> jobs;
    std::vector<int32_t> table;
    for (int32_t i = 0; i < pages; ++i) {
      jobs.push_back({i, i});
      table.push_back(i);
    }
    if (!jobs.empty()) {
      const Result<KvJobs> list = cache.jobs(jobs);
      EXPECT_TRUE(cache.quantize(*list, keys.address(), values.address(), dim));
    }
    const Result<KvBatch> batch =
        cache.batch(std::vector<int32_t>{static_cast<int32_t>(tokens)}, table, pages, parts);
    EXPECT_TRUE(batch.ok());
    KvNumbers got(type, static_cast<size_t>(dim));
    const Buffer out = f.upload(got);
    EXPECT_TRUE(cache.attend(*batch, queries.address(), tailKeys.address(), tailValues.address(),
                             out.address()));
    EXPECT_TRUE(out.read(got.codes.data(), got.bytes()));
    std::vector<double> result;
    for (int64_t i = 0; i < dim; ++i)
      result.push_back(got[i]);
    return result;
  }

  KvFixture f = KvFixture::make();
  KvCacheOptions options;
  KvCache cache;
};

OfToken always(double number) {
  return [number](int64_t, int64_t) { return number; };
}

// Of tails and plain keys the query is not rounded with the scale: 96 * 56 is 112 * 48.
TEST(KvNumbers, ScoresOfPlainKeysAreExactProducts) {
  for (ScalarType type : {ScalarType::F16, ScalarType::BF16})
    for (int64_t tokens : {2, 32}) { // of a tail, of pages
      const Head head(type);
      const auto output = head.output(
          tokens,
          [](int64_t t, int64_t c) { return c == t % 2 ? (t % 2 == 0 ? 56.0 : 48.0) : 0.0; },
          [](int64_t t, int64_t) { return t % 2 == 0 ? 1.0 : -1.0; },
          [](int64_t, int64_t c) { return c == 0   ? 96.0
                                          : c == 1 ? 112.0
                                                   : 0.0; });
      for (double number : output)
        EXPECT_EQ(number, 0) << tokens;
    }
}

TEST(KvNumbers, TokensOfAScoreOfMinusInfinityHaveNoWeight) {
  const Head head(ScalarType::F16);
  for (int64_t tokens : {31, 115})
    for (int64_t without : {1, 16, 17, 20, 30})
      for (int64_t parts : {1, 7}) {
        const auto output = head.output(
            tokens, [&](int64_t t, int64_t) { return t < without ? -INFINITY : 0.5; }, always(1),
            always(1), parts);
        EXPECT_EQ(output, std::vector<double>(64, 1)) << tokens << ", " << without;
      }
  // Of all of them nothing is left.
  EXPECT_EQ(head.output(40, always(-INFINITY), always(1), always(1)), std::vector<double>(64, 0));
}

TEST(KvNumbers, ASequenceWithoutTokensHasZeros) {
  EXPECT_EQ(Head(ScalarType::F16).output(0, always(1), always(1), always(1)),
            std::vector<double>(64, 0));
}

// A batch that grows while launches are under way.
TEST(KvNumbers, UpdatesTakeTheirTurnInAStream) {
  for (std::string_view target : {std::string_view("sm_80"), gpu}) {
    const KvFixture f = KvFixture::make(target);
    if (!f.device.valid())
      continue;
    KvCacheOptions options = optionsFor("f16", "f16");
    options.pageTokens = 16;
    options.pages = 64;
    const KvCache cache = cacheOf(f, options);
    const auto type = dsl::ElementType::get("f16");
    const int64_t row = options.kvHeads * options.headDim, page = options.pageTokens * row;
    // Page i has values of i.
    KvNumbers keys(type, static_cast<size_t>(64 * page)), values = keys;
    std::vector<KvJob> jobs;
    for (int32_t i = 0; i < 64; ++i) {
      jobs.push_back({i, i});
      std::fill_n(values.codes.begin() + i * page, page, static_cast<uint16_t>(type.encode(i)));
    }
    const Buffer keysIn = f.upload(keys), valuesIn = f.upload(values);
    const Result<KvJobs> list = cache.jobs(jobs);
    ASSERT_GOOD(list);
    Stream stream = nullptr;
    Result<cuda::OwnedStream> own =
        target == gpu ? cuda::OwnedStream::create(f.device) : makeError(DiagId::bad_range, {});
    if (own)
      stream = own->get();
    ASSERT_TRUE(cache.quantize(*list, keysIn.address(), valuesIn.address(), row, stream));
    std::vector<int32_t> table(1, 0);
    const Result<KvBatch> batch = cache.batch(std::vector<int32_t>{16}, table, 1);
    ASSERT_GOOD(batch);
    const int64_t outputs = options.queryHeads * options.headDim;
    const Buffer out = f.upload(KvNumbers(type, static_cast<size_t>(64 * outputs)));
    for (int32_t i = 0; i < 64; ++i) {
      table[0] = i; // the caller's own again at once
      ASSERT_TRUE(cache.update(*batch, std::vector<int32_t>{16}, table, stream));
      table[0] = -1;
      const auto at = out.address() + static_cast<uint64_t>(i * outputs * 2);
      ASSERT_TRUE(
          cache.attend(*batch, keysIn.address(), keysIn.address(), valuesIn.address(), at, stream));
    }
    ASSERT_TRUE(f.device.synchronize(stream));
    KvNumbers got(type, static_cast<size_t>(64 * outputs));
    ASSERT_TRUE(out.read(got.codes.data(), got.bytes()));
    for (int64_t launch = 0; launch < 64; ++launch)
      for (int64_t i = 0; i < outputs; ++i)
        ASSERT_EQ(got[launch * outputs + i], static_cast<double>(launch)) << target;
  }
}

// However the sequence is divided, and wherever the token is.
TEST(KvNumbers, AnInfiniteValueMakesItsChannelInfinite) {
  const Head head(ScalarType::F16);
  for (int64_t at : {0, 20, 112, 114})
    for (int64_t parts : {1, 2, 3, 7}) {
      const auto output = head.output(
          115, always(0.25),
          [&](int64_t t, int64_t c) { return t == at && c == 5 ? INFINITY : 1.0; }, always(1),
          parts);
      for (size_t c = 0; c < output.size(); ++c)
        EXPECT_EQ(output[c], c == 5 ? INFINITY : 1.0) << at << ", " << parts;
    }
}

// A token without a value that has nearly all of the weight: those of the others are far below the
// least number of f16 with all digits.
TEST(KvNumbers, SmallWeightsHaveAllDigits) {
  const Head head(ScalarType::F16);
  constexpr int64_t tokens = 112;
  for (double below : {16.0, 17.0, 18.0}) {
    const auto output = head.output(
        tokens, [&](int64_t t, int64_t c) { return c == 0 ? (t == 0 ? 64.0 : 64 - 8 * below) : 0; },
        [](int64_t t, int64_t) { return t == 0 ? 0.0 : 16384.0; },
        [](int64_t, int64_t c) { return c == 0 ? 1.0 : 0.0; });
    const double weight = std::exp(-below), expected = 111 * weight / (1 + 111 * weight) * 16384;
    for (double number : output)
      EXPECT_NEAR(number, expected, expected * 0x1p-9) << below;
  }
}

} // namespace
} // namespace rho
