#include "runtime/cache/EntryFiles.h"

#include "runtime/files/Descriptor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rho::cache {
namespace {

bool writeFile(int folder, const std::string &name, std::string_view bytes) {
  const files::Descriptor file(
      ::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  while (file.get() >= 0 && !bytes.empty()) {
    ssize_t n = ::write(file.get(), bytes.data(), bytes.size());
    if (n >= 0)
      bytes.remove_prefix(static_cast<size_t>(n));
    else if (errno != EINTR)
      return false;
  }
  return file.get() >= 0 && ::fsync(file.get()) == 0;
}

// Errors that tell of what lies there. The rest tell of the system, which may answer the next time.
bool tellsOfDamage(int error) {
  constexpr std::array ofTheFile = {ENOENT, ENOTDIR, EISDIR, ELOOP, ENXIO, ENODEV};
  return std::find(ofTheFile.begin(), ofTheFile.end(), error) != ofTheFile.end();
}

struct FileRead {
  std::string bytes;    // at most `limit` + 1: enough to tell that a file is too long
  std::string damage;   // why there are none
  std::string noAccess; // of the system
  bool sound() const { return damage.empty() && noAccess.empty(); }
};

FileRead readFile(int folder, const std::string &name, size_t limit) {
  FileRead result;
  // Without waiting: a pipe in the file's place has no writer.
  const files::Descriptor file(
      ::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) {
    if (!tellsOfDamage(errno))
      result.noAccess = name + ": " + std::strerror(errno);
    result.damage = name + (errno == ENOENT ? " is missing" : " is no file");
    return result;
  }
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    result.damage = name + " is no file";
    return result;
  }
  result.bytes.resize(std::min(limit, static_cast<size_t>(info.st_size)) + 1);
  size_t filled = 0;
  while (filled < result.bytes.size()) {
    ssize_t n = ::read(file.get(), result.bytes.data() + filled, result.bytes.size() - filled);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      result.noAccess = name + ": " + std::strerror(errno);
    if (n <= 0)
      break;
    filled += static_cast<size_t>(n);
  }
  result.bytes.resize(filled);
  return result;
}

// The files of an open entry; empty damage when all is well.
FileRead readFiles(int folder, const std::string &key, Entry &entry) {
  FileRead manifest = readFile(folder, manifestFile, maxManifestBytes);
  std::vector<ListedFile> files;
  if (manifest.sound())
    manifest.damage = parseManifest(manifest.bytes, key, files);
  if (!manifest.sound())
    return manifest;
  for (const ListedFile &listed : files) {
    FileRead file = readFile(folder, listed.name, listed.length);
    if (file.sound())
      file.damage = damageOf(listed, file.bytes);
    if (!file.sound())
      return file;
    entry.emplace(listed.name, std::move(file.bytes));
  }
  return {};
}

} // namespace

bool writeEntry(const std::string &folder, const std::string &key, const Entry &entry) {
  const files::Descriptor into(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (into.get() < 0)
    return false;
  for (const auto &[name, bytes] : entry)
    if (!writeFile(into.get(), name, bytes))
      return false;
  return writeFile(into.get(), manifestFile, printManifest(key, entry)) &&
         writeFile(into.get(), usedFile, "") && ::fsync(into.get()) == 0;
}

// `replaced`: what stood there was taken away meanwhile for another that stands there now.
static ReadEntry readOnce(const std::string &folder, const std::string &key, bool &replaced) {
  replaced = false;
  ReadEntry result;
  // An open folder keeps its identity while another process renames it away to remove it.
  const files::Descriptor from(
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (from.get() < 0) {
    result.missing = errno == ENOENT || !tellsOfDamage(errno);
    if (result.missing && errno != ENOENT)
      result.noAccess = std::strerror(errno);
    if (errno == ENOTDIR) { // the entry itself, or a part of the path to it?
      struct stat other = {};
      result.missing = ::lstat(folder.c_str(), &other) != 0;
    }
    if (!result.missing)
      result.damage = "it is not a readable folder";
    return result;
  }
  Entry entry;
  FileRead read = readFiles(from.get(), key, entry);
  if (!read.noAccess.empty()) {
    result.missing = true;
    result.noAccess = read.noAccess;
  } else if (read.damage.empty()) {
    result.entry = std::move(entry);
  } else {
    struct stat ours = {}, named = {};
    result.damage = read.damage;
    const bool stands = ::fstat(from.get(), &ours) == 0 && ::stat(folder.c_str(), &named) == 0;
    replaced = stands && ours.st_ino != named.st_ino;
    result.missing = !stands || replaced;
  }
  return result;
}

ReadEntry readEntry(const std::string &folder, const std::string &key) {
  constexpr int attempts = 8; // another process may replace it again and again
  bool replaced = true;
  ReadEntry result;
  for (int i = 0; i < attempts && replaced; ++i)
    result = readOnce(folder, key, replaced);
  return result;
}

} // namespace rho::cache
