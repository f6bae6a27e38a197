#include "kernels/CheckpointWriter.h"

#include "dsl/Findings.h"

#include <filesystem>

namespace rho::kernels {

// An index that is a link to one in another folder would be written there, its shards here.
static Status checkLink(const std::string &path) {
  std::error_code missing; // then there is no link
  const std::filesystem::path target = std::filesystem::canonical(path, missing);
  if (missing || !isShardIndex(target.string()) ||
      std::filesystem::equivalent(target.parent_path(), besideIndex(path, "."), missing))
    return Done{};
  return makeError(DiagId::file_not_writable,
                   {path, "it is a link to '" + dsl::visible(target.string()) +
                              "', and its shards would not be beside that"});
}

Result<CheckpointWriter> CheckpointWriter::create(const std::string &path,
                                                  std::vector<Shard> shards,
                                                  std::string indexMetadata) {
  CheckpointWriter checkpoint;
  checkpoint.path = path;
  checkpoint.index.metadata = std::move(indexMetadata);
  if (!isSafetensors(path))
    return makeError(DiagId::safetensors_needed, {path});
  std::vector<std::string> names{std::filesystem::path(path).filename().string()};
  if (isShardIndex(path)) {
    if (Status writable = checkLink(path); !writable)
      return std::move(writable.error());
    names = shardNames(path, shards.size());
    for (size_t i = 0; i < shards.size(); ++i)
      for (const TensorEntry &tensor : shards[i].tensors)
        checkpoint.index.weightMap[tensor.name] = names[i];
    if (std::optional<std::string> name = nameBeyondIndex(checkpoint.index.weightMap))
      return makeError(DiagId::tensor_file_invalid,
                       {dsl::shown(path), std::string(indexEnding),
                        "it cannot name '" + dsl::shown(*name) + "', which is not UTF-8"});
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(
        besideIndex(path, names[i]), std::move(shards[i].tensors), std::move(shards[i].metadata));
    if (!writer)
      return std::move(writer.error());
    checkpoint.writers.push_back(std::move(*writer));
  }
  return checkpoint;
}

Result<int64_t> CheckpointWriter::finish() {
  int64_t size = 0, dataBytes = 0;
  for (SafetensorsWriter &writer : writers) {
    if (Status completed = writer.complete(); !completed)
      return std::move(completed.error());
    size += writer.size();
    dataBytes += writer.dataBytes();
  }
  std::optional<files::OutputFile> indexFile;
  if (isShardIndex(path)) {
    Result<files::OutputFile> created = files::OutputFile::create(path);
    if (!created)
      return std::move(created.error());
    indexFile.emplace(std::move(*created));
    std::string text = writeShardIndex(index, dataBytes);
    if (Status written = indexFile->append(text.data(), static_cast<int64_t>(text.size()));
        !written)
      return std::move(written.error());
  }
  std::vector<files::OutputFile *> files;
  for (SafetensorsWriter &writer : writers)
    files.push_back(&writer.output());
  if (indexFile)
    files.push_back(&*indexFile);
  if (Status done = files::commitAll(files); !done)
    return std::move(done.error());
  return size;
}

Result<int64_t> writeTensors(const SafetensorsFile &source, const std::string &to,
                             std::vector<CheckpointWriter::Shard> shards,
                             const TensorProgress &progress,
                             const std::function<Status(size_t, SafetensorsWriter &)> &write) {
  Result<CheckpointWriter> output =
      CheckpointWriter::create(to, std::move(shards), source.indexMetadata());
  if (!output)
    return std::move(output.error());
  const std::vector<TensorEntry> &tensors = source.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (progress)
      progress(static_cast<int64_t>(i), static_cast<int64_t>(tensors.size()), tensors[i].name);
    if (Status done = write(i, output->shard(isShardIndex(to) ? tensors[i].shard : 0)); !done)
      return std::move(done.error());
    source.release(tensors[i]);
  }
  return output->finish();
}

Status checkOutput(const std::string &to, const SafetensorsFile &source,
                   const SafetensorsFile *other) {
  const std::string &from = source.path();
  if (source.joins(to))
    return makeError(DiagId::output_is_shard, {to, from});
  if (other != nullptr && other->isAt(to))
    return makeError(DiagId::output_is_input, {to});
  if (!isShardIndex(to))
    return Done{};
  std::error_code missing; // then it is another
  const bool isInPlace = std::filesystem::equivalent(from, to, missing);
  for (const std::string &name : shardNames(to, source.shards())) {
    const std::string shard = besideIndex(to, name);
    if (!isInPlace && source.joins(shard))
      return makeError(DiagId::output_is_shard, {shard, from});
    if ((!isShardIndex(from) && source.isAt(shard)) || (other != nullptr && other->isAt(shard)))
      return makeError(DiagId::output_is_input, {shard});
  }
  return Done{};
}

} // namespace rho::kernels
