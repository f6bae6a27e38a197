// What a cache folder holds, without reading it.
#pragma once

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
  int64_t bytes = 0;                      // of its files
  std::filesystem::file_time_type used{}; // the earliest time where the entry has no stamp
  std::string noAccess = {};              // why its folder cannot be read; empty: it can
};

// The entries of a cache folder, the least recently used first. Folders that only look like one by
// their name are not among them; those that cannot be read are.
std::vector<StoredEntry> storedEntries(const std::string &directory);

int64_t bytesOf(const std::vector<StoredEntry> &entries);

} // namespace rho::cache
