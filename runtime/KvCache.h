// Attention over a paged cache of keys and values in declared formats. Public, as Rho.h.
//
// The keys, and the values, of one head of a page are a matrix of a format of the module: rows are
// the head's channels, k are the page's tokens, so that `k[G]` is shared by G tokens of one
// channel. Only whole pages are in the format. The tokens of a sequence that are left over, its
// tail, stay numbers of 16 bits in the caller's memory until they fill a page and quantize() takes
// them.
//
// A format of a cache is a sum of products of its element (2 to 8 bits, or plain f16 or bf16) and
// components, which are per k[G], G a multiple of 16. It has no components of other extents or in
// spare bits, no rule that chooses (`best`), no requirement, remap, parts or residual. Keys and
// values are read in steps of 16, 32 or 64 tokens with one scale: formats of which no step fits
// both are refused, with the steps of each.
//
// Jobs and batches are made by one cache and serve all of its device that have the same shape, of
// whatever formats, and no fewer pages: the layers of a model share them where a sequence has the
// same pages in each.
//
// Copies of a KvCache and of a KvBatch are the same pages and workspace. A batch serves one launch
// at a time; several batches may be attended on several streams, and quantize() is before or after
// that. A cache, its KvJobs and its KvBatches live until their launches have ended, and as long as
// a graph has them. create(), jobs(), batch() and the first update() copy to the device and wait
// for it.
#pragma once

#include "runtime/Rho.h"

#include <functional>
#include <span>

namespace rho {

struct KvCacheOptions {
  std::string keys, values; // formats of the module, or the plain "f16" or "bf16" of `type`
  ScalarType type = ScalarType::F16; // F16 or BF16: of all numbers outside of the cache
  int64_t pages = 0;                 // of the cache
  int64_t pageTokens = 128;          // a multiple of 16 and of every group, at most 1024
  int64_t headDim = 128;             // 64 or 128
  int64_t kvHeads = 0;
  int64_t queryHeads = 0;  // a multiple of kvHeads
  double softmaxScale = 0; // of scores, 1e-30 to 1e6; 0: 1 / sqrt(headDim)
};

// `block` of the caller's memory, pageTokens tokens, and a page of the cache.
struct KvJob {
  int32_t block = 0;
  int32_t page = 0;
};

// Checked jobs, on the device.
class KvJobs {
public:
  bool valid() const { return pimpl != nullptr; }
  struct Impl;

private:
  friend class KvCache;
  std::shared_ptr<const Impl> pimpl;
};

// Checked lengths and tables of sequences, on the device, divided among CTAs, with a workspace: for
// one launch at a time.
class KvBatch {
public:
  bool valid() const { return pimpl != nullptr; }
  int64_t parts() const; // CTAs that share a sequence's head at most
  struct Impl;

private:
  friend class KvCache;
  std::shared_ptr<Impl> pimpl;
};

class KvCache {
public:
  // Gets the kernels through the engine's caches and allocates the pages. Errors: kv_shape,
  // kv_format, kv_unknown_format, parameter_without_value, bad_scalar_type, bad_size,
  // out_of_memory, kernel_refused.
  static Result<KvCache> create(const Engine &engine, const Module &module,
                                const KvCacheOptions &options);
  // Of its kernels, which have no plan: quantize keys, quantize values, dequantize keys, dequantize
  // values, attend.
  const std::vector<CompileReport> &reports() const;
  int64_t pageBytes() const;    // of keys and values together
  double bitsPerNumber() const; // stored bits, components included

  // Of 1 to 65535 jobs. Errors: kv_page, kv_shape for another number of them or a negative block,
  // out_of_memory.
  Result<KvJobs> jobs(std::span<const KvJob> jobs) const;
  // Encodes blocks of keys and of values [block][pageTokens][kvHeads][headDim] in device memory,
  // 16-byte aligned, of which tokens are `stride` numbers apart (an even number; blocks
  // pageTokens * stride), each head's [headDim][pageTokens] bit for bit as a weight of the format.
  // A NaN or an infinity becomes a scale that is not finite, where the scale's type has those, or
  // an element; in a scale whose type has none an infinity becomes its largest number, and a NaN
  // makes zeros of its group. Errors: null_pointer, misaligned_pointer, kv_shape, kv_other_cache,
  // kv_written_twice where two jobs have one page.
  Status quantize(const KvJobs &jobs, DevicePointer keys, DevicePointer values, int64_t stride,
                  Stream stream = nullptr) const;
  // The reverse: the format's numbers, in f32 of elements of 16 bits, to which those of codebooks
  // are rounded, and then rounded to `type`. What is not finite stays so. Tokens of keys and of
  // values may take turns in memory, but share nothing. Errors: the same, kv_written_twice where
  // two jobs have one block, buffers_overlap where keys and values of the blocks do.
  Status dequantize(const KvJobs &jobs, DevicePointer keys, DevicePointer values, int64_t stride,
                    Stream stream = nullptr) const;

  // At most 65535 sequences of `lengths` tokens, or none; table [sequence][columns] has the page of
  // each whole page of tokens, what lies behind is not read. All sequences are divided into parts
  // of so many pages as are predicted fastest for these lengths, or as make `parts` of the longest
  // one (its last page, where that is not full, is a part besides), and the longest parts start
  // first. Errors: kv_length, kv_page, kv_table_size, kv_shape, out_of_memory.
  Result<KvBatch> batch(std::span<const int32_t> lengths, std::span<const int32_t> table,
                        int64_t columns, int64_t parts = 0) const;
  // Other lengths and pages for a batch of as many sequences and columns, when no launch uses it,
  // divided anew: two copies, nothing is allocated. Launches that a graph has captured read them. A
  // batch has room for as many parts as its first lengths need, or as many sequences as long as its
  // columns allow. Errors: those of batch(), kv_other_cache.
  Status update(const KvBatch &batch, std::span<const int32_t> lengths,
                std::span<const int32_t> table) const;
  // The same behind what is in the stream already, and before what comes, launches among them:
  // waits for nothing. Other errors: cuda_call_failed where the stream is being captured.
  Status update(const KvBatch &batch, std::span<const int32_t> lengths,
                std::span<const int32_t> table, Stream stream) const;
  // One query token of each sequence: queries and output [sequence][queryHeads][headDim], tails
  // [sequence][pageTokens][kvHeads][headDim], of which the first length % pageTokens tokens are
  // read. All in device memory, 16-byte aligned, the tails also where nothing is read of them.
  // Compiles nothing, allocates nothing, never blocks on a GPU. Outputs of a sequence without
  // tokens, and of scores that are all -infinity, are 0. Queries are multiplied as they are by
  // tails and by keys that are elements alone. For keys with scales or offsets queries times
  // softmaxScale, log2(e) and these are rounded to `type`, by 2^-12 of f16 and 2^-9 of bf16: of f16
  // they stay below 65504 (4094 where a decode leaves out a factor), past which outputs are NaN,
  // and have fewer digits below 6e-5.
  // Errors: null_pointer, misaligned_pointer, kv_other_cache, buffers_overlap of the output and any
  // token of the others.
  Status attend(const KvBatch &batch, DevicePointer queries, DevicePointer tailKeys,
                DevicePointer tailValues, DevicePointer output, Stream stream = nullptr) const;
  bool valid() const { return pimpl != nullptr; }

  struct Impl;
  const Impl &impl() const { return *pimpl; }

private:
  std::shared_ptr<const Impl> pimpl;

  Status updateBy(const KvBatch &batch, std::span<const int32_t> lengths,
                  std::span<const int32_t> table,
                  const std::function<Status(Buffer &, const void *, int64_t)> &write) const;
  // That this is a cache, which jobs or a batch serve. Errors: empty_handle, kv_other_cache.
  template <class Own> Status checkOwn(const Own &own, const char *what) const;
};

} // namespace rho
