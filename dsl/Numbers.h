// Numbers as text, whatever the locale of the process: real ones in the shortest digits that read
// back as the same double.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <locale>
#include <sstream>
#include <string>
#include <string_view>

namespace rho::dsl {

// Without a point where the number is an integer, whose digits are all there below 2^53: "-8",
// "100000", "0.5", "1e+30". "-0" is its own text.
inline std::string printNumber(double value) {
  char buffer[64];
  if (std::fabs(value) < 0x1p53 && std::floor(value) == value) {
    auto [end, error] =
        std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
    return {buffer, end};
  }
  auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return {buffer, end};
}

// Recognisable as a real number: "-8.0".
inline std::string printReal(double value) {
  std::string text = printNumber(value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// "ff", behind zeros where it has fewer digits than asked for.
inline std::string hexadecimal(uint64_t value, size_t digits = 1) {
  char buffer[16];
  auto [end, error] = std::to_chars(buffer, std::end(buffer), value, 16);
  const std::string text(buffer, end);
  return std::string(digits - std::min(digits, text.size()), '0') + text;
}

// A number of 64 bits that tells texts apart (FNV-1a), in hexadecimal.
inline std::string fingerprint(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hexadecimal(hash, 16);
}

// Of a number that is not finite.
inline std::string nameOfNonFinite(double value) { return std::isnan(value) ? "NaN" : "infinity"; }

// For text that is read back: "1000" is never "1,000".
struct TextWriter : std::ostringstream {
  TextWriter() { imbue(std::locale::classic()); }
};
struct TextReader : std::istringstream {
  explicit TextReader(std::string text) : std::istringstream(std::move(text)) {
    imbue(std::locale::classic());
  }
};

} // namespace rho::dsl
