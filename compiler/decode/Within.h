// What ranges and requirements say of an expression.
#pragma once

#include "dsl/Format.h"

namespace rho::compiler {

// Whether an expression is an integer from min to max for all numbers that the format's types and
// requirements allow.
bool isWithin(const dsl::Expr &expr, const dsl::Format &format, double min, double max);

} // namespace rho::compiler
