#include "runtime/tool/ErrorReport.h"

#include "dsl/Findings.h"
#include "runtime/tool/BarChart.h"
#include "runtime/tool/Csv.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Table.h"

#include <algorithm>
#include <cmath>

namespace rho::tool {

namespace {

constexpr const char *allTensors = "all";

// Six significant digits, whatever the size.
std::string exactNumber(double value) { return significantNumber(value, 6); }

std::string outputOf(const ErrorRow &row, const char *none) {
  return row.output ? exactNumber(row.output->relative()) : none;
}

const std::vector<CsvColumn<ErrorRow>> &errorColumns() {
  static const std::vector<CsvColumn<ErrorRow>> all = {
      {"tensor", [](const ErrorRow &row) { return row.tensor; }},
      {"format", [](const ErrorRow &row) { return row.format; }},
      {"n", [](const ErrorRow &row) { return row.rows ? std::to_string(row.rows) : ""; }},
      {"k", [](const ErrorRow &row) { return row.k ? std::to_string(row.k) : ""; }},
      {"bits_per_weight",
       [](const ErrorRow &row) { return exactNumber(row.error.bitsPerWeight()); }},
      {"mse", [](const ErrorRow &row) { return exactNumber(row.error.meanSquaredError()); }},
      {"sqnr_db", [](const ErrorRow &row) { return exactNumber(row.error.sqnrDecibels()); }},
      {"max_error", [](const ErrorRow &row) { return exactNumber(row.error.largest); }},
      {"lost_groups", [](const ErrorRow &row) { return std::to_string(row.lost.lost); }},
      {"cosine", [](const ErrorRow &row) { return fixedNumber(row.error.cosine(), 9); }},
      {"output_error", [](const ErrorRow &row) { return outputOf(row, ""); }},
  };
  return all;
}

} // namespace

std::vector<ErrorRow> withTotals(std::vector<ErrorRow> rows) {
  std::vector<ErrorRow> ofFormats, ofFiles;
  auto add = [](std::vector<ErrorRow> &totals, const std::string &label, const ErrorRow &row) {
    auto total = std::find_if(totals.begin(), totals.end(),
                              [&](const ErrorRow &other) { return other.format == label; });
    if (total == totals.end())
      total = totals.insert(totals.end(), {allTensors, label, row.file, 0, 0, {}, {}, {}});
    total->error += row.error;
    total->lost += row.lost;
    if (row.output) {
      kernels::OutputError sum = total->output.value_or(kernels::OutputError());
      total->output = sum += *row.output;
    }
  };
  bool several = false;
  for (const ErrorRow &row : rows) {
    several |= row.tensor != rows[0].tensor;
    add(ofFormats, row.format, row);
    if (!row.file.empty())
      add(ofFiles, row.file, row);
  }
  if (!several)
    return rows;
  rows.insert(rows.end(), ofFormats.begin(), ofFormats.end());
  for (const ErrorRow &total : ofFiles)
    if (std::count_if(ofFormats.begin(), ofFormats.end(),
                      [&](const ErrorRow &other) { return other.file == total.file; }) > 1)
      rows.push_back(total);
  return rows;
}

std::string errorTable(const std::vector<ErrorRow> &rows) {
  std::vector<std::vector<std::string>> cells = {{"tensor", "format", "bits/weight", "mse",
                                                  "sqnr dB", "max error", "lost groups", "cosine",
                                                  "output error"}};
  for (const ErrorRow &row : rows)
    cells.push_back({dsl::visible(row.tensor), row.format, exactNumber(row.error.bitsPerWeight()),
                     exactNumber(row.error.meanSquaredError()),
                     fixedNumber(row.error.sqnrDecibels(), 2), exactNumber(row.error.largest),
                     std::to_string(row.lost.lost), fixedNumber(row.error.cosine(), 6),
                     outputOf(row, "-")});
  return table(cells);
}

std::string errorCsv(const std::vector<ErrorRow> &rows) { return csv(errorColumns(), rows); }

std::string errorPlot(const std::vector<ErrorRow> &rows) {
  std::vector<Bar> bars;
  for (const ErrorRow &row : rows)
    if (double ratio = row.error.sqnrDecibels(); !std::isnan(ratio))
      bars.push_back({row.tensor + " " + row.format, std::max(ratio, 0.0)});
  return barChart("Signal to quantization noise of weights", "dB", bars);
}

} // namespace rho::tool
