#include "runtime/KvCache.h"

#include "dsl/Division.h"
#include "dsl/Findings.h"
#include "dsl/Numbers.h"
#include "runtime/EngineImpl.h"
#include "runtime/KvCacheImpl.h"
#include "runtime/Misfit.h"
#include "runtime/Scalar.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <unordered_map>

namespace rho {
namespace {

using compiler::KvPart;

constexpr int64_t mostSequences = 65535;
constexpr int64_t mostPages = int64_t{1} << 30;

Error badShape(const std::string &what, int64_t value, const std::string &rule) {
  return makeError(DiagId::kv_shape, {what, std::to_string(value), rule});
}

Result<dsl::Format> findFormat(const dsl::Module &module, const std::string &name,
                               dsl::ElementType plain) {
  if (dsl::isPlainType(name))
    return dsl::plainFormat(dsl::ElementType::get(name));
  if (const dsl::Format *format = module.findFormat(name))
    return *format;
  std::vector<std::string> names = {std::string(plain.name())};
  for (const dsl::Format &format : module.formats)
    names.push_back(format.name);
  const auto withoutValue = name.empty() ? std::nullopt : module.whyNoneOf("format", name);
  return withoutValue.value_or(
      makeError(DiagId::kv_unknown_format, {dsl::shown(name), dsl::listed(name, names)}));
}

using Tensors = std::vector<const compiler::KvTensor *>;

// All that a kernel over these tensors depends on but the device.
std::vector<std::string> contentOf(const std::string &kernel, const Tensors &tensors) {
  std::vector<std::string> content = {"kv", kernel};
  for (const compiler::KvTensor *tensor : tensors) {
    const compiler::KvShape &shape = tensor->shape;
    content.push_back(print(tensor->format));
    for (int64_t extent :
         {tensor->step, shape.pageTokens, shape.headDim, shape.kvHeads, shape.queryHeads})
      content.push_back(std::to_string(extent));
    content.emplace_back(shape.type.name());
  }
  return content;
}

Status makeKernels(Engine::Impl &engine, KvCache::Impl &cache) {
  const compiler::KvTensor &keys = cache.layout.keys, &values = cache.layout.values;
  const compiler::KvShape &shape = cache.layout.shape;
  const std::string &target = engine.backend->model().target;
  const std::string problem =
      "page " + std::to_string(shape.pageTokens) + ", head " + std::to_string(shape.headDim) +
      ", heads " + std::to_string(shape.queryHeads) + " to " + std::to_string(shape.kvHeads);
  auto make = [&](std::shared_ptr<const Kernel> &kernel, const std::string &name,
                  const Tensors &tensors, const auto &compile) -> Status {
    WantedKernel wanted;
    wanted.key = engine.kernelKey(contentOf(name, tensors), target);
    wanted.label = {.kind = EntryKind::Kernel,
                    .name = name + ": " + tensors.front()->format.name,
                    .problem = problem};
    if (tensors.size() > 1)
      wanted.label.name += ", " + tensors.back()->format.name;
    wanted.misfit = misfitOfPlain;
    wanted.compile = [&](CompileReport &) { return compile(); };
    auto made = engine.kernel(wanted, cache.reports.emplace_back());
    if (!made)
      return made.error();
    kernel = std::move(*made);
    return Done{};
  };
  Status made = make(cache.quantizeKeys, "quantize keys", {&keys},
                     [&] { return compileKvQuantize(keys, target); });
  if (made)
    made = make(cache.quantizeValues, "quantize values", {&values},
                [&] { return compileKvQuantize(values, target); });
  if (made)
    made = make(cache.dequantizeKeys, "dequantize keys", {&keys},
                [&] { return compileKvDequantize(keys, target); });
  if (made)
    made = make(cache.dequantizeValues, "dequantize values", {&values},
                [&] { return compileKvDequantize(values, target); });
  if (made)
    made = make(cache.attend, "attend", {&keys, &values},
                [&] { return compileKvAttend(cache.layout, target); });
  return made;
}

Status checkOnce(const char *kind, const std::optional<KvJobs::Impl::Twice> &twice) {
  if (!twice)
    return Done{};
  return makeError(DiagId::kv_written_twice,
                   {kind, std::to_string(twice->what), std::to_string(twice->first),
                    std::to_string(twice->second)});
}

constexpr int64_t mostNumbers = int64_t{1} << 48; // of the caller, in memory

// Whether the keys and the values of any tokens of the blocks share memory. Both begin `distance`
// numbers apart, and have `row` numbers every `stride`: a key's row meets the value's that is as
// many tokens away as whole strides lie between, or one more.
bool shareMemory(const std::unordered_set<int32_t> &blocks, int64_t distance, int64_t row,
                 int64_t stride, int64_t pageTokens) {
  auto areApart = [&](int64_t tokens) { // two tokens of the blocks
    return std::any_of(blocks.begin(), blocks.end(), [&](int32_t block) {
      const int64_t other = block + tokens / pageTokens;
      auto has = [&](int64_t which) {
        return which <= INT32_MAX && blocks.contains(static_cast<int32_t>(which));
      };
      return has(other) || (tokens % pageTokens != 0 && has(other + 1));
    });
  };
  const int64_t apart = distance / stride, beside = distance % stride;
  return (beside < row && areApart(apart)) || (stride - beside < row && areApart(apart + 1));
}

// Errors: null_pointer, misaligned_pointer, kv_shape.
Status checkBlocks(const compiler::KvShape &shape, const KvJobs::Impl &jobs, DevicePointer keys,
                   DevicePointer values, int64_t stride) {
  if (Status good = checkPointer(keys, "keys", dataAlignment); !good)
    return good;
  if (Status good = checkPointer(values, "values", dataAlignment); !good)
    return good;
  if (int64_t row = shape.kvHeads * shape.headDim;
      stride < row || stride % 2 != 0 || stride > mostStride)
    return badShape("the stride of tokens", stride,
                    "it is even, at least the " + std::to_string(row) +
                        " numbers of a token and at most 2^32");
  const int64_t last = *std::max_element(jobs.blocks.begin(), jobs.blocks.end());
  if (int64_t most = mostNumbers / (shape.pageTokens * stride); last >= most)
    return badShape("a block", last,
                    "with this stride there are addresses for " + std::to_string(most));
  return Done{};
}

// Blocks of the caller to pages or back, keys and values.
Status moveBlocks(const KvCache::Impl &cache, const KvJobs::Impl &jobs, const Kernel &keyKernel,
                  const Kernel &valueKernel, DevicePointer keys, DevicePointer values,
                  int64_t stride, Stream stream) {
  const compiler::KvShape &shape = cache.layout.shape;
  auto launch = [&](const Kernel &kernel, const Buffer &pages, DevicePointer outside) {
    DevicePointer page = pages.address(), list = jobs.jobs.address();
    const LaunchArgument arguments[] = {{&page, 8}, {&outside, 8}, {&list, 8}, {&stride, 8}};
    LaunchShape grid;
    grid.grid = {static_cast<uint32_t>(shape.kvHeads), static_cast<uint32_t>(jobs.count), 1};
    return cache.backend->launch(*kernel.loaded, grid, arguments, stream);
  };
  if (Status launched = launch(keyKernel, cache.keys, keys); !launched)
    return launched;
  return launch(valueKernel, cache.values, values);
}

// The whole pages of each sequence. Errors: kv_table_size, kv_length, kv_page.
Result<std::vector<int64_t>> checkSequences(const KvCache::Impl &cache,
                                            std::span<const int32_t> lengths,
                                            std::span<const int32_t> table, int64_t columns) {
  const int64_t pageTokens = cache.layout.shape.pageTokens;
  auto sequences = static_cast<int64_t>(lengths.size());
  if (static_cast<int64_t>(table.size()) != sequences * columns)
    return makeError(DiagId::kv_table_size, {"the table", std::to_string(table.size()),
                                             std::to_string(sequences * columns)});
  int64_t most = std::min<int64_t>(INT32_MAX, (columns + 1) * pageTokens - 1);
  std::vector<int64_t> pages;
  for (int64_t s = 0; s < sequences; ++s) {
    int32_t length = lengths[static_cast<size_t>(s)];
    if (length < 0 || length > most)
      return makeError(DiagId::kv_length,
                       {std::to_string(s), std::to_string(length), std::to_string(most)});
    int64_t own = length / pageTokens;
    pages.push_back(own);
    for (int64_t i = 0; i < own; ++i)
      if (int32_t page = table[static_cast<size_t>(s * columns + i)];
          page < 0 || page >= cache.options.pages)
        return makeError(DiagId::kv_page,
                         {"entry " + std::to_string(i) + " of sequence " + std::to_string(s),
                          std::to_string(page), std::to_string(cache.options.pages)});
  }
  return pages;
}

// Pages of a part. `asked`: parts of the longest sequence; 0: as is predicted fastest.
int64_t partPagesOf(const KvCache::Impl &cache, std::span<const int64_t> pages, int64_t asked,
                    int64_t mostItems) {
  if (asked > 0)
    return std::max<int64_t>(1, divideUp(*std::max_element(pages.begin(), pages.end()), asked));
  return compiler::kvPartPages(cache.layout, pages, mostItems, cache.attend->image.sharedBytes,
                               cache.backend->model());
}

// Items of these sequences, and of as many with any pages that the table allows: where parts are
// asked for all of those, else of the longest.
int64_t roomFor(const KvCache::Impl &cache, const std::vector<int64_t> &pages, int64_t columns,
                int64_t asked) {
  auto sequences = static_cast<int64_t>(pages.size());
  if (int64_t parts = std::min(asked, columns); asked > 0)
    return sequences * (parts > 1 ? parts + 1 : 1);
  int64_t most = 0;
  for (const std::vector<int64_t> &some : {pages, std::vector<int64_t>(pages.size(), columns)})
    most = std::max(most, compiler::kvMostItems(some, partPagesOf(cache, some, 0, INT32_MAX)));
  return most;
}

// Of the sequence that has most.
int64_t partsOf(const std::vector<compiler::KvItem> &items) {
  int64_t most = 1;
  for (const compiler::KvItem &item : items)
    most = std::max<int64_t>(most, item.parts);
  return most;
}

// As many as the batch has room for: CTAs of those behind the sequences' do nothing.
std::vector<compiler::KvItem> itemsOf(const KvCache::Impl &cache, const KvBatch::Impl &batch,
                                      std::span<const int32_t> lengths,
                                      std::span<const int64_t> pages) {
  std::vector<compiler::KvItem> items = compiler::kvItems(
      cache.layout.shape, lengths, partPagesOf(cache, pages, batch.asked, batch.mostItems));
  items.resize(static_cast<size_t>(batch.mostItems));
  return items;
}

} // namespace

Result<KvCache> KvCache::create(const Engine &engine, const Module &module,
                                const KvCacheOptions &options) {
  if (Status valid = checkHandle(engine, "engine"); !valid)
    return valid.error();
  if (Status valid = checkHandle(module, "module"); !valid)
    return valid.error();
  if (Status good = checkScalarType(options.type); !good)
    return good.error();
  if (options.type == ScalarType::F32)
    return makeError(DiagId::kv_shape, {"the type of numbers", "f32", "kernels have f16 and bf16"});
  if (options.pages < 1 || options.pages > mostPages)
    return badShape("the number of pages", options.pages,
                    "it is between 1 and " + std::to_string(mostPages));
  if (options.softmaxScale != 0 && !(options.softmaxScale >= 1e-30 && options.softmaxScale <= 1e6))
    return makeError(DiagId::kv_shape, {"the softmax scale", dsl::printNumber(options.softmaxScale),
                                        "it is between 1e-30 and 1e6"});
  const dsl::Module &declared = module.impl().module;
  auto type = dsl::ElementType::get(options.type == ScalarType::F16 ? "f16" : "bf16");
  Result<dsl::Format> keys = findFormat(declared, options.keys, type);
  if (!keys)
    return keys.error();
  Result<dsl::Format> values = findFormat(declared, options.values, type);
  if (!values)
    return values.error();
  Result<compiler::KvLayout> layout = onHost([&] {
    return compiler::kvLayout(
        *keys, *values,
        {options.pageTokens, options.headDim, options.kvHeads, options.queryHeads, type});
  });
  if (!layout)
    return layout.error();
  auto impl = std::make_shared<Impl>();
  impl->device = engine.device();
  impl->backend = engine.impl().backend;
  impl->options = options;
  impl->layout = std::move(*layout);
  Status made = onHost([&] {
    double scale = options.softmaxScale == 0 ? 1 / std::sqrt(static_cast<double>(options.headDim))
                                             : options.softmaxScale;
    impl->scoreScale = static_cast<float>(scale * std::numbers::log2e);
    return makeKernels(engine.impl(), *impl);
  });
  if (!made)
    return made.error();
  for (auto [buffer, part] :
       {std::pair{&impl->keys, KvPart::Keys}, {&impl->values, KvPart::Values}}) {
    Result<Buffer> pages = impl->device.allocate(options.pages * impl->layout.of(part).pageBytes());
    if (!pages)
      return pages.error();
    *buffer = std::move(*pages);
  }
  KvCache cache;
  cache.pimpl = std::move(impl);
  return cache;
}

const std::vector<CompileReport> &KvCache::reports() const {
  static const std::vector<CompileReport> none;
  return pimpl ? pimpl->reports : none;
}

int64_t KvCache::pageBytes() const {
  return pimpl ? pimpl->layout.keys.pageBytes() + pimpl->layout.values.pageBytes() : 0;
}
double KvCache::bitsPerNumber() const {
  return pimpl ? (pimpl->layout.keys.bitsPerNumber() + pimpl->layout.values.bitsPerNumber()) / 2
               : 0;
}

Result<KvJobs> KvCache::jobs(std::span<const KvJob> jobs) const {
  if (Status valid = checkHandle(*this, "cache"); !valid)
    return valid.error();
  return onHost([&]() -> Result<KvJobs> {
    auto count = static_cast<int64_t>(jobs.size());
    if (count < 1 || count > mostGridRows)
      return badShape("the number of jobs", count,
                      "it is between 1 and " + std::to_string(mostGridRows));
    std::unordered_map<int32_t, size_t> ofPage, ofBlock;
    std::optional<KvJobs::Impl::Twice> page, block;
    std::vector<int32_t> numbers;
    std::unordered_set<int32_t> blocks;
    for (size_t i = 0; i < jobs.size(); ++i) {
      const KvJob &job = jobs[i];
      if (job.block < 0)
        return badShape("the block of job " + std::to_string(i), job.block, "it is at least 0");
      if (job.page < 0 || job.page >= pimpl->options.pages)
        return makeError(DiagId::kv_page,
                         {"that of job " + std::to_string(i), std::to_string(job.page),
                          std::to_string(pimpl->options.pages)});
      for (auto [known, what, twice] :
           {std::tuple{&ofPage, job.page, &page}, {&ofBlock, job.block, &block}})
        if (auto [first, isNew] = known->try_emplace(what, i); !isNew && !*twice)
          *twice = {what, first->second, i};
      numbers.insert(numbers.end(), {job.block, job.page});
      blocks.insert(job.block);
    }
    Result<Buffer> buffer = upload(pimpl->device, numbers);
    if (!buffer)
      return buffer.error();
    KvJobs result;
    result.pimpl = std::make_shared<KvJobs::Impl>(
        KvJobs::Impl{{pimpl->backend, pimpl->layout.shape, pimpl->options.pages},
                     std::move(*buffer),
                     count,
                     std::move(blocks),
                     page,
                     block});
    return result;
  });
}

template <class Own> Status KvCache::checkOwn(const Own &own, const char *what) const {
  if (Status valid = checkHandle(*this, "cache"); !valid)
    return valid;
  if (Status valid = checkHandle(own, what); !valid)
    return valid;
  const auto &[backend, shape, pages] = own.pimpl->cache;
  if (backend == pimpl->backend && shape == pimpl->layout.shape && pages <= pimpl->options.pages)
    return Done{};
  const std::string of = std::to_string(pages) + " pages of " + std::to_string(shape.pageTokens) +
                         " tokens, " + std::to_string(shape.queryHeads) + " heads to " +
                         std::to_string(shape.kvHeads) + " of " + std::to_string(shape.headDim) +
                         ", " + std::string(shape.type.name());
  return makeError(DiagId::kv_other_cache, {std::string("the ") + what + " (" + of + ")"});
}

Status KvCache::quantize(const KvJobs &jobs, DevicePointer keys, DevicePointer values,
                         int64_t stride, Stream stream) const {
  if (Status own = checkOwn(jobs, "list of jobs"); !own)
    return own;
  if (Status once = checkOnce("page", jobs.pimpl->page); !once)
    return once;
  if (Status good = checkBlocks(pimpl->layout.shape, *jobs.pimpl, keys, values, stride); !good)
    return good;
  return moveBlocks(*pimpl, *jobs.pimpl, *pimpl->quantizeKeys, *pimpl->quantizeValues, keys, values,
                    stride, stream);
}

Status KvCache::dequantize(const KvJobs &jobs, DevicePointer keys, DevicePointer values,
                           int64_t stride, Stream stream) const {
  if (Status own = checkOwn(jobs, "list of jobs"); !own)
    return own;
  if (Status once = checkOnce("block", jobs.pimpl->block); !once)
    return once;
  const compiler::KvShape &shape = pimpl->layout.shape;
  if (Status good = checkBlocks(shape, *jobs.pimpl, keys, values, stride); !good)
    return good;
  const auto distance = static_cast<int64_t>((std::max(keys, values) - std::min(keys, values)) / 2);
  if (shareMemory(jobs.pimpl->blocks, distance, shape.kvHeads * shape.headDim, stride,
                  shape.pageTokens))
    return makeError(DiagId::buffers_overlap, {"values", "keys"});
  return moveBlocks(*pimpl, *jobs.pimpl, *pimpl->dequantizeKeys, *pimpl->dequantizeValues, keys,
                    values, stride, stream);
}

int64_t KvBatch::parts() const { return pimpl ? pimpl->parts : 0; }

Result<KvBatch> KvCache::batch(std::span<const int32_t> lengths, std::span<const int32_t> table,
                               int64_t columns, int64_t parts) const {
  if (Status valid = checkHandle(*this, "cache"); !valid)
    return valid.error();
  return onHost([&]() -> Result<KvBatch> {
    const compiler::KvShape &shape = pimpl->layout.shape;
    auto sequences = static_cast<int64_t>(lengths.size());
    constexpr int64_t mostColumns = int64_t{1} << 24, mostParts = 65535;
    if (sequences < 1 || sequences > mostSequences)
      return badShape("the number of sequences", sequences,
                      "it is between 1 and " + std::to_string(mostSequences));
    if (columns < 0 || columns > mostColumns || sequences * columns > INT32_MAX)
      return badShape("the number of columns of the table", columns,
                      "it is between 0 and " +
                          std::to_string(std::min<int64_t>(mostColumns, INT32_MAX / sequences)));
    if (parts < 0 || parts > mostParts)
      return badShape("the number of parts", parts,
                      "it is between 0 and " + std::to_string(mostParts));
    Result<std::vector<int64_t>> pages = checkSequences(*pimpl, lengths, table, columns);
    if (!pages)
      return pages.error();
    auto impl = std::make_shared<KvBatch::Impl>();
    impl->cache = {pimpl->backend, shape, pimpl->options.pages};
    impl->sequences = sequences;
    impl->columns = columns;
    impl->asked = parts;
    impl->mostItems = roomFor(*pimpl, *pages, columns, parts);
    constexpr int64_t mostItems = int64_t{1} << 22;
    if (int64_t heads = shape.kvHeads * shape.headSets();
        impl->mostItems > std::min(mostItems, INT32_MAX / heads))
      return badShape("the number of parts of all sequences", impl->mostItems,
                      "it is at most " + std::to_string(std::min(mostItems, INT32_MAX / heads)));
    const std::vector<compiler::KvItem> divided = itemsOf(*pimpl, *impl, lengths, *pages);
    impl->parts = partsOf(divided);
    Result<Buffer> items = upload(pimpl->device, divided);
    if (!items)
      return items.error();
    Result<Buffer> tableOnDevice = upload(pimpl->device, table);
    if (!tableOnDevice)
      return tableOnDevice.error();
    Result<Buffer> workspace =
        pimpl->device.allocate(compiler::kvWorkspaceBytes(shape, impl->mostItems));
    if (!workspace)
      return workspace.error();
    impl->items = std::move(*items);
    impl->table = std::move(*tableOnDevice);
    impl->workspace = std::move(*workspace);
    KvBatch batch;
    batch.pimpl = std::move(impl);
    return batch;
  });
}

Status
KvCache::updateBy(const KvBatch &batch, std::span<const int32_t> lengths,
                  std::span<const int32_t> table,
                  const std::function<Status(Buffer &, const void *, int64_t)> &write) const {
  if (Status own = checkOwn(batch, "batch"); !own)
    return own;
  return onHost([&]() -> Status {
    KvBatch::Impl &b = *batch.pimpl;
    if (static_cast<int64_t>(lengths.size()) != b.sequences)
      return makeError(
          DiagId::kv_table_size,
          {"the list of lengths", std::to_string(lengths.size()), std::to_string(b.sequences)});
    Result<std::vector<int64_t>> pages = checkSequences(*pimpl, lengths, table, b.columns);
    if (!pages)
      return pages.error();
    const std::vector<compiler::KvItem> items = itemsOf(*pimpl, b, lengths, *pages);
    Status written = write(b.items, items.data(), std::span(items).size_bytes());
    if (written && !table.empty())
      written = write(b.table, table.data(), b.sequences * b.columns * 4);
    if (written)
      b.parts = partsOf(items);
    return written;
  });
}

Status KvCache::update(const KvBatch &batch, std::span<const int32_t> lengths,
                       std::span<const int32_t> table) const {
  return updateBy(batch, lengths, table, [](Buffer &to, const void *from, int64_t bytes) {
    return to.write(from, bytes);
  });
}

Status KvCache::update(const KvBatch &batch, std::span<const int32_t> lengths,
                       std::span<const int32_t> table, Stream stream) const {
  return updateBy(batch, lengths, table, [&](Buffer &to, const void *from, int64_t bytes) {
    return pimpl->backend->writeInOrder(to.address(), from, bytes, stream);
  });
}

Status KvCache::attend(const KvBatch &batch, DevicePointer queries, DevicePointer tailKeys,
                       DevicePointer tailValues, DevicePointer output, Stream stream) const {
  if (Status own = checkOwn(batch, "batch"); !own)
    return own;
  for (auto [pointer, what] : {std::pair{queries, "queries"},
                               {tailKeys, "tail keys"},
                               {tailValues, "tail values"},
                               {output, "output"}})
    if (Status good = checkPointer(pointer, what, dataAlignment); !good)
      return good;
  const KvBatch::Impl &b = *batch.pimpl;
  const compiler::KvShape &shape = pimpl->layout.shape;
  const int64_t rowBytes = shape.headDim * scalarBytes(pimpl->options.type),
                heads = b.sequences * shape.queryHeads * rowBytes,
                tails = b.sequences * shape.pageTokens * shape.kvHeads * rowBytes;
  if (Status apart = checkApart({"output", output, heads}, {{"queries", queries, heads},
                                                            {"tail keys", tailKeys, tails},
                                                            {"tail values", tailValues, tails}});
      !apart)
    return apart;
  const uint64_t pointers[] = {pimpl->keys.address(),
                               pimpl->values.address(),
                               b.table.address(),
                               b.items.address(),
                               queries,
                               tailKeys,
                               tailValues,
                               output,
                               b.workspace.address()};
  const auto columns = static_cast<int32_t>(b.columns);
  std::vector<LaunchArgument> arguments;
  for (const uint64_t &pointer : pointers)
    arguments.push_back({&pointer, 8});
  arguments.push_back({&columns, 4});
  arguments.push_back({&pimpl->scoreScale, 4});
  LaunchShape grid;
  grid.grid = {static_cast<uint32_t>(b.mostItems * shape.kvHeads * shape.headSets()), 1, 1};
  Status launched = pimpl->backend->launch(*pimpl->attend->loaded, grid, arguments, stream);
  if (!launched)
    clearCounters(*pimpl->backend, b.workspace, compiler::kvCounterBytes(grid.grid.x));
  return launched;
}

} // namespace rho
