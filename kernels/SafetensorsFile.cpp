#include "kernels/SafetensorsFile.h"

#include <algorithm>
#include <limits>
#include <sys/mman.h>
#include <tuple>
#include <unistd.h>

namespace rho::kernels {

static Status checkEnding(const std::string &path) {
  if (path.ends_with(".safetensors"))
    return Done{};
  return makeError(DiagId::safetensors_needed, {path});
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  if (Status ending = checkEnding(path); !ending)
    return std::move(ending.error());
  Result<Mapping> mapping = mapFile(path);
  if (!mapping)
    return std::move(mapping.error());
  TensorHeader header = readSafetensorsHeader(mapping->bytes);
  if (!header.problem.empty())
    return makeError(DiagId::tensor_file_invalid, {path, ".safetensors", header.problem});
  SafetensorsFile file;
  file.name = path;
  file.mapping = std::move(*mapping);
  file.order = std::move(header.tensors);
  file.texts = std::move(header.metadata);
  std::sort(file.order.begin(), file.order.end(), [](const TensorEntry &a, const TensorEntry &b) {
    return std::tie(a.begin, a.bytes, a.name) < std::tie(b.begin, b.bytes, b.name);
  });
  return file;
}

const TensorEntry *SafetensorsFile::find(std::string_view tensor) const {
  auto found = std::find_if(order.begin(), order.end(),
                            [&](const TensorEntry &entry) { return entry.name == tensor; });
  return found == order.end() ? nullptr : &*found;
}

std::optional<dsl::MatrixView> SafetensorsFile::matrix(const TensorEntry &tensor) const {
  constexpr int64_t most = std::numeric_limits<int32_t>::max(); // of dsl::quantize
  if (!tensor.supported || tensor.shape.size() != 2 || tensor.bytes == 0 ||
      std::max(tensor.shape[0], tensor.shape[1]) > most)
    return std::nullopt;
  return dsl::MatrixView{mapping.bytes.data() + tensor.begin, *tensor.supported, tensor.shape[0],
                         tensor.shape[1], tensor.shape[1]};
}

void SafetensorsFile::release(const TensorEntry &tensor) const {
  // Whole pages inside of the tensor.
  auto page = static_cast<uintptr_t>(sysconf(_SC_PAGE_SIZE));
  auto at =
      reinterpret_cast<uintptr_t>(mapping.bytes.data()) + static_cast<uintptr_t>(tensor.begin);
  uintptr_t begin = (at + page - 1) / page * page;
  uintptr_t end = (at + static_cast<uintptr_t>(tensor.bytes)) / page * page;
  if (begin < end)
    madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string &path,
                                                    std::vector<TensorEntry> plan,
                                                    Metadata metadata) {
  if (Status ending = checkEnding(path); !ending)
    return std::move(ending.error());
  Result<OutputFile> file = OutputFile::create(path);
  if (!file)
    return std::move(file.error());
  // No number of the header will have more digits than here.
  int64_t begin = 0;
  for (TensorEntry &tensor : plan) {
    tensor.begin = begin;
    begin += tensor.bytes;
  }
  std::string room = writeSafetensorsHeader(plan, metadata);
  if (uint64_t bytes = room.size() - sizeof(uint64_t); bytes > mostHeaderBytes)
    return makeError(DiagId::file_not_writable,
                     {path, "its header would have " + std::to_string(bytes) + " bytes, " +
                                std::to_string(mostHeaderBytes) + " are possible"});
  SafetensorsWriter writer(std::move(*file), std::move(plan), std::move(metadata));
  writer.headerBytes = static_cast<int64_t>(room.size());
  if (Status written = writer.append(room.data(), writer.headerBytes); !written)
    return std::move(written.error());
  return writer;
}

void SafetensorsWriter::endTensor() {
  TensorEntry &tensor = tensors[present++];
  int64_t planned = tensor.bytes;
  tensor.begin = present > 1 ? tensors[present - 2].begin + tensors[present - 2].bytes : 0;
  tensor.bytes = file.size() - headerBytes - tensor.begin;
  if (tensor.bytes < planned) // only vectors of bytes are
    tensor.shape = {tensor.bytes};
}

Result<int64_t> SafetensorsWriter::finish() {
  std::string header = writeSafetensorsHeader(tensors, texts, static_cast<size_t>(headerBytes));
  Status done = file.writeAt(0, header.data(), static_cast<int64_t>(header.size()));
  if (done)
    done = file.commit();
  if (!done)
    return std::move(done.error());
  return file.size();
}

} // namespace rho::kernels
