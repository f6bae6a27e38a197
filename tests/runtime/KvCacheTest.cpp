// The paged cache on the emulator: against dsl::quantize bit for bit, and against attention in
// double within a bound that follows from the roundings of the kernels.
#include "runtime/KvCache.h"

#include "dsl/Quantize.h"
#include "runtime/Handles.h"
#include "runtime/KvCacheImpl.h"
#include "tests/dsl/Names.h"
#include "tests/runtime/KvFixture.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace rho {
namespace {

using dsl::ElementType;
using Fixture = KvFixture;
using Numbers = KvNumbers;

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

// It as bytes of a page: where they lie is what compiler::KvTensor says.
std::vector<uint8_t> packed(const compiler::KvTensor &tensor, const dsl::QuantizedMatrix &head) {
  std::vector<uint8_t> bytes(static_cast<size_t>(tensor.headBytes()));
  const compiler::DecodeSequence &decode = tensor.decode;
  auto unit = static_cast<int64_t>(decode.registers());
  for (int64_t s = 0; s < tensor.steps(); ++s)
    for (int64_t lane = 0; lane < 32; ++lane)
      for (int64_t r = 0; r < tensor.registers(); ++r)
        for (int64_t half = 0; half < 2; ++half) {
          const compiler::KvTensor::Place at = tensor.place(r, half, lane);
          uint32_t code = decode.stored(head.components[0].get(
              at.channel * tensor.shape.pageTokens + s * tensor.step + at.token));
          const std::vector<compiler::CodeBit> &bits =
              decode.bits[static_cast<size_t>(r % unit)][static_cast<size_t>(half)];
          for (size_t b = 0; b < bits.size(); ++b) {
            int64_t word = r / unit * decode.program.words() + bits[b].word;
            int64_t byte = s * tensor.stepBytes() + (word / 4 * 32 + lane) * 16 + word % 4 * 4 +
                           bits[b].bit / 8;
            bytes[static_cast<size_t>(byte)] |=
                static_cast<uint8_t>((code >> b & 1) << (bits[b].bit % 8));
          }
        }
  for (int i = 1; i < static_cast<int>(tensor.format.components.size()); ++i) {
    int64_t groups = tensor.shape.pageTokens / tensor.component(i).group,
            width = tensor.componentBytes(i);
    for (int64_t group = 0; group < groups; ++group)
      for (int64_t channel = 0; channel < tensor.shape.headDim; ++channel) {
        uint32_t code = head.components[static_cast<size_t>(i)].get(channel * groups + group);
        int64_t at = tensor.componentOffset(i) +
                     (group * tensor.shape.headDim + tensor.channelPlace(channel)) * width;
        std::memcpy(bytes.data() + at, &code, static_cast<size_t>(width)); // little endian
      }
  }
  return bytes;
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
    {"kv_bare", "kv_wide_exponent", ScalarType::BF16, 64, 32, "sm_80"},
    {"kv_wide_exponent", "kv_bare", ScalarType::F16, 64, 32, "sm_90a"},
    {"kv_halves", "kv_halves", ScalarType::F16, 64, 32, "sm_80"},
    {"kv4", "kv4_least", ScalarType::F16, 128, 64, gpu},
    {"kv_bare", "kv_wide_exponent", ScalarType::BF16, 128, 64, gpu},
    {"kv_fp8", "kv_fp4", ScalarType::BF16, 64, 64, gpu},
};

KvCacheOptions optionsOf(const Case &c) {
  KvCacheOptions options = rho::optionsFor(c.keys, c.values);
  options.type = c.type;
  options.headDim = c.headDim;
  options.pageTokens = c.pageTokens;
  return options;
}
ElementType typeOf(const KvCacheOptions &options) {
  return ElementType::get(options.type == ScalarType::F16 ? "f16" : "bf16");
}

std::string nameOf(const Case &c) {
  return test::testName(std::string(c.keys) + "_" + c.values + "_" +
                        (c.type == ScalarType::F16 ? "f16" : "bf16") + "_head" +
                        std::to_string(c.headDim) + "_page" + std::to_string(c.pageTokens) + "_" +
                        std::string(c.target));
}

class KvCaches : public testing::TestWithParam<Case> {};

TEST_P(KvCaches, quantizeIsThatOfTheHostAndDequantizeTheFormatsNumbers) {
  Case c = GetParam();
  Fixture f = Fixture::make(c.target);
  if (!f.device.valid())
    GTEST_SKIP() << "there is no GPU";
  KvCacheOptions o = optionsOf(c);
  o.pages = 3;
  Result<KvCache> cache = KvCache::create(f.engine, f.module, o);
  ASSERT_GOOD(cache);
  const ElementType type = typeOf(o);
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
      // A scale below what an f16 holds.
      numbers->codes[static_cast<size_t>(t * stride + 7)] =
          static_cast<uint16_t>(type.encode(static_cast<double>(t % 9 - 4) * 2e-6));
    }
    // In another block what is not finite.
    const size_t block = static_cast<size_t>(o.pageTokens * stride);
    for (auto [at, number] : {std::pair<int64_t, double>{2, NAN}, {6, INFINITY}, {8, -INFINITY}})
      numbers->codes[block + static_cast<size_t>(stride * at + at)] =
          static_cast<uint16_t>(type.encode(number));
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
        ASSERT_EQ(bytes, packed(tensor, expected)) << isKeys << " page " << job.page;
        double roundings = 4 * 0x1p-23 + tensor.decode.roundings * 0x1p-8;
        for (int64_t channel = 0; channel < o.headDim; ++channel) {
          std::vector<double> numbers = expected.rowValues(channel),
                              magnitudes = expected.rowMagnitudes(channel);
          for (int64_t t = 0; t < o.pageTokens; ++t) {
            double value = numbers[static_cast<size_t>(t)];
            double got =
                back[((job.block * o.pageTokens + t) * o.kvHeads + head) * o.headDim + channel];
            // Beside an infinity a product of scales may be beyond f32, and 0 times it NaN.
            const bool beyond =
                std::isnan(value) ||
                (job.block == 1 && (value == 0 || std::abs(value) > type.maxFinite()));
            if ((beyond && !std::isfinite(got)) || value == got)
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

INSTANTIATE_TEST_SUITE_P(All, KvCaches, testing::ValuesIn(cases),
                         [](const auto &info) { return nameOf(info.param); });

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
    // As many items as lanes, of which one stores a head's weights as well.
    {{"kv4", "kv4", ScalarType::F16, 128, 64, "sm_80"}, 1, 1, {400, 130}, 3},
    // Steps of which a CTA of that target has room for one.
    {{"kv_wide", "kv_wide", ScalarType::F16, 128, 64, "sm_89"}, 1, 4, {40, 600}, 2},
    // More parts than are added at a time.
    {{"kv4", "kv4", ScalarType::F16, 64, 64, "sm_90a"}, 1, 2, {1200, 700}, 100},
    // Four pages in four parts, where the table has room for five, which were three parts.
    {{"kv4", "kv4", ScalarType::F16, 64, 64, "sm_86"}, 1, 2, {257}, 4},
    // Two sets, the second of 4 heads; the device filled.
    {{"kv8", "kv4_least", ScalarType::F16, 64, 128, "sm_89"}, 1, 12, {128, 700}, 0},
    {{"kv_fp8", "kv_fp4", ScalarType::BF16, 128, 64, "sm_120a"}, 1, 2, {200}, 1},
    {{"kv3", "kv_nf", ScalarType::F16, 128, 64, "sm_80"}, 1, 5, {64, 190}, 1},
    {{"f16", "f16", ScalarType::F16, 128, 32, "sm_86"}, 2, 4, {31, 32, 150}, 1},
    {{"bf16", "kv4", ScalarType::BF16, 64, 64, "sm_80"}, 1, 4, {129}, 1},
    {{"kv4", "kv4", ScalarType::F16, 128, 64, gpu}, 2, 8, {1, 63, 64, 65, 300, 960}, 0},
    {{"f16", "f16", ScalarType::F16, 128, 64, gpu}, 2, 24, {200, 1000}, 3},
    {{"kv_fp8", "kv3", ScalarType::BF16, 128, 64, gpu}, 2, 2, {700}, 4},
};

class KvAttentions : public testing::TestWithParam<Attending> {};

TEST_P(KvAttentions, isThatOfTheStoredNumbers) {
  const Attending &a = GetParam();
  Fixture f = Fixture::make(a.formats.target);
  if (!f.device.valid())
    GTEST_SKIP() << "there is no GPU";
  KvCacheOptions o = optionsOf(a.formats);
  o.kvHeads = a.kvHeads;
  o.queryHeads = a.queryHeads;
  o.pages = 32;
  Result<KvCache> cache = KvCache::create(f.engine, f.module, o);
  ASSERT_GOOD(cache);
  const ElementType type = typeOf(o);
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
  for (Numbers *each : {&got, &again}) { // of which the second finds nothing of the first
    std::fill(each->codes.begin(), each->codes.end(), uint16_t(0xffff));
    ASSERT_TRUE(out.write(each->codes.data(), each->bytes()).ok());
    Status done = cache->attend(*batch, queriesIn.address(), tailKeysIn.address(),
                                tailValuesIn.address(), out.address());
    ASSERT_GOOD(done);
    ASSERT_TRUE(out.read(each->codes.data(), each->bytes()).ok());
  }
  EXPECT_EQ(got.codes, again.codes);
  // A batch of short sequences that becomes this one.
  std::vector<int32_t> ones(a.lengths.size(), 1);
  Result<KvBatch> grown = cache->batch(ones, table, columns, a.parts);
  ASSERT_GOOD(grown);
  Status updated = cache->update(*grown, a.lengths, table);
  ASSERT_GOOD(updated);
  Numbers afterUpdate(type, got.codes.size());
  Buffer outAfter = f.upload(afterUpdate);
  updated = cache->attend(*grown, queriesIn.address(), tailKeysIn.address(), tailValuesIn.address(),
                          outAfter.address());
  ASSERT_GOOD(updated);
  ASSERT_TRUE(outAfter.read(afterUpdate.codes.data(), afterUpdate.bytes()).ok());
  if (a.parts > 0) { // then the same ones
    EXPECT_EQ(grown->parts(), batch->parts());
    EXPECT_EQ(afterUpdate.codes, got.codes);
  }

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
        ASSERT_LE(std::abs(afterUpdate[at + c] - expected.output[i]), expected.bound[i]);
        ASSERT_LE(error, expected.bound[i])
            << "sequence " << s << " head " << head << " channel " << c << ": " << got[at + c]
            << " in place of " << expected.output[i];
        worst = std::max(worst, error / expected.bound[i]);
      }
    }
  }
  RecordProperty("worst share of the bound", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(All, KvAttentions, testing::ValuesIn(attendings), [](const auto &info) {
  const Attending &a = info.param;
  return nameOf(a.formats) + "_heads" + std::to_string(a.queryHeads) + "to" +
         std::to_string(a.kvHeads);
});

// --- machine code

TEST(KvCacheKernels, ptxasTakesThem) {
  // NOLINTNEXTLINE(bugprone-command-processor): a fixed command
  if (std::system("ptxas --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "there is no ptxas";
  Result<Module> module = Module::parse(kvDeclarations);
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

} // namespace
} // namespace rho
