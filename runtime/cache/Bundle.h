// Cache entries in one file, to move them between machines:
//   rho-bundle 1
//   origin <one line: who can use the entries>
//   entry <folder> <key> <bytes of the manifest>      then the manifest and its files' bytes
//   ...
//   end <entries> <sha256 of all before this line>
// Checksums find damage, not malice: what a bundle holds runs on the GPU.
#pragma once

#include "dsl/Error.h"
#include "runtime/cache/Manifest.h"
#include "runtime/cache/Sha256.h"
#include "runtime/files/OutputFile.h"

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace rho::cache {

struct BundleItem {
  std::string folder; // a name that the reader knows, e.g. "kernels"
  std::string key;
  Entry entry;
};

// A file that appears whole, by a rename.
class BundleWriter {
public:
  // Errors of all three: file_not_writable.
  static Result<BundleWriter> create(const std::string &path, const std::string &origin);
  Status add(const BundleItem &item);
  Status finish();

private:
  explicit BundleWriter(files::OutputFile file) : file(std::move(file)) {}
  Status write(std::string_view bytes);

  files::OutputFile file;
  Sha256 hash; // of all that is written
  uint64_t count = 0;
};

// Goes through the file twice: only when all of it is sound and every entry passes `check`, `take`
// is called with each, in their order. Errors: file_not_readable, bundle_damaged, bundle_foreign,
// those of `take`.
Status readBundle(const std::string &path, const std::string &origin,
                  const std::function<std::string(const BundleItem &)> &check, // the damage, or ""
                  const std::function<Status(const BundleItem &)> &take);

} // namespace rho::cache
