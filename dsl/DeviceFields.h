// The entries of a device that are single figures, once for reading and printing.
#pragma once

#include "dsl/Device.h"

#include <span>
#include <string>
#include <vector>

namespace rho::dsl {

struct DeviceField {
  std::string_view name, unit;
  double least, most; // in the unit
  int64_t Device::*integer = nullptr;
  int64_t bytes = 1; // of the unit
  double Device::*real = nullptr;
  bool optional = false; // 0 where it is not given

  bool whole() const { return integer != nullptr; }
  void set(Device &device, double value) const {
    if (integer)
      device.*integer = static_cast<int64_t>(value) * bytes;
    else
      device.*real = value;
  }
  double get(const Device &device) const {
    int64_t units = integer ? device.*integer / bytes : 0;
    return integer ? static_cast<double>(units) : device.*real;
  }
};
std::span<const DeviceField> deviceFields();
// Of rates: far beyond any GPU, and small enough that products of figures stay exact.
inline constexpr double leastPerCycle = 1, mostPerCycle = 1 << 20;

// The last: by instructions that take scales of blocks, as all do that take e2m1.
inline constexpr std::string_view scaledE4m3 = "e4m3_scaled";
inline constexpr std::array<std::string_view, 7> tensorTypes = {"f16", "bf16", "e4m3",    "s8",
                                                                "s4",  "e2m1", scaledE4m3};
std::vector<std::string> tensorTypeNames();
std::vector<std::string> instructionClassNames();

} // namespace rho::dsl
