// Files that appear whole or not at all. Internal to kernels/.
#pragma once

#include "dsl/Error.h"
#include "kernels/MappedFile.h"

#include <cstdint>
#include <string>

namespace rho::kernels {

// A file that grows beside its place and takes it when it is complete, over what was there: who
// reads the old file goes on reading it. Gone when the object is, unless it was committed.
class OutputFile {
public:
  // A link is followed. What is there and is replaced keeps its permissions. Errors of all
  // functions: file_not_writable.
  static Result<OutputFile> create(const std::string &path);
  OutputFile(OutputFile &&other) noexcept;
  OutputFile &operator=(OutputFile &&) = delete;
  ~OutputFile();

  Status append(const void *data, int64_t bytes);
  Status writeAt(int64_t offset, const void *data, int64_t bytes);
  int64_t size() const { return end; }
  // Waits until the file is on disk, then renames it.
  Status commit();

private:
  OutputFile(std::string path, std::string temporary, Descriptor file)
      : path(std::move(path)), temporary(std::move(temporary)), file(std::move(file)) {}
  Error failed(int error) const;

  std::string path;      // its place
  std::string temporary; // empty once it has that place
  Descriptor file;
  int64_t end = 0;
};

} // namespace rho::kernels
