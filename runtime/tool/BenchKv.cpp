// rho bench --kv: attention over a paged cache, beside one of plain f16 and the same kernel.
#include "dsl/Findings.h"
#include "runtime/Handles.h"
#include "runtime/KvCache.h"
#include "runtime/tool/Bench.h"
#include "runtime/tool/Csv.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Timing.h"
#include "runtime/tool/Tool.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>

namespace rho::tool {

namespace {

struct Shape {
  int64_t queryHeads, kvHeads, headDim, page;
  std::vector<int32_t> lengths; // of the sequences

  auto batch() const { return static_cast<int64_t>(lengths.size()); }
  int64_t longest() const { return *std::max_element(lengths.begin(), lengths.end()); }
  int64_t shortest() const { return *std::min_element(lengths.begin(), lengths.end()); }
  int64_t tokens() const { return std::reduce(lengths.begin(), lengths.end(), int64_t{0}); }
  int64_t tails() const { // tokens behind the last whole pages
    return std::transform_reduce(lengths.begin(), lengths.end(), int64_t{0}, std::plus<>(),
                                 [this](int32_t length) { return length % page; });
  }
  int64_t pages() const { return (tokens() - tails()) / page; }
};

// Spread evenly, in random order.
std::vector<int32_t> lengthsFrom(int64_t shortest, int64_t longest, int64_t batch, uint64_t seed) {
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < batch; ++i)
    lengths.push_back(
        static_cast<int32_t>(longest - (longest - shortest) * i / std::max<int64_t>(1, batch - 1)));
  std::mt19937_64 random(seed);
  std::shuffle(lengths.begin(), lengths.end(), random);
  return lengths;
}

// A kernel's time, or on an emulated device its instructions.
struct Measured {
  std::optional<GpuTime> time;
  uint64_t threadInstructions = 0;
  int64_t bytes = 0; // that have to be moved
  double rate() const { return time ? gigabytesPerSecond(bytes, time->microseconds) : 0; }
};

struct KvRow {
  std::string keys, values, device, target;
  Shape shape{};
  int64_t parts = 0;
  double bits = 0, bandwidth = 0; // of the device in GB/s
  Measured attend, quantize, dequantize;
  std::optional<double> speedup; // over plain f16
};

std::string number(const Measured &measured, double value) {
  return measured.time ? shortNumber(value) : "";
}
std::string share(const KvRow &row) {
  return row.bandwidth > 0 ? number(row.attend, 100 * row.attend.rate() / row.bandwidth) : "";
}

const std::vector<CsvColumn<KvRow>> &kvColumns() {
  static const std::vector<CsvColumn<KvRow>> all = {
      {"keys", [](const KvRow &row) { return row.keys; }},
      {"values", [](const KvRow &row) { return row.values; }},
      {"device", [](const KvRow &row) { return row.device; }},
      {"target", [](const KvRow &row) { return row.target; }},
      {"batch", [](const KvRow &row) { return std::to_string(row.shape.batch()); }},
      {"length", [](const KvRow &row) { return std::to_string(row.shape.longest()); }},
      {"shortest", [](const KvRow &row) { return std::to_string(row.shape.shortest()); }},
      {"query_heads", [](const KvRow &row) { return std::to_string(row.shape.queryHeads); }},
      {"kv_heads", [](const KvRow &row) { return std::to_string(row.shape.kvHeads); }},
      {"head_dim", [](const KvRow &row) { return std::to_string(row.shape.headDim); }},
      {"page", [](const KvRow &row) { return std::to_string(row.shape.page); }},
      {"parts", [](const KvRow &row) { return std::to_string(row.parts); }},
      {"bits", [](const KvRow &row) { return shortNumber(row.bits); }},
      {"bytes", [](const KvRow &row) { return std::to_string(row.attend.bytes); }},
      {"us",
       [](const KvRow &row) {
         return row.attend.time ? shortNumber(row.attend.time->microseconds) : "";
       }},
      {"us_min",
       [](const KvRow &row) { return row.attend.time ? shortNumber(row.attend.time->least) : ""; }},
      {"us_max",
       [](const KvRow &row) { return row.attend.time ? shortNumber(row.attend.time->most) : ""; }},
      {"gb_per_s", [](const KvRow &row) { return number(row.attend, row.attend.rate()); }},
      {"bandwidth_percent", share},
      {"speedup_over_f16",
       [](const KvRow &row) { return row.speedup ? shortNumber(*row.speedup) : ""; }},
      {"quantize_gb_per_s",
       [](const KvRow &row) { return number(row.quantize, row.quantize.rate()); }},
      {"dequantize_gb_per_s",
       [](const KvRow &row) { return number(row.dequantize, row.dequantize.rate()); }},
      {"emulated_thread_instructions", [](const KvRow &row) {
         return row.attend.time ? "" : std::to_string(row.attend.threadInstructions);
       }}};
  return all;
}

class KvBench {
public:
  KvBench(const Engine &engine, const Module &module, uint64_t seed, int64_t parts)
      : device(engine.device()), backend(*device.impl().backend), engine(engine), module(module),
        random(seed), parts(parts) {}

  Result<KvRow> measure(const std::string &keys, const std::string &values, const Shape &shape) {
    KvCacheOptions options;
    options.keys = keys;
    options.values = values;
    options.headDim = shape.headDim;
    options.kvHeads = shape.kvHeads;
    options.queryHeads = shape.queryHeads;
    options.pageTokens = shape.page;
    const int64_t numbers = 2 * shape.tokens() * shape.kvHeads * shape.headDim;
    const int copies = copiesNeeded(device, numbers / 2); // of 4 bits each
    int64_t pages = shape.pages();
    options.pages = std::max<int64_t>(1, pages * copies);
    Result<KvCache> cache = KvCache::create(engine, module, options);
    if (!cache)
      return cache.error();
    KvRow row;
    row.keys = keys;
    row.values = values;
    row.device = device.name();
    row.target = device.target();
    row.shape = shape;
    row.bits = cache->bitsPerNumber();
    row.bandwidth = backend.model().bandwidthGBs;
    if (Status filled = fill(*cache, options, row); !filled)
      return filled.error();
    if (Status timed = attend(*cache, options, pages, copies, row); !timed)
      return timed.error();
    return row;
  }

private:
  Device device;
  Backend &backend;
  const Engine &engine;
  const Module &module;
  std::mt19937_64 random;
  const int64_t parts;

  Result<Buffer> randomNumbers(int64_t count) {
    constexpr int64_t period = 1 << 20;
    std::normal_distribution<double> normal;
    auto f16 = dsl::ElementType::get("f16");
    std::vector<uint8_t> pattern;
    for (int64_t i = 0; i < std::min(count, period); ++i) {
      uint32_t code = f16.encode(normal(random));
      pattern.push_back(static_cast<uint8_t>(code));
      pattern.push_back(static_cast<uint8_t>(code >> 8));
    }
    return filledBuffer(device, count * 2, pattern);
  }

  Result<Measured> time(int copies, int64_t bytes,
                        const std::function<Status(int copy, Stream stream)> &launch) {
    Measured measured;
    measured.bytes = bytes;
    if (device.isEmulated()) {
      uint64_t before = backend.emulationTotals().threadInstructions;
      if (Status launched = launch(0, nullptr); !launched)
        return launched.error();
      measured.threadInstructions = backend.emulationTotals().threadInstructions - before;
      return measured;
    }
    Result<GpuTime> taken = timeOnGpu(device, copies, launch);
    if (!taken)
      return taken.error();
    measured.time = *taken;
    return measured;
  }

  // Encodes random blocks to all pages, and times both directions on some of them.
  Status fill(const KvCache &cache, const KvCacheOptions &options, KvRow &row) {
    constexpr int64_t mostBlocks = 256, mostJobs = 65535;
    int64_t stride = options.kvHeads * options.headDim, blockNumbers = options.pageTokens * stride;
    int64_t blocks = std::min(options.pages, mostBlocks);
    Result<Buffer> keys = randomNumbers(blocks * blockNumbers);
    if (!keys)
      return keys.error();
    Result<Buffer> values = randomNumbers(blocks * blockNumbers);
    if (!values)
      return values.error();
    auto jobsOf = [&](int64_t first, int64_t last) {
      std::vector<KvJob> jobs;
      for (int64_t page = first; page < last; ++page)
        jobs.push_back({static_cast<int32_t>(page % blocks), static_cast<int32_t>(page)});
      return cache.jobs(jobs);
    };
    for (int64_t first = 0; first < options.pages; first += mostJobs) {
      Result<KvJobs> jobs = jobsOf(first, std::min(options.pages, first + mostJobs));
      if (!jobs)
        return jobs.error();
      if (Status done = cache.quantize(*jobs, keys->address(), values->address(), stride); !done)
        return done;
      if (Status done = device.synchronize(); !done)
        return done;
    }
    Result<KvJobs> some = jobsOf(0, blocks);
    if (!some)
      return some.error();
    int64_t bytes = blocks * (4 * blockNumbers + cache.pageBytes());
    Result<Measured> quantized = time(1, bytes, [&](int, Stream stream) {
      return cache.quantize(*some, keys->address(), values->address(), stride, stream);
    });
    if (!quantized)
      return quantized.error();
    Result<Measured> dequantized = time(1, bytes, [&](int, Stream stream) {
      return cache.dequantize(*some, keys->address(), values->address(), stride, stream);
    });
    if (!dequantized)
      return dequantized.error();
    row.quantize = *quantized;
    row.dequantize = *dequantized;
    return Done{};
  }

  Status attend(const KvCache &cache, const KvCacheOptions &options, int64_t pages, int copies,
                KvRow &row) {
    const Shape &shape = row.shape;
    int64_t stride = options.kvHeads * options.headDim;
    Result<Buffer> queries = randomNumbers(shape.batch() * shape.queryHeads * shape.headDim);
    if (!queries)
      return queries.error();
    // Keys and values of each copy behind those of the last.
    const int64_t tailNumbers = shape.batch() * shape.page * stride;
    const int64_t copiesOfTails = shape.tails() > 0 ? copies : 1;
    Result<Buffer> tails = randomNumbers(copiesOfTails * 2 * tailNumbers);
    if (!tails)
      return tails.error();
    Result<Buffer> output = device.allocate(queries->bytes());
    if (!output)
      return output.error();
    std::vector<KvBatch> batches;
    for (int copy = 0; copy < copies; ++copy) {
      std::vector<int32_t> places(static_cast<size_t>(pages));
      std::iota(places.begin(), places.end(), static_cast<int32_t>(copy * pages));
      std::shuffle(places.begin(), places.end(), random);
      int64_t columns = shape.longest() / shape.page;
      std::vector<int32_t> table(static_cast<size_t>(shape.batch() * columns), -1);
      auto place = places.begin();
      for (int64_t s = 0; s < shape.batch(); ++s) {
        int64_t own = shape.lengths[static_cast<size_t>(s)] / shape.page;
        std::copy_n(place, own, table.begin() + s * columns);
        place += own;
      }
      Result<KvBatch> batch = cache.batch(shape.lengths, table, columns, parts);
      if (!batch)
        return batch.error();
      batches.push_back(*batch);
    }
    row.parts = batches[0].parts();
    int64_t bytes = pages * cache.pageBytes() + shape.tails() * stride * 4 + 2 * queries->bytes();
    Result<Measured> measured = time(copies, bytes, [&](int copy, Stream stream) {
      const int64_t before = 2 * tailNumbers * (copy % copiesOfTails);
      const DevicePointer ownKeys = tails->address() + static_cast<uint64_t>(2 * before),
                          ownValues = ownKeys + static_cast<uint64_t>(2 * tailNumbers);
      return cache.attend(batches[static_cast<size_t>(copy)], queries->address(), ownKeys,
                          ownValues, output->address(), stream);
    });
    if (!measured)
      return measured.error();
    row.attend = *measured;
    return Done{};
  }
};

void print(const KvRow &row) {
  std::string time = row.attend.time
                         ? shortNumber(row.attend.time->microseconds) + " us, " +
                               shortNumber(row.attend.rate()) + " GB/s, " + share(row) +
                               "% of the bandwidth"
                         : std::to_string(row.attend.threadInstructions) + " thread-instructions";
  std::string against = row.speedup ? ", " + shortNumber(*row.speedup) + " x f16" : "";
  std::string lengths = std::to_string(row.shape.longest());
  if (int64_t shortest = row.shape.shortest(); shortest < row.shape.longest())
    lengths = std::to_string(shortest) + " to " + lengths;
  std::printf("%s, %s: batch %lld, length %s, heads %lld x %lld, %s bits: %s%s\n", row.keys.c_str(),
              row.values.c_str(), static_cast<long long>(row.shape.batch()), lengths.c_str(),
              static_cast<long long>(row.shape.queryHeads),
              static_cast<long long>(row.shape.kvHeads), shortNumber(row.bits).c_str(),
              time.c_str(), against.c_str());
  std::fflush(stdout);
}

// Of --heads, --batch, --length and --shortest each with each. Errors: bad_option_value.
Result<std::vector<Shape>> shapesOf(const Options &options, bool emulated, uint64_t seed) {
  constexpr int64_t longest = int64_t{1} << 24, most = 65535;
  std::vector<std::pair<int64_t, int64_t>> heads = options.pairs("--heads");
  if (heads.empty())
    heads = {emulated ? std::pair<int64_t, int64_t>{2, 1} : std::pair<int64_t, int64_t>{32, 8}};
  std::vector<Shape> shapes;
  for (auto [queryHeads, kvHeads] : heads)
    for (int64_t batch : options.counts("--batch", {emulated ? 1 : 64}))
      for (int64_t length : options.counts("--length", {emulated ? 160 : 4096})) {
        for (auto [option, value, limit] :
             {std::tuple{"--batch", batch, most}, {"--length", length, longest}})
          if (value > limit)
            return makeError(DiagId::bad_option_value, {option, std::to_string(value),
                                                        "it is at most " + std::to_string(limit)});
        int64_t shortest = options.count("--shortest").value_or(length);
        if (shortest > length)
          return makeError(DiagId::bad_option_value,
                           {"--shortest", std::to_string(shortest),
                            "it is at most --length, " + std::to_string(length)});
        shapes.push_back({queryHeads, kvHeads, options.count("--head-dim").value_or(128),
                          options.count("--page").value_or(128),
                          lengthsFrom(shortest, length, batch, seed)});
      }
  return shapes;
}

} // namespace

Result<int> kvCommand(const Options &options) {
  Result<std::string> file = options.onlyFile();
  if (!file)
    return file.error();
  const std::string given = options.text("--kv");
  const std::vector<std::string_view> formats = dsl::split(given, ',');
  if (formats.size() > 2)
    return makeError(DiagId::bad_option_value,
                     {"--kv", dsl::shown(given), "one format or two, of keys and of values"});
  Result<Module> module = Module::load(*file);
  if (!module)
    return module.error();
  Result<Device> device = openDevice(options.text("--device", "auto"));
  if (!device)
    return device.error();
  EngineOptions engineOptions;
  engineOptions.diskCache = false;
  Result<Engine> engine = Engine::create(*device, engineOptions);
  if (!engine)
    return engine.error();
  const std::string keys(formats.front()), values(formats.back());
  const auto seed = static_cast<uint64_t>(options.count("--seed").value_or(1));
  Result<std::vector<Shape>> shapes = shapesOf(options, device->isEmulated(), seed);
  if (!shapes)
    return shapes.error();
  KvBench bench(*engine, *module, seed, options.count("--parts").value_or(0));
  std::vector<KvRow> rows;
  int code = success;
  for (const Shape &shape : *shapes) {
    std::optional<double> plain;
    for (const auto &[k, v] : {std::pair<std::string, std::string>{"f16", "f16"}, {keys, values}}) {
      Result<KvRow> row = bench.measure(k, v, shape);
      if (!row) { // what was measured before is kept
        std::fputs(row.error().str().c_str(), stderr);
        code = failure;
        continue;
      }
      if (row->attend.time && plain)
        row->speedup = *plain / row->attend.time->microseconds;
      else if (row->attend.time)
        plain = row->attend.time->microseconds;
      print(*row);
      rows.push_back(std::move(*row));
    }
  }
  if (options.has("--csv"))
    if (Status written = writeText(options.text("--csv"), csv(kvColumns(), rows)); !written)
      return written.error();
  return code;
}

} // namespace rho::tool
