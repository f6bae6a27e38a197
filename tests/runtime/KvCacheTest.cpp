// The paged cache on the emulator: against dsl::quantize bit for bit, and against attention in
// double within a bound that follows from the roundings of the kernels.
#include "runtime/KvCache.h"
#include "dsl/Quantize.h"
#include "runtime/KvCacheImpl.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

namespace rho {
namespace {

const char *const declarations = R"(
format kv4 {
  element: u4
  scale:   f16 per k[64]
  zero:    u8  per k[64]
  value = (element - zero) * scale
}
format kv4_least {
  element: u4
  scale:   f16 per k[32]
  least:   f16 per k[32]
  value = element * scale + least
}
format kv8 {
  element: s8
  scale:   bf16 per k[64]
  value = element * scale
}
format kv_fp8 {
  element: e4m3
  scale:   f32 per k[32]
  value = element * scale
}
format kv_fp4 {
  element: e2m1
  block:   e4m3 per k[16]
  scale:   e8m0 per k[64]
  value = element * block * scale
}
format kv3 {
  element: s3
  scale:   f16 per k[64]
  value = element * scale
  encode {
    scale = bit_floor(max(absmax(x), 0.001)) / 2
  }
}
format kv_nf {
  element: codebook [-1, -0.5, -0.25, 0, 0.125, 0.25, 0.5, 1]
  scale:   f16 per k[64]
  value = element * scale
}
format by_channel {
  element: s4
  scale:   f16 per channel
  value = element * scale
}
format by_8 {
  element: s4
  scale:   f16 per k[8]
  value = element * scale
}
format chosen {
  element: s4
  scale:   f16 per k[64]
  value = element * scale
  encode {
    scale = best(absmax(x) / 7, absmax(x) / 8)
  }
}
format bounded {
  element: u4
  step:    u8  per k[64]
  scale:   f16 per k[64]
  value = element * step * scale
  require element * step <= 255
  encode {
    scale = absmax(x) / 255
    step  = 17
  }
}
format masked {
  element: u4
  scale:   f16 per k[64]
  value = (element & 7) * scale
  encode {
    scale = absmax(x) / 7
  }
}
format spare {
  element: e2m1 remap 8 to [5, -5] by which
  block:   ue3m3 per k[64]
  which:   u1    in block
  value = element * block
}
)";

using dsl::ElementType;

// Numbers of 16 bits and what they are.
struct Numbers {
  ElementType type;
  std::vector<uint16_t> codes;
  Numbers(ElementType type, size_t count) : type(type), codes(count) {}
  // Around a mean of each channel's own, as keys are.
  Numbers(ElementType type, size_t count, size_t dim, uint32_t seed) : Numbers(type, count) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::vector<double> mean(dim);
    for (double &each : mean)
      each = normal(random);
    for (size_t i = 0; i < count; ++i)
      codes[i] = static_cast<uint16_t>(type.encode(mean[i % dim] + normal(random)));
  }
  double operator[](int64_t i) const { return type.decode(codes[static_cast<size_t>(i)]); }
  int64_t bytes() const { return static_cast<int64_t>(codes.size()) * 2; }
};

#define ASSERT_GOOD(result) ASSERT_TRUE((result).ok()) << (result).error().str()

const std::string_view gpu = "GPU"; // in place of a target: the first one, where there is any

struct Fixture {
  Device device;
  Engine engine;
  Module module;
  static Fixture make(std::string_view target = "sm_80") {
    Fixture f;
    Result<Device> device = target == gpu ? Device::cuda() : Device::emulated(target);
    if (!device)
      return f;
    f.device = *device;
    EngineOptions options;
    options.diskCache = false;
    f.engine = *Engine::create(f.device, options);
    Result<Module> module = Module::parse(declarations);
    EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
    f.module = *module;
    return f;
  }
  Buffer upload(const Numbers &numbers) const {
    Buffer buffer = std::move(*device.allocate(numbers.bytes()));
    EXPECT_TRUE(buffer.write(numbers.codes.data(), numbers.bytes()).ok());
    return buffer;
  }
};

KvCacheOptions optionsFor(const char *keys, const char *values) {
  KvCacheOptions options;
  options.keys = keys;
  options.values = values;
  options.pages = 8;
  options.kvHeads = 2;
  options.queryHeads = 4;
  return options;
}

// One head of a block [pageTokens][kvHeads][headDim] as dsl::quantize has it.
dsl::QuantizedMatrix quantizedHead(const dsl::Format &format, const KvCacheOptions &o,
                                   const Numbers &numbers, int64_t block, int64_t head) {
  std::vector<float> rows;
  for (int64_t c = 0; c < o.headDim; ++c)
    for (int64_t t = 0; t < o.pageTokens; ++t)
      rows.push_back(static_cast<float>(
          numbers[((block * o.pageTokens + t) * o.kvHeads + head) * o.headDim + c]));
  dsl::MatrixView view{rows.data(), dsl::MatrixView::Type::F32, o.headDim, o.pageTokens,
                       o.pageTokens};
  return *dsl::quantize(std::make_shared<dsl::Format>(format), view, false, 1);
}

struct Case {
  const char *keys, *values;
  ScalarType type;
  int64_t headDim, pageTokens;
  std::string_view target;
};

const Case cases[] = {
    {"kv4", "kv4", ScalarType::F16, 128, 64, "sm_80"},
    {"kv4", "kv4_least", ScalarType::BF16, 64, 64, "sm_90a"},
    {"kv8", "kv4", ScalarType::F16, 64, 128, "sm_89"},
    {"kv_fp8", "kv_fp4", ScalarType::BF16, 128, 64, "sm_120a"},
    {"kv3", "kv_nf", ScalarType::F16, 128, 64, "sm_80"},
    {"f16", "kv8", ScalarType::F16, 64, 64, "sm_86"},
    {"bf16", "bf16", ScalarType::BF16, 64, 32, "sm_80"},
    {"kv4", "kv4_least", ScalarType::F16, 128, 64, gpu},
    {"kv_fp8", "kv_fp4", ScalarType::BF16, 64, 64, gpu},
};

class KvCaches : public testing::TestWithParam<Case> {};

TEST_P(KvCaches, quantizeIsThatOfTheHostAndDequantizeTheFormatsNumbers) {
  Case c = GetParam();
  Fixture f = Fixture::make(c.target);
  if (!f.device.valid())
    GTEST_SKIP() << "there is no GPU";
  KvCacheOptions o = optionsFor(c.keys, c.values);
  o.type = c.type;
  o.headDim = c.headDim;
  o.pageTokens = c.pageTokens;
  o.pages = 3;
  Result<KvCache> cache = KvCache::create(f.engine, f.module, o);
  ASSERT_GOOD(cache);
  auto type = ElementType::get(c.type == ScalarType::F16 ? "f16" : "bf16");
  // Tokens lie further apart than they are long.
  int64_t stride = o.kvHeads * o.headDim, blocks = 2;
  auto count = static_cast<size_t>(blocks * o.pageTokens * stride);
  Numbers keys(type, count, static_cast<size_t>(stride), 1),
      values(type, count, static_cast<size_t>(stride), 2);
  for (Numbers *numbers : {&keys, &values}) { // a channel of zeros, and one of infinite range
    for (int64_t t = 0; t < o.pageTokens; ++t) {
      numbers->codes[static_cast<size_t>(t * stride + 3)] = 0;
      numbers->codes[static_cast<size_t>(t * stride + 5)] =
          static_cast<uint16_t>(type.encode(t % 7 == 0 ? 30000.0 : -0.001));
    }
  }
  Buffer keysIn = f.upload(keys), valuesIn = f.upload(values);
  const KvJob jobs[] = {{1, 0}, {0, 2}};
  Result<KvJobs> list = cache->jobs(jobs);
  ASSERT_GOOD(list);
  Status done = cache->quantize(*list, keysIn.address(), valuesIn.address(), stride);
  ASSERT_GOOD(done);
  Buffer keysOut = f.upload(Numbers(type, count)), valuesOut = f.upload(Numbers(type, count));
  done = cache->dequantize(*list, keysOut.address(), valuesOut.address(), stride);
  ASSERT_GOOD(done);
  for (compiler::KvPart part : {compiler::KvPart::Keys, compiler::KvPart::Values}) {
    bool isKeys = part == compiler::KvPart::Keys;
    const compiler::KvTensor &tensor = cache->impl().layout.of(part);
    const Buffer &pages = isKeys ? cache->impl().keys : cache->impl().values;
    Numbers back(type, count);
    ASSERT_TRUE((isKeys ? keysOut : valuesOut).read(back.codes.data(), back.bytes()).ok());
    for (const KvJob &job : jobs)
      for (int64_t head = 0; head < o.kvHeads; ++head) {
        dsl::QuantizedMatrix expected =
            quantizedHead(tensor.format, o, isKeys ? keys : values, job.block, head);
        std::vector<uint8_t> bytes(static_cast<size_t>(tensor.headBytes()));
        ASSERT_TRUE(pages
                        .read(bytes.data(), tensor.headBytes(),
                              job.page * tensor.pageBytes() + head * tensor.headBytes())
                        .ok());
        ASSERT_EQ(bytes, tensor.pack(expected)) << isKeys << " page " << job.page;
        double roundings = 4 * 0x1p-23 + tensor.decode.roundings * 0x1p-8;
        for (int64_t channel = 0; channel < o.headDim; ++channel) {
          std::vector<double> numbers = expected.rowValues(channel),
                              magnitudes = expected.rowMagnitudes(channel);
          for (int64_t t = 0; t < o.pageTokens; ++t) {
            double value = numbers[static_cast<size_t>(t)];
            double got =
                back[((job.block * o.pageTokens + t) * o.kvHeads + head) * o.headDim + channel];
            if (std::isnan(value) && std::isnan(got))
              continue;
            double unit = type.name() == "f16" ? 0x1p-11 : 0x1p-8;
            double bound =
                std::abs(value) * unit + 0x1p-25 + roundings * magnitudes[static_cast<size_t>(t)];
            ASSERT_LE(std::abs(got - value), bound) << value << " at " << channel << ", " << t;
          }
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KvCaches, testing::ValuesIn(cases));

// --- attention

// A number and what the terms of slope * element + offset are in magnitude.
struct Stored {
  double value, magnitude;
};

// [token][kvHeads][headDim] of a sequence: whole pages in the format, the tail as it is.
struct Sequence {
  std::vector<Stored> keys, values;
};

void addPage(std::vector<Stored> &to, const dsl::Format &format, const KvCacheOptions &o,
             const Numbers &numbers, int64_t block) {
  size_t first = to.size();
  to.resize(first + static_cast<size_t>(o.pageTokens * o.kvHeads * o.headDim));
  for (int64_t head = 0; head < o.kvHeads; ++head) {
    dsl::QuantizedMatrix page = quantizedHead(format, o, numbers, block, head);
    dsl::QuantizedMatrix offsets = page;
    for (int64_t i = 0; i < offsets.components[0].size(); ++i)
      offsets.components[0].set(i, format.element().type.encode(0));
    for (int64_t channel = 0; channel < o.headDim; ++channel) {
      std::vector<double> values = page.rowValues(channel), offset = offsets.rowValues(channel);
      for (int64_t t = 0; t < o.pageTokens; ++t) {
        auto at = static_cast<size_t>(t);
        to[first + static_cast<size_t>((t * o.kvHeads + head) * o.headDim + channel)] = {
            values[at], std::abs(values[at] - offset[at]) + std::abs(offset[at])};
      }
    }
  }
}

struct Attention {
  std::vector<double> output, bound; // [headDim]
};

// In double; the bound is that of the roundings of KvAttend.cpp: the scaled query to the operand
// type u, weights to it, f32 in between.
Attention attention(const Sequence &s, const KvCacheOptions &o, const double *query, int64_t head,
                    double u, double decodes) {
  const double single = 0x1p-24, scale = 1 / std::sqrt(static_cast<double>(o.headDim));
  int64_t row = o.kvHeads * o.headDim, tokens = static_cast<int64_t>(s.keys.size()) / row;
  std::vector<double> scores;
  double most = -INFINITY, off = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    double score = 0, sum = 0, elements = 0;
    for (int64_t c = 0; c < o.headDim; ++c) {
      const Stored &key = s.keys[static_cast<size_t>(t * row + head * o.headDim + c)];
      score += scale * query[c] * key.value;
      sum += scale * std::abs(query[c]) * key.magnitude;
      elements += 256 * 0x1p-25; // of a scaled query that is subnormal, times an element
    }
    scores.push_back(score);
    most = std::max(most, score);
    double sums = static_cast<double>(o.headDim + 16) * single;
    off = std::max(off, sum * (u * (1 + decodes) + sums) + (u == 0x1p-11 ? elements : 0));
  }
  double total = 0;
  for (double &score : scores)
    total += score = std::exp(score - most);
  Attention result{std::vector<double>(static_cast<size_t>(o.headDim)),
                   std::vector<double>(static_cast<size_t>(o.headDim))};
  double weights =
      std::expm1(2 * off) + 2 * u + decodes * u + (2 * static_cast<double>(tokens) + 64) * single;
  for (int64_t c = 0; c < o.headDim; ++c) {
    double value = 0, magnitude = 0, largest = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      const Stored &v = s.values[static_cast<size_t>(t * row + head * o.headDim + c)];
      double weight = scores[static_cast<size_t>(t)] / total;
      value += weight * v.value;
      magnitude += weight * v.magnitude;
      largest = std::max(largest, v.magnitude);
    }
    result.output[static_cast<size_t>(c)] = value;
    result.bound[static_cast<size_t>(c)] = magnitude * weights + std::abs(value) * u + 0x1p-25 +
                                           2 * static_cast<double>(tokens) * 0x1p-25 * largest;
  }
  return result;
}

struct Attending {
  Case formats;
  int64_t kvHeads, queryHeads;
  std::vector<int32_t> lengths;
  int64_t parts;
};

const Attending attendings[] = {
    // Whole pages, tails and both; a set of 4 heads.
    {{"kv4", "kv4", ScalarType::F16, 128, 64, "sm_80"}, 2, 8, {1, 63, 64, 65, 300}, 2},
    // No sharing; every page a part.
    {{"kv4", "kv4", ScalarType::F16, 64, 64, "sm_90a"}, 3, 3, {17, 330}, 100},
    // Two sets, the second of 4 heads; the device filled.
    {{"kv8", "kv4_least", ScalarType::F16, 64, 128, "sm_89"}, 1, 12, {128, 700}, 0},
    {{"kv_fp8", "kv_fp4", ScalarType::BF16, 128, 64, "sm_120a"}, 1, 2, {200}, 1},
    {{"kv3", "kv_nf", ScalarType::F16, 128, 64, "sm_80"}, 1, 5, {64, 190}, 1},
    {{"f16", "f16", ScalarType::F16, 128, 32, "sm_86"}, 2, 4, {31, 32, 150}, 1},
    {{"bf16", "kv4", ScalarType::BF16, 64, 64, "sm_80"}, 1, 4, {129}, 1},
    {{"kv4", "kv4", ScalarType::F16, 128, 64, gpu}, 2, 8, {1, 63, 64, 65, 300, 960}, 0},
    {{"f16", "f16", ScalarType::F16, 128, 64, gpu}, 2, 24, {200, 1000}, 3},
    {{"kv_fp8", "kv3", ScalarType::BF16, 64, 64, gpu}, 2, 2, {700}, 4},
};

class KvAttentions : public testing::TestWithParam<Attending> {};

TEST_P(KvAttentions, isThatOfTheStoredNumbers) {
  const Attending &a = GetParam();
  Fixture f = Fixture::make(a.formats.target);
  if (!f.device.valid())
    GTEST_SKIP() << "there is no GPU";
  KvCacheOptions o = optionsFor(a.formats.keys, a.formats.values);
  o.type = a.formats.type;
  o.headDim = a.formats.headDim;
  o.pageTokens = a.formats.pageTokens;
  o.kvHeads = a.kvHeads;
  o.queryHeads = a.queryHeads;
  o.pages = 32;
  Result<KvCache> cache = KvCache::create(f.engine, f.module, o);
  ASSERT_GOOD(cache);
  auto type = ElementType::get(o.type == ScalarType::F16 ? "f16" : "bf16");
  const int64_t row = o.kvHeads * o.headDim, sequences = static_cast<int64_t>(a.lengths.size());
  const compiler::KvLayout &layout = cache->impl().layout;

  // Blocks of all sequences one after the other; page 31 - i holds block i.
  std::vector<KvJob> jobs;
  std::vector<int32_t> table;
  const int64_t columns = *std::max_element(a.lengths.begin(), a.lengths.end()) / o.pageTokens + 1;
  for (int32_t length : a.lengths) {
    for (int64_t i = 0; i < columns; ++i)
      if (i < length / o.pageTokens) {
        auto block = static_cast<int32_t>(jobs.size());
        jobs.push_back({block, 31 - block});
        table.push_back(31 - block);
      } else {
        table.push_back(-1); // never read
      }
  }
  auto numbers =
      static_cast<size_t>(std::max<int64_t>(1, int64_t(jobs.size())) * o.pageTokens * row);
  auto tails = static_cast<size_t>(sequences * o.pageTokens * row);
  Numbers keys(type, numbers, static_cast<size_t>(row), 1),
      values(type, numbers, static_cast<size_t>(row), 2),
      tailKeys(type, tails, static_cast<size_t>(row), 3),
      tailValues(type, tails, static_cast<size_t>(row), 4),
      queries(type, static_cast<size_t>(sequences * o.queryHeads * o.headDim),
              static_cast<size_t>(o.headDim), 5);
  // What lies behind a tail is no number.
  for (int64_t s = 0; s < sequences; ++s)
    for (int64_t t = a.lengths[static_cast<size_t>(s)] % o.pageTokens; t < o.pageTokens; ++t)
      for (int64_t i = 0; i < row; ++i)
        for (Numbers *tail : {&tailKeys, &tailValues})
          tail->codes[static_cast<size_t>((s * o.pageTokens + t) * row + i)] = 0x7fff;
  Buffer keysIn = f.upload(keys), valuesIn = f.upload(values), tailKeysIn = f.upload(tailKeys),
         tailValuesIn = f.upload(tailValues), queriesIn = f.upload(queries);
  if (!jobs.empty()) {
    Result<KvJobs> list = cache->jobs(jobs);
    ASSERT_GOOD(list);
    Status done = cache->quantize(*list, keysIn.address(), valuesIn.address(), row);
    ASSERT_GOOD(done);
  }
  Result<KvBatch> batch = cache->batch(a.lengths, table, columns, a.parts);
  ASSERT_GOOD(batch);
  Numbers got(type, queries.codes.size()), again = got;
  Buffer out = f.upload(got);
  for (Numbers *each : {&got, &again}) {
    Status done = cache->attend(*batch, queriesIn.address(), tailKeysIn.address(),
                                tailValuesIn.address(), out.address());
    ASSERT_GOOD(done);
    ASSERT_TRUE(out.read(each->codes.data(), each->bytes()).ok());
  }
  EXPECT_EQ(got.codes, again.codes);

  double u = o.type == ScalarType::F16 ? 0x1p-11 : 0x1p-8, worst = 0;
  int decodes = std::max(layout.keys.decode.roundings, layout.values.decode.roundings);
  int64_t block = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    Sequence sequence;
    int64_t length = a.lengths[static_cast<size_t>(s)];
    for (int64_t i = 0; i < length / o.pageTokens; ++i, ++block) {
      addPage(sequence.keys, layout.keys.format, o, keys, block);
      addPage(sequence.values, layout.values.format, o, values, block);
    }
    for (int64_t i = 0; i < length % o.pageTokens * row; ++i) {
      double key = tailKeys[s * o.pageTokens * row + i],
             value = tailValues[s * o.pageTokens * row + i];
      sequence.keys.push_back({key, std::abs(key)});
      sequence.values.push_back({value, std::abs(value)});
    }
    for (int64_t head = 0; head < o.queryHeads; ++head) {
      std::vector<double> query;
      int64_t at = (s * o.queryHeads + head) * o.headDim;
      for (int64_t c = 0; c < o.headDim; ++c)
        query.push_back(queries[at + c]);
      Attention expected =
          attention(sequence, o, query.data(), head / (o.queryHeads / o.kvHeads), u, decodes);
      for (int64_t c = 0; c < o.headDim; ++c) {
        auto i = static_cast<size_t>(c);
        double error = std::abs(got[at + c] - expected.output[i]);
        ASSERT_LE(error, expected.bound[i])
            << "sequence " << s << " head " << head << " channel " << c << ": " << got[at + c]
            << " in place of " << expected.output[i];
        worst = std::max(worst, error / expected.bound[i]);
      }
    }
  }
  RecordProperty("worst share of the bound", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(All, KvAttentions, testing::ValuesIn(attendings));

// --- machine code

TEST(KvCacheKernels, ptxasTakesThem) {
  // NOLINTNEXTLINE(bugprone-command-processor): a fixed command
  if (std::system("ptxas --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "there is no ptxas";
  Result<Module> module = Module::parse(declarations);
  ASSERT_GOOD(module);
  const dsl::Format &format = *module->impl().module.findFormat("kv4");
  TemporaryFolder folder;
  for (const std::string target : {"sm_80", "sm_120a"}) {
    auto layout = compiler::kvLayout(format, format, {64, 128, 2, 8, dsl::ElementType::get("f16")});
    ASSERT_GOOD(layout);
    for (const auto &image :
         {compileKvQuantize(layout->keys, target), compileKvDequantize(layout->keys, target),
          compileKvAttend(*layout, target)}) {
      ASSERT_GOOD(image);
      std::string file = folder.path() + "/kernel.ptx";
      writeText(file, image->ptx);
      std::string command = "ptxas --warning-as-error --gpu-name=" + target +
                            " --output-file=" + file + ".cubin " + file;
      // NOLINTNEXTLINE(bugprone-command-processor): the test's own file names
      EXPECT_EQ(std::system(command.c_str()), 0) << image->entry << " " << target;
    }
  }
}

// --- what is refused

std::string messageOf(const Error &error) { return error.str(); }

TEST(KvCacheErrors, formatsThatCannotHoldACache) {
  Fixture f = Fixture::make();
  auto refused = [&](const char *format, const std::string &reason) {
    Result<KvCache> cache = KvCache::create(f.engine, f.module, optionsFor(format, "kv4"));
    ASSERT_FALSE(cache.ok()) << format;
    std::string message = messageOf(cache.error());
    EXPECT_NE(message.find(reason), std::string::npos) << message;
    EXPECT_NE(message.find("[kv_format]"), std::string::npos) << message;
  };
  refused("by_channel", "'scale' is per channel, components of a cache are per k[G]");
  refused("by_8", "'scale' is per k[8], groups of tokens are multiples of 16 that divide the page");
  refused("chosen", "the rule of 'scale' chooses among candidates");
  refused("bounded", "it has a requirement");
  refused("masked", "its value is not linear in the element");
  refused("spare", "its element is remapped");
  refused("f32", "its element f32 has no decode to f16");
  refused("bf16", "its element bf16 has no decode to f16");
  Result<KvCache> cache = KvCache::create(f.engine, f.module, optionsFor("kv4", "kv5"));
  ASSERT_FALSE(cache.ok());
  EXPECT_NE(messageOf(cache.error()).find("no format 'kv5', the module declares kv4, kv4_least"),
            std::string::npos)
      << messageOf(cache.error());
  EXPECT_NE(messageOf(cache.error()).find("[kv_unknown_format]"), std::string::npos);
}

TEST(KvCacheErrors, shapesOutOfRange) {
  Fixture f = Fixture::make();
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
  refused([](Options &o) { o.headDim = 96; }, "the head dimension is 96, kernels have 64 and 128");
  refused([](Options &o) { o.pageTokens = 72; }, "the number of tokens of a page is 72");
  refused([](Options &o) { o.pageTokens = 0; }, "the number of tokens of a page is 0");
  refused([](Options &o) { o.kvHeads = 0; }, "the number of heads of the cache is 0");
  refused([](Options &o) { o.queryHeads = 5; }, "the number of query heads is 5");
  refused([](Options &o) { o.pages = 0; }, "the number of pages is 0");
  refused([](Options &o) { o.type = ScalarType::F32; }, "the type of numbers is f32");
  refused([](Options &o) { o.softmaxScale = NAN; }, "the softmax scale is nan");
  refused([](Options &o) { o.softmaxScale = -1; }, "the softmax scale is -1");
}

TEST(KvCacheErrors, callsOutOfRange) {
  Fixture f = Fixture::make();
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
  expect(cache.jobs(Jobs{{0, 3}, {1, 2}, {2, 3}}),
         "page 3 is written by jobs 0 and 2, a call writes a page once [kv_page_twice]");
  expect(cache.batch(Ints{}, Ints{}, 0), "the number of sequences is 0");
  expect(cache.batch(Ints{5, 0}, Ints{}, 0),
         "sequence 1 has 0 tokens, it has between 1 and 63 [kv_length]");
  expect(cache.batch(Ints{128}, Ints{0}, 1), "sequence 0 has 128 tokens");
  expect(cache.batch(Ints{128}, Ints{0, 8}, 2), "entry 1 of sequence 0 is page 8");
  expect(cache.batch(Ints{128}, Ints{0, 1, 2}, 2),
         "the table has 3 entries, 2 are needed [kv_table_size]");
  expect(cache.batch(Ints{1}, Ints{}, -1), "the number of columns of the table is -1");
  expect(cache.batch(Ints{1}, Ints{}, 0, -1), "the number of parts is -1");

  Result<KvJobs> jobs = cache.jobs(Jobs{{0, 0}});
  ASSERT_GOOD(jobs);
  Result<KvBatch> batch = cache.batch(Ints{1}, Ints{}, 0);
  ASSERT_GOOD(batch);
  Buffer data = std::move(*f.device.allocate(int64_t{1} << 20));
  DevicePointer at = data.address();
  expect(cache.quantize(*jobs, at, at, 254), "the stride of tokens is 254");
  expect(cache.quantize(*jobs, at, at, 257), "the stride of tokens is 257");
  expect(cache.quantize(*jobs, 0, at, 256), "keys is null");
  expect(cache.dequantize(*jobs, at, at + 2, 256), "[misaligned_pointer]");
  expect(cache.attend(*batch, at, at, at, at + 8), "[misaligned_pointer]");
  Result<KvCache> other = KvCache::create(f.engine, f.module, optionsFor("kv4", "kv4"));
  ASSERT_GOOD(other);
  expect(other->quantize(*jobs, at, at, 256),
         "the list of jobs was made for another cache [kv_other_cache]");
  expect(other->attend(*batch, at, at, at, at), "the batch was made for another cache");
  expect(other->attend(KvBatch(), at, at, at, at), "the batch was made for another cache");
  expect(KvCache().attend(*batch, at, at, at, at), "[empty_handle]");
}

} // namespace
} // namespace rho
