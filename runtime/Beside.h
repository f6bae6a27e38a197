// Work beside the calling thread.
#pragma once

#include <future>
#include <system_error>
#include <type_traits>

namespace rho {

// What `work` gives: of another thread, or of the one that asks for it where the caller is to be
// alone, or where no thread is to be had.
template <class Work>
std::future<std::invoke_result_t<Work &>> beside(bool alone, const Work &work) {
  try {
    if (!alone)
      return std::async(std::launch::async, work);
  } catch (const std::system_error &) { // no thread
  }
  return std::async(std::launch::deferred, work);
}

} // namespace rho
