#include "runtime/files/Descriptor.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace rho::files {

Descriptor::~Descriptor() {
  if (number < 0)
    return;
  const int before = errno;
  close(number);
  errno = before;
}

void syncFolder(const std::string &path) {
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0)
    fsync(folder.get());
}

Error failed(DiagId id, const std::string &path, int error) {
  return makeError(id, {path, std::strerror(error)});
}

} // namespace rho::files
