#include "runtime/tool/Table.h"

#include "runtime/tool/Report.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace rho::tool {

namespace {

// With a unit of one character, or "-" for none.
bool isNumber(const std::string &text) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view rest(end, text.data() + text.size());
  return text == "-" || (error == std::errc() && (rest.empty() || rest == "x" || rest == "%"));
}

} // namespace

std::string table(const std::vector<std::vector<std::string>> &rows) {
  std::vector<size_t> widths;
  std::vector<bool> numbers;
  for (size_t r = 0; r < rows.size(); ++r) {
    widths.resize(rows[r].size());
    numbers.resize(rows[r].size(), true);
    for (size_t c = 0; c < rows[r].size(); ++c) {
      widths[c] = std::max(widths[c], lettersOf(rows[r][c]));
      numbers[c] = numbers[c] && (r == 0 || isNumber(rows[r][c]));
    }
  }
  std::string out;
  for (const std::vector<std::string> &row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      std::string space(widths[c] - lettersOf(row[c]), ' ');
      line += (c ? "  " : "") + (numbers[c] ? space + row[c] : row[c] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

} // namespace rho::tool
