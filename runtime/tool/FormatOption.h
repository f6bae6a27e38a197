// Formats on the command line.
#pragma once

#include "dsl/Format.h"
#include "runtime/tool/Options.h"

#include <memory>

namespace rho::tool {

// FILE.rho of one format, FILE.rho:NAME, the name of a shipped format, f16, bf16 or f32; NAME(...)
// for one with parameters. Errors: unknown_format, format_name_needed, those of the file and of the
// arguments.
Result<std::shared_ptr<const dsl::Format>> openFormat(const std::string &text);
// The same of a weight, whose rows are channels and not tokens. Other errors:
// extent_not_in_operand.
Result<std::shared_ptr<const dsl::Format>> openWeightFormat(const std::string &text);

// That of --activation-format, whose rows are tokens; null without it. Other errors:
// extent_not_in_operand, option_missing without --activations.
Result<std::shared_ptr<const dsl::Format>> activationFormatOf(const Options &options);

} // namespace rho::tool
