// .safetensors files of any size, one or several that an index joins: all tensors, read where they
// lie, and written one after the other.
#pragma once

#include "kernels/MappedFile.h"
#include "kernels/TensorHeader.h"
#include "runtime/files/OutputFile.h"

namespace rho::kernels {

// The files are mapped: what is read of them need not stay in memory.
class SafetensorsFile {
public:
  // A .safetensors file, or a .safetensors.index.json with the files that it names (ShardIndex.h):
  // their tensors together, none of them twice, and the entries of their metadata, the first of
  // each. Errors: safetensors_needed, file_not_readable, tensor_file_invalid.
  static Result<SafetensorsFile> open(const std::string &path);

  const std::string &path() const { return name; }
  int64_t size() const; // of the .safetensors files
  size_t shards() const { return mappings.size(); }
  // Whether it is an index and a path leads to one of the files that it joins.
  bool joins(const std::string &path) const;
  // Whether a path leads to it, or to one of the files that it joins.
  bool isAt(const std::string &path) const;
  // In the order of their data, one shard after the other.
  const std::vector<TensorEntry> &tensors() const { return order; }
  const Metadata &metadata() const { return texts; }
  const Metadata &metadata(size_t shard) const { return ofShards[shard]; }
  // Of an index, the JSON object of its own metadata; empty without one.
  const std::string &indexMetadata() const { return textOfIndex; }
  // That of the first shard that has such an entry; of none, none.
  const Metadata &metadataWith(const std::string &key) const;
  const TensorEntry *find(std::string_view tensor) const;
  std::string_view bytes(const TensorEntry &tensor) const {
    return mappings[tensor.shard].bytes.substr(static_cast<size_t>(tensor.begin),
                                               static_cast<size_t>(tensor.bytes));
  }
  // The numbers of a matrix of a supported type, at any address. None for all other tensors.
  std::optional<dsl::MatrixView> matrix(const TensorEntry &tensor) const;
  // That the bytes of a tensor are not needed soon: they leave this process's memory.
  void release(const TensorEntry &tensor) const;
  // The same of the tensors that a quantized matrix is stored in.
  void releasePartsOf(std::string_view matrix) const;
  // Of what memory stays while any of it is used.
  std::shared_ptr<const void> owner(const TensorEntry &tensor) const {
    return mappings[tensor.shard].owner;
  }

private:
  Status add(const std::string &path); // a shard
  Status addIndexed();
  std::vector<size_t>::const_iterator firstFrom(std::string_view least) const; // in byName

  std::string name;
  std::vector<std::string> paths; // by shard
  std::vector<Mapping> mappings;
  std::vector<TensorEntry> order;
  std::vector<size_t> byName; // where in it
  Metadata texts;
  std::vector<Metadata> ofShards;
  std::string textOfIndex;
};

// Writes the tensors of a plan to one file, one after the other. In the file those with the largest
// numbers come first, so that each lies at a multiple of its numbers' size, and vectors of bytes
// (U8), whose length may not be known before, last. The header comes first in the file and last in
// time: its room is that of the plan.
class SafetensorsWriter {
public:
  // `plan`: name, type and shape of each tensor, and its bytes, of a vector of bytes (U8) at most.
  // Errors of all functions: file_not_writable.
  static Result<SafetensorsWriter> create(const std::string &path, std::vector<TensorEntry> plan,
                                          Metadata metadata);
  // Bytes of the present tensor.
  Status append(const void *data, int64_t bytes);
  int64_t size() const { return headerBytes + written; } // so far
  int64_t dataBytes() const { return written; }
  // Goes on to the next tensor. A vector of bytes that got fewer than planned is so much shorter.
  void endTensor();
  // After the last tensor, whose end is the file's: writes the header. Then output() can take its
  // place.
  Status complete();
  files::OutputFile &output() { return file; }

private:
  SafetensorsWriter(files::OutputFile file, std::vector<TensorEntry> plan, Metadata metadata)
      : file(std::move(file)), tensors(std::move(plan)), texts(std::move(metadata)) {}

  files::OutputFile file;
  std::vector<TensorEntry> tensors;
  Metadata texts;
  int64_t headerBytes = 0, written = 0; // `written` without the header
  size_t present = 0;
  int64_t ofPresent = 0;  // bytes of it so far
  int64_t vectorsEnd = 0; // where the next vector of bytes begins
};

} // namespace rho::kernels
