// The formats of the standard library, checked.
#pragma once

#include "dsl/Format.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rho::kernels {

// Null where none has that name. Those that a file declares beside the one it is named after are
// found too.
std::shared_ptr<const dsl::Format> shippedFormat(std::string_view name);
std::vector<std::string> shippedFormatNames();

} // namespace rho::kernels
