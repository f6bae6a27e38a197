// Messages of failed checks.
#pragma once

#include "dsl/Error.h"

#include <cstdint>

namespace rho::emulator {

std::string hex(uint64_t value);
std::string range(uint64_t begin, uint64_t bytes); // "[0x10, 0x20)"

} // namespace rho::emulator
