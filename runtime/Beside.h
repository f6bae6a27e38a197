// Work beside the calling thread.
#pragma once

#include <future>
#include <system_error>
#include <type_traits>

namespace rho {

// What `work` gives: of another thread, or of the one that asks for it where the caller is to be
// alone, or where no thread is to be had.
template <class Work>
std::future<std::invoke_result_t<const Work &>> beside(bool alone, const Work &work) {
  auto whenAsked = [&] { return std::async(std::launch::deferred, work); };
  if (alone)
    return whenAsked();
  try {
    return std::async(std::launch::async, work);
  } catch (const std::system_error &) { // no thread
    return whenAsked();
  }
}

} // namespace rho
