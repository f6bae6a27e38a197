#include "kernels/ShardIndex.h"

#include "dsl/Findings.h"
#include "kernels/MappedFile.h"
#include "kernels/RepeatedKeys.h"
#include "kernels/TensorHeader.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>

namespace rho::kernels {

namespace {

using Json = nlohmann::json;

// What is deeper than any index is left out. `twice`: a key that stands twice in one object, of
// which the parser keeps the last value.
Json parse(std::string_view text, std::optional<std::string> &twice) {
  constexpr int deepest = 16;
  RepeatedKeys keys;
  auto keep = [&](int depth, Json::parse_event_t event, const Json &parsed) {
    if (keys.repeats(depth, event, parsed))
      twice = parsed.get<std::string>();
    return depth <= deepest;
  };
  return Json::parse(text, keep, false);
}

// Whether it names a file and no way to one.
bool isFileName(const std::string &name) {
  return name.ends_with(safetensorsEnding) && name.find('\0') == std::string::npos &&
         std::filesystem::path(name).filename() == name;
}

} // namespace

Result<ShardIndex> readShardIndex(const std::string &path) {
  auto invalid = [&](const std::string &what) {
    return makeError(DiagId::tensor_file_invalid, {path, std::string(indexEnding), what});
  };
  Result<Mapping> mapping = mapFile(path);
  if (!mapping)
    return std::move(mapping.error());
  std::optional<std::string> twice;
  Json index = parse(mapping->bytes, twice);
  if (index.is_discarded())
    return invalid("it is no JSON");
  if (twice)
    return invalid("'" + dsl::shown(*twice) + "' stands twice in one object");
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object() ||
      index["weight_map"].empty())
    return invalid("it has no 'weight_map' with the files of tensors");
  ShardIndex result;
  if (const auto metadata = index.find("metadata"); metadata != index.end())
    result.metadata = metadata->dump();
  for (const auto &[tensor, file] : index["weight_map"].items()) {
    if (!file.is_string() || !isFileName(file.get<std::string>()))
      return invalid("what 'weight_map' says of '" + dsl::shown(tensor) +
                     "' is no name of a .safetensors file beside it");
    result.weightMap[tensor] = file.get<std::string>();
  }
  return result;
}

std::optional<std::string> nameBeyondIndex(const WeightMap &weightMap) {
  for (const auto &[tensor, file] : weightMap)
    for (const std::string &name : {tensor, file})
      try {
        (void)Json(name).dump();
      } catch (const Json::type_error &) {
        return name;
      }
  return std::nullopt;
}

std::string writeShardIndex(const ShardIndex &names, int64_t bytes) {
  Json index;
  if (Json metadata = Json::parse(names.metadata, nullptr, false); metadata.is_object())
    index["metadata"] = std::move(metadata);
  index["metadata"]["total_size"] = bytes;
  index["weight_map"] = names.weightMap;
  return index.dump(2) + "\n";
}

std::string besideIndex(const std::string &index, const std::string &file) {
  return (std::filesystem::path(index).parent_path() / file).string();
}

std::vector<std::string> shardNames(const std::string &index, size_t count) {
  std::string stem = std::filesystem::path(index).filename().string();
  stem.resize(stem.size() - indexEnding.size());
  std::vector<std::string> names;
  for (size_t i = 1; i <= count; ++i) {
    char ending[64];
    std::snprintf(ending, sizeof ending, "-%05zu-of-%05zu.safetensors", i, count);
    names.push_back(stem + ending);
  }
  return names;
}

} // namespace rho::kernels
