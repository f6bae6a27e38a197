#include "kernels/quantize/QuantizeFile.h"

#include "kernels/quantize/QuantizedFile.h"
#include "kernels/quantize/StoredTransform.h"

#include <algorithm>
#include <set>

namespace rho::kernels {

namespace {

// A name that two tensors of the output would have.
Status checkNames(const std::string &path, const std::vector<TensorEntry> &plan) {
  std::set<std::string_view> names;
  for (const TensorEntry &tensor : plan)
    if (!names.insert(tensor.name).second)
      return makeError(DiagId::output_name_taken, {tensor.name, path});
  return Done{};
}

class FileQuantizer {
public:
  FileQuantizer(const SafetensorsFile &file, std::vector<bool> chosen,
                const QuantizeFileOptions &options)
      : file(file), chosen(std::move(chosen)), options(options) {}

  Result<QuantizeFileSummary> write(const std::string &to) {
    std::vector<TensorEntry> plan = planned();
    if (Status distinct = checkNames(file.path(), plan); !distinct)
      return std::move(distinct.error());
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(to, std::move(plan), metadata());
    if (!writer)
      return std::move(writer.error());
    const std::vector<TensorEntry> &tensors = file.tensors();
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (options.progress)
        options.progress(static_cast<int64_t>(i), static_cast<int64_t>(tensors.size()),
                         tensors[i].name);
      Status done = chosen[i] ? quantize(tensors[i], *writer) : copy(tensors[i], *writer);
      if (!done)
        return std::move(done.error());
      file.release(tensors[i]);
    }
    Result<int64_t> size = writer->finish();
    if (!size)
      return std::move(size.error());
    summary.outputBytes = *size;
    for (double *share : {&summary.withoutOutliers.before, &summary.withoutOutliers.after})
      *share /= static_cast<double>(std::max<int64_t>(1, summary.quantized));
    return summary;
  }

private:
  std::vector<TensorEntry> planned() const {
    std::vector<TensorEntry> plan;
    for (size_t i = 0; i < chosen.size(); ++i) {
      const TensorEntry &tensor = file.tensors()[i];
      if (!chosen[i]) {
        plan.push_back(tensor);
        continue;
      }
      for (TensorEntry &part :
           planQuantized(tensor.name, *options.format, tensor.shape[0], tensor.shape[1]))
        plan.push_back(std::move(part));
      for (TensorEntry &part : planTransform(tensor.name, options.steps, tensor.shape[1]))
        plan.push_back(std::move(part));
    }
    return plan;
  }

  Metadata metadata() const {
    Metadata texts = options.metadata;
    texts[formatKey] = moduleText(*options.format);
    for (size_t i = 0; i < chosen.size(); ++i)
      if (const TensorEntry &tensor = file.tensors()[i]; chosen[i]) {
        texts[tensorKey + tensor.name] =
            describeQuantized(*options.format, tensor.shape[0], tensor.shape[1], tensor.type);
        if (std::string steps = describeTransform(options.steps, tensor.shape[1]); !steps.empty())
          texts[transformKey + tensor.name] = steps;
      }
    Metadata kept = file.metadata();
    std::erase_if(kept, [](const auto &entry) { // of another quantized file
      return entry.first.starts_with(tensorKey) || entry.first.starts_with(transformKey);
    });
    texts.merge(kept);
    return texts;
  }

  Status copy(const TensorEntry &tensor, SafetensorsWriter &writer) {
    ++summary.copied;
    Status written = writer.append(file.bytes(tensor).data(), tensor.bytes);
    writer.endTensor();
    return written;
  }

  Status quantize(const TensorEntry &tensor, SafetensorsWriter &writer) {
    dsl::MatrixView view = *file.matrix(tensor);
    Result<EncodedLayer> layer = encode(tensor.name, view);
    if (!layer)
      return std::move(layer.error());
    int64_t before = writer.size();
    if (Status written = writeQuantized(writer, layer->weight, options.threads); !written)
      return written;
    if (Status written = writeTransform(writer, layer->transform); !written)
      return written;
    ++summary.quantized;
    if (layer->withoutOutliers) {
      summary.withoutOutliers.before += layer->withoutOutliers->before;
      summary.withoutOutliers.after += layer->withoutOutliers->after;
    }
    summary.numbers += view.rows * view.k;
    summary.weightBytes += tensor.bytes;
    summary.storedBytes += writer.size() - before;
    return Done{};
  }

  Result<EncodedLayer> encode(const std::string &name, const dsl::MatrixView &view) const {
    if (!options.activations && !options.steps.rotate && !options.steps.needCalibration()) {
      Result<dsl::QuantizedMatrix> matrix =
          dsl::quantize(options.format, view, true, options.threads);
      if (!matrix)
        return refused(name, matrix.error());
      return EncodedLayer{{}, std::move(*matrix)};
    }
    std::optional<Matrix> inputs;
    if (options.activations) {
      Result<Matrix> found = inputsOf(name, view.k);
      if (!found)
        return std::move(found.error());
      inputs = std::move(*found);
    }
    Result<EncodedLayer> layer =
        encodeLayer(matrixOf(view), inputs ? &*inputs : nullptr,
                    {options.format, options.activationFormat}, options.steps, options.threads);
    if (!layer)
      return refused(name, layer.error());
    return layer;
  }

  Result<Matrix> inputsOf(const std::string &name, int64_t k) const {
    const SafetensorsFile &from = *options.activations;
    const TensorEntry *entry = from.find(name);
    if (!entry)
      return makeError(DiagId::activations_missing, {name, from.path()});
    std::optional<dsl::MatrixView> view = from.matrix(*entry);
    if (!view || view->k != k)
      return makeError(DiagId::activations_do_not_fit,
                       {name, from.path(), printExtents(*entry), std::to_string(k)});
    return matrixOf(*view);
  }

  Error refused(const std::string &name, const Error &reason) const {
    Error error = makeError(DiagId::tensor_not_encoded, {name, file.path(), options.format->name});
    error.diagnostics.insert(error.diagnostics.end(), reason.diagnostics.begin(),
                             reason.diagnostics.end());
    return error;
  }

  const SafetensorsFile &file;
  const std::vector<bool> chosen;
  const QuantizeFileOptions &options;
  QuantizeFileSummary summary;
};

} // namespace

Result<QuantizeFileSummary> quantizeFile(const std::string &from, const std::string &to,
                                         const QuantizeFileOptions &options) {
  Result<SafetensorsFile> file = SafetensorsFile::open(from);
  if (!file)
    return std::move(file.error());
  Result<std::vector<bool>> chosen = chooseTensors(*file, options.tensors);
  if (!chosen)
    return std::move(chosen.error());
  Result<QuantizeFileSummary> summary = FileQuantizer(*file, std::move(*chosen), options).write(to);
  if (summary)
    summary->inputBytes = file->size();
  return summary;
}

} // namespace rho::kernels
