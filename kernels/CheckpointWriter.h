// Whole models written as one .safetensors file, or as several and the index that joins them.
#pragma once

#include "kernels/SafetensorsFile.h"
#include "kernels/ShardIndex.h"

#include <functional>

namespace rho::kernels {

// All files take their places, the index last, or none does (files::commitAll).
class CheckpointWriter {
public:
  struct Shard {
    std::vector<TensorEntry> tensors; // a plan, as of SafetensorsWriter
    Metadata metadata;
  };
  // To an index (isShardIndex) any number of shards, to other paths one. The files of
  // x.safetensors.index.json are x-00001-of-00003.safetensors and so on; `indexMetadata` is the
  // JSON object of its own metadata, to which the total size is added. Errors: safetensors_needed
  // for a path that has neither ending, file_not_writable.
  static Result<CheckpointWriter> create(const std::string &path, std::vector<Shard> shards,
                                         std::string indexMetadata = {});

  SafetensorsWriter &shard(size_t number) { return writers[number]; }
  // After the last tensor of each shard: the files take their places. Gives the size of all,
  // without the index. Errors: file_not_writable.
  Result<int64_t> finish();

private:
  std::string path;
  ShardIndex index; // where path is one
  std::vector<SafetensorsWriter> writers;
};

// Before each tensor of a file, with those that are done.
using TensorProgress = std::function<void(int64_t done, int64_t total, const std::string &name)>;

// Writes what `write(i, writer)` makes of each tensor of a file, whose memory is released then, to
// a checkpoint of one shard or of as many as the file has. Gives the size of all, without the
// index. Errors: those of CheckpointWriter and of `write`.
Result<int64_t> writeTensors(const SafetensorsFile &source, const std::string &to,
                             std::vector<CheckpointWriter::Shard> shards,
                             const TensorProgress &progress,
                             const std::function<Status(size_t, SafetensorsWriter &)> &write);

// Whether what is made of `source` may be written to `to`; of `other`, if given, nothing is
// replaced. Errors: output_is_shard where only one of the files of an index would be replaced,
// output_is_input.
Status checkOutput(const std::string &to, const SafetensorsFile &source,
                   const SafetensorsFile *other = nullptr);

} // namespace rho::kernels
