// Declarations that the runtime's tests share.
#pragma once

#include "runtime/Rho.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace rho {

inline constexpr const char *w4a16 = "format int4 {\n"
                                     "  element: s4\n"
                                     "  scale: f16 per k[64]\n"
                                     "  value = element * scale\n"
                                     "}\n"
                                     "gemm w4a16 {\n"
                                     "  weight: int4\n"
                                     "  activation: f16\n"
                                     "  output: f32\n"
                                     "}\n";
inline constexpr const char *w4a8 = "format int4 {\n"
                                    "  element: s4\n"
                                    "  scale: f16 per k[64]\n"
                                    "  value = element * scale\n"
                                    "}\n"
                                    "format int8 {\n"
                                    "  element: s8\n"
                                    "  scale: f32 per token\n"
                                    "  value = element * scale\n"
                                    "}\n"
                                    "gemm w4a8 {\n"
                                    "  weight: int4\n"
                                    "  activation: int8\n"
                                    "  output: f32\n"
                                    "}\n";
inline constexpr const char *w4a4 = "format int4 {\n"
                                    "  element: s4\n"
                                    "  scale: f16 per k[64]\n"
                                    "  value = element * scale\n"
                                    "}\n"
                                    "gemm w4a4 {\n"
                                    "  weight: int4\n"
                                    "  activation: int4\n"
                                    "  output: f32\n"
                                    "}\n";

// Activations whose blocks of k have 4 or 8 bits.
inline constexpr const char *mixedActivation =
    "format int4 { element: s4 scale: f16 per channel value = element * scale }\n"
    "format low { element: s4 scale: f32 per token value = element * scale }\n"
    "format high { element: s8 scale: f32 per token value = element * scale }\n"
    "format mix { partition per tensor k[128] { low: low high: high budget 20% } }\n"
    "gemm w4ax { weight: int4 activation: mix output: f32 }\n";

// A weight that no kernel decodes.
inline constexpr const char *weightWithoutKernels = "format w {\n"
                                                    "  element: s4\n"
                                                    "  zero:  s4 per k[64]\n"
                                                    "  value = (element - zero) * element\n"
                                                    "  encode {\n"
                                                    "    zero = 1\n"
                                                    "  }\n"
                                                    "}\n"
                                                    "gemm g {\n"
                                                    "  weight: w\n"
                                                    "  activation: f16\n"
                                                    "  output: f32\n"
                                                    "}\n";

// The value of a call that a test relies on.
template <class T> T must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().str();
    std::abort();
  }
  return std::move(*result);
}

inline EngineOptions noDisk() {
  EngineOptions options;
  options.diskCache = false;
  return options;
}

inline Module parsed(const char *text, const char *name = "test.rho") {
  return must(Module::parse(text, name));
}
// Whole text of a failure, "" for none.
template <class T> std::string errorText(const Result<T> &result) {
  return result ? "" : result.error().str();
}

// Normal numbers with one column that is a hundred times larger, as LLM activations have.
inline std::vector<float> numbers(int64_t rows, int64_t columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = normal(random) * (static_cast<int64_t>(i) % columns == 3 ? 100.0f : 1.0f);
  return out;
}

} // namespace rho
