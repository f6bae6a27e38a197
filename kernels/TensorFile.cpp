#include "kernels/TensorFile.h"

#include "kernels/TensorHeader.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rho::kernels {

using Type = dsl::MatrixView::Type;

int64_t bytesOf(Type type) { return type == Type::F32 ? 4 : 2; }

std::optional<int64_t> elementsOf(const std::vector<int64_t> &shape) {
  int64_t elements = 1;
  for (int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements))
      return std::nullopt;
  return elements;
}

namespace {

constexpr std::string_view safetensorsEnding = ".safetensors";
constexpr std::string_view numpyEnding = ".npy";

class Descriptor {
public:
  explicit Descriptor(int number) : number(number) {}
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  ~Descriptor() {
    if (number >= 0)
      close(number);
  }
  int get() const { return number; }

private:
  int number;
};

// A whole file mapped read-only: files larger than memory work.
struct Mapping {
  std::shared_ptr<const void> owner;
  std::string_view bytes;
};

Error unreadable(const std::string &path, const std::string &reason) {
  return makeError(DiagId::file_not_readable, {path, reason});
}

Result<Mapping> mapFile(const std::string &path) {
  // Without O_NONBLOCK a named pipe would wait for a writer.
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0)
    return unreadable(path, std::strerror(errno));
  struct stat info = {};
  if (fstat(file.get(), &info) != 0)
    return unreadable(path, std::strerror(errno));
  if (!S_ISREG(info.st_mode))
    return unreadable(path, "not a regular file");
  auto size = static_cast<size_t>(info.st_size);
  if (size == 0)
    return Mapping{nullptr, {}};
  void *address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED)
    return unreadable(path, std::strerror(errno));
  std::shared_ptr<const void> owner(
      address, [size](const void *at) { munmap(const_cast<void *>(at), size); });
  return Mapping{std::move(owner), {static_cast<const char *>(address), size}};
}

std::string printShape(const std::vector<int64_t> &shape) {
  std::string text;
  for (int64_t extent : shape)
    text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text.empty() ? "a single number" : text;
}

// At most ten names: files have thousands of tensors.
std::string printNames(const std::vector<TensorEntry> &tensors) {
  constexpr size_t shown = 10;
  std::string text;
  for (size_t i = 0; i < tensors.size() && i < shown; ++i)
    text += (i > 0 ? ", '" : "'") + tensors[i].name + "'";
  if (tensors.size() > shown)
    text += " and " + std::to_string(tensors.size() - shown) + " more";
  return text.empty() ? "none" : text;
}

// FILE.safetensors:NAME in two.
struct Reference {
  std::string path;
  std::optional<std::string> name;
};

Reference split(std::string_view text) {
  std::string separator = std::string(safetensorsEnding) + ":";
  size_t at = text.find(separator);
  if (at == std::string_view::npos)
    return {std::string(text), std::nullopt};
  size_t end = at + safetensorsEnding.size();
  return {std::string(text.substr(0, end)), std::string(text.substr(end + 1))};
}

Result<const TensorEntry *> select(const Reference &reference, const TensorHeader &header) {
  if (!reference.name && header.tensors.size() != 1)
    return makeError(
        DiagId::tensor_name_needed,
        {reference.path, std::to_string(header.tensors.size()), printNames(header.tensors)});
  if (!reference.name)
    return &header.tensors[0];
  for (const TensorEntry &tensor : header.tensors)
    if (tensor.name == *reference.name)
      return &tensor;
  return makeError(DiagId::tensor_not_found,
                   {*reference.name, reference.path, printNames(header.tensors)});
}

bool writeAll(int file, const char *data, size_t bytes) {
  while (bytes > 0) {
    ssize_t written = write(file, data, bytes);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    data += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

} // namespace

Result<Tensor> readTensor(std::string_view text) {
  Reference reference = split(text);
  bool numpy = reference.path.ends_with(numpyEnding);
  if (!numpy && !reference.path.ends_with(safetensorsEnding))
    return makeError(DiagId::tensor_file_kind, {reference.path});
  Result<Mapping> mapping = mapFile(reference.path);
  if (!mapping)
    return std::move(mapping.error());
  TensorHeader header =
      numpy ? readNumpyHeader(mapping->bytes) : readSafetensorsHeader(mapping->bytes);
  if (!header.problem.empty())
    return makeError(DiagId::tensor_file_invalid,
                     {reference.path, numpy ? ".npy" : ".safetensors", header.problem});
  Result<const TensorEntry *> selected = select(reference, header);
  if (!selected)
    return std::move(selected.error());
  const TensorEntry &entry = **selected;
  std::string shown = numpy ? reference.path : reference.path + ":" + entry.name;
  if (!entry.supported)
    return makeError(DiagId::tensor_type_unsupported, {shown, entry.type});
  if (entry.shape.size() != 2 || entry.shape[0] == 0 || entry.shape[1] == 0)
    return makeError(DiagId::tensor_shape_unsupported, {shown, printShape(entry.shape)});

  Tensor tensor;
  tensor.name = entry.name;
  tensor.owner = mapping->owner;
  tensor.view = {mapping->bytes.data() + entry.begin, *entry.supported, entry.shape[0],
                 entry.shape[1], entry.shape[1]};
  // Headers of any length are valid, so data may start at any byte.
  if (entry.begin % bytesOf(*entry.supported) != 0) {
    std::shared_ptr<char[]> copy(new char[static_cast<size_t>(entry.bytes)]);
    std::memcpy(copy.get(), tensor.view.data, static_cast<size_t>(entry.bytes));
    tensor.view.data = copy.get();
    tensor.owner = std::move(copy);
  }
  return tensor;
}

Status writeTensor(const std::string &path, std::string_view name, const dsl::MatrixView &matrix) {
  bool numpy = path.ends_with(numpyEnding);
  if (!numpy && !path.ends_with(safetensorsEnding))
    return makeError(DiagId::tensor_file_kind, {path});
  std::string header = numpy ? writeNumpyHeader(matrix) : writeSafetensorsHeader(name, matrix);
  static std::atomic<int> counter = 0;
  std::string temporary =
      path + "." + std::to_string(getpid()) + "." + std::to_string(counter++) + ".part";
  auto fail = [&](int error) {
    return makeError(DiagId::file_not_writable, {path, std::strerror(error)});
  };
  {
    Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.get() < 0)
      return fail(errno);
    auto bytes = static_cast<size_t>(matrix.rows * matrix.k * bytesOf(matrix.type));
    if (!writeAll(file.get(), header.data(), header.size()) ||
        !writeAll(file.get(), static_cast<const char *>(matrix.data), bytes)) {
      int error = errno;
      unlink(temporary.c_str());
      return fail(error);
    }
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    int error = errno;
    unlink(temporary.c_str());
    return fail(error);
  }
  return Done{};
}

} // namespace rho::kernels
