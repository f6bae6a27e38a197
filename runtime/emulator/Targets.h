// What instructions ask of a module's target.
#pragma once

#include "runtime/emulator/Parser.h"

#include <optional>
#include <string>

namespace rho::emulator {

// The target that a statement needs when the module's is none of those that have it; else nothing.
std::optional<std::string> missingTarget(const Statement &statement, std::string_view target);

} // namespace rho::emulator
