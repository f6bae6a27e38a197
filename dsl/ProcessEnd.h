// What the end of a process waits for.
#pragma once

#include <atomic>
#include <mutex>

namespace rho::dsl {

// A library that destroys what it keeps as the process ends. A static object of its callers.
class EndingLibrary {
  friend class DelaysProcessEnd;
  std::once_flag once;
  std::atomic<bool> isHooked = false; // the end waits before what it keeps is destroyed
};

// A call of such a library (LLVM, NVRTC): the end waits for those that run, of all threads but its
// own, and none begins behind that. Where the main thread ends the process that holds for first
// calls, too: what they make comes behind anything that could wait for it among what is destroyed.
class DelaysProcessEnd {
public:
  // Behind the first call of `library`: the end waits before what was made so far is destroyed.
  explicit DelaysProcessEnd(EndingLibrary &library);
  ~DelaysProcessEnd();
  DelaysProcessEnd(const DelaysProcessEnd &) = delete;
  DelaysProcessEnd &operator=(const DelaysProcessEnd &) = delete;
  // false: the end has begun, and the call is to be left out.
  explicit operator bool() const { return isGranted; }

private:
  EndingLibrary &library;
  const bool isFirst; // one of those behind which nothing waits yet
  const bool isGranted;
};

} // namespace rho::dsl
