// Splits a loop over all cores of the host.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace rho {

// Calls body(i) once for every i in [0, count), in any order, from up to `threads` threads (0: all
// cores). Results must not depend on which thread runs which i.
template <class Body> void parallelFor(int64_t count, const Body &body, unsigned threads = 0) {
  if (threads == 0)
    threads = std::max(1U, std::thread::hardware_concurrency());
  threads = static_cast<unsigned>(std::clamp<int64_t>(count, 1, threads));
  std::atomic<int64_t> next = 0;
  auto work = [&] {
    for (int64_t i = next++; i < count; i = next++)
      body(i);
  };
  std::vector<std::thread> helpers;
  for (unsigned t = 1; t < threads; ++t)
    helpers.emplace_back(work);
  work();
  for (std::thread &helper : helpers)
    helper.join();
}

} // namespace rho
