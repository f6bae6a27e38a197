// Random operands that kernels are timed on. Every number is valid and finite; large matrices
// repeat a part, which is all that a host makes in reasonable time.
#pragma once

#include "compiler/Layout.h"
#include "dsl/Quantize.h"
#include "runtime/tool/Timing.h"

#include <map>
#include <optional>
#include <string>

namespace rho::tool {

// The codes of synthetic numbers for the first rows of a weight, one or more tiles high. The blocks
// of a residual are chosen by the H-score, for inputs with a few large channels.
Result<dsl::QuantizedMatrix> sliceCodes(const compiler::WeightLayout &layout,
                                        std::shared_ptr<const dsl::Format> format, uint64_t seed);
// A packed weight of which each slice of rows holds the same codes: those of sliceCodes().
Result<std::vector<uint8_t>> packRepeated(const compiler::WeightLayout &layout,
                                          const dsl::QuantizedMatrix &slice);

// A few million normally distributed numbers of an element type of 8, 16 or 32 bits.
std::vector<uint8_t> randomNumbers(dsl::ElementType type, uint64_t seed);

// Makes operands and keeps the last of each kind: measure what shares one in a row.
class TimingOperands {
public:
  TimingOperands(const Device &device, uint64_t seed) : device(device), seed(seed) {}

  // Of the gemm's weight: row n has the codes of row n % rows. Valid until the next call.
  Result<const dsl::QuantizedMatrix *> codes(const Gemm &gemm);
  // Valid until the next call. One copy on an emulated device.
  Result<const WeightCopies *> weight(const Gemm &gemm);
  // n x k numbers of an element type of 8 or 16 bits.
  Result<const WeightCopies *> plainWeight(dsl::ElementType type, int64_t n, int64_t k);
  // Device memory with at least `count` numbers, valid until the next call.
  Result<DevicePointer> numbers(dsl::ElementType type, int64_t count);
  // x [m][k] of a gemm in the type of its plain activation, else in bf16; valid as numbers().
  struct Input {
    DevicePointer x;
    ScalarType type;
  };
  Result<Input> input(const Gemm &gemm);
  // Everything that launches of a gemm take, weight and input valid as theirs.
  struct OfLaunches {
    const WeightCopies *weight;
    Input input;
    ReadyGemm ready;
  };
  Result<OfLaunches> ofLaunches(const Gemm &gemm);

private:
  const std::vector<uint8_t> &pattern(dsl::ElementType type);

  const Device &device;
  uint64_t seed;
  std::string sliceKey;
  dsl::QuantizedMatrix slice;
  std::string weightKey;
  WeightCopies copies;
  std::optional<dsl::ElementType> numbersType;
  Buffer numbersBuffer;
  std::map<std::string_view, std::vector<uint8_t>> patterns; // by element type
};

} // namespace rho::tool
