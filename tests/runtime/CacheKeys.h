// Keys of entries that tests make up.
#pragma once

#include "runtime/cache/Sha256.h"

namespace rho::cache {

inline std::string keyOf(const std::string &text) { return hex(sha256(text)); }

} // namespace rho::cache
