// File descriptors and streams that close themselves, and what failed with them.
#pragma once

#include "dsl/Error.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

namespace rho::files {

// Errno stays what it was when it closes.
class Descriptor {
public:
  explicit Descriptor(int number) : number(number) {}
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  Descriptor(Descriptor &&other) noexcept : number(other.number) { other.number = -1; }
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(number, other.number);
    return *this;
  }
  ~Descriptor();
  int get() const { return number; }

private:
  int number;
};

struct CloseStream {
  void operator()(std::FILE *file) const { std::fclose(file); }
};
using Stream = std::unique_ptr<std::FILE, CloseStream>;

// Names live in the folder. Not every file system can sync one: what is renamed stays so.
void syncFolder(const std::string &path);

// file_not_readable or file_not_writable, as `error`, a value of errno, says.
Error failed(DiagId id, const std::string &path, int error);

} // namespace rho::files
