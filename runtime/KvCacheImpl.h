// The insides of a paged cache.
#pragma once

#include "compiler/KvCache.h"
#include "runtime/Kernel.h"
#include "runtime/KvCache.h"

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

struct KvJobs::Impl {
  std::weak_ptr<const KvCache::Impl> cache;
  Buffer jobs;
  int64_t count;
};

struct KvBatch::Impl {
  std::weak_ptr<const KvCache::Impl> cache;
  Buffer lengths, table, workspace;
  int64_t sequences, columns;
  int64_t partPages, parts; // pages of a part; parts of a sequence at most, a tail included
};

} // namespace rho
