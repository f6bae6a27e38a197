// From the PTX of a kernel that was just made to one that is loaded, and to its entry on disk.
#pragma once

#include "dsl/Parallel.h"
#include "runtime/Backend.h"
#include "runtime/CacheEntries.h"

#include <future>
#include <mutex>

namespace rho {

// Thread-safe. What the driver compiles as it loads it (Backend::compilesAsItLoads) is compiled
// one program at a time, and again in each process. NVRTC takes somewhat longer, as many at a time
// as there are threads, and what it makes can be kept. So of several that are made at once the
// driver loads one while NVRTC makes what is kept of it, and the others are loaded as NVRTC makes
// them.
class Assembler {
public:
  // Of so many threads of the host, 0: as many as there are cores; with one all is done in turn.
  Assembler(std::shared_ptr<Backend> backend, cache::DiskCache &disk, unsigned threads)
      : backend(std::move(backend)), disk(disk), threads(threads) {}

  // Whether the calling thread may have no other beside it.
  bool isAlone() const { return threads == 1 || dsl::ThreadLimit::most() == 1; }

  // Publishes what it loads; may replace it by what loads faster after it has returned. Errors:
  // those of Backend::assemble and load.
  Result<std::shared_ptr<const LoadedKernel>> load(const compiler::KernelImage &image,
                                                   const std::string &key, const EntryLabel &label,
                                                   CompileReport &report);

private:
  void replaceLater(const compiler::KernelImage &image, const std::string &key,
                    const EntryLabel &label, std::future<bool> published);

  const std::shared_ptr<Backend> backend;
  cache::DiskCache &disk;
  const unsigned threads;
  std::mutex mutex;
  std::vector<std::future<void>> replacing; // waited for where this goes
};

} // namespace rho
