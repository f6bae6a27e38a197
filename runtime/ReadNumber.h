// Numbers in texts that users or other processes wrote.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace rho {

// A decimal number with nothing around it.
template <class Number> std::optional<Number> readNumber(std::string_view text) {
  Number number{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return number;
}

} // namespace rho
