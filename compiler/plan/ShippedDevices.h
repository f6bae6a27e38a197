// kernels/devices as the build found them.
#pragma once

#include <span>
#include <string_view>

namespace rho::compiler {

struct ShippedText {
  std::string_view name, text;
};
std::span<const ShippedText> shippedDeviceTexts();

} // namespace rho::compiler
