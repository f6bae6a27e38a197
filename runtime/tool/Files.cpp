#include "runtime/tool/Files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
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
  File file(std::fopen(path.c_str(), "rb"));
  if (!file)
    return failed(DiagId::file_not_readable, path, errno);
  struct stat info = {};
  if (fstat(fileno(file.get()), &info) == 0 && S_ISDIR(info.st_mode))
    return failed(DiagId::file_not_readable, path, EISDIR);
  constexpr size_t limit = size_t(256) << 20;
  std::string text;
  char chunk[1 << 16];
  while (size_t got = std::fread(chunk, 1, sizeof chunk, file.get())) {
    text.append(chunk, got);
    if (text.size() > limit)
      return failed(DiagId::file_not_readable, path, EFBIG);
  }
  if (std::ferror(file.get()) != 0)
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
  // A pipe or a device is written in place: a rename would replace it.
  struct stat info = {};
  bool special = stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  std::string temporary = special ? path : path + "." + std::to_string(getpid()) + ".part";
  File file(std::fopen(temporary.c_str(), "wb"));
  if (!file)
    return failed(DiagId::file_not_writable, path, errno);
  bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  int error = errno;
  if (std::fclose(file.release()) != 0 && written) {
    written = false;
    error = errno;
  }
  if (written && (special || std::rename(temporary.c_str(), path.c_str()) == 0))
    return Done{};
  if (written)
    error = errno;
  if (!special)
    std::remove(temporary.c_str());
  return failed(DiagId::file_not_writable, path, error);
}

} // namespace rho::tool
