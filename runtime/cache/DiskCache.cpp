#include "runtime/cache/DiskCache.h"

#include "dsl/Error.h"
#include "dsl/Findings.h"
#include "runtime/files/Descriptor.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
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
  std::string text = makeDiagnostic(id, args).message;
  if (std::find(warnings.begin(), warnings.end(), text) == warnings.end())
    warnings.push_back(std::move(text));
}

// A name in the staging folder that no thread or process takes twice.
std::string stagingName(const std::string &key) {
  static std::atomic<uint64_t> counter{0};
  auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return key.substr(0, 16) + "-" + std::to_string(::getpid()) + "-" + std::to_string(now) + "-" +
         std::to_string(counter++);
}

// Others are not ours to remove.
bool isStagingName(std::string_view name) {
  constexpr size_t keyDigits = 16;
  constexpr std::string_view hex = "0123456789abcdef", decimal = "0123456789";
  const std::vector<std::string_view> parts = dsl::split(name, '-');
  auto isOf = [](std::string_view text, std::string_view digits) {
    return !text.empty() && text.find_first_not_of(digits) == text.npos;
  };
  return parts.size() == 4 && parts[0].size() == keyDigits && isOf(parts[0], hex) &&
         std::all_of(parts.begin() + 1, parts.end(),
                     [&](std::string_view part) { return isOf(part, decimal); });
}

} // namespace

DiskCache::DiskCache(DiskCacheOptions options) : settings(std::move(options)) {}

std::string DiskCache::entryPath(const std::string &key) const {
  return settings.directory + "/" + key;
}

std::string DiskCache::lockPath(const std::string &key) const {
  return settings.directory + "/" + lockFolder + "/" + key;
}

std::optional<Entry> DiskCache::load(const std::string &key, Warnings &warnings) {
  if (settings.directory.empty())
    return std::nullopt;
  ReadEntry read = inspect(key);
  if (read.entry) {
    if (!settings.readOnly)
      ::utimensat(AT_FDCWD, (entryPath(key) + "/" + usedFile).c_str(), nullptr, 0);
    return std::move(read.entry);
  }
  if (read.missing)
    return std::nullopt;
  warn(warnings, DiagId::cache_entry_unusable, {entryPath(key), read.damage});
  removeIf(key, [&] { // nobody replaced it meanwhile
    const ReadEntry again = inspect(key);
    return !again.missing && !again.damage.empty();
  });
  return std::nullopt;
}

void DiskCache::discard(const std::string &key, const std::string &reason, Warnings &warnings) {
  warn(warnings, DiagId::cache_entry_unusable, {entryPath(key), reason});
  removeIf(key, [] { return true; });
}

template <class Condition> void DiskCache::removeIf(const std::string &key, Condition condition) {
  if (settings.readOnly)
    return;
  FileLock builder;
  auto outcome = builder.acquire(lockPath(key), std::chrono::milliseconds(0));
  if (outcome != FileLock::Outcome::TimedOut && condition())
    remove(key);
}

void DiskCache::disableWrites(const std::string &reason, Warnings &warnings) {
  if (writable.exchange(false))
    warn(warnings, DiagId::cache_not_writable, {settings.directory, reason});
}

// 0, or why there is none to write to as errno says it.
static int makeWritable(const std::string &folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return error.value();
  return ::access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

// Every time: somebody may have deleted the folders, also while they are made.
bool DiskCache::prepare(Warnings &warnings) {
  if (!takesEntries())
    return false;
  for (const char *folder : {stagingFolder, lockFolder}) {
    const std::string path = settings.directory + "/" + folder;
    int failed = makeWritable(path);
    if (failed == ENOENT)
      failed = makeWritable(path);
    if (failed != 0) {
      disableWrites(std::strerror(failed), warnings);
      return false;
    }
  }
  return true;
}

FileLock DiskCache::lock(const std::string &key, Warnings &warnings) {
  FileLock held;
  if (!prepare(warnings))
    return held;
  if (held.acquire(lockPath(key), settings.lockTimeout) == FileLock::Outcome::TimedOut)
    warn(warnings, DiagId::cache_lock_timeout,
         {lockPath(key), std::to_string(settings.lockTimeout.count())});
  return held;
}

bool DiskCache::store(const std::string &key, const Entry &entry, Warnings &warnings) {
  if (!prepare(warnings))
    return false;
  const std::string staged = settings.directory + "/" + stagingFolder + "/" + stagingName(key);
  auto attempt = [&] {
    const int failed = stage(staged, key, entry);
    return failed == 0 ? publish(staged, key, entry) : failed;
  };
  int failed = attempt();
  if (failed == ENOENT && prepare(warnings)) // somebody has deleted the folders meanwhile
    failed = attempt();
  if (failed != 0 && failed != ENOTEMPTY && failed != EEXIST) // else others are faster
    disableWrites(std::strerror(failed), warnings);
  makeRoom(entry, key);
  return failed == 0;
}

// 0, or why not as errno says it.
int DiskCache::stage(const std::string &staged, const std::string &key, const Entry &entry) {
  if (::mkdir(staged.c_str(), 0777) != 0)
    return errno;
  if (writeEntry(staged, key, entry))
    return 0;
  const int failed = errno;
  std::error_code ignored;
  fs::remove_all(staged, ignored);
  return failed;
}

// A folder that stands there already is another's equal entry, or older, or damaged. Why the entry
// does not stand then, by this process or by another, as errno says it; 0: it does.
int DiskCache::publish(const std::string &staged, const std::string &key, const Entry &entry) {
  constexpr int attempts = 3; // others may publish at the same time
  std::error_code ignored;
  int failed = 0;
  for (int i = 0; i < attempts; ++i) {
    if (::rename(staged.c_str(), entryPath(key).c_str()) == 0) {
      files::syncFolder(settings.directory);
      return 0;
    }
    failed = errno;
    if (inspect(key).entry == entry) {
      failed = 0;
      break;
    }
    if (failed != ENOTEMPTY && failed != EEXIST && failed != ENOTDIR)
      break; // it is not in the way
    // Readers find the one or the other at any time; `staged` is then what stood there.
    if (::renameat2(AT_FDCWD, staged.c_str(), AT_FDCWD, entryPath(key).c_str(), RENAME_EXCHANGE) ==
        0) {
      files::syncFolder(settings.directory);
      failed = 0;
      break;
    }
    remove(key); // a file system that cannot exchange
  }
  fs::remove_all(staged, ignored);
  return failed;
}

// Renamed first, so that a reader finds all of an entry or nothing.
bool DiskCache::remove(const std::string &key) {
  std::error_code error;
  std::string gone = settings.directory + "/" + stagingFolder + "/" + stagingName(key);
  fs::create_directories(settings.directory + "/" + stagingFolder, error);
  fs::rename(entryPath(key), gone, error);
  fs::remove_all(error ? entryPath(key) : gone, error);
  struct stat left = {};
  return ::lstat(entryPath(key).c_str(), &left) != 0 && errno == ENOENT;
}

// Looking through a folder of a thousand entries takes longer than storing ten: a quarter of what
// is free may be filled without, since others may be filling the rest.
void DiskCache::makeRoom(const Entry &stored, const std::string &key) {
  constexpr int64_t mostOfManifest = 256; // for each file
  int64_t bytes = mostOfManifest;
  for (const auto &[name, content] : stored)
    bytes += static_cast<int64_t>(content.size()) + mostOfManifest;
  if (room.fetch_sub(bytes) < bytes)
    evict(key);
}

bool DiskCache::isOwnName(std::string_view name) {
  return isKey(name) || name == stagingFolder || name == lockFolder;
}

void DiskCache::evict(const std::string &keep) {
  std::vector<StoredEntry> stored = entries();
  int64_t total = bytesOf(stored);
  for (const StoredEntry &entry : stored) {
    if (total <= settings.limitBytes)
      break;
    if (entry.key == keep || !entry.noAccess.empty())
      continue;
    remove(entry.key);
    total -= entry.bytes;
  }
  room = std::max<int64_t>(0, settings.limitBytes - total) / 4;
  removeLeftovers();
}

void DiskCache::removeLeftovers() {
  const std::string staging = settings.directory + "/" + stagingFolder;
  auto now = fs::file_time_type::clock::now();
  std::error_code error;
  for (const std::string &name : namesIn(staging, error)) {
    if (!isStagingName(name))
      continue;
    fs::path path = fs::path(staging) / name;
    auto written = fs::last_write_time(path, error);
    if (!error && now - written > stagingLife)
      fs::remove_all(path, error);
  }
  for (const std::string &name : namesIn(settings.directory + "/" + lockFolder, error)) {
    FileLock abandoned; // removes the file when it is let go
    if (isKey(name))
      abandoned.acquire(lockPath(name), std::chrono::milliseconds(0));
  }
}

} // namespace rho::cache
