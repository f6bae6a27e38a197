// Columns of text.
#pragma once

#include <string>
#include <vector>

namespace rho::tool {

// Rows of one length under the first one, columns two spaces apart; numbers to the right.
std::string table(const std::vector<std::vector<std::string>> &rows);

} // namespace rho::tool
