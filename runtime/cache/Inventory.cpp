#include "runtime/cache/Inventory.h"

#include "dsl/Division.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <tuple>

namespace fs = std::filesystem;

namespace rho::cache {

std::vector<std::string> namesIn(const std::string &folder, std::error_code &error) {
  std::vector<std::string> names;
  error.clear();
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  return names;
}

static int64_t onDisk(uintmax_t bytes) { return roundUp(static_cast<int64_t>(bytes), diskBlock); }

// Others have files of these names, too.
static bool isOurs(const fs::path &path) {
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(path, error)))
    return false;
  if (path.filename() == usedFile) // beside which the manifest may be damaged
    return fs::file_size(path, error) == 0 && !error;
  std::string beginning(manifestBeginning, '\0');
  std::ifstream(path, std::ios::binary)
      .read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  return beginsAsManifest(beginning);
}

std::vector<StoredEntry> storedEntries(const std::string &directory) {
  std::vector<StoredEntry> entries;
  std::error_code error;
  for (const std::string &key : namesIn(directory, error)) {
    fs::path path = fs::path(directory) / key;
    if (!isKey(key) || fs::is_symlink(path, error))
      continue;
    StoredEntry entry{key, diskBlock, fs::file_time_type::min()};
    const std::vector<std::string> names = namesIn(path.string(), error);
    if (error == std::errc::permission_denied)
      entry.noAccess = error.message();
    bool ours = !entry.noAccess.empty();
    for (const std::string &name : names) {
      ours = ours || ((name == usedFile || name == manifestFile) && isOurs(path / name));
      auto bytes = fs::file_size(path / name, error);
      entry.bytes += error ? 0 : onDisk(bytes);
    }
    fs::file_time_type used = fs::last_write_time(path / usedFile, error);
    if (!error && !isOfTheFuture(used))
      entry.used = used;
    if (ours)
      entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const StoredEntry &a, const StoredEntry &b) {
    return std::tie(a.used, a.key) < std::tie(b.used, b.key);
  });
  return entries;
}

int64_t bytesOnDisk(const Entry &entry) {
  int64_t bytes = 2 * diskBlock; // of the folder and of the manifest
  for (const auto &[name, content] : entry)
    bytes += onDisk(content.size());
  return bytes;
}

bool isOfTheFuture(fs::file_time_type time) {
  return time > fs::file_time_type::clock::now() + std::chrono::minutes(5);
}

int64_t bytesOf(const std::vector<StoredEntry> &entries) {
  int64_t bytes = 0;
  for (const StoredEntry &entry : entries)
    bytes += entry.bytes;
  return bytes;
}

} // namespace rho::cache
