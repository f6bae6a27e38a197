// Files that appear whole or not at all.
#pragma once

#include "dsl/Error.h"
#include "runtime/files/Descriptor.h"

#include <cstdint>
#include <cstdio>
#include <string>

namespace rho::files {

// Standard output or error, where the process writes it to the file of that name, as to
// /dev/stdout; null: neither.
std::FILE *streamTo(const std::string &path);

// A file that grows without a name and takes its place when it is complete, over what was there:
// who reads the old file goes on reading it. Gone when the object is, and when the process is,
// unless it was committed; where the file system has no nameless files it grows beside its place,
// as PATH.PID.N.part (of a long name its beginning), which a killed process leaves behind.
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
  // Waits until the file is on disk and gives it a name beside its place: all that may take long or
  // fail for want of room. So of several files each can be, before the first takes its place.
  Status prepare();
  // Prepares what is not, then takes the place.
  Status commit();

private:
  OutputFile(std::string path, std::string temporary, Descriptor file, bool isNamed)
      : path(std::move(path)), temporary(std::move(temporary)), file(std::move(file)),
        isNamed(isNamed) {}
  Error failed(int error) const;

  std::string path;      // its place
  std::string temporary; // a name beside it
  Descriptor file;
  bool isNamed; // it has that name
  bool isPrepared = false;
  int64_t end = 0;
};

} // namespace rho::files
