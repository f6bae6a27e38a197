#include "runtime/tool/Table.h"

#include <algorithm>

namespace rho::tool {

namespace {

bool isNumber(const std::string &text) {
  if (text == "-" || text == "inf")
    return true;
  bool begins = text.find_first_of("0123456789") <= (text.starts_with('-') ? 1U : 0U);
  return begins && text.find_first_not_of("0123456789.x%e+-") == std::string::npos;
}

} // namespace

std::string table(const std::vector<std::vector<std::string>> &rows) {
  std::vector<size_t> widths;
  std::vector<bool> numbers;
  for (size_t r = 0; r < rows.size(); ++r) {
    widths.resize(rows[r].size());
    numbers.resize(rows[r].size(), true);
    for (size_t c = 0; c < rows[r].size(); ++c) {
      widths[c] = std::max(widths[c], rows[r][c].size());
      numbers[c] = numbers[c] && (r == 0 || isNumber(rows[r][c]));
    }
  }
  std::string out;
  for (const std::vector<std::string> &row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      std::string space(widths[c] - row[c].size(), ' ');
      line += (c ? "  " : "") + (numbers[c] ? space + row[c] : row[c] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

} // namespace rho::tool
