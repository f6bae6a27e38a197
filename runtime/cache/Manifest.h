// The manifest of a cache entry: its key, length and checksum of every file, checksum of itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rho::cache {

// File name -> bytes, e.g. "facts", "ptx", "cubin".
using Entry = std::map<std::string, std::string>;

struct ListedFile {
  std::string name; // stays inside the entry's folder
  uint64_t length = 0;
  std::string checksum;
};

// 64 lower-case hexadecimal digits.
bool isKey(std::string_view text);

std::string printManifest(const std::string &key, const Entry &entry);
// Whether a text begins as a manifest does.
bool beginsAsManifest(std::string_view text);
// Lists the files. Empty when all is well, else the damage.
std::string parseManifest(std::string_view text, const std::string &key,
                          std::vector<ListedFile> &files);
// Whether these are the file's bytes; empty when they are, else the damage.
std::string damageOf(const ListedFile &file, std::string_view bytes);

inline constexpr size_t manifestBeginning = 16; // bytes that are enough to tell
inline constexpr size_t maxManifestBytes = size_t(1) << 16;
inline constexpr const char *manifestFile = "manifest";
inline constexpr const char *usedFile = "used"; // its time is the entry's last use

} // namespace rho::cache
