// Whether what a format is coded by lies in the rows of an operand.
#pragma once

#include "dsl/Format.h"

#include <string>
#include <vector>

namespace rho::dsl {

// The rows of a weight are channels, those of an activation tokens. For every component and part,
// parts of parts included, that counts the other: the arguments of `extent_not_in_operand`.
std::vector<std::vector<std::string>> extentsNotInOperand(const Format &format, bool weight);

} // namespace rho::dsl
