// The activation quantizer of a format as CUDA C++: which formats it takes, and the part of
// kernels/support/quantize_activations.cu that depends on the format.
#pragma once

#include "dsl/Error.h"
#include "dsl/Format.h"

#include <string>
#include <string_view>

namespace rho {

// Activations are plain products of an element and scales per token or per k[G]. Error
// unsupported_activation with the span of what is not (`sources` may be null).
Status checkActivationFormat(const dsl::Gemm &gemm, const SourceMap *sources);

// What of such a format the source cannot say: a type or a function of a rule. Those are quantized
// on the host.
std::optional<std::string> quantizerSourceProblem(const dsl::Format &format);

// The generated header "rho_format.cuh" of a format without such a problem. Equal
// declarations give equal text. Element codes are stored in `elementBits` bits, group scales in
// words of `groupsPerWord`, see compiler::ActivationLayout.
std::string quantizerHeader(const dsl::Format &format, int elementBits, int groupsPerWord);
inline constexpr const char *quantizerHeaderName = "rho_format.cuh";

// The text of quantize_activations.cu, embedded by the build.
std::string_view quantizerProgram();

} // namespace rho
