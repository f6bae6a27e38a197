// Canonical layout of .rho texts: what `rho fmt` and editors write.
#pragma once

#include "dsl/Error.h"

#include <string>
#include <string_view>

namespace rho::dsl {

// The text with canonical line breaks, indentation, spaces and alignment. They follow from the
// tokens, the comments and which of them share a line or follow a blank one; those are kept in
// their order, so formatting twice changes nothing more. Lines end in \r\n where all did; a byte
// order mark stays. `name` is shown in messages. Errors: those of lexer and parser, file_too_large
// (also of the result), format_changes_text.
Result<std::string> formatText(std::string_view text, std::string_view name);

// Whether two texts have the same tokens and comments, and so declare the same. Error:
// format_changes_text.
Status checkSameContent(std::string_view before, std::string_view after, std::string_view name);

} // namespace rho::dsl
