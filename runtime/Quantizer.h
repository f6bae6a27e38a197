// Turns numbers in device memory into codes of an activation format, also in device memory.
#pragma once

#include "runtime/Handles.h"

namespace rho {

class Quantizer {
public:
  explicit Quantizer(std::string warning = {}) : warning(std::move(warning)) {}
  virtual ~Quantizer() = default;
  // What reports of gemms say that use it; empty: nothing.
  const std::string warning;
  // x has out.m rows of out.layout.k numbers, `stride` numbers apart.
  virtual Status run(const Activations::Impl &out, DevicePointer x, ScalarType type, int64_t stride,
                     Stream stream) const = 0;
};

// dsl::quantize on the host between synchronous copies: any device, any format, no stream capture.
std::shared_ptr<const Quantizer> makeHostQuantizer(std::string warning = {});

// Of the table of compiler::ActivationLayout.
inline constexpr int64_t tableEntryBytes = 4;

// Bytes of one code of a component where every code has bytes of its own (all but the element).
inline int64_t componentBytes(dsl::ElementType type) { return dsl::unitBits(type) / 8; }

// The table of compiler::ActivationLayout for these parts of the blocks of a partition.
std::vector<int32_t> tileTable(const dsl::Format &format, std::span<const uint8_t> choice,
                               const compiler::ActivationLayout &layout);

// Codes that a component's device buffer has room for, padding included.
int64_t deviceCodes(const dsl::Component &component, int64_t m,
                    const compiler::ActivationLayout &layout);

} // namespace rho
