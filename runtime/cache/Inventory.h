// What a cache folder holds, without reading it.
#pragma once

#include "runtime/cache/Manifest.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace rho::cache {

// Of what lies in a folder; empty where it cannot be read, as `error` says.
std::vector<std::string> namesIn(const std::string &folder, std::error_code &error);

struct StoredEntry {
  std::string key;
  int64_t bytes = 0;                      // on disk, see bytesOnDisk()
  std::filesystem::file_time_type used{}; // the earliest time where the entry has no stamp, or
                                          // one of the future, of a clock that was wrong
  std::string noAccess = {};              // why its folder cannot be read; empty: it can
};

// The entries of a cache folder, the least recently used first. Folders that only look like one by
// their name are not among them; those that cannot be read are.
std::vector<StoredEntry> storedEntries(const std::string &directory);

int64_t bytesOf(const std::vector<StoredEntry> &entries);

// What an entry takes as most file systems have it: blocks of 4 KB for each file, and one for its
// folder.
inline constexpr int64_t diskBlock = 4096;
int64_t bytesOnDisk(const Entry &entry);

// Within the next few minutes clocks of several machines may differ.
bool isOfTheFuture(std::filesystem::file_time_type time);

} // namespace rho::cache
