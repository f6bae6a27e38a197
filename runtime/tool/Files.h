// Text files of the command line.
#pragma once

#include "dsl/Error.h"

#include <filesystem>
#include <string>
#include <string_view>

namespace rho::tool {

// Standard input for "-". Errors: file_not_readable.
Result<std::string> readText(const std::string &path);
// Replaces the file as a whole, keeping its permissions and the symbolic links that lead to it;
// what files::isReplaceable() denies is written in place, and back to what it was where that fails;
// a pipe and a device are written to; standard output for an empty path. Errors: file_not_writable.
Status writeText(const std::string &path, std::string_view text);
// That it is no folder, and that the rights are there. Errors: file_not_writable.
Status checkWritable(const std::string &path);

// Where a path leads through links; as it is spelled where that cannot be found.
std::filesystem::path resolved(const std::string &path);

} // namespace rho::tool
