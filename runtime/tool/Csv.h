// Tables as comma-separated values (RFC 4180).
#pragma once

#include <string>
#include <vector>

namespace rho::tool {

template <class Row> struct CsvColumn {
  const char *name;
  std::string (*value)(const Row &row);
};

// Quoted where the text holds what separates cells.
inline std::string csvCell(const std::string &text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos)
    return text;
  std::string quoted = "\"";
  for (char c : text)
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// A head line, then one line a row.
template <class Row>
std::string csv(const std::vector<CsvColumn<Row>> &columns, const std::vector<Row> &rows) {
  auto line = [&](const auto &valueOf) {
    std::string text;
    for (const CsvColumn<Row> &column : columns)
      text += (&column == columns.data() ? "" : ",") + csvCell(valueOf(column));
    return text + "\n";
  };
  std::string text = line([](const CsvColumn<Row> &column) { return std::string(column.name); });
  for (const Row &row : rows)
    text += line([&](const CsvColumn<Row> &column) { return column.value(row); });
  return text;
}

} // namespace rho::tool
