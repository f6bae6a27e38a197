#include "runtime/tool/Suite.h"

#include "compiler/Devices.h"
#include "runtime/Handles.h"
#include "runtime/tool/Bench.h"
#include "runtime/tool/Csv.h"
#include "runtime/tool/LineChart.h"
#include "runtime/tool/Report.h"

#include <algorithm>
#include <cmath>

namespace rho::tool {

namespace {

using Peer = SuiteRow::Peer;
using Measure = std::function<std::optional<double>(const SuiteRow &row)>;

// The distinct values of something over the rows, in the order of their first.
template <class ValueOf> auto distinct(const std::vector<SuiteRow> &rows, const ValueOf &valueOf) {
  std::vector<std::decay_t<decltype(valueOf(rows[0]))>> values;
  for (const SuiteRow &row : rows)
    if (std::find(values.begin(), values.end(), valueOf(row)) == values.end())
      values.push_back(valueOf(row));
  return values;
}

// A row with the ratios, which need the others.
struct FullRow {
  const SuiteRow *row;
  std::optional<double> overBf16, overByte, rooflineShare, overFloor;
};

// Of a gemm or a peer; of the same gemm launched both ways, two.
std::string titleOf(const SuiteRow &row) {
  return row.launch == launchName(true) ? row.name + ", dependent" : row.name;
}

std::string gemmOnly(const FullRow &full, std::string text) {
  return full.row->peer == Peer::None ? std::move(text) : "";
}
std::string productOnly(const FullRow &full, std::string text) {
  return full.row->peer == Peer::Floor ? "" : std::move(text);
}

const std::vector<CsvColumn<FullRow>> &suiteColumns() {
  using Row = FullRow;
  static const std::vector<CsvColumn<Row>> all = {
      {"kernel", [](const Row &full) { return full.row->name; }},
      {"device", [](const Row &full) { return full.row->device; }},
      {"mma_type", [](const Row &full) { return full.row->mmaType; }},
      {"n", [](const Row &full) { return std::to_string(full.row->shape.n); }},
      {"k", [](const Row &full) { return std::to_string(full.row->shape.k); }},
      {"m", [](const Row &full) { return productOnly(full, std::to_string(full.row->shape.m)); }},
      {"padded_m",
       [](const Row &full) { return productOnly(full, std::to_string(full.row->paddedM)); }},
      {"launch", [](const Row &full) { return full.row->launch; }},
      {"us", [](const Row &full) { return fixedNumber(full.row->time.microseconds, 3); }},
      {"us_min", [](const Row &full) { return fixedNumber(full.row->time.least, 3); }},
      {"us_max", [](const Row &full) { return fixedNumber(full.row->time.most, 3); }},
      {"replays", [](const Row &full) { return std::to_string(full.row->time.replays); }},
      {"launches", [](const Row &full) { return std::to_string(full.row->time.launches); }},
      {"tops",
       [](const Row &full) {
         return productOnly(
             full, shortNumber(teraOperations(full.row->shape, full.row->time.microseconds)));
       }},
      {"weight_bytes", [](const Row &full) { return std::to_string(full.row->weightBytes); }},
      {"weight_gb_per_s",
       [](const Row &full) {
         return shortNumber(gigabytesPerSecond(full.row->weightBytes, full.row->time.microseconds));
       }},
      {"roofline_us", [](const Row &full) { return numberOrNone(full.row->roofline); }},
      {"roofline_fraction", [](const Row &full) { return numberOrNone(full.rooflineShare); }},
      {"speedup_over_bf16", [](const Row &full) { return numberOrNone(full.overBf16); }},
      {"speedup_over_8bit", [](const Row &full) { return numberOrNone(full.overByte); }},
      {"over_floor", [](const Row &full) { return numberOrNone(full.overFloor); }},
      {"quantize_us", [](const Row &full) { return numberOrNone(full.row->quantize); }},
      {"rotate_quantize_us",
       [](const Row &full) { return numberOrNone(full.row->rotateAndQuantize); }},
      {"tile", [](const Row &full) { return full.row->tile; }},
      {"cluster", [](const Row &full) { return full.row->cluster; }},
      {"pipeline",
       [](const Row &full) { return gemmOnly(full, std::to_string(full.row->pipeline)); }},
      {"split_k", [](const Row &full) { return gemmOnly(full, std::to_string(full.row->splitK)); }},
      {"roles", [](const Row &full) { return full.row->roles; }},
      {"tables", [](const Row &full) { return full.row->tables; }},
      {"plan_source", [](const Row &full) { return full.row->planSource; }},
      {"predicted_us",
       [](const Row &full) { return gemmOnly(full, shortNumber(full.row->predicted)); }},
      {"algorithm", [](const Row &full) { return full.row->algorithm; }},
  };
  return all;
}

// One table: a line an m, a column a kernel.
std::string table(const std::vector<SuiteRow> &rows, const std::string &title,
                  const Measure &measure) {
  std::vector<std::string> names = distinct(rows, [](const SuiteRow &row) { return titleOf(row); });
  std::vector<int64_t> sizes = distinct(rows, [](const SuiteRow &row) { return row.shape.m; });
  std::sort(sizes.begin(), sizes.end());
  std::string head = "| m |";
  std::string underline = "|--:|";
  for (const std::string &name : names) {
    head += " " + name + " |";
    underline += "--:|";
  }
  std::string text = title + "\n\n" + head + "\n" + underline + "\n";
  for (int64_t m : sizes) {
    text += "| " + std::to_string(m) + " |";
    for (const std::string &name : names) {
      std::vector<double> values;
      for (const SuiteRow &row : rows)
        if (titleOf(row) == name && row.shape.m == m)
          if (std::optional<double> value = measure(row))
            values.push_back(*value);
      text += values.empty() ? " |" : " " + fixedNumber(geometricMean(values), 2) + " |";
    }
    text += "\n";
  }
  return text + "\n";
}

LineFigure figure(const std::vector<SuiteRow> &rows, const std::string &title,
                  const std::string &axis, const Measure &measure) {
  LineFigure figure{title, "m (rows of the activations)", axis, 1, {}};
  for (const SuiteRow &row : rows) {
    std::optional<double> value = measure(row);
    if (!value)
      continue;
    // The panel or line of that name, made where there is none.
    auto find = [](auto &all, const std::string &name, auto member) -> auto & {
      for (auto &one : all)
        if (one.*member == name)
          return one;
      all.emplace_back().*member = name;
      return all.back();
    };
    Panel &panel = find(figure.panels, weightText(row.shape.n, row.shape.k), &Panel::title);
    find(panel.lines, titleOf(row), &Line::name)
        .points.emplace_back(static_cast<double>(row.shape.m), *value);
  }
  for (Panel &panel : figure.panels)
    for (Line &line : panel.lines)
      std::sort(line.points.begin(), line.points.end());
  return figure;
}

} // namespace

const std::vector<WeightShape> &llamaWeights() {
  static const std::vector<WeightShape> shapes = {
      {4096, 4096},  {6144, 4096}, {28672, 4096}, {4096, 14336}, {12288, 4096},
      {11008, 4096}, {8192, 8192}, {10240, 8192}, {57344, 8192}, {8192, 28672}};
  return shapes;
}

const std::vector<int64_t> &suiteRows() {
  static const std::vector<int64_t> sizes = {1,   2,   4,   8,    16,   32,   64,
                                             128, 256, 512, 1024, 2048, 4096, 8192};
  return sizes;
}

double geometricMean(const std::vector<double> &values) {
  if (values.empty())
    return 0;
  double sum = 0;
  for (double value : values)
    sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

std::optional<double> rooflineMicroseconds(const Device &device, const GemmShape &shape,
                                           int64_t weightBytes, std::string_view mmaType) {
  const compiler::DeviceModel &model = device.impl().backend->model();
  std::optional<double> peak = compiler::peakTeraOperations(model, mmaType);
  if (!peak || *peak <= 0 || model.bandwidthGBs <= 0)
    return std::nullopt;
  double memory = static_cast<double>(weightBytes) / model.bandwidthGBs / 1e3;
  return std::max(memory, teraOperations(shape, *peak));
}

std::optional<double> SuiteResults::speedUp(const SuiteRow &row, Peer over) const {
  std::optional<double> fastest;
  for (const SuiteRow &other : all)
    if (other.peer == over && other.shape.m == row.shape.m && other.shape.n == row.shape.n &&
        other.shape.k == row.shape.k)
      fastest = std::min(fastest.value_or(INFINITY), other.time.microseconds);
  if (fastest)
    *fastest /= row.time.microseconds;
  return fastest;
}

std::optional<double> SuiteResults::rooflineShare(const SuiteRow &row) {
  if (!row.roofline)
    return std::nullopt;
  return *row.roofline / row.time.microseconds;
}

std::optional<double> SuiteResults::overFloor(const SuiteRow &row) const {
  if (row.peer != Peer::None || row.shape.m > mostFloorRows)
    return std::nullopt;
  for (const SuiteRow &other : all)
    if (other.peer == Peer::Floor && other.launch == row.launch &&
        other.weightBytes == row.weightBytes && other.shape.n == row.shape.n &&
        other.shape.k == row.shape.k)
      return row.time.microseconds / other.time.microseconds;
  return std::nullopt;
}

std::string SuiteResults::csv() const {
  std::vector<FullRow> rows;
  for (const SuiteRow &row : all)
    rows.push_back({&row, speedUp(row, Peer::Half), speedUp(row, Peer::Byte), rooflineShare(row),
                    overFloor(row)});
  return tool::csv(suiteColumns(), rows);
}

std::string SuiteResults::tables() const {
  std::vector<SuiteRow> products, bounded; // without the floor; those that are compared with it
  for (const SuiteRow &row : all) {
    if (row.peer != Peer::Floor)
      products.push_back(row);
    if (overFloor(row))
      bounded.push_back(row);
  }
  return table(products, "Speed-up over cuBLASLt bf16, geometric mean over the shapes:",
               [&](const SuiteRow &row) { return speedUp(row, Peer::Half); }) +
         table(products, "Speed-up over the faster of cuBLASLt fp8 and int8, geometric mean:",
               [&](const SuiteRow &row) { return speedUp(row, Peer::Byte); }) +
         table(products, "Share of the roofline, geometric mean:", rooflineShare) +
         table(bounded, "Time over that of reading the weight alone, geometric mean:",
               [&](const SuiteRow &row) { return overFloor(row); });
}

std::string SuiteResults::plots() const {
  std::string device = all.empty() ? "" : " on " + all[0].device;
  auto overHalf = [&](const SuiteRow &row) { // that of bf16 itself is the grey line
    return row.peer == Peer::Half ? std::nullopt : speedUp(row, Peer::Half);
  };
  return lineCharts(
      {figure(all, "Speed-up over cuBLASLt bf16" + device, "time of cuBLASLt bf16 / time",
              overHalf),
       figure(all, "Share of the roofline" + device,
              "max(weight bytes / bandwidth, 2mnk / peak rate) / time", [](const SuiteRow &row) {
                return row.peer == Peer::Floor ? std::nullopt : rooflineShare(row);
              })});
}

} // namespace rho::tool
