// The insides of a paged cache.
#pragma once

#include "compiler/KvCache.h"
#include "runtime/Kernel.h"
#include "runtime/KvCache.h"

#include <unordered_set>

namespace rho {

struct KvCache::Impl {
  Device device;
  std::shared_ptr<Backend> backend;
  KvCacheOptions options;
  compiler::KvLayout layout;
  float scoreScale; // softmax scale * log2(e)
  Buffer keys, values;
  std::shared_ptr<const Kernel> quantizeKeys, quantizeValues, dequantizeKeys, dequantizeValues,
      attend;
  std::vector<CompileReport> reports;
};

// What jobs and batches were checked for: caches that have it may use them.
struct KvCheckedFor {
  std::shared_ptr<Backend> backend;
  compiler::KvShape shape;
  int64_t pages;
};

struct KvJobs::Impl {
  KvCheckedFor cache;
  Buffer jobs;
  int64_t count;
  std::unordered_set<int32_t> blocks;
  // Two jobs that have one page, or one block: which, and the jobs. Only what is written must be
  // of one job.
  struct Twice {
    int32_t what;
    size_t first, second;
  };
  std::optional<Twice> page, block;
};

struct KvBatch::Impl {
  KvCheckedFor cache;
  Buffer items, table, workspace;
  int64_t sequences = 0, columns = 0;
  int64_t mostItems = 0; // there is room for
  int64_t asked = 0;     // parts of the longest sequence's pages; 0: those predicted fastest
  int64_t parts = 1;     // of a sequence at most, a tail included
};

} // namespace rho
