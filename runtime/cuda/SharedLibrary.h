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
  // Points `function` at the symbol `name`: null where it is not there.
  template <class Function> void bindOptional(Function *&function, const char *name) {
    function = reinterpret_cast<Function *>(symbol(name));
  }
  // The same for a symbol that must be there.
  template <class Function> void bind(Function *&function, const char *name) {
    bindOptional(function, name);
    if (!function && missing.empty())
      missing = name;
  }
  // The first symbol that bind() did not find; empty: it found all.
  const std::string &firstMissing() const { return missing; }

private:
  void *symbol(const char *name) const;
  void *handle = nullptr;
  std::string openedName, why, missing;
};

} // namespace rho::cuda
