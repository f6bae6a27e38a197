#include "runtime/tool/Files.h"

#include "dsl/Findings.h"
#include "runtime/files/OutputFile.h"
#include "runtime/files/SignalsHeld.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rho::tool {

Result<std::string> readText(const std::string &path) {
  files::Stream opened(path == "-" ? nullptr : std::fopen(path.c_str(), "rb"));
  std::FILE *file = path == "-" ? stdin : opened.get();
  if (!file)
    return files::failed(DiagId::file_not_readable, path, errno);
  struct stat info = {};
  if (fstat(fileno(file), &info) == 0 && S_ISDIR(info.st_mode))
    return files::failed(DiagId::file_not_readable, path, EISDIR);
  constexpr size_t limit = size_t(256) << 20;
  std::string text;
  char chunk[1 << 16];
  while (size_t got = std::fread(chunk, 1, sizeof chunk, file)) {
    text.append(chunk, got);
    if (text.size() > limit)
      return files::failed(DiagId::file_not_readable, path, EFBIG);
  }
  if (std::ferror(file) != 0)
    return files::failed(DiagId::file_not_readable, path, errno);
  return text;
}

// How many bytes were written from the beginning of the file; errno says why not all.
static size_t writeFromStart(int file, std::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written =
        pwrite(file, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      break;
    done += static_cast<size_t>(written);
  }
  return done;
}

// That the bytes have room; of a file system that cannot say so it is not known. The file may be
// longer then.
static bool hasRoom(int file, size_t bytes) {
  const int error = bytes == 0 ? 0 : posix_fallocate(file, 0, static_cast<off_t>(bytes));
  errno = error;
  return error == 0 || error == EOPNOTSUPP || error == EINVAL || error == EBADF;
}

// Over a file of that size whose place no other can take. Room is made first and the rest is cut
// off last; where that fails, what was there comes back.
static Status writeOver(const std::string &path, std::string_view text, off_t size) {
  const Result<std::string> before = readText(resolved(path).string()); // also one called "-"
  // Where a file system makes no room by itself it is made by reading and writing.
  const files::Descriptor file(open(path.c_str(), (before ? O_RDWR : O_WRONLY) | O_CLOEXEC));
  if (file.get() < 0)
    return files::failed(DiagId::file_not_writable, path, errno);
  const files::SignalsHeld held;
  const bool fits = hasRoom(file.get(), text.size());
  const size_t written = fits ? writeFromStart(file.get(), text) : 0;
  if (fits && written == text.size() &&
      ftruncate(file.get(), static_cast<off_t>(text.size())) == 0 && fsync(file.get()) == 0)
    return Done{};
  const int error = errno;
  const size_t lost = std::min(written, static_cast<size_t>(size));
  const bool isBack =
      (lost == 0 ||
       (before && writeFromStart(file.get(), std::string_view(*before).substr(0, lost)) == lost)) &&
      ftruncate(file.get(), size) == 0;
  return makeError(
      DiagId::file_not_writable,
      {path, std::string(std::strerror(error)) + (isBack ? "" : "; what was there is lost")});
}

Status writeText(const std::string &path, std::string_view text) {
  if (std::FILE *stream = path.empty() ? stdout : files::streamTo(path)) {
    bool written =
        std::fwrite(text.data(), 1, text.size(), stream) == text.size() && std::fflush(stream) == 0;
    if (written)
      return Done{};
    const int error = errno;
    std::clearerr(stream); // which is told here, and not once more at the end
    return files::failed(DiagId::file_not_writable, path.empty() ? "standard output" : path, error);
  }
  if (struct stat info = {};
      stat(path.c_str(), &info) == 0 && (!S_ISREG(info.st_mode) || !files::isReplaceable(path))) {
    if (S_ISREG(info.st_mode))
      return writeOver(path, text, info.st_size);
    files::Stream file(std::fopen(path.c_str(), "wb"));
    bool written = file && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
    if (!written || std::fclose(file.release()) != 0)
      return files::failed(DiagId::file_not_writable, path, errno);
    return Done{};
  }
  Result<files::OutputFile> file = files::OutputFile::create(path);
  if (!file)
    return file.error();
  if (Status written = file->append(text.data(), static_cast<int64_t>(text.size())); !written)
    return written;
  return file->commit();
}

Status checkWritable(const std::string &path) {
  struct stat info = {};
  const std::string folder = std::filesystem::path(path).parent_path().string();
  int error = 0;
  if (stat(path.c_str(), &info) == 0)
    error = S_ISDIR(info.st_mode) ? EISDIR : access(path.c_str(), W_OK) != 0 ? errno : 0;
  else if (errno != ENOENT || access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0)
    error = errno;
  return error == 0 ? Status(Done{})
                    : files::failed(DiagId::file_not_writable, dsl::shown(path), error);
}

std::filesystem::path resolved(const std::string &path) {
  std::error_code failed;
  const std::filesystem::path whole = std::filesystem::absolute(path, failed);
  const std::filesystem::path led = std::filesystem::weakly_canonical(whole, failed);
  return led.empty() ? whole.lexically_normal() : led;
}

} // namespace rho::tool
