// One cache entry as a folder of files: its manifest, writing it durably, reading it with checks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace rho::cache {

// File name -> bytes, e.g. "facts", "ptx", "cubin".
using Entry = std::map<std::string, std::string>;

// The manifest's text: key, length and checksum of every file, checksum of the manifest itself.
std::string printManifest(const std::string &key, const Entry &entry);

// Writes the files and the manifest into `folder` (which exists) and syncs all of them. False:
// errno tells why.
bool writeEntry(const std::string &folder, const std::string &key, const Entry &entry);

struct ReadEntry {
  std::optional<Entry> entry; // set when all is well
  bool missing = false;       // there is no such entry, or it was removed while it was read
  std::string damage;         // else why it is damaged
};
ReadEntry readEntry(const std::string &folder, const std::string &key);

inline constexpr const char *manifestFile = "manifest";
inline constexpr const char *usedFile = "used"; // its time is the entry's last use

} // namespace rho::cache
