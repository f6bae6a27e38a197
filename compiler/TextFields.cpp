#include "compiler/TextFields.h"

#include "dsl/Findings.h"

#include <charconv>

namespace rho::compiler {

std::optional<std::string_view> takeLine(std::string_view &rest) {
  size_t newline = rest.find('\n');
  if (newline == std::string_view::npos)
    return std::nullopt;
  std::string_view line = rest.substr(0, newline);
  rest.remove_prefix(newline + 1);
  return line;
}

std::optional<int64_t> readNumber(std::string_view text, int64_t min, int64_t max) {
  int base = 10;
  if (text.starts_with("0x")) {
    base = 16;
    text.remove_prefix(2);
    if (text.starts_with("-"))
      return std::nullopt;
  }
  int64_t value = 0;
  const char *begin = text.data();
  const char *end = begin + text.size();
  auto [stop, error] = std::from_chars(begin, end, value, base);
  if (text.empty() || error != std::errc() || stop != end || value < min || value > max)
    return std::nullopt;
  return value;
}

std::string_view FieldReader::takeToken() {
  size_t space = rest.find(' ');
  std::string_view token = rest.substr(0, space);
  rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
  return token;
}

void FieldReader::fail(std::string what) {
  if (failure.empty())
    failure = std::move(what);
}

void FieldReader::word(std::string_view expected) {
  if (!ok())
    return;
  if (takeToken() != expected)
    fail("'" + std::string(expected) + "' is missing");
}

std::string_view FieldReader::text(std::string_view key) {
  if (!ok())
    return {};
  std::string_view token = takeToken();
  if (token.size() <= key.size() || !token.starts_with(key) || token[key.size()] != '=') {
    fail("'" + std::string(key) + "=' is missing");
    return {};
  }
  return token.substr(key.size() + 1);
}

int64_t FieldReader::number(std::string_view key, int64_t min, int64_t max) {
  std::string_view value = text(key);
  if (!ok())
    return min;
  std::optional<int64_t> number = readNumber(value, min, max);
  if (!number) {
    fail("'" + std::string(key) + "' is not a number from " + std::to_string(min) + " to " +
         std::to_string(max));
    return min;
  }
  return *number;
}

void FieldReader::end() {
  if (ok() && !rest.empty())
    fail("nothing may follow its last field");
}

std::string printNumbers(const std::vector<uint8_t> &numbers) {
  std::string text;
  for (uint8_t number : numbers)
    text += (text.empty() ? "" : ",") + std::to_string(number);
  return text.empty() ? "-" : text;
}

std::optional<std::vector<uint8_t>> parseNumbers(std::string_view text) {
  std::vector<uint8_t> numbers;
  if (text == "-")
    return numbers;
  for (std::string_view item : dsl::split(text, ',')) {
    std::optional<int64_t> number = readNumber(item, 0, 255);
    if (!number)
      return std::nullopt;
    numbers.push_back(static_cast<uint8_t>(*number));
  }
  return numbers;
}

} // namespace rho::compiler
