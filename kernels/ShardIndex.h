// Checkpoints of several .safetensors files, as models beyond a few GB are published: an index, a
// .safetensors.index.json whose `weight_map` names for each tensor the file beside it that holds
// it. Internal to kernels/.
#pragma once

#include "dsl/Error.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rho::kernels {

// By tensor, the file that holds it: a name without a folder.
using WeightMap = std::map<std::string, std::string>;

struct ShardIndex {
  WeightMap weightMap;
  std::string metadata = {}; // the object of that name, JSON; empty without one
};

// Errors: file_not_readable, tensor_file_invalid.
Result<ShardIndex> readShardIndex(const std::string &path);
// The first name of a tensor or a file that no index can hold: it is not UTF-8.
std::optional<std::string> nameBeyondIndex(const WeightMap &weightMap);
// The text of an index; `bytes` are those of all tensors, whatever its metadata says.
std::string writeShardIndex(const ShardIndex &index, int64_t bytes);

// The file of that name in the folder of the index.
std::string besideIndex(const std::string &index, const std::string &file);
// Names for the files of an index that is written: "model-00001-of-00003.safetensors", ...
std::vector<std::string> shardNames(const std::string &index, size_t count);

} // namespace rho::kernels
