#include "runtime/cache/EntryFiles.h"

#include "runtime/cache/Sha256.h"

#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace rho::cache {
namespace {

constexpr std::string_view header = "rho-cache 1";

bool writeFile(int folder, const std::string &name, std::string_view bytes) {
  int fd = ::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0)
    return false;
  bool good = true;
  while (good && !bytes.empty()) {
    ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n >= 0)
      bytes.remove_prefix(static_cast<size_t>(n));
    else if (errno != EINTR)
      good = false;
  }
  good = good && ::fsync(fd) == 0;
  int saved = errno;
  good = ::close(fd) == 0 && good;
  if (!good && saved != 0)
    errno = saved;
  return good;
}

// At most `limit` + 1 bytes: enough to tell that a file is too long.
std::optional<std::string> readFile(int folder, const std::string &name, size_t limit) {
  int fd = ::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    return std::nullopt;
  std::string bytes(limit + 1, '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    ssize_t n = ::read(fd, bytes.data() + filled, bytes.size() - filled);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      ::close(fd);
      return std::nullopt;
    }
    if (n == 0)
      break;
    filled += static_cast<size_t>(n);
  }
  ::close(fd);
  bytes.resize(filled);
  return bytes;
}

struct ListedFile {
  std::string name;
  uint64_t length = 0;
  std::string checksum;
};

// A name that stays inside the entry's folder.
bool plainName(std::string_view name) {
  return !name.empty() && name.find('/') == std::string_view::npos && name != "." && name != "..";
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos)
      return parts;
    text.remove_prefix(at + 1);
  }
}

// Empty: sound. Else the damage.
std::string parseManifest(const std::string &text, const std::string &key,
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
  std::vector<std::string_view> lines = split(body, '\n');
  if (lines.size() < 3 || lines[0] != header)
    return "manifest is of another version";
  if (lines[1] != "key " + key)
    return "manifest is of another key";
  for (size_t i = 2; i + 1 < lines.size(); ++i) {
    std::vector<std::string_view> words = split(lines[i], ' ');
    ListedFile file;
    if (words.size() != 4 || words[0] != "file" || !plainName(words[1]) ||
        std::from_chars(words[2].data(), words[2].data() + words[2].size(), file.length).ec !=
            std::errc() ||
        file.length > (uint64_t(1) << 31))
      return "manifest has a bad line";
    file.name = words[1];
    file.checksum = words[3];
    files.push_back(std::move(file));
  }
  return {};
}

} // namespace

std::string printManifest(const std::string &key, const Entry &entry) {
  std::string text = std::string(header) + "\nkey " + key + "\n";
  for (const auto &[name, bytes] : entry)
    text += "file " + name + " " + std::to_string(bytes.size()) + " " + hex(sha256(bytes)) + "\n";
  return text + "sum " + hex(sha256(text)) + "\n";
}

bool writeEntry(const std::string &folder, const std::string &key, const Entry &entry) {
  int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return false;
  bool good = true;
  for (const auto &[name, bytes] : entry)
    good = good && writeFile(fd, name, bytes);
  good = good && writeFile(fd, manifestFile, printManifest(key, entry)) &&
         writeFile(fd, usedFile, "") && ::fsync(fd) == 0;
  int saved = errno;
  ::close(fd);
  errno = saved;
  return good;
}

ReadEntry readEntry(const std::string &folder, const std::string &key) {
  ReadEntry result;
  // An open folder keeps its identity while another process renames it away to remove it.
  int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    result.missing = errno == ENOENT || errno == EACCES || errno == ENOTDIR;
    if (errno == ENOTDIR) { // the entry itself, or a part of the path to it?
      struct stat other = {};
      result.missing = ::lstat(folder.c_str(), &other) != 0;
    }
    if (!result.missing)
      result.damage = "it is not a readable folder";
    return result;
  }
  std::vector<ListedFile> files;
  Entry entry;
  std::optional<std::string> manifest = readFile(fd, manifestFile, size_t(1) << 16);
  if (!manifest)
    result.damage = "manifest is missing";
  else
    result.damage = parseManifest(*manifest, key, files);
  for (const ListedFile &file : files) {
    if (!result.damage.empty())
      break;
    std::optional<std::string> bytes = readFile(fd, file.name, file.length);
    if (!bytes)
      result.damage = file.name + " is missing";
    else if (bytes->size() != file.length)
      result.damage = file.name + " has " + (bytes->size() > file.length ? "more" : "fewer") +
                      " than its " + std::to_string(file.length) + " bytes";
    else if (hex(sha256(*bytes)) != file.checksum)
      result.damage = file.name + " has a wrong checksum";
    else
      entry.emplace(file.name, std::move(*bytes));
  }
  if (!result.damage.empty()) {
    struct stat ours = {}, named = {};
    result.missing = ::fstat(fd, &ours) != 0 || ::stat(folder.c_str(), &named) != 0 ||
                     ours.st_ino != named.st_ino;
  } else {
    result.entry = std::move(entry);
  }
  ::close(fd);
  return result;
}

} // namespace rho::cache
