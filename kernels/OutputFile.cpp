#include "kernels/OutputFile.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

namespace rho::kernels {

static Error unwritable(const std::string &path, const std::string &reason) {
  return makeError(DiagId::file_not_writable, {path, reason});
}

Error OutputFile::failed(int error) const { return unwritable(path, std::strerror(error)); }

Result<OutputFile> OutputFile::create(const std::string &path) {
  std::string target = path;
  std::optional<mode_t> mode;
  if (struct stat info = {}; stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode))
      return unwritable(path, "not a regular file");
    if (access(path.c_str(), W_OK) != 0)
      return unwritable(path, std::strerror(errno));
    std::error_code error;
    target = std::filesystem::canonical(path, error).string();
    if (error)
      return unwritable(path, error.message());
    mode = info.st_mode & 07777;
  } else if (lstat(path.c_str(), &info) == 0) {
    return unwritable(path, "it is a symbolic link to nothing");
  }
  static std::atomic<int> counter = 0;
  std::string temporary =
      target + "." + std::to_string(getpid()) + "." + std::to_string(counter++) + ".part";
  Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0)
    return unwritable(path, std::strerror(errno));
  OutputFile output(target, temporary, std::move(file));
  if (mode && fchmod(output.file.get(), *mode) != 0)
    return output.failed(errno);
  return output;
}

OutputFile::OutputFile(OutputFile &&other) noexcept
    : path(std::move(other.path)), temporary(std::move(other.temporary)),
      file(std::move(other.file)), end(other.end) {
  other.temporary.clear();
}

OutputFile::~OutputFile() {
  if (!temporary.empty())
    unlink(temporary.c_str());
}

Status OutputFile::append(const void *data, int64_t bytes) {
  if (Status written = writeAt(end, data, bytes); !written)
    return written;
  end += bytes;
  return Done{};
}

Status OutputFile::writeAt(int64_t offset, const void *data, int64_t bytes) {
  const auto *from = static_cast<const char *>(data);
  while (bytes > 0) {
    ssize_t written = pwrite(file.get(), from, static_cast<size_t>(bytes), offset);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return failed(written < 0 ? errno : EIO);
    from += written;
    offset += written;
    bytes -= written;
  }
  return Done{};
}

Status OutputFile::commit() {
  if (fsync(file.get()) != 0)
    return failed(errno);
  if (rename(temporary.c_str(), path.c_str()) != 0)
    return failed(errno);
  temporary.clear();
  // The new name lives in the folder. Not every file system can sync one: what is renamed stays so.
  std::string folder = std::filesystem::path(path).parent_path().string();
  Descriptor parent(
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() >= 0)
    fsync(parent.get());
  return Done{};
}

} // namespace rho::kernels
