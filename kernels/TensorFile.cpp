#include "kernels/TensorFile.h"

#include "dsl/Findings.h"
#include "kernels/MappedFile.h"
#include "kernels/SafetensorsFile.h"
#include "kernels/ShardIndex.h"
#include "runtime/files/OutputFile.h"

#include <cstring>

namespace rho::kernels {

using Type = dsl::MatrixView::Type;

constexpr std::string_view numpyEnding = ".npy";

int64_t bytesOf(Type type) { return type == Type::F32 ? 4 : 2; }

std::optional<int64_t> elementsOf(const std::vector<int64_t> &shape) {
  int64_t elements = 1;
  for (int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements))
      return std::nullopt;
  return elements;
}

std::string printExtents(const TensorEntry &tensor) {
  std::string text = tensor.type;
  for (const int64_t &extent : tensor.shape)
    text += (&extent == tensor.shape.data() ? " " : " x ") + std::to_string(extent);
  return text;
}

std::string printNames(const std::vector<TensorEntry> &tensors) {
  constexpr size_t most = 10, longest = 200; // of names that are chosen by copying them
  std::string text;
  for (size_t i = 0; i < tensors.size() && i < most; ++i)
    text += (i > 0 ? ", '" : "'") +
            (tensors[i].name.size() > longest ? dsl::shown(tensors[i].name)
                                              : dsl::visible(tensors[i].name)) +
            "'";
  if (tensors.size() > most)
    text += " and " + std::to_string(tensors.size() - most) + " more";
  return text.empty() ? "none" : text;
}

TensorReference splitReference(std::string_view text) {
  for (std::string_view ending : {indexEnding, safetensorsEnding})
    if (size_t at = text.find(std::string(ending) + ":"); at != std::string_view::npos) {
      size_t end = at + ending.size();
      return {std::string(text.substr(0, end)), std::string(text.substr(end + 1))};
    }
  return {std::string(text), std::nullopt};
}

namespace {

std::string printShape(const std::vector<int64_t> &shape) {
  std::string text;
  for (int64_t extent : shape)
    text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text.empty() ? "a single number" : text;
}

// What a file holds of a tensor, as a message names it.
struct Found {
  const TensorEntry &entry;
  std::string shown;
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

Result<Tensor> matrixOf(const Found &found) {
  const TensorEntry &entry = found.entry;
  if (!entry.supported)
    return makeError(DiagId::tensor_type_unsupported, {found.shown, entry.type});
  if (entry.shape.size() != 2 || entry.shape[0] == 0 || entry.shape[1] == 0)
    return makeError(DiagId::tensor_shape_unsupported, {found.shown, printShape(entry.shape)});
  const char *data = found.bytes.data();
  Tensor tensor{entry.name,
                {data, *entry.supported, entry.shape[0], entry.shape[1], entry.shape[1]},
                found.owner};
  // Headers of any length are valid, so data may start at any byte.
  if (entry.begin % bytesOf(*entry.supported) != 0) {
    std::shared_ptr<char[]> copy(new char[static_cast<size_t>(entry.bytes)]);
    std::memcpy(copy.get(), data, static_cast<size_t>(entry.bytes));
    tensor.view.data = copy.get();
    tensor.owner = std::move(copy);
  }
  return tensor;
}

Result<Tensor> readNumpy(const std::string &path) {
  Result<Mapping> mapping = mapFile(path);
  if (!mapping)
    return std::move(mapping.error());
  TensorHeader header = readNumpyHeader(mapping->bytes);
  if (!header.problem.empty())
    return makeError(DiagId::tensor_file_invalid, {path, ".npy", header.problem});
  const TensorEntry &entry = header.tensors[0];
  return matrixOf(
      {entry, path, mapping->bytes.substr(static_cast<size_t>(entry.begin)), mapping->owner});
}

Result<Tensor> readSafetensors(const TensorReference &reference) {
  Result<SafetensorsFile> file = SafetensorsFile::open(reference.path);
  if (!file)
    return std::move(file.error());
  const std::vector<TensorEntry> &tensors = file->tensors();
  if (!reference.name && tensors.size() != 1)
    return makeError(DiagId::tensor_name_needed,
                     {reference.path, std::to_string(tensors.size()), printNames(tensors)});
  const TensorEntry *entry = reference.name ? file->find(*reference.name) : &tensors[0];
  if (!entry)
    return makeError(DiagId::tensor_not_found,
                     {*reference.name, reference.path, printNames(tensors)});
  return matrixOf(
      {*entry, reference.path + ":" + entry->name, file->bytes(*entry), file->owner(*entry)});
}

TensorEntry entryOf(std::string_view name, const dsl::MatrixView &matrix) {
  return {std::string(name),
          std::string(safetensorsName(matrix.type)),
          matrix.type,
          {matrix.rows, matrix.k},
          0,
          matrix.rows * matrix.k * bytesOf(matrix.type)};
}

} // namespace

Result<Tensor> readTensor(std::string_view text) {
  TensorReference reference = splitReference(text);
  if (reference.path.ends_with(numpyEnding))
    return readNumpy(reference.path);
  if (isSafetensors(reference.path))
    return readSafetensors(reference);
  return makeError(DiagId::tensor_file_kind, {reference.path});
}

Status writeTensor(const std::string &path, std::string_view name, const dsl::MatrixView &matrix) {
  bool numpy = path.ends_with(numpyEnding);
  if (!numpy && !path.ends_with(safetensorsEnding))
    return makeError(DiagId::tensor_file_kind, {path});
  std::string header =
      numpy ? writeNumpyHeader(matrix) : writeSafetensorsHeader({entryOf(name, matrix)}, {});
  Result<files::OutputFile> file = files::OutputFile::create(path);
  if (!file)
    return std::move(file.error());
  Status done = file->append(header.data(), static_cast<int64_t>(header.size()));
  if (done)
    done = file->append(matrix.data, matrix.rows * matrix.k * bytesOf(matrix.type));
  return done ? file->commit() : done;
}

} // namespace rho::kernels
