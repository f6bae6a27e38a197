#include "dsl/Findings.h"
#include "dsl/Parallel.h"
#include "kernels/quantize/EncodeLayer.h"
#include "kernels/quantize/QuantizedFile.h"
#include "kernels/quantize/StoredTransform.h"
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

using FormatPtr = std::shared_ptr<const dsl::Format>;

class FormatComparison {
public:
  FormatComparison(const SafetensorsFile &file, std::vector<bool> chosen,
                   const std::optional<SafetensorsFile> &activations, FormatPtr activationFormat)
      : file(file), chosen(std::move(chosen)), activations(activations),
        activationFormat(std::move(activationFormat)) {}

  // Leaves out the weights that one of these files does not have.
  Status keepThoseOf(const std::vector<SafetensorsFile> &quantized) {
    for (const SafetensorsFile &other : quantized) {
      const std::vector<std::string> names = kernels::quantizedNames(other);
      for (size_t i = 0; i < chosen.size(); ++i)
        chosen[i] =
            chosen[i] && std::binary_search(names.begin(), names.end(), file.tensors()[i].name);
      if (std::none_of(chosen.begin(), chosen.end(), [](bool each) { return each; }))
        return makeError(DiagId::nothing_to_compare, {other.path(), file.path()});
    }
    return Done{};
  }

  Status checkActivations() const {
    if (!activations)
      return Done{};
    for (size_t i = 0; i < chosen.size(); ++i)
      if (chosen[i] && activations->find(file.tensors()[i].name))
        return Done{};
    return makeError(DiagId::activations_unmatched,
                     {activations->path(), kernels::printNames(activations->tensors())});
  }

  Result<std::vector<ErrorRow>> measure(const std::vector<FormatPtr> &formats,
                                        const std::vector<SafetensorsFile> &quantized) const {
    std::vector<ErrorRow> rows;
    Progress progress("reading " + file.path());
    auto total = std::count(chosen.begin(), chosen.end(), true);
    int64_t done = 0;
    for (size_t i = 0; i < chosen.size(); ++i) {
      const TensorEntry &tensor = file.tensors()[i];
      if (!chosen[i])
        continue;
      dsl::MatrixView weight = *file.matrix(tensor);
      LayerInputs x;
      if (activations) {
        Result<std::vector<double>> read = readActivations(*activations, tensor.name, weight.k);
        if (!read)
          return read.error();
        Result<LayerInputs> inputs = inputsOf(*std::move(read), weight.k);
        if (!inputs)
          return inputs.error();
        x = *std::move(inputs);
      }
      const dsl::ThreadLimit few(x.x.empty() ? dsl::threadsWorth(weight.rows * weight.k) : 0);
      auto add = [&](const std::string &name, const auto &encoded) -> Status {
        progress.update("comparing " + progressBar(done, total) + ", " + dsl::visible(tensor.name) +
                        " in " + name);
        Result<ErrorRow> row = compare(tensor, weight, x, encoded);
        if (!row)
          return row.error();
        rows.push_back(std::move(*row));
        return Done{};
      };
      for (const auto &format : formats)
        if (Status added = add(format->name, format); !added)
          return added.error();
      for (const SafetensorsFile &other : quantized)
        if (Status added = add(other.path(), other); !added)
          return added.error();
      ++done;
      file.release(tensor);
      for (const SafetensorsFile &other : quantized)
        other.releasePartsOf(tensor.name);
    }
    return rows;
  }

private:
  // Of a layer, m x k; all empty without activations.
  struct LayerInputs {
    std::vector<double> x;
    std::vector<double> seen;     // what is left of them in codes; empty: all
    std::vector<double> diagonal; // of the Hessian: with it `rho quantize` encodes
  };
  Result<LayerInputs> inputsOf(std::vector<double> x, int64_t k) const {
    if (x.empty()) // the file has those of other weights
      return LayerInputs{};
    kernels::Matrix matrix{static_cast<int64_t>(x.size()) / k, k, {x.begin(), x.end()}};
    LayerInputs inputs{std::move(x), {}, kernels::hessianDiagonal(matrix)};
    if (!activationFormat)
      return inputs;
    Result<kernels::Matrix> codes = kernels::seenActivation(std::move(matrix), activationFormat);
    if (!codes)
      return codes.error();
    inputs.seen.assign(codes->values.begin(), codes->values.end());
    return inputs;
  }

  Result<ErrorRow> compare(const TensorEntry &tensor, const dsl::MatrixView &weight,
                           const LayerInputs &x, const FormatPtr &format) const {
    Result<dsl::QuantizedMatrix> matrix =
        dsl::quantize(format, weight, {.rejectNonFinite = true, .columnWeights = x.diagonal});
    if (!matrix) {
      Error error = makeError(DiagId::tensor_not_encoded, {tensor.name, file.path(), format->name});
      error.diagnostics.insert(error.diagnostics.end(), matrix.error().diagnostics.begin(),
                               matrix.error().diagnostics.end());
      return error;
    }
    return rowOf(tensor, format->name, "", weight, *matrix, x);
  }

  // Of codes that a file has. What it says was done to the weight before it was encoded, and is to
  // be done to inputs, is done here to both: errors are those of what was encoded.
  Result<ErrorRow> compare(const TensorEntry &tensor, const dsl::MatrixView &weight,
                           const LayerInputs &x, const SafetensorsFile &other) const {
    Result<dsl::QuantizedMatrix> matrix = kernels::readQuantized(other, tensor.name);
    if (!matrix)
      return matrix.error();
    if (matrix->rows != weight.rows || matrix->k != weight.k)
      return makeError(DiagId::quantized_file_invalid,
                       {other.path(),
                        "'" + tensor.name + "' has " + std::to_string(matrix->rows) + " x " +
                            std::to_string(matrix->k) + " numbers, that of '" + file.path() + "' " +
                            std::to_string(weight.rows) + " x " + std::to_string(weight.k)});
    Result<kernels::LayerTransform> transform = kernels::readTransform(other, tensor.name);
    if (!transform)
      return transform.error();
    const std::string label = matrix->format->name + " of " + other.path();
    if (transform->isIdentity())
      return rowOf(tensor, label, other.path(), weight, *matrix, x);
    Result<kernels::Matrix> encoded =
        kernels::transformWeight(kernels::matrixOf(weight), *transform);
    if (!encoded)
      return encoded.error();
    if (x.x.empty())
      return rowOf(tensor, label, other.path(), encoded->view(), *matrix, x);
    Result<kernels::Matrix> transformed = kernels::transformActivation(
        {static_cast<int64_t>(x.x.size()) / weight.k, weight.k, {x.x.begin(), x.x.end()}},
        *transform);
    if (!transformed)
      return transformed.error();
    Result<LayerInputs> inputs =
        inputsOf({transformed->values.begin(), transformed->values.end()}, weight.k);
    if (!inputs)
      return inputs.error();
    return rowOf(tensor, label, other.path(), encoded->view(), *matrix, *inputs);
  }

  static ErrorRow rowOf(const TensorEntry &tensor, const std::string &label,
                        const std::string &file, const dsl::MatrixView &weight,
                        const dsl::QuantizedMatrix &matrix, const LayerInputs &inputs) {
    ErrorRow row{tensor.name, label, file, weight.rows, weight.k, {}, {}, {}};
    row.error = kernels::encodingError(weight, matrix);
    row.lost = kernels::lostGroups(weight, matrix);
    if (!inputs.x.empty())
      row.output = kernels::outputError(weight, matrix, inputs.x, 0, inputs.seen);
    return row;
  }

  const SafetensorsFile &file;
  std::vector<bool> chosen;
  const std::optional<SafetensorsFile> &activations;
  const FormatPtr activationFormat; // of the inputs when layers run; null: as they are
};

Result<std::vector<FormatPtr>> openFormats(const Options &options) {
  std::vector<FormatPtr> formats;
  for (const std::string &text : options.texts("--format")) {
    Result<FormatPtr> format = openFormat(text);
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
  if (formats.empty() && !options.has("--quantized"))
    return makeError(DiagId::option_missing,
                     {"--format", "one or several are compared, or files of --quantized"});
  return formats;
}

Result<std::vector<SafetensorsFile>> openQuantized(const Options &options) {
  std::vector<SafetensorsFile> files;
  for (const std::string &path : options.texts("--quantized")) {
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file)
      return file.error();
    for (const SafetensorsFile &other : files)
      if (other.path() == path)
        return makeError(DiagId::option_conflict, {"--quantized", "--quantized " + path,
                                                   "rows of one file cannot be told apart"});
    files.push_back(std::move(*file));
  }
  return files;
}

} // namespace

Result<int> errorCommand(const Options &options) {
  Result<std::string> path = options.onlyFile();
  if (!path)
    return path.error();
  Result<std::vector<FormatPtr>> formats = openFormats(options);
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
  Result<FormatPtr> activationFormat = activationFormatOf(options);
  if (!activationFormat)
    return activationFormat.error();
  Result<std::vector<SafetensorsFile>> quantized = openQuantized(options);
  if (!quantized)
    return quantized.error();
  FormatComparison comparison(*file, std::move(*chosen), activations, std::move(*activationFormat));
  if (Status kept = comparison.keepThoseOf(*quantized); !kept)
    return kept.error();
  if (Status matched = comparison.checkActivations(); !matched)
    return matched.error();
  Result<std::vector<ErrorRow>> measured = comparison.measure(*formats, *quantized);
  if (!measured)
    return measured.error();
  std::vector<ErrorRow> rows = withTotals(std::move(*measured));
  std::fputs(errorTable(rows).c_str(), stdout);
  Error failed; // the one is no reason to do without the other
  for (auto [option, print] : {std::pair{"--csv", &errorCsv}, {"--plot", &errorPlot}})
    if (options.has(option))
      if (Status written = writeText(options.text(option), print(rows)); !written)
        failed.diagnostics.push_back(written.error().diagnostics[0]);
  if (!failed.diagnostics.empty())
    return failed;
  return success;
}

} // namespace rho::tool
