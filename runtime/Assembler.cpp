#include "runtime/Assembler.h"

#include "dsl/ProcessEnd.h"
#include "runtime/Stopwatch.h"

#include <chrono>
#include <system_error>

namespace rho {
namespace {

// Held while the driver compiles for anyone in this process.
std::mutex &driverCompiles() {
  static std::mutex mutex;
  return mutex;
}

cache::Entry entryOf(const compiler::KernelImage &image, const std::string &code,
                     const EntryLabel &what) {
  cache::Entry entry = kernelEntry(image, code);
  label(entry, what);
  return entry;
}

} // namespace

Result<std::shared_ptr<const LoadedKernel>> Assembler::load(const compiler::KernelImage &image,
                                                            const std::string &key,
                                                            const EntryLabel &label,
                                                            CompileReport &report) {
  Stopwatch watch;
  Result<std::string> code = backend->assemble(image);
  if (!code)
    return code.error();
  std::unique_lock driver(driverCompiles(), std::defer_lock);
  std::promise<bool> published;
  if (backend->compilesAsItLoads(image)) {
    if (isAlone() || !driver.try_lock()) {
      if (std::optional<std::string> whole = backend->assembleWhole(image))
        code = std::move(*whole);
    } else if (disk.takesEntries()) {
      replaceLater(image, key, label, published.get_future());
    }
  }
  report.stages.push_back({"assemble", watch.lap()});
  Result<std::shared_ptr<const LoadedKernel>> loaded = backend->load(image, *code);
  if (loaded) {
    report.stages.push_back({"load", watch.lap()});
    disk.store(key, entryOf(image, *code, label), report.warnings);
    report.stages.push_back({"store", watch.lap()});
  }
  published.set_value(bool(loaded));
  return loaded;
}

// Both are entries of this key, and either serves who finds it.
void Assembler::replaceLater(const compiler::KernelImage &image, const std::string &key,
                             const EntryLabel &label, std::future<bool> published) {
  auto replace = [this, image, key, label, published = std::move(published)]() mutable {
    static dsl::EndingLibrary replacements;
    const dsl::DelaysProcessEnd delay(replacements);
    if (!delay)
      return;
    const std::optional<std::string> whole = backend->assembleWhole(image);
    cache::Warnings nobodys; // the first entry's writer was told what is wrong with the disk
    if (published.get() && whole)
      disk.store(key, entryOf(image, *whole, label), nobodys);
  };
  const std::lock_guard lock(mutex);
  std::erase_if(replacing, [](const std::future<void> &each) {
    return each.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  replacing.reserve(replacing.size() + 1); // a future that found no place would be waited for
  try {
    replacing.push_back(std::async(std::launch::async, std::move(replace)));
  } catch (const std::system_error &) {
    return; // no thread to be had: the entry stays as it is
  }
}

} // namespace rho
