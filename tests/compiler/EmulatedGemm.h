// One gemm on the emulator, from declaration to outputs, and how those stand to the exact
// reference.
#pragma once

#include "dsl/Quantize.h"
#include "runtime/Rho.h"

#include <functional>
#include <string>
#include <vector>

namespace rho::test {

// The shipped formats and a few more, by name; `schedule` is what stands between the braces.
struct Case {
  std::string weight, activation, output, schedule, target;
  GemmShape shape;
  std::string formats = {}; // declared beside those
};

std::string describe(const Case &test);
// The declaration of the case, its gemm is "g".
std::string declaration(const Case &test);

// What a run leaves: the gemm, the quantized operands and the output codes.
struct Outcome {
  Gemm gemm;
  dsl::QuantizedMatrix weight, activation;
  std::vector<uint8_t> output;
};

// Weights [n][k], tokens [m][k]. Launched twice; failures are fatal failures of the test.
void run(const Case &test, const std::vector<float> &weights, const std::vector<float> &tokens,
         Outcome &result);

// The same of codes: what `weight` makes in the format that it is given.
using WeightMaker =
    std::function<Result<dsl::QuantizedMatrix>(std::shared_ptr<const dsl::Format> format)>;
void run(const Case &test, const WeightMaker &weight, const std::vector<float> &tokens,
         Outcome &result);

// Language-model-like numbers: every output is within its computed bound, and no access to shared
// memory had a bank conflict.
void expectWithinBound(const Case &test);
void expectWithinBound(const Case &test, Outcome &result);
// Integer operands whose scales are powers of two and f32 outputs: every step after the integer sum
// is exact, so the outputs are the reference's bit for bit.
void expectExact(const Case &test);
// Numbers that both formats have, whose products and sums f32 has: f32 outputs are their products.
void expectExactProducts(const Case &test, const std::vector<float> &weights,
                         const std::vector<float> &tokens);

} // namespace rho::test
