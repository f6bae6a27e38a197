// SHA-256 (FIPS 180-4): cache keys and checksums.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace rho::cache {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
public:
  Sha256();
  void update(std::string_view bytes);
  // The length first, then the bytes: no two lists of fields hash alike.
  void field(std::string_view bytes);
  Digest finish(); // once

private:
  void block(const uint8_t *bytes);
  std::array<uint32_t, 8> state;
  std::array<uint8_t, 64> pending{};
  uint64_t total = 0;
};

Digest sha256(std::string_view bytes);
std::string hex(const Digest &digest); // 64 lower-case digits

} // namespace rho::cache
