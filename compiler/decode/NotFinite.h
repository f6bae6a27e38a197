// Codes of NaN and infinity, which no packed weight holds and a cache may.
#pragma once

#include "compiler/decode/Sequences.h"

namespace rho::compiler {

// `halves`, a decode of `element` to f16 or bf16 that may make any number of such codes, so that
// they stay what they stand for: 4 more instructions a register where they do not anyway. None
// where they cannot be told from others.
std::optional<DecodeSequence> keepingNotFinite(DecodeSequence halves, dsl::ElementType element,
                                               std::string_view mmaType);

} // namespace rho::compiler
