// The activation quantizer of a format as CUDA C++: which formats it takes, and the part of
// kernels/support/quantize_activations.cu that depends on the format.
#pragma once

#include "dsl/Format.h"
#include "runtime/Handles.h"

#include <array>
#include <string>
#include <string_view>

namespace rho {

// What of an activation format the source cannot say, with its codes in memory or, as `stored` has
// it, its numbers (dsl::valuesAs). Those are quantized on the host.
std::optional<std::string> quantizerSourceProblem(const dsl::Format &format,
                                                  const dsl::Format &stored);

// The generated header "rho_format.cuh" of a format without such a problem: a type for each part,
// and of a partition one that lists them. Equal declarations give equal text. Of the layout the
// sizes of codes and words and the order of codes count, not k.
std::string quantizerHeader(const dsl::Format &format, const dsl::Format &stored,
                            const compiler::ActivationLayout &layout);
// For m rows of k numbers: what the program works with, zeros before the first launch; none where
// no row depends on others. Of a partition the parts of the blocks, 32 bits each, begin at
// quantizerChoiceOffset.
int64_t quantizerScratchBytes(const dsl::Format &format, const dsl::Format &stored, int64_t m,
                              int64_t k);
inline constexpr int64_t quantizerChoiceOffset = 64;
inline constexpr const char *quantizerHeaderName = "rho_format.cuh";

// How that program's kernel is launched: with one argument, of `count` words.
inline constexpr const char *quantizerEntry = "rho_quantize";
inline constexpr int quantizerThreads = 512;
struct QuantizerLaunch {
  static constexpr size_t most = 10 + dsl::maxParts * (2 + dsl::maxComponents);
  std::array<uint64_t, most> words{};
  size_t count = 0;
  uint32_t ctas = 0;
};
QuantizerLaunch quantizerLaunch(const Activations::Impl &out, DevicePointer x, ScalarType type,
                                int64_t stride);

// The text of kernels/support/quantize_*, embedded by the build.
std::string_view quantizerProgram();

} // namespace rho
