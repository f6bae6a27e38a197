#include "kernels/SafetensorsFile.h"

#include "dsl/Findings.h"
#include "kernels/ShardIndex.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>
#include <sys/mman.h>
#include <tuple>
#include <unistd.h>

namespace rho::kernels {

Result<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  SafetensorsFile file;
  file.name = path;
  Status added = isShardIndex(path)    ? file.addIndexed()
                 : isSafetensors(path) ? file.add(path)
                                       : makeError(DiagId::safetensors_needed, {path});
  if (!added)
    return std::move(added.error());
  std::sort(file.order.begin(), file.order.end(), [](const TensorEntry &a, const TensorEntry &b) {
    return std::tie(a.shard, a.begin, a.bytes, a.name) <
           std::tie(b.shard, b.begin, b.bytes, b.name);
  });
  file.byName.resize(file.order.size());
  std::iota(file.byName.begin(), file.byName.end(), size_t{0});
  std::sort(file.byName.begin(), file.byName.end(),
            [&](size_t a, size_t b) { return file.order[a].name < file.order[b].name; });
  return file;
}

Status SafetensorsFile::add(const std::string &path) {
  Result<Mapping> mapping = mapFile(path);
  if (!mapping)
    return std::move(mapping.error());
  TensorHeader header = readSafetensorsHeader(mapping->bytes);
  if (!header.problem.empty())
    return makeError(DiagId::tensor_file_invalid,
                     {path, std::string(safetensorsEnding), header.problem});
  for (TensorEntry &tensor : header.tensors) {
    tensor.shard = mappings.size();
    order.push_back(std::move(tensor));
  }
  texts.insert(header.metadata.begin(), header.metadata.end());
  ofShards.push_back(std::move(header.metadata));
  mappings.push_back(std::move(*mapping));
  paths.push_back(path);
  return Done{};
}

Status SafetensorsFile::addIndexed() {
  Result<ShardIndex> index = readShardIndex(name);
  if (!index)
    return std::move(index.error());
  textOfIndex = std::move(index->metadata);
  std::map<std::string, size_t> shardOf; // by file
  for (const auto &[tensor, shard] : index->weightMap)
    shardOf[shard] = 0;
  for (auto &[shard, number] : shardOf) {
    number = mappings.size();
    if (Status added = add(besideIndex(name, shard)); !added)
      return added;
  }
  std::map<std::string_view, size_t> found;
  for (const TensorEntry &tensor : order)
    if (!found.emplace(tensor.name, tensor.shard).second)
      return makeError(DiagId::tensor_file_invalid,
                       {name, std::string(indexEnding),
                        "two of its files hold '" + dsl::shown(tensor.name) + "'"});
  for (const auto &[tensor, shard] : index->weightMap)
    if (auto at = found.find(tensor); at == found.end() || at->second != shardOf[shard])
      return makeError(DiagId::tensor_file_invalid, {name, std::string(indexEnding),
                                                     "'" + dsl::shown(tensor) + "' is not in '" +
                                                         dsl::shown(shard) + "', as it says"});
  return Done{};
}

const Metadata &SafetensorsFile::metadataWith(const std::string &key) const {
  static const Metadata none;
  auto found = std::find_if(ofShards.begin(), ofShards.end(),
                            [&](const Metadata &shard) { return shard.contains(key); });
  return found == ofShards.end() ? none : *found;
}

bool SafetensorsFile::joins(const std::string &path) const {
  return isShardIndex(name) && std::any_of(paths.begin(), paths.end(), [&](const auto &shard) {
           std::error_code missing; // then it is none
           return std::filesystem::equivalent(path, shard, missing);
         });
}

bool SafetensorsFile::isAt(const std::string &path) const {
  std::error_code missing;
  return std::filesystem::equivalent(path, name, missing) || joins(path);
}

int64_t SafetensorsFile::size() const {
  int64_t bytes = 0;
  for (const Mapping &mapping : mappings)
    bytes += static_cast<int64_t>(mapping.bytes.size());
  return bytes;
}

std::vector<size_t>::const_iterator SafetensorsFile::firstFrom(std::string_view least) const {
  return std::lower_bound(byName.begin(), byName.end(), least,
                          [&](size_t i, std::string_view name) { return order[i].name < name; });
}

const TensorEntry *SafetensorsFile::find(std::string_view tensor) const {
  auto found = firstFrom(tensor);
  return found == byName.end() || order[*found].name != tensor ? nullptr : &order[*found];
}

std::optional<dsl::MatrixView> SafetensorsFile::matrix(const TensorEntry &tensor) const {
  constexpr int64_t most = std::numeric_limits<int32_t>::max(); // of dsl::quantize
  if (!tensor.supported || tensor.shape.size() != 2 || tensor.bytes == 0 ||
      std::max(tensor.shape[0], tensor.shape[1]) > most)
    return std::nullopt;
  const char *data = mappings[tensor.shard].bytes.data() + tensor.begin;
  return dsl::MatrixView{data, *tensor.supported, tensor.shape[0], tensor.shape[1],
                         tensor.shape[1]};
}

void SafetensorsFile::release(const TensorEntry &tensor) const {
  // Whole pages inside of the tensor.
  auto page = static_cast<uintptr_t>(sysconf(_SC_PAGE_SIZE));
  auto at = reinterpret_cast<uintptr_t>(bytes(tensor).data());
  uintptr_t begin = (at + page - 1) / page * page;
  uintptr_t end = (at + static_cast<uintptr_t>(tensor.bytes)) / page * page;
  if (begin < end)
    madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
}

void SafetensorsFile::releasePartsOf(std::string_view matrix) const {
  const std::string beginning = std::string(matrix) + ".";
  for (auto i = firstFrom(beginning); i != byName.end() && order[*i].name.starts_with(beginning);
       ++i)
    release(order[*i]);
}

static bool isVectorOfBytes(const TensorEntry &tensor) {
  return tensor.type == "U8" && tensor.shape.size() == 1;
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string &path,
                                                    std::vector<TensorEntry> plan,
                                                    Metadata metadata) {
  Result<files::OutputFile> file = files::OutputFile::create(path);
  if (!file)
    return std::move(file.error());
  std::vector<TensorEntry *> places;
  for (TensorEntry &tensor : plan)
    places.push_back(&tensor); // in the order of their addresses
  auto size = [](const TensorEntry *tensor) {
    return isVectorOfBytes(*tensor) ? 0 : safetensorsBits(tensor->type);
  };
  std::sort(places.begin(), places.end(), [&](const TensorEntry *a, const TensorEntry *b) {
    return std::pair(-size(a), a) < std::pair(-size(b), b);
  });
  // No number of the header will have more digits than here.
  int64_t begin = 0, vectors = 0;
  for (TensorEntry *tensor : places) {
    tensor->begin = begin;
    begin += tensor->bytes;
    if (!isVectorOfBytes(*tensor))
      vectors = begin;
  }
  std::string room = writeSafetensorsHeader(plan, metadata);
  if (uint64_t bytes = room.size() - sizeof(uint64_t); bytes > mostHeaderBytes)
    return makeError(DiagId::file_not_writable,
                     {path, "its header would have " + std::to_string(bytes) + " bytes, " +
                                std::to_string(mostHeaderBytes) + " are possible"});
  SafetensorsWriter writer(std::move(*file), std::move(plan), std::move(metadata));
  writer.headerBytes = static_cast<int64_t>(room.size());
  writer.vectorsEnd = vectors;
  return writer;
}

Status SafetensorsWriter::append(const void *data, int64_t bytes) {
  const TensorEntry &tensor = tensors[present];
  const int64_t begin = isVectorOfBytes(tensor) ? vectorsEnd : tensor.begin;
  Status done = file.writeAt(headerBytes + begin + ofPresent, data, bytes);
  ofPresent += bytes;
  written += bytes;
  return done;
}

void SafetensorsWriter::endTensor() {
  TensorEntry &tensor = tensors[present++];
  if (isVectorOfBytes(tensor)) {
    tensor.begin = vectorsEnd;
    tensor.bytes = ofPresent;
    tensor.shape = {ofPresent};
    vectorsEnd += ofPresent;
  }
  ofPresent = 0;
}

Status SafetensorsWriter::complete() {
  std::string header = writeSafetensorsHeader(tensors, texts, static_cast<size_t>(headerBytes));
  return file.writeAt(0, header.data(), static_cast<int64_t>(header.size()));
}

} // namespace rho::kernels
