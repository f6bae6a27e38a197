// What the end of a process waits for.
#pragma once

#include <mutex>

namespace rho::dsl {

// A call of a library that destroys what it keeps as the process ends (LLVM, NVRTC): the end waits
// for those that run, of all threads but its own, and none begins behind that.
class DelaysProcessEnd {
public:
  // Behind the first call of `library`: the end waits before what was made so far is destroyed.
  explicit DelaysProcessEnd(std::once_flag &library);
  ~DelaysProcessEnd();
  DelaysProcessEnd(const DelaysProcessEnd &) = delete;
  DelaysProcessEnd &operator=(const DelaysProcessEnd &) = delete;
  // false: the end has begun, and the call is to be left out.
  explicit operator bool() const { return isGranted; }

private:
  std::once_flag &library;
  const bool isGranted;
};

} // namespace rho::dsl
