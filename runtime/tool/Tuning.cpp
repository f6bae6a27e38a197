#include "runtime/tool/Tuning.h"

#include "compiler/ErrorBound.h"
#include "compiler/TextFields.h"
#include "dsl/Findings.h"
#include "kernels/Reference.h"
#include "runtime/Kernel.h"
#include "runtime/Scalar.h"
#include "runtime/tool/Csv.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Suite.h"
#include "runtime/tool/Verify.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace rho::tool {

namespace {

constexpr int64_t mostRows = 16;

// The first and the last, and others in between that are at different places of their tiles.
std::vector<int64_t> spreadRows(int64_t m) {
  std::set<int64_t> rows;
  for (int64_t i = 0; i < mostRows; ++i)
    rows.insert(i * (m - 1) / (mostRows - 1));
  return {rows.begin(), rows.end()};
}

// Whether the codes of a row depend on other rows.
bool rowsShare(const dsl::Format &format) {
  return format.hasParts() || std::any_of(format.components.begin(), format.components.end(),
                                          [](const dsl::Component &component) {
                                            return component.extent == dsl::Extent::Tensor ||
                                                   component.rows > 1;
                                          });
}

// Those rows of x [m][k], in the gemm's activation format.
Result<dsl::QuantizedMatrix> quantizeRows(const Device &device, const Gemm &gemm,
                                          const TimingOperands::Input &x,
                                          const std::vector<int64_t> &rows) {
  int64_t k = gemm.shape().k;
  int64_t rowBytes = k * scalarBytes(x.type);
  std::vector<uint8_t> numbers(rows.size() * static_cast<size_t>(rowBytes));
  for (size_t i = 0; i < rows.size(); ++i)
    if (Status read = device.impl().backend->read(
            x.x + static_cast<uint64_t>(rows[i] * rowBytes),
            numbers.data() + i * static_cast<size_t>(rowBytes), rowBytes);
        !read)
      return read.error();
  dsl::MatrixView view{numbers.data(), viewType(x.type), static_cast<int64_t>(rows.size()), k, k};
  return dsl::quantize(gemm.impl().activation(), view, false);
}

// The columns of what was tuned for, and then these.
template <class Row> std::vector<CsvColumn<Row>> behindProblem(std::vector<CsvColumn<Row>> others) {
  std::vector<CsvColumn<Row>> columns = {
      {"gemm", [](const Row &row) { return row.gemm; }},
      {"device", [](const Row &row) { return row.device; }},
      {"n", [](const Row &row) { return std::to_string(row.shape.n); }},
      {"k", [](const Row &row) { return std::to_string(row.shape.k); }},
      {"m", [](const Row &row) { return std::to_string(row.shape.m); }},
  };
  columns.insert(columns.end(), others.begin(), others.end());
  return columns;
}

} // namespace

std::string scheduleText(const std::string &plan) {
  Result<compiler::Plan> parsed = compiler::Plan::parse(plan);
  if (!parsed)
    return {};
  const std::string printed = parsed->printForKernel();
  std::vector<std::string> kept;
  for (std::string_view lines = printed;
       std::optional<std::string_view> line = compiler::takeLine(lines);)
    if (!line->starts_with("shape ") && !line->starts_with("target "))
      kept.emplace_back(*line);
  return dsl::join(kept);
}

TunedRow tunedRow(const std::string &gemm, const Device &device, const GemmShape &shape,
                  const TuneReport &report) {
  TunedRow row;
  row.gemm = gemm;
  row.device = device.name();
  row.shape = shape;
  row.candidates = static_cast<int64_t>(report.candidates.size());
  for (const TuneReport::Candidate &candidate : report.candidates)
    row.failed += !candidate.microseconds.ok();
  const TuneReport::Candidate &planned = report.candidates[0];
  const TuneReport::Candidate &best = report.candidates[report.best];
  if (planned.microseconds)
    row.planned = *planned.microseconds;
  row.best = *best.microseconds;
  row.rank = static_cast<int64_t>(report.best) + 1;
  row.plannedSchedule = scheduleText(planned.plan);
  row.bestSchedule = scheduleText(best.plan);
  return row;
}

std::vector<MeasuredRow> measuredRows(const std::string &gemm, const Device &device,
                                      const GemmShape &shape, const TuneReport &report) {
  std::vector<MeasuredRow> rows;
  for (const TuneReport::Candidate &candidate : report.candidates)
    if (candidate.microseconds)
      rows.push_back({gemm, device.name(), shape, candidate.predictedMicroseconds,
                      *candidate.microseconds, scheduleText(candidate.plan)});
  return rows;
}

std::string measuredCsv(const std::vector<MeasuredRow> &rows) {
  using Row = MeasuredRow;
  static const std::vector<CsvColumn<Row>> columns = behindProblem<Row>({
      {"predicted_us", [](const Row &row) { return fixedNumber(row.predicted, 3); }},
      {"measured_us", [](const Row &row) { return fixedNumber(row.measured, 3); }},
      {"schedule", [](const Row &row) { return row.schedule; }},
  });
  return csv(columns, rows);
}

std::string tunedCsv(const std::vector<TunedRow> &rows) {
  using Row = TunedRow;
  static const std::vector<CsvColumn<Row>> columns = behindProblem<Row>({
      {"candidates", [](const Row &row) { return std::to_string(row.candidates); }},
      {"failed", [](const Row &row) { return std::to_string(row.failed); }},
      {"planned_us",
       [](const Row &row) { return row.planned ? fixedNumber(*row.planned, 3) : ""; }},
      {"best_us", [](const Row &row) { return fixedNumber(row.best, 3); }},
      {"planned_over_best",
       [](const Row &row) { return row.planned ? fixedNumber(*row.ratio(), 3) : ""; }},
      {"best_rank", [](const Row &row) { return std::to_string(row.rank); }},
      {"planned_schedule", [](const Row &row) { return row.plannedSchedule; }},
      {"best_schedule", [](const Row &row) { return row.bestSchedule; }},
  });
  return csv(columns, rows);
}

std::string plannerSummary(const std::vector<TunedRow> &rows) {
  std::vector<double> ratios;
  const TunedRow *worst = nullptr;
  for (const TunedRow &row : rows) {
    if (!row.planned)
      continue;
    ratios.push_back(*row.ratio());
    if (!worst || *row.ratio() > *worst->ratio())
      worst = &row;
  }
  if (!worst)
    return {};
  return "planned / best " + fixedNumber(geometricMean(ratios), 3) + ", geometric mean of " +
         std::to_string(ratios.size()) + "; worst " + fixedNumber(*worst->ratio(), 3) + " of " +
         worst->gemm + ", " + shapeText(worst->shape);
}

Result<ExpectedRows> ExpectedRows::create(const Device &device, const Gemm &gemm,
                                          const dsl::QuantizedMatrix &slice,
                                          const TimingOperands::Input &x) {
  ExpectedRows expected;
  expected.rows = spreadRows(gemm.shape().m);
  expected.columns = slice.rows;
  std::vector<int64_t> quantized = expected.rows;
  if (rowsShare(*gemm.impl().activation())) {
    quantized.resize(static_cast<size_t>(gemm.shape().m));
    std::iota(quantized.begin(), quantized.end(), 0);
  }
  Result<dsl::QuantizedMatrix> activation = quantizeRows(device, gemm, x, quantized);
  if (!activation)
    return activation.error();
  std::vector<kernels::Sample> samples;
  for (int64_t row : expected.rows) {
    const auto place = std::lower_bound(quantized.begin(), quantized.end(), row);
    for (int64_t column = 0; column < slice.rows; ++column)
      samples.push_back({place - quantized.begin(), column});
  }
  kernels::SampleOutput exact = kernels::referenceAt(*activation, slice, samples);
  expected.y = std::move(exact.y);
  expected.magnitude = std::move(exact.magnitude);
  return expected;
}

Status ExpectedRows::check(const ReadyGemm &ready) const {
  const dsl::Gemm &declared = *ready.gemm.impl().gemm;
  const compiler::ErrorBound bound(declared, ready.gemm.impl().plan(), compiler::Summing::Gpu);
  int64_t n = ready.gemm.shape().n;
  ScalarType type = ready.gemm.outputType();
  std::vector<uint8_t> output(static_cast<size_t>(n * scalarBytes(type)));
  auto bytes = static_cast<int64_t>(output.size());
  dsl::MatrixView view{output.data(), viewType(type), 1, n, n};
  int64_t outside = 0;
  double worst = 0;
  std::vector<std::string> place;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (Status read = ready.output.read(output.data(), bytes, rows[i] * bytes); !read)
      return read;
    for (int64_t column = 0; column < n; ++column) {
      size_t at = i * static_cast<size_t>(columns) + static_cast<size_t>(column % columns);
      double computed = view.at(0, column);
      double ratio = judge(computed, y[at], bound(magnitude[at], y[at]), declared.output).ratio;
      if (ratio <= 1)
        continue;
      ++outside;
      if (place.empty() || ratio > worst) {
        worst = ratio;
        place = {std::to_string(rows[i]), std::to_string(column), shortNumber(computed),
                 shortNumber(y[at])};
      }
    }
  }
  if (outside == 0)
    return Done{};
  place.insert(place.begin(),
               {std::to_string(outside), std::to_string(static_cast<int64_t>(rows.size()) * n)});
  return makeError(DiagId::candidate_wrong, place);
}

} // namespace rho::tool
