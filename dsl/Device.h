// What a .rho file declares of a GPU: the figures that the planner needs of it.
#pragma once

#include "dsl/Source.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace rho::dsl {

// Instructions that kernels spend their time on, apart from matrix products.
enum class InstructionClass : uint8_t {
  Ffma,  // f32 add, multiply, multiply-add
  Hfma2, // the same on f16x2
  Bfma2, // the same on bf16x2
  Iadd,  // 32-bit integer add
  Imad,  // 32-bit integer multiply-add
  Lop3,  // bitwise, of up to three operands
  Prmt,  // bytes of two registers
  Shf,   // shift
  Dp4a,  // dot product of four bytes
  I2f,   // s32 to f32
  F2f,   // f32 to f16 or back
  Lds,   // four bytes from shared memory
};
inline constexpr size_t instructionClasses = 12;
std::string_view name(InstructionClass which);
std::optional<InstructionClass> instructionClassNamed(std::string_view name);

// What an SM does in a cycle.
struct DeviceRates {
  // Dense multiply-adds of the tensor cores by operand type (f16, bf16, e4m3, s8, s4, e2m1), sums
  // in f32 or s32: of the architecture's fastest instruction, and of mma.sync where that is
  // another. e4m3_scaled: e4m3 whose instruction takes scales of blocks, where it is faster.
  std::map<std::string, double, std::less<>> tensor, mma;
  // Instructions of single threads.
  std::array<double, instructionClasses> throughput{};

  double of(InstructionClass which) const { return throughput[static_cast<size_t>(which)]; }
  // Tensor-core to CUDA-core throughput, f32 (APEX4, equation 2). None where the type is not known.
  std::optional<double> rho(std::string_view type) const;
  friend bool operator==(const DeviceRates &, const DeviceRates &) = default;
};

struct Device {
  std::string name;
  std::string product; // as the driver calls it
  std::string target;  // architecture: sm_80 .. sm_121a
  int64_t sms = 0;
  double clockGHz = 0;     // boost
  double bandwidthGBs = 0; // of its memory, 10^9 bytes a second
  int64_t l2Bytes = 0;
  double l2BandwidthGBs = 0; // of reading what L2 holds; 0: no figure is known
  int64_t sharedPerSm = 0;   // bytes
  int64_t sharedPerCta = 0;  // bytes, opt-in limit
  int64_t registers = 0;     // of an SM, 32 bits each
  int64_t threads = 0;       // of an SM
  DeviceRates rates;
  Span span;
};

// Architectures, and the bytes that a CTA may have of shared memory there at most (CUDA C++
// Programming Guide, "Technical specifications per compute capability").
struct Architecture {
  std::string_view name; // without suffix
  int64_t sharedPerCta;
};
std::span<const Architecture> architectures();
// Of sm_80 .. sm_121a; of one that is not listed, what the largest has.
int64_t mostSharedPerCta(std::string_view architecture);

// Canonical text: parses back to an equal declaration.
std::string print(const Device &device);
bool operator==(const Device &a, const Device &b);

} // namespace rho::dsl
