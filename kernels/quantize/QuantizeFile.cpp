#include "kernels/quantize/QuantizeFile.h"

#include "dsl/Findings.h"
#include "dsl/Module.h"
#include "dsl/Parallel.h"
#include "kernels/quantize/QuantizedFile.h"
#include "kernels/quantize/Slices.h"
#include "kernels/quantize/StoredTransform.h"
#include "kernels/quantize/WeightGroups.h"

#include <algorithm>
#include <map>
#include <utility>

namespace rho::kernels {

namespace {

using FormatPtr = std::shared_ptr<const dsl::Format>;

// That of each tensor of a file; null for those that stay as they are. Errors: those of
// chooseTensors, format_pattern_unused.
Result<std::vector<FormatPtr>> formatsOf(const SafetensorsFile &file,
                                         const QuantizeFileOptions &options) {
  Result<std::vector<bool>> chosen = chooseTensors(file, options.tensors);
  if (!chosen)
    return std::move(chosen.error());
  std::vector<std::string> patterns;
  for (const FormatOfWeights &of : options.formats)
    patterns.push_back(of.pattern);
  if (Status known = checkPatterns(file, patterns); !known)
    return std::move(known.error());
  std::vector<FormatPtr> formats(chosen->size());
  std::vector<bool> used(patterns.size());
  for (size_t i = 0; i < formats.size(); ++i) {
    if (!(*chosen)[i])
      continue;
    const auto first =
        std::find_if(patterns.begin(), patterns.end(), [&](const std::string &pattern) {
          return matches(pattern, file.tensors()[i].name);
        });
    const auto at = static_cast<size_t>(first - patterns.begin());
    formats[i] = first == patterns.end() ? options.format : options.formats[at].format;
    if (first != patterns.end())
      used[at] = true;
  }
  for (size_t i = 0; i < patterns.size(); ++i)
    if (!used[i])
      return makeError(DiagId::format_pattern_unused,
                       {dsl::shown(patterns[i]), options.formats[i].format->name});
  return formats;
}

class FileQuantizer {
public:
  FileQuantizer(const SafetensorsFile &file, std::vector<FormatPtr> formats,
                const QuantizeFileOptions &options)
      : file(file), formats(std::move(formats)), options(options) {}

  Result<QuantizeFileSummary> write(const std::string &to) {
    std::vector<FormatPtr> all;
    for (const FormatPtr &format : formats)
      if (format && std::find(all.begin(), all.end(), format) == all.end())
        all.push_back(format);
    Result<std::string> declarations = dsl::printModule(all);
    if (!declarations)
      return std::move(declarations.error());
    if (Status distinct = checkNames(); !distinct)
      return std::move(distinct.error());
    if (Status complete = checkInputs(); !complete)
      return std::move(complete.error());
    Result<std::vector<std::vector<size_t>>> found = weightGroups(file, formats, options);
    if (!found)
      return std::move(found.error());
    groups = std::move(*found);
    Result<int64_t> size =
        writeTensors(file, to, planned(isShardIndex(to), *declarations), options.progress,
                     [&](size_t i, SafetensorsWriter &writer) {
                       const TensorEntry &tensor = file.tensors()[i];
                       return formats[i] ? quantize(i, writer) : copy(tensor, writer);
                     });
    if (!size)
      return std::move(size.error());
    summary.outputBytes = *size;
    return summary;
  }

private:
  // One shard, or as many as the input has. Each can be read alone.
  std::vector<CheckpointWriter::Shard> planned(bool keepsShards,
                                               const std::string &declarations) const {
    std::vector<CheckpointWriter::Shard> plan(keepsShards ? file.shards() : 1);
    for (CheckpointWriter::Shard &shard : plan) {
      shard.metadata = options.metadata;
      shard.metadata[formatKey] = declarations;
    }
    for (size_t i = 0; i < formats.size(); ++i) {
      const TensorEntry &tensor = file.tensors()[i];
      CheckpointWriter::Shard &shard = plan[keepsShards ? tensor.shard : 0];
      if (formats[i])
        planWeight(tensor, *formats[i], shard);
      else
        shard.tensors.push_back(tensor);
    }
    for (size_t i = 0; i < plan.size(); ++i) {
      Metadata kept = keepsShards ? file.metadata(i) : file.metadata();
      std::erase_if(kept, [](const auto &entry) { // of another quantized file
        return entry.first.starts_with(tensorKey) || entry.first.starts_with(transformKey);
      });
      plan[i].metadata.insert(kept.begin(), kept.end());
    }
    return plan;
  }

  // No two tensors of the output may have one name, and none that of a step's, made or not: who
  // reads the file could not tell.
  Status checkNames() const {
    std::map<std::string, std::string> origins;
    auto taken = [&](const std::string &name, const std::string &as) -> Status {
      auto [known, isNew] = origins.emplace(name, as);
      if (isNew)
        return Done{};
      return makeError(DiagId::output_name_taken, {dsl::shown(name), known->second, as});
    };
    for (size_t i = 0; i < formats.size(); ++i) {
      const TensorEntry &tensor = file.tensors()[i];
      const std::string of = " of '" + dsl::shown(tensor.name) + "'";
      Status free = Done{};
      if (!formats[i])
        free = taken(tensor.name, "a tensor of '" + file.path() + "'");
      else
        for (const TensorEntry &part :
             planQuantized(tensor.name, *formats[i], tensor.shape[0], tensor.shape[1]))
          if (free)
            free = taken(part.name, "codes" + of);
      for (const char *step : {smoothingSuffix, orderSuffix})
        if (free && formats[i])
          free = taken(tensor.name + step, "what becomes of inputs" + of);
      if (!free)
        return free;
    }
    return Done{};
  }

  // What can be known of the steps before the first tensor is encoded.
  Status checkInputs() const {
    for (size_t i = 0; i < formats.size(); ++i) {
      const TensorEntry &tensor = file.tensors()[i];
      if (!formats[i])
        continue;
      if (options.steps.refine)
        if (Status good = checkRefinable(*formats[i]); !good)
          return good;
      if (options.activations) {
        Result<dsl::MatrixView> inputs = inputsOf(tensor.name, tensor.shape[1]);
        if (!inputs)
          return inputs.error();
        if (Status good = checkActivation(matrixOf(*inputs, options.threads)); !good)
          return refused(tensor.name, *formats[i], good.error());
      }
      if (options.steps.rotate)
        if (Result<Hadamard> matrix = Hadamard::ofOrder(tensor.shape[1]); !matrix)
          return refused(tensor.name, *formats[i], matrix.error());
    }
    return Done{};
  }

  void planWeight(const TensorEntry &tensor, const dsl::Format &format,
                  CheckpointWriter::Shard &shard) const {
    int64_t rows = tensor.shape[0], k = tensor.shape[1];
    for (TensorEntry &part : planQuantized(tensor.name, format, rows, k))
      shard.tensors.push_back(std::move(part));
    for (TensorEntry &part : planTransform(tensor.name, options.steps, k))
      shard.tensors.push_back(std::move(part));
    shard.metadata[tensorKey + tensor.name] = describeQuantized(format, rows, k, tensor.type);
    if (std::string steps = describeTransform(options.steps, k); !steps.empty())
      shard.metadata[transformKey + tensor.name] = steps;
  }

  Status copy(const TensorEntry &tensor, SafetensorsWriter &writer) {
    ++summary.copied;
    summary.copiedBytes += tensor.bytes;
    Status written = writer.append(file.bytes(tensor).data(), tensor.bytes);
    writer.endTensor();
    return written;
  }

  Status quantize(size_t i, SafetensorsWriter &writer) {
    const TensorEntry &tensor = file.tensors()[i];
    dsl::MatrixView view = *file.matrix(tensor);
    const dsl::ThreadLimit threads(options.activations ? 0 // with products of them
                                                       : dsl::threadsWorth(view.rows * view.k));
    Result<EncodedLayer> layer = encode(i);
    if (!layer)
      return std::move(layer.error());
    int64_t before = writer.size();
    if (Status written = writeQuantized(writer, layer->weight, options.threads); !written)
      return written;
    if (Status written = writeTransform(writer, layer->transform); !written)
      return written;
    ++summary.quantized;
    if (layer->blocks) {
      summary.blocks.all += layer->blocks->all;
      summary.blocks.before += layer->blocks->before;
      summary.blocks.after += layer->blocks->after;
    }
    summary.lost += layer->lost;
    if (layer->lost.lost > summary.mostLost) {
      summary.mostLost = layer->lost.lost;
      summary.mostLostTensor = tensor.name;
    }
    if (formats[i]->residual) {
      const dsl::CodeArray &choice = layer->weight.choice;
      summary.residualBlocks += choice.size();
      summary.storedBlocks += std::count(choice.data(), choice.data() + choice.size(), 1);
    }
    summary.numbers += view.rows * view.k;
    summary.weightBytes += tensor.bytes;
    summary.storedBytes += writer.size() - before;
    return Done{};
  }

  Result<EncodedLayer> encode(size_t i) {
    for (const std::vector<size_t> &group : groups) {
      if (std::find(group.begin(), group.end(), i) == group.end())
        continue;
      if (!encoded.contains(i))
        if (Status done = encodeTogether(group); !done)
          return std::move(done.error());
      return std::move(encoded.extract(i).mapped());
    }
    const TensorEntry &tensor = file.tensors()[i];
    const dsl::MatrixView view = *file.matrix(tensor);
    if (options.activations || options.steps.rotate || options.steps.needCalibration())
      return encodeByLayer(tensor.name, formats[i], matrixOf(view, options.threads));
    Result<dsl::QuantizedMatrix> matrix = dsl::quantize(formats[i], view, true, options.threads);
    if (!matrix)
      return refused(tensor.name, *formats[i], matrix.error());
    const LostGroups lost = lostGroups(view, *matrix, options.threads);
    return EncodedLayer{{}, std::move(*matrix), lost};
  }

  // To `encoded`. What lost numbers counts with the first.
  Status encodeTogether(const std::vector<size_t> &group) {
    const FormatPtr &format = formats[group[0]];
    Matrix all{0, file.tensors()[group[0]].shape[1], {}};
    for (size_t i : group) {
      const TensorEntry &tensor = file.tensors()[i];
      const Matrix one = matrixOf(*file.matrix(tensor), options.threads);
      if (Status finite = checkNumbers(one, DiagId::non_finite_input); !finite)
        return refused(tensor.name, *format, finite.error());
      all.rows += one.rows;
      all.values.insert(all.values.end(), one.values.begin(), one.values.end());
    }
    Result<EncodedLayer> layer = encodeByLayer(file.tensors()[group[0]].name, format, all);
    if (!layer)
      return std::move(layer.error());
    int64_t row = 0;
    for (size_t i : group) {
      const TensorEntry &tensor = file.tensors()[i];
      Result<dsl::QuantizedMatrix> own =
          sliceOf(layer->weight, {.name = tensor.name, .firstRow = row, .rows = tensor.shape[0]});
      if (!own)
        return refused(tensor.name, *format, own.error());
      row += tensor.shape[0];
      encoded[i] = {layer->transform, std::move(*own), std::exchange(layer->lost, {}),
                    layer->blocks};
    }
    return Done{};
  }

  Result<EncodedLayer> encodeByLayer(const std::string &name, const FormatPtr &format,
                                     const Matrix &weight) const {
    std::optional<Matrix> inputs;
    if (options.activations) {
      Result<dsl::MatrixView> found = inputsOf(name, weight.k);
      if (!found)
        return std::move(found.error());
      inputs = matrixOf(*found, options.threads);
    }
    Result<EncodedLayer> layer =
        encodeLayer(weight, inputs ? &*inputs : nullptr, {format, options.activationFormat},
                    options.steps, options.threads);
    if (!layer)
      return refused(name, *format, layer.error());
    return layer;
  }

  Result<dsl::MatrixView> inputsOf(const std::string &name, int64_t k) const {
    const SafetensorsFile &from = *options.activations;
    const TensorEntry *entry = from.find(name);
    if (!entry)
      return makeError(DiagId::activations_missing, {name, from.path()});
    std::optional<dsl::MatrixView> view = from.matrix(*entry);
    if (!view || view->k != k)
      return makeError(DiagId::activations_do_not_fit,
                       {name, from.path(), printExtents(*entry), std::to_string(k)});
    return *view;
  }

  Error refused(const std::string &name, const dsl::Format &format, const Error &reason) const {
    Error error = makeError(DiagId::tensor_not_encoded, {name, file.path(), format.name});
    error.diagnostics.insert(error.diagnostics.end(), reason.diagnostics.begin(),
                             reason.diagnostics.end());
    return error;
  }

  const SafetensorsFile &file;
  const std::vector<FormatPtr> formats; // see formatsOf
  const QuantizeFileOptions &options;
  std::vector<std::vector<size_t>> groups; // see weightGroups
  std::map<size_t, EncodedLayer> encoded;  // of a group, until they are written
  QuantizeFileSummary summary;
};

} // namespace

Result<QuantizeFileSummary> quantizeFile(const std::string &from, const std::string &to,
                                         const QuantizeFileOptions &options) {
  Result<SafetensorsFile> file = SafetensorsFile::open(from);
  if (!file)
    return std::move(file.error());
  if (Status free = checkOutput(to, *file, options.activations.get()); !free)
    return std::move(free.error());
  Result<std::vector<FormatPtr>> formats = formatsOf(*file, options);
  if (!formats)
    return std::move(formats.error());
  Result<QuantizeFileSummary> summary =
      FileQuantizer(*file, std::move(*formats), options).write(to);
  if (summary)
    summary->inputBytes = file->size();
  return summary;
}

} // namespace rho::kernels
