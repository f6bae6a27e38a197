#include "dsl/Findings.h"
#include "dsl/Parallel.h"
#include "kernels/quantize/TensorChoice.h"
#include "runtime/tool/ErrorReport.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/FormatOption.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Tool.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace rho::tool {

namespace {

using kernels::SafetensorsFile;
using kernels::TensorEntry;

// Activations of the weight of that name as double, empty where the file has none.
Result<std::vector<double>> readActivations(const SafetensorsFile &file, const std::string &name,
                                            int64_t k) {
  std::vector<double> x;
  const TensorEntry *entry = file.find(name);
  if (!entry)
    return x;
  auto misfit = [&](const std::string &what) {
    return makeError(DiagId::activations_do_not_fit, {name, file.path(), what, std::to_string(k)});
  };
  std::optional<dsl::MatrixView> view = file.matrix(*entry);
  if (!view || view->k != k)
    return misfit(kernels::printExtents(*entry));
  x.reserve(static_cast<size_t>(view->rows * k));
  for (int64_t row = 0; row < view->rows; ++row)
    for (int64_t column = 0; column < k; ++column) {
      x.push_back(view->at(row, column));
      if (!std::isfinite(x.back()))
        return misfit(std::string(std::isnan(x.back()) ? "NaN" : "infinity") + " at row " +
                      std::to_string(row) + ", column " + std::to_string(column));
    }
  return x;
}

class FormatComparison {
public:
  FormatComparison(const SafetensorsFile &file, std::vector<bool> chosen,
                   const std::optional<SafetensorsFile> &activations)
      : file(file), chosen(std::move(chosen)), activations(activations) {}

  Status checkActivations() const {
    if (!activations)
      return Done{};
    for (size_t i = 0; i < chosen.size(); ++i)
      if (chosen[i] && activations->find(file.tensors()[i].name))
        return Done{};
    return makeError(DiagId::activations_unmatched,
                     {activations->path(), kernels::printNames(activations->tensors())});
  }

  Result<std::vector<ErrorRow>>
  measure(const std::vector<std::shared_ptr<const dsl::Format>> &formats) const {
    std::vector<ErrorRow> rows;
    Progress progress("reading " + file.path());
    auto total = std::count(chosen.begin(), chosen.end(), true);
    int64_t done = 0;
    for (size_t i = 0; i < chosen.size(); ++i) {
      const TensorEntry &tensor = file.tensors()[i];
      if (!chosen[i])
        continue;
      dsl::MatrixView weight = *file.matrix(tensor);
      std::vector<double> x;
      if (activations) {
        Result<std::vector<double>> read = readActivations(*activations, tensor.name, weight.k);
        if (!read)
          return read.error();
        x = std::move(*read);
      }
      for (const auto &format : formats) {
        progress.update("comparing " + progressBar(done, total) + ", " + tensor.name + " in " +
                        format->name);
        Result<ErrorRow> row = compare(tensor, weight, x, format);
        if (!row)
          return row.error();
        rows.push_back(std::move(*row));
      }
      ++done;
      file.release(tensor);
    }
    return rows;
  }

private:
  Result<ErrorRow> compare(const TensorEntry &tensor, const dsl::MatrixView &weight,
                           const std::vector<double> &x,
                           const std::shared_ptr<const dsl::Format> &format) const {
    Result<dsl::QuantizedMatrix> matrix = dsl::quantize(format, weight, true);
    if (!matrix) {
      Error error = makeError(DiagId::tensor_not_encoded, {tensor.name, file.path(), format->name});
      error.diagnostics.insert(error.diagnostics.end(), matrix.error().diagnostics.begin(),
                               matrix.error().diagnostics.end());
      return error;
    }
    ErrorRow row{tensor.name, format->name, weight.rows, weight.k, {}, {}};
    row.error = kernels::encodingError(weight, *matrix);
    if (!x.empty())
      row.output = kernels::outputError(weight, *matrix, x);
    return row;
  }

  const SafetensorsFile &file;
  const std::vector<bool> chosen;
  const std::optional<SafetensorsFile> &activations;
};

Result<std::vector<std::shared_ptr<const dsl::Format>>> openFormats(const Options &options) {
  std::vector<std::shared_ptr<const dsl::Format>> formats;
  for (const std::string &text : options.texts("--format")) {
    Result<std::shared_ptr<const dsl::Format>> format = openFormat(text);
    if (!format)
      return format.error();
    for (const auto &other : formats)
      if (other->name == (*format)->name)
        return makeError(
            DiagId::option_conflict,
            {"--format", "--format " + text,
             "rows of two formats named " + dsl::shown(other->name) + " cannot be told apart"});
    formats.push_back(std::move(*format));
  }
  if (formats.empty())
    return makeError(DiagId::option_missing, {"--format", "one or several are compared"});
  return formats;
}

} // namespace

Result<int> errorCommand(const Options &options) {
  Result<std::string> path = options.onlyFile();
  if (!path)
    return path.error();
  Result<std::vector<std::shared_ptr<const dsl::Format>>> formats = openFormats(options);
  if (!formats)
    return formats.error();
  Result<SafetensorsFile> file = SafetensorsFile::open(*path);
  if (!file)
    return file.error();
  Result<std::vector<bool>> chosen =
      chooseTensors(*file, {options.texts("--only"), options.texts("--skip")});
  if (!chosen)
    return chosen.error();
  std::optional<SafetensorsFile> activations;
  if (options.has("--activations")) {
    Result<SafetensorsFile> opened = SafetensorsFile::open(options.text("--activations"));
    if (!opened)
      return opened.error();
    activations = std::move(*opened);
  }
  FormatComparison comparison(*file, std::move(*chosen), activations);
  if (Status matched = comparison.checkActivations(); !matched)
    return matched.error();
  Result<std::vector<ErrorRow>> measured = comparison.measure(*formats);
  if (!measured)
    return measured.error();
  std::vector<ErrorRow> rows = withTotals(std::move(*measured));
  std::fputs(errorTable(rows).c_str(), stdout);
  if (options.has("--csv"))
    if (Status written = writeText(options.text("--csv"), errorCsv(rows)); !written)
      return written.error();
  if (options.has("--plot"))
    if (Status written = writeText(options.text("--plot"), errorPlot(rows)); !written)
      return written.error();
  return success;
}

} // namespace rho::tool
