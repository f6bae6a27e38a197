// Compiled kernels on disk. An entry is a folder <root>/<key>/ of named files with a manifest of
// their lengths and checksums; it appears whole, by renaming a staged folder. Right without locks
// (network file systems) and against entries that are damaged, foreign or removed while read.
// Nothing here fails: what goes wrong is a warning and a miss.
#pragma once

#include "runtime/cache/EntryFiles.h"
#include "runtime/cache/FileLock.h"
#include "runtime/cache/Inventory.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rho::cache {

using Warnings = std::vector<std::string>;

struct DiskCacheOptions {
  std::string directory;                 // empty: no disk cache
  bool readOnly = false;                 // no writes, no deletes, no locks, no usage stamps
  int64_t limitBytes = int64_t(1) << 30; // of entries, as bytesOnDisk() has them
  std::string whyNone = {};              // why there is no directory where one was wanted
  std::chrono::milliseconds lockTimeout{120000};
};

// Thread-safe; any number of processes may share a directory.
class DiskCache {
public:
  explicit DiskCache(DiskCacheOptions options);

  // The entry of the key (64 hexadecimal digits). A damaged one is deleted, with one warning,
  // unless somebody holds its lock and thus replaces it.
  std::optional<Entry> load(const std::string &key, Warnings &warnings);
  // Whoever builds an entry holds this through store(), and looks again once it is held.
  // Not held after the timeout, when the cache is read-only or where there are no locks.
  FileLock lock(const std::string &key, Warnings &warnings);
  // Publishes in place of what the key had. Past the limit the least recently used entries go, not
  // at once: each process may store a 64th part of it between two looks through the folder, of
  // which there is one a minute. Whether the entry stands.
  bool store(const std::string &key, const Entry &entry, Warnings &warnings);
  // Whether store() would try.
  bool takesEntries() const {
    return !settings.directory.empty() && !settings.readOnly && writable;
  }
  // Deletes an entry whose files are intact but whose content its reader could not use.
  void discard(const std::string &key, const std::string &reason, Warnings &warnings);

  // The entry, whatever its state, without a trace of the look.
  ReadEntry inspect(const std::string &key) const { return readEntry(entryPath(key), key); }
  // Whether there is no such entry any more.
  bool remove(const std::string &key);
  // Whether a name in a cache folder is one of its own, or that of an entry.
  static bool isOwnName(std::string_view name);
  // Removes what killed processes left: staged entries after an hour, locks that nobody holds.
  void removeLeftovers();
  std::vector<StoredEntry> entries() const { return storedEntries(settings.directory); }

  const DiskCacheOptions &options() const { return settings; }

private:
  bool prepare(Warnings &warnings); // folders for writing; false: not writable
  void disableWrites(const std::string &reason, Warnings &warnings);
  // Unless somebody holds the entry's lock, and so replaces it.
  template <class Condition> void removeIf(const std::string &key, Condition condition);
  static int stage(const std::string &staged, const std::string &key, const Entry &entry);
  int publish(const std::string &staged, const std::string &key, const Entry &entry);
  int takeAway(const std::string &key);
  bool lookedLately() const;
  void makeRoom(const Entry &stored, const std::string &key);
  void evict(const std::string &keep);
  std::string entryPath(const std::string &key) const;
  std::string lockPath(const std::string &key) const;

  const DiskCacheOptions settings;
  std::atomic<bool> writable = true; // until an attempt failed
  std::atomic<bool> warned = false;  // that there is nothing to read
  std::atomic<int64_t> room;         // bytes to store before the folder is looked through again
};

} // namespace rho::cache
