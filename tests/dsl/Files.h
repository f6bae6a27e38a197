// Files of the source tree, for tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>

namespace rho::test {

inline std::filesystem::path sourceDir() { return RHO_SOURCE_DIR; }

inline std::optional<std::string> readText(const std::filesystem::path &path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// A file that must be there.
inline std::string text(const std::filesystem::path &path) { return readText(path).value_or(""); }

// Reproducible numbers.
inline std::mt19937_64 generator(uint64_t seed) { return std::mt19937_64(seed); }

// With RHO_BLESS=1 in the environment, goldens are rewritten instead of compared.
inline bool blessing() {
  const char *value = std::getenv("RHO_BLESS");
  return value && *value == '1';
}

} // namespace rho::test
