// What the headers of both tensor file kinds come down to. Internal to kernels/.
#pragma once

#include "dsl/Error.h"
#include "dsl/Quantize.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rho::kernels {

// One tensor of a file whose header was checked: its bytes lie inside the file.
struct TensorEntry {
  std::string name;
  std::string type; // as the file names it
  std::optional<dsl::MatrixView::Type> supported;
  std::vector<int64_t> shape;
  int64_t begin = 0, bytes = 0; // in the file
  size_t shard = 0;             // which of the files that an index joins
};

using Metadata = std::map<std::string, std::string>;

// A header that was read, or what is wrong with it.
struct TensorHeader {
  std::vector<TensorEntry> tensors; // in order of name
  Metadata metadata;                // of .safetensors: its free texts
  std::string problem;
};

// `file` is the whole file.
TensorHeader readSafetensorsHeader(std::string_view file);
TensorHeader readNumpyHeader(std::string_view file);

// Bits of one number of a type that headers of .safetensors name.
int safetensorsBits(std::string_view type);

// Of .safetensors, behind the 8 bytes of its length: the reference implementation's limit.
constexpr uint64_t mostHeaderBytes = 100'000'000;

// The bytes before the data, a multiple of 8 and at least `least`. What lies where in the data is
// said by the entries, whose `begin` counts from the end of the header here.
std::string writeSafetensorsHeader(const std::vector<TensorEntry> &tensors,
                                   const Metadata &metadata, size_t least = 0);
// rows * k elements of `type` follow.
std::string writeNumpyHeader(const dsl::MatrixView &matrix);

constexpr std::string_view safetensorsEnding = ".safetensors";
// Of an index of several such files (ShardIndex.h).
constexpr std::string_view indexEnding = ".safetensors.index.json";
inline bool isShardIndex(std::string_view path) { return path.ends_with(indexEnding); }
inline bool isSafetensors(std::string_view path) {
  return path.ends_with(safetensorsEnding) || isShardIndex(path);
}

// FILE.safetensors:NAME, or that of an index, in two.
struct TensorReference {
  std::string path;
  std::optional<std::string> name;
};
TensorReference splitReference(std::string_view text);

// As a .safetensors header names it.
std::string_view safetensorsName(dsl::MatrixView::Type type);
int64_t bytesOf(dsl::MatrixView::Type type);
// For messages, at most ten: files have thousands of tensors.
std::string printNames(const std::vector<TensorEntry> &tensors);
std::string printExtents(const TensorEntry &tensor); // "F32 16 x 4096"
// Product of the extents, none if it does not fit.
std::optional<int64_t> elementsOf(const std::vector<int64_t> &shape);

} // namespace rho::kernels
