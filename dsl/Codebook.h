// Codebooks, each stored once, for the life of the process or of the pools that hold it, so that a
// type may be an index.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace rho::dsl {

// A code and the number that it stands for.
struct CodedValue {
  double value;
  uint32_t code;
};
// The even one, else the lower, goes before the other.
constexpr bool isPreferred(uint32_t code, uint32_t other) {
  return code % 2 != other % 2 ? code % 2 == 0 : code < other;
}
// In order of value, of equal values in that of preference.
inline constexpr auto precedes = [](const CodedValue &a, const CodedValue &b) {
  return a.value != b.value ? a.value < b.value : isPreferred(a.code, b.code);
};
// Of those in this order the first of each value.
void keepFirstOfEqual(std::vector<CodedValue> &values);
// The code of the one next to x, which lies between them; of equally near ones the preferred.
inline uint32_t nearerCode(const CodedValue &below, const CodedValue &above, double x) {
  const double up = above.value - x, down = x - below.value;
  const bool isAbove = up != down ? up < down : isPreferred(above.code, below.code);
  return isAbove ? above.code : below.code;
}

class Codebook {
public:
  explicit Codebook(const std::vector<double> &values);

  // "codebook [-1.0, 0, 0.5, 1]": one text for one list of values.
  const std::string &text() const { return canonical; }
  const std::vector<double> &values() const { return byCode; }
  int bits() const { return bitCount; }
  double min() const { return sorted.front().value; }
  double max() const { return sorted.back().value; }
  // As ElementType::encode, for any value but NaN.
  uint32_t nearest(double value) const;

private:
  std::vector<double> byCode;
  std::vector<CodedValue> sorted; // of equal values one
  std::string canonical;
  int bitCount;
};

// Frees its codebooks at its end, but for those that others have: no type of theirs may be left.
class CodebookPool {
public:
  CodebookPool() = default;
  ~CodebookPool();
  CodebookPool(const CodebookPool &) = delete;
  CodebookPool &operator=(const CodebookPool &) = delete;

  // While it lives, a pool holds what its thread interns. What is interned without one stays.
  class Scope {
  public:
    explicit Scope(CodebookPool &pool);
    ~Scope();
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;
  };

private:
  std::set<size_t> held;
};

// The number of the codebook with these values, bit for bit; none beyond `limit` codebooks.
std::optional<size_t> internCodebook(const std::vector<double> &values, size_t limit);
// One that internCodebook gave out.
const Codebook &codebookAt(size_t index);
// The canonical text of any list of values.
std::string codebookText(const std::vector<double> &values);
bool isCodebookText(std::string_view text);
// Values of a codebook's text; none where it is no such text.
std::optional<std::vector<double>> parseCodebook(std::string_view text);

} // namespace rho::dsl
