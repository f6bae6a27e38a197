// Compares a kernel's output with the exact reference.
#pragma once

#include "compiler/ErrorBound.h"
#include "dsl/Quantize.h"

#include <cstdint>
#include <string>

namespace rho::tool {

// One output against its exact value. `ratio` is error / bound; infinite where one of both is not
// finite and the other is.
struct Judgement {
  double error = 0, bound = 0, ratio = 0;
};
Judgement judge(double computed, double exact, double bound, dsl::ElementType output);

// How an output stands to the reference as a whole.
struct Comparison {
  int64_t checked = 0;
  int64_t outside = 0;   // outputs beyond their bound
  int64_t notFinite = 0; // exact values that are NaN or infinite, of whatever use that is
  int64_t loose = 0; // outputs whose bound is larger than they are, so that 0 would be within it
  // The output with the largest error, and that with the largest share of its bound.
  struct Place {
    int64_t m = 0, n = 0;
    double computed = 0, exact = 0;
    Judgement judgement;
  } largestError, worstRatio;
  bool passed() const { return outside == 0; }
  bool saysLittle() const { return loose * 4 > checked; } // that it passed
};

enum class VerifyMode : uint8_t { Full, Sample, None };
// "full", "sample" or "none"; what suits the size for an empty text.
VerifyMode verifyMode(const std::string &text, const compiler::Problem &problem);

// `output` holds m x n codes of the gemm's output type, computed on a GPU or the emulator.
Comparison verify(const dsl::Gemm &gemm, const compiler::Plan &plan,
                  const dsl::QuantizedMatrix &activation, const dsl::QuantizedMatrix &weight,
                  const dsl::MatrixView &output, VerifyMode mode, compiler::Summing by);

// Codes that differ between two matrices of one format; of one with parts, numbers.
int64_t differingCodes(const dsl::QuantizedMatrix &a, const dsl::QuantizedMatrix &b);

} // namespace rho::tool
