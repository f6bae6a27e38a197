#include "runtime/cuda/SharedLibrary.h"

#include <dlfcn.h>

namespace rho::cuda {

SharedLibrary::SharedLibrary(const std::vector<std::string> &names) {
  for (const std::string &name : names) {
    handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle) {
      openedName = name;
      why.clear();
      return;
    }
    const char *text = ::dlerror();
    if (why.empty())
      why = text ? text : name + " cannot be opened";
  }
}

void *SharedLibrary::symbol(const char *name) const {
  return handle ? ::dlsym(handle, name) : nullptr;
}

} // namespace rho::cuda
