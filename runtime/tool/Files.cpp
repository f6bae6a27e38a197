#include "runtime/tool/Files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace rho::tool {

namespace {

struct Close {
  void operator()(std::FILE *file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

Error failed(DiagId id, const std::string &path, int error) {
  return makeError(id, {path, std::strerror(error)});
}

} // namespace

Result<std::string> readText(const std::string &path) {
  File opened(path == "-" ? nullptr : std::fopen(path.c_str(), "rb"));
  std::FILE *file = path == "-" ? stdin : opened.get();
  if (!file)
    return failed(DiagId::file_not_readable, path, errno);
  struct stat info = {};
  if (fstat(fileno(file), &info) == 0 && S_ISDIR(info.st_mode))
    return failed(DiagId::file_not_readable, path, EISDIR);
  constexpr size_t limit = size_t(256) << 20;
  std::string text;
  char chunk[1 << 16];
  while (size_t got = std::fread(chunk, 1, sizeof chunk, file)) {
    text.append(chunk, got);
    if (text.size() > limit)
      return failed(DiagId::file_not_readable, path, EFBIG);
  }
  if (std::ferror(file) != 0)
    return failed(DiagId::file_not_readable, path, errno);
  return text;
}

Status writeText(const std::string &path, std::string_view text) {
  if (path.empty()) {
    bool written =
        std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    if (!written)
      return failed(DiagId::file_not_writable, "standard output", errno);
    return Done{};
  }
  struct stat info = {};
  bool exists = stat(path.c_str(), &info) == 0;
  if (exists && access(path.c_str(), W_OK) != 0)
    return failed(DiagId::file_not_writable, path, errno);
  if (struct stat link = {}; !exists && lstat(path.c_str(), &link) == 0)
    return makeError(DiagId::file_not_writable, {path, "it is a symbolic link to nothing"});
  // A pipe or a device is written in place: a rename would replace it.
  bool special = exists && !S_ISREG(info.st_mode);
  std::error_code ignored;
  std::string target = exists ? std::filesystem::canonical(path, ignored).string() : path;
  std::string temporary = special ? path : target + "." + std::to_string(getpid()) + ".part";
  File file(std::fopen(temporary.c_str(), "wb"));
  if (!file)
    return failed(DiagId::file_not_writable, path, errno);
  bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                 (!exists || special || fchmod(fileno(file.get()), info.st_mode & 07777) == 0);
  int error = errno;
  if (std::fclose(file.release()) != 0 && written) {
    written = false;
    error = errno;
  }
  if (written && (special || std::rename(temporary.c_str(), target.c_str()) == 0))
    return Done{};
  if (written)
    error = errno;
  if (!special)
    std::remove(temporary.c_str());
  return failed(DiagId::file_not_writable, path, error);
}

} // namespace rho::tool
