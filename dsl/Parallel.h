// Splits a loop over the cores of the host.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace rho::dsl {

// Calls work(next) on up to `threads` threads (0: one for each core). Each call takes indices with
// next() until that gives one not below `count`; every index is given once. Results must not depend
// on which thread takes which index.
template <class Work> void parallel(int64_t count, unsigned threads, const Work &work) {
  if (threads == 0)
    threads = std::max(1U, std::thread::hardware_concurrency());
  threads = static_cast<unsigned>(std::clamp<int64_t>(count, 1, threads));
  std::atomic<int64_t> taken = 0;
  auto next = [&] { return taken++; };
  std::vector<std::thread> helpers;
  while (helpers.size() + 1 < threads) {
    try {
      helpers.emplace_back([&] { work(next); });
    } catch (const std::system_error &) {
      break; // a machine that gives no more threads: those that there are do the work
    }
  }
  work(next);
  for (std::thread &helper : helpers)
    helper.join();
}

} // namespace rho::dsl
