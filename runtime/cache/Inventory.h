// What a cache folder holds, without reading it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace rho::cache {

// Of what lies in a folder; empty where it cannot be read.
std::vector<std::string> namesIn(const std::string &folder);

struct StoredEntry {
  std::string key;
  int64_t bytes = 0;                      // of its files
  std::filesystem::file_time_type used{}; // the earliest time where the entry has no stamp
};

// The entries of a cache folder, the least recently used first. Folders that only look like one by
// their name are not among them.
std::vector<StoredEntry> storedEntries(const std::string &directory);

int64_t bytesOf(const std::vector<StoredEntry> &entries);

} // namespace rho::cache
