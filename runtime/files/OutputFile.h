// Files that appear whole or not at all.
#pragma once

#include "dsl/Error.h"
#include "runtime/files/Descriptor.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

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
  // Waits until the file is on disk, then takes the place.
  Status commit();

private:
  friend Status commitAll(const std::vector<OutputFile *> &files);
  OutputFile(std::string path, std::string temporary, Descriptor file, bool isNamed)
      : path(std::move(path)), temporary(std::move(temporary)), file(std::move(file)),
        isNamed(isNamed) {}
  Error failed(int error) const;
  Status sync() const;
  // 0, or why not as errno says it.
  int takeName();
  int takePlace(bool isLast);
  bool leavePlace(); // to what was there
  void dropName();

  std::string path;      // its place
  std::string temporary; // a name beside it
  Descriptor file;
  bool isNamed; // it has that name, or what was in its place has
  enum class Taken : uint8_t { No, Free, Exchanged, WrittenOver } taken = Taken::No;
  int64_t end = 0;
};

// All take their places or none does, also where the process gets a signal to end: each is on disk
// before the first has a name, and has one before the first takes its place. What stands there
// has a name beside it until all are done; where the file system cannot exchange two files it is
// gone, and an error behind it says so.
Status commitAll(const std::vector<OutputFile *> &files);

// Whether another file can take the place of the one that is there: not where that is mounted by
// itself, or is in a folder that takes no others.
bool isReplaceable(const std::string &path);

} // namespace rho::files
