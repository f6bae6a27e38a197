// Files as bytes in memory. Internal to kernels/.
#pragma once

#include "dsl/Error.h"

#include <memory>
#include <string>
#include <string_view>

namespace rho::kernels {

// A whole file mapped read-only: files larger than memory work. It must not be cut short by others
// while it is in use; that another file takes its name does no harm.
struct Mapping {
  std::shared_ptr<const void> owner;
  std::string_view bytes;
};
// Errors: file_not_readable.
Result<Mapping> mapFile(const std::string &path);

} // namespace rho::kernels
