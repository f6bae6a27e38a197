// From a place in a kernel back to the declaration that it stems from.
#pragma once

#include "dsl/Error.h"
#include "dsl/Format.h"

namespace rho {

// The text that an origin such as "weight.scale" or "schedule" names in this declaration.
// An unknown last part names the part before it; at worst the whole gemm.
Span spanOfOrigin(const dsl::Gemm &gemm, std::string_view origin);

// Gives every diagnostic whose message names one of a kernel's origins (compiler::KernelImage) the
// span in the current text and a caret.
Error withSpans(const Error &error, const std::vector<std::string> &origins, const dsl::Gemm &gemm,
                const SourceMap &sources);

} // namespace rho
