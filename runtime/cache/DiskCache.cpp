#include "runtime/cache/DiskCache.h"

#include "dsl/Error.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace rho::cache {
namespace {

constexpr const char *stagingFolder = "staging";
constexpr const char *lockFolder = "locks";

// What a killed process left in the staging folder is removed after this long.
constexpr std::chrono::hours stagingLife{1};

void warn(Warnings &warnings, DiagId id, const std::vector<std::string> &args) {
  warnings.push_back(makeDiagnostic(id, args).message);
}

bool isKey(const std::string &name) {
  return name.size() == 64 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// A name in the staging folder that no thread or process takes twice.
std::string stagingName(const std::string &key) {
  static std::atomic<uint64_t> counter{0};
  auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return key.substr(0, 16) + "-" + std::to_string(::getpid()) + "-" + std::to_string(now) + "-" +
         std::to_string(counter++);
}

void syncFolder(const std::string &path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
}

} // namespace

DiskCache::DiskCache(DiskCacheOptions options) : settings(std::move(options)) {}

std::string DiskCache::entryPath(const std::string &key) const {
  return settings.directory + "/" + key;
}

std::optional<Entry> DiskCache::load(const std::string &key, Warnings &warnings) {
  if (settings.directory.empty())
    return std::nullopt;
  ReadEntry read = readEntry(entryPath(key), key);
  if (read.entry) {
    if (!settings.readOnly)
      ::utimensat(AT_FDCWD, (entryPath(key) + "/" + usedFile).c_str(), nullptr, 0);
    return std::move(read.entry);
  }
  if (!read.missing)
    discard(key, read.damage, warnings);
  return std::nullopt;
}

void DiskCache::discard(const std::string &key, const std::string &reason, Warnings &warnings) {
  warn(warnings, DiagId::cache_entry_damaged, {entryPath(key), reason});
  if (!settings.readOnly)
    remove(key);
}

void DiskCache::disableWrites(const std::string &reason, Warnings &warnings) {
  {
    std::lock_guard guard(mutex);
    if (writable == Writable::No)
      return;
    writable = Writable::No;
  }
  warn(warnings, DiagId::cache_not_writable, {settings.directory, reason});
}

bool DiskCache::prepare(Warnings &warnings) {
  if (settings.directory.empty() || settings.readOnly)
    return false;
  {
    std::lock_guard guard(mutex);
    if (writable != Writable::Unknown)
      return writable == Writable::Yes;
  }
  std::error_code error;
  for (const char *folder : {stagingFolder, lockFolder}) {
    std::string path = settings.directory + "/" + folder;
    fs::create_directories(path, error);
    if (!error && ::access(path.c_str(), W_OK | X_OK) != 0)
      error = std::error_code(errno, std::generic_category());
    if (error) {
      disableWrites(error.message(), warnings);
      return false;
    }
  }
  std::lock_guard guard(mutex);
  if (writable == Writable::Unknown)
    writable = Writable::Yes;
  return writable == Writable::Yes;
}

FileLock DiskCache::lock(const std::string &key, Warnings &warnings) {
  FileLock held;
  if (!prepare(warnings))
    return held;
  std::string path = settings.directory + "/" + lockFolder + "/" + key;
  if (held.acquire(path, settings.lockTimeout) == FileLock::Outcome::TimedOut)
    warn(warnings, DiagId::cache_lock_timeout,
         {path, std::to_string(settings.lockTimeout.count())});
  return held;
}

bool DiskCache::store(const std::string &key, const Entry &entry, Warnings &warnings) {
  if (!prepare(warnings))
    return false;
  std::string staged = settings.directory + "/" + stagingFolder + "/" + stagingName(key);
  std::error_code ignored;
  if (::mkdir(staged.c_str(), 0777) != 0 || !writeEntry(staged, key, entry)) {
    std::string reason = std::strerror(errno);
    fs::remove_all(staged, ignored);
    disableWrites(reason, warnings);
    return false;
  }
  // A folder that stands there already is another's equal entry, older or damaged.
  bool published = ::rename(staged.c_str(), entryPath(key).c_str()) == 0;
  bool stands = published || readEntry(entryPath(key), key).entry == entry;
  if (!stands) {
    remove(key);
    published = stands = ::rename(staged.c_str(), entryPath(key).c_str()) == 0;
  }
  if (published)
    syncFolder(settings.directory);
  else
    fs::remove_all(staged, ignored);
  evict(key);
  return stands;
}

// Renamed first, so that a reader finds all of an entry or nothing.
void DiskCache::remove(const std::string &key) {
  std::error_code error;
  std::string gone = settings.directory + "/" + stagingFolder + "/" + stagingName(key);
  fs::create_directories(settings.directory + "/" + stagingFolder, error);
  fs::rename(entryPath(key), gone, error);
  fs::remove_all(error ? entryPath(key) : gone, error);
}

void DiskCache::evict(const std::string &keep) {
  struct Kept {
    std::string key;
    int64_t bytes = 0;
    fs::file_time_type used{};
  };
  std::vector<Kept> entries;
  int64_t total = 0;
  std::error_code error;
  for (const fs::directory_entry &folder : fs::directory_iterator(settings.directory, error)) {
    Kept entry;
    entry.key = folder.path().filename().string();
    if (!isKey(entry.key))
      continue; // not ours
    for (const fs::directory_entry &file : fs::directory_iterator(folder.path(), error)) {
      auto bytes = file.file_size(error);
      if (!error)
        entry.bytes += static_cast<int64_t>(bytes);
    }
    entry.used = fs::last_write_time(folder.path() / usedFile, error);
    if (error) // no stamp: the first to go
      entry.used = fs::file_time_type::min();
    total += entry.bytes;
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Kept &a, const Kept &b) { return a.used < b.used; });
  for (const Kept &entry : entries) {
    if (total <= settings.limitBytes)
      break;
    if (entry.key == keep)
      continue;
    remove(entry.key);
    total -= entry.bytes;
  }
  auto now = fs::file_time_type::clock::now();
  for (const fs::directory_entry &left :
       fs::directory_iterator(settings.directory + "/" + stagingFolder, error)) {
    auto written = left.last_write_time(error);
    std::error_code ignored;
    if (!error && now - written > stagingLife)
      fs::remove_all(left.path(), ignored);
  }
}

} // namespace rho::cache
