#include "kernels/MappedFile.h"

#include "runtime/files/Descriptor.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rho::kernels {

static Error unreadable(const std::string &path, const std::string &reason) {
  return makeError(DiagId::file_not_readable, {path, reason});
}

Result<Mapping> mapFile(const std::string &path) {
  if (path.find('\0') != path.npos)
    return unreadable(path, "its name has a NUL");
  // Without O_NONBLOCK a named pipe would wait for a writer.
  files::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0)
    return unreadable(path, std::strerror(errno));
  struct stat info = {};
  if (fstat(file.get(), &info) != 0)
    return unreadable(path, std::strerror(errno));
  if (!S_ISREG(info.st_mode))
    return unreadable(path, "not a regular file");
  auto size = static_cast<size_t>(info.st_size);
  if (size == 0)
    return Mapping{nullptr, {}};
  void *address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED)
    return unreadable(path, std::strerror(errno));
  std::shared_ptr<const void> owner(
      address, [size](const void *at) { munmap(const_cast<void *>(at), size); });
  return Mapping{std::move(owner), {static_cast<const char *>(address), size}};
}

} // namespace rho::kernels
