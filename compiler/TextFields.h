// Reading the line-based texts that the compiler writes for itself: `word key=value key=value`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace rho::compiler {

// No extent of a matrix or a layout is larger; products of two stay inside int64.
constexpr int64_t maxExtent = int64_t(1) << 31;

// Takes the next line (without its newline) off `rest`; none when nothing is left. Every line,
// the last too, must end in a newline: a cut text is seen.
std::optional<std::string_view> takeLine(std::string_view &rest);

// A decimal or 0x number with nothing around it, in [min, max].
std::optional<int64_t> readNumber(std::string_view text, int64_t min, int64_t max);

// Numbers below 256 with commas between them; "-": none.
std::string printNumbers(const std::vector<uint8_t> &numbers);
std::optional<std::vector<uint8_t>> parseNumbers(std::string_view text);

// Reads one line whose fields stand in a fixed order. The first failure sticks and is described
// by problem(); reads after it give neutral values.
class FieldReader {
public:
  explicit FieldReader(std::string_view line) : rest(line) {}

  void word(std::string_view expected);
  int64_t number(std::string_view key, int64_t min, int64_t max);
  std::string_view text(std::string_view key);
  // The line must be used up.
  void end();

  bool ok() const { return failure.empty(); }
  const std::string &problem() const { return failure; }

private:
  std::string_view takeToken();
  void fail(std::string what);

  std::string_view rest;
  std::string failure;
};

// A number of a T, as its line has it: one table serves who prints the line and who reads it.
template <class T> struct NumberField {
  std::string_view key;
  std::variant<int T::*, int64_t T::*, bool T::*> member;
  int64_t least, most;
};

// " key=value" for each field.
template <class T, size_t count>
std::string printFields(const NumberField<T> (&fields)[count], const T &from) {
  std::string text;
  for (const NumberField<T> &field : fields)
    text += " " + std::string(field.key) + "=" +
            std::visit([&](auto member) { return std::to_string(from.*member); }, field.member);
  return text;
}

template <class T, size_t count>
void readFields(const NumberField<T> (&fields)[count], FieldReader &reader, T &to) {
  for (const NumberField<T> &field : fields) {
    const int64_t value = reader.number(field.key, field.least, field.most);
    std::visit(
        [&](auto member) {
          using Number = std::remove_reference_t<decltype(to.*member)>;
          to.*member = static_cast<Number>(value);
        },
        field.member);
  }
}

} // namespace rho::compiler
