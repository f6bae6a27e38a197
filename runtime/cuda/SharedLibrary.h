// A shared library opened at run time.
#pragma once

#include <string>
#include <vector>

namespace rho::cuda {

// Stays open until the process ends: driver libraries do not survive being closed.
class SharedLibrary {
public:
  // The first of `names` that opens. Without any, opened() is false and reason() says why.
  explicit SharedLibrary(const std::vector<std::string> &names);
  bool opened() const { return handle != nullptr; }
  const std::string &reason() const { return why; }
  const std::string &name() const { return openedName; }
  void *symbol(const char *name) const; // null: not there

private:
  void *handle = nullptr;
  std::string openedName, why;
};

} // namespace rho::cuda
