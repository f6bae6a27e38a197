// The few tokens that JSON and Python literals share. Internal to kernels/.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace rho::kernels {

class HeaderScanner {
public:
  explicit HeaderScanner(std::string_view text) : rest(text) {}

  void skipSpace() {
    size_t start = rest.find_first_not_of(" \t\r\n");
    rest.remove_prefix(start == std::string_view::npos ? rest.size() : start);
  }
  // Takes `token` after space; false: something else stands there.
  bool take(std::string_view token) {
    skipSpace();
    if (!rest.starts_with(token))
      return false;
    rest.remove_prefix(token.size());
    return true;
  }
  // One byte, space included; 0 at the end (0 is no byte of a valid header).
  char takeByte() {
    if (rest.empty())
      return 0;
    char byte = rest.front();
    rest.remove_prefix(1);
    return byte;
  }
  // A number without sign, fraction, exponent or leading zeros that fits int64.
  std::optional<int64_t> takeCount() {
    skipSpace();
    int64_t value = 0;
    auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    const auto digits = static_cast<size_t>(end - rest.data());
    if (error != std::errc() || rest[0] == '-' || (digits > 1 && rest[0] == '0'))
      return std::nullopt;
    rest.remove_prefix(digits);
    return value;
  }
  bool atEnd() {
    skipSpace();
    return rest.empty();
  }

private:
  std::string_view rest;
};

} // namespace rho::kernels
