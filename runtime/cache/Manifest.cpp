#include "runtime/cache/Manifest.h"

#include "dsl/Findings.h"
#include "runtime/ReadNumber.h"
#include "runtime/cache/Sha256.h"

#include <algorithm>

namespace rho::cache {
namespace {

constexpr std::string_view header = "rho-cache 1";
constexpr uint64_t maxEntryBytes = uint64_t(1) << 28;
constexpr size_t maxNameBytes = 64;

// Of this entry's folder, and none of the two files that every entry has.
bool plainName(std::string_view name) {
  return !name.empty() && name.size() <= maxNameBytes && name.front() != '.' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.-") ==
             std::string_view::npos &&
         name != manifestFile && name != usedFile;
}

} // namespace

bool isKey(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string printManifest(const std::string &key, const Entry &entry) {
  std::string text = std::string(header) + "\nkey " + key + "\n";
  for (const auto &[name, bytes] : entry)
    text += "file " + name + " " + std::to_string(bytes.size()) + " " + hex(sha256(bytes)) + "\n";
  return text + "sum " + hex(sha256(text)) + "\n";
}

bool beginsAsManifest(std::string_view text) { return text.starts_with(header); }

std::string parseManifest(std::string_view text, const std::string &key,
                          std::vector<ListedFile> &files) {
  std::string_view body = text;
  constexpr std::string_view sumWord = "sum ";
  const size_t sumLine = sumWord.size() + 64 + 1;
  if (body.size() < sumLine || !body.substr(body.size() - sumLine).starts_with(sumWord) ||
      body.back() != '\n')
    return "manifest is cut short";
  std::string_view sum = body.substr(body.size() - 65, 64);
  body.remove_suffix(sumLine);
  if (hex(sha256(body)) != sum)
    return "manifest has a wrong checksum";
  std::vector<std::string_view> lines = dsl::split(body, '\n');
  if (lines.size() < 3 || lines[0] != header)
    return "manifest is of another version";
  if (lines[1] != "key " + key)
    return "manifest is of another key";
  uint64_t total = 0;
  for (size_t i = 2; i + 1 < lines.size(); ++i) {
    std::vector<std::string_view> words = dsl::split(lines[i], ' ');
    const auto length = words.size() == 4 ? readNumber<uint64_t>(words[2]) : std::nullopt;
    if (!length || *length > maxEntryBytes - total || words[0] != "file" || !plainName(words[1]) ||
        std::any_of(files.begin(), files.end(),
                    [&](const ListedFile &before) { return before.name == words[1]; }))
      return "manifest has a bad line";
    total += *length;
    files.push_back({std::string(words[1]), *length, std::string(words[3])});
  }
  return {};
}

std::string damageOf(const ListedFile &file, std::string_view bytes) {
  if (bytes.size() != file.length)
    return file.name + " has " + (bytes.size() > file.length ? "more" : "fewer") + " than its " +
           std::to_string(file.length) + " bytes";
  if (hex(sha256(bytes)) != file.checksum)
    return file.name + " has a wrong checksum";
  return {};
}

} // namespace rho::cache
