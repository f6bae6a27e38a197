#include "runtime/files/Descriptor.h"

#include <cstring>
#include <unistd.h>

namespace rho::files {

Descriptor::~Descriptor() {
  if (number >= 0)
    close(number);
}

Error failed(DiagId id, const std::string &path, int error) {
  return makeError(id, {path, std::strerror(error)});
}

} // namespace rho::files
