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

// Its time is when the folder was last looked through.
constexpr const char *lookedFile = "looked";
constexpr std::chrono::minutes lookEvery{1};
// What a process may store without a look, of the limit.
constexpr int64_t partOfLimit = 64;

// What a killed process left in the staging folder is removed after this long.
constexpr std::chrono::hours stagingLife{1};

// Also where a clock was wrong.
bool isOlder(fs::file_time_type time, std::chrono::minutes than) {
  return fs::file_time_type::clock::now() - time > than || isOfTheFuture(time);
}

// Makes the time of a file now, and the file where there is none.
void stamp(const std::string &path) {
  if (::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
    return;
  const files::Descriptor made(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
}

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

DiskCache::DiskCache(DiskCacheOptions options)
    : settings(std::move(options)), room(settings.limitBytes / partOfLimit) {}

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
      stamp(entryPath(key) + "/" + usedFile);
    return std::move(read.entry);
  }
  if (!read.noAccess.empty()) {
    warn(warnings, DiagId::cache_entry_unusable, {entryPath(key), read.noAccess});
    return std::nullopt;
  }
  if (read.missing) {
    std::error_code error;
    if (settings.readOnly && !fs::is_directory(settings.directory, error) && !warned.exchange(true))
      warn(warnings, DiagId::cache_not_readable,
           {settings.directory, error ? error.message() : "it is no folder"});
    return std::nullopt;
  }
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

// A folder below the cache's, for whoever may write to that. 0, or why there is none to write to as
// errno says it.
static int makeWritable(const std::string &root, const std::string &folder) {
  std::error_code error;
  fs::create_directories(root, error);
  if (error)
    return error.value();
  struct stat all = {};
  if (::mkdir(folder.c_str(), 0777) == 0 && ::stat(root.c_str(), &all) == 0)
    ::chmod(folder.c_str(), all.st_mode & 07777);
  else if (errno != EEXIST)
    return errno;
  return ::access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

// Why a folder cannot be made or written to, with the name of what is in the way, for a person.
static std::string whatIsInTheWay(const std::string &folder, int failed) {
  for (fs::path path = folder; path.has_relative_path(); path = path.parent_path()) {
    std::error_code error;
    const bool exists = fs::exists(path, error);
    if (!exists && fs::is_symlink(path, error))
      return path.string() + " is a link to nothing";
    if (exists)
      return path.string() + ": " + std::strerror(fs::is_directory(path, error) ? failed : ENOTDIR);
  }
  return std::strerror(failed);
}

// Every time: somebody may have deleted the folders, also while they are made.
bool DiskCache::prepare(Warnings &warnings) {
  if (!settings.whyNone.empty() && !warned.exchange(true))
    warnings.push_back(settings.whyNone);
  if (!takesEntries())
    return false;
  for (const char *folder : {stagingFolder, lockFolder}) {
    const std::string path = settings.directory + "/" + folder;
    int failed = makeWritable(settings.directory, path);
    if (failed == ENOENT)
      failed = makeWritable(settings.directory, path);
    if (failed != 0) {
      disableWrites(whatIsInTheWay(path, failed), warnings);
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
  bool isStaged = false;
  auto attempt = [&] {
    const int failed = stage(staged, key, entry);
    isStaged = failed == 0;
    return isStaged ? publish(staged, key, entry) : failed;
  };
  int failed = attempt();
  if (failed == ENOENT && prepare(warnings)) // somebody has deleted the folders meanwhile
    failed = attempt();
  std::error_code error;
  if (failed != 0 && failed != ENOTEMPTY && failed != EEXIST) { // else others are faster
    if (isStaged && fs::exists(entryPath(key), error))          // which says nothing of others
      warn(warnings, DiagId::cache_entry_stays, {entryPath(key), std::strerror(failed)});
    else
      disableWrites(std::strerror(failed), warnings);
  }
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
    // A file system that cannot exchange, or an entry of somebody else's.
    if (const int stays = takeAway(key); stays != 0) {
      failed = stays;
      break;
    }
  }
  fs::remove_all(staged, ignored);
  return failed;
}

// Renamed first, so that a reader finds all of an entry or nothing. 0 where there is none any more,
// else why as errno says it.
int DiskCache::takeAway(const std::string &key) {
  std::error_code error;
  std::string gone = settings.directory + "/" + stagingFolder + "/" + stagingName(key);
  fs::create_directories(settings.directory + "/" + stagingFolder, error);
  fs::rename(entryPath(key), gone, error);
  const int failed = error && error != std::errc::no_such_file_or_directory ? error.value() : 0;
  fs::remove_all(failed != 0 ? entryPath(key) : gone, error);
  return failed != 0 && !error ? 0 : failed;
}

bool DiskCache::remove(const std::string &key) {
  takeAway(key);
  struct stat left = {};
  return ::lstat(entryPath(key).c_str(), &left) != 0 && errno == ENOENT;
}

bool DiskCache::lookedLately() const {
  std::error_code error;
  const auto looked = fs::last_write_time(settings.directory + "/" + lookedFile, error);
  return !error && !isOlder(looked, lookEvery);
}

// Looking through a folder of a thousand entries takes longer than storing ten.
void DiskCache::makeRoom(const Entry &stored, const std::string &key) {
  const int64_t bytes = bytesOnDisk(stored);
  if (room.fetch_sub(bytes) < bytes || !lookedLately())
    evict(key);
}

bool DiskCache::isOwnName(std::string_view name) {
  return isKey(name) || name == stagingFolder || name == lockFolder || name == lookedFile;
}

void DiskCache::evict(const std::string &keep) {
  stamp(settings.directory + "/" + lookedFile); // others need not look now
  std::vector<StoredEntry> stored = entries();
  int64_t total = bytesOf(stored);
  // Past the limit a part more than need be, which the next ones have without a look.
  const int64_t most =
      settings.limitBytes - (total > settings.limitBytes ? settings.limitBytes / 16 : 0);
  for (const StoredEntry &entry : stored) {
    if (total <= most)
      break;
    if (entry.key == keep || !entry.noAccess.empty())
      continue;
    if (remove(entry.key))
      total -= entry.bytes;
  }
  room = std::min(std::max<int64_t>(0, settings.limitBytes - total) / 8,
                  settings.limitBytes / partOfLimit);
  removeLeftovers();
}

void DiskCache::removeLeftovers() {
  const std::string staging = settings.directory + "/" + stagingFolder;
  std::error_code error;
  for (const std::string &name : namesIn(staging, error)) {
    if (!isStagingName(name))
      continue;
    fs::path path = fs::path(staging) / name;
    auto written = fs::last_write_time(path, error);
    if (!error && isOlder(written, stagingLife))
      fs::remove_all(path, error);
  }
  for (const std::string &name : namesIn(settings.directory + "/" + lockFolder, error)) {
    FileLock abandoned; // removes the file when it is let go
    if (isKey(name))
      abandoned.acquire(lockPath(name), std::chrono::milliseconds(0));
  }
}

} // namespace rho::cache
