// Splits a loop over the cores of the host.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace rho::dsl {

// Until destroyed parallel() of this thread takes at most so many threads (0: any number), all that
// those begin included. Of limits inside of each other the least holds.
class ThreadLimit {
public:
  explicit ThreadLimit(unsigned most) : before(limit) {
    if (most > 0)
      limit = limit > 0 ? std::min(limit, most) : most;
  }
  ~ThreadLimit() { limit = before; }
  ThreadLimit(const ThreadLimit &) = delete;
  ThreadLimit &operator=(const ThreadLimit &) = delete;
  static unsigned most() { return limit; } // 0: none

private:
  inline static thread_local unsigned limit = 0;
  const unsigned before;
};

// Threads that work on so many numbers is worth: one more takes as long to begin as encoding some
// ten thousand of them.
inline unsigned threadsWorth(int64_t numbers) {
  return static_cast<unsigned>(std::clamp<int64_t>(numbers / 16384, 1, 65536));
}

// Calls work(next) on up to `threads` threads (0: one for each core). Each call takes indices with
// next() until that gives one not below `count`; every index is given once. Results must not depend
// on which thread takes which index. What work throws on any thread is thrown by this, after all of
// them have ended.
template <class Work> void parallel(int64_t count, unsigned threads, const Work &work) {
  if (threads == 0)
    threads = std::max(1U, std::thread::hardware_concurrency());
  const unsigned limit = ThreadLimit::most();
  if (limit > 0)
    threads = std::min(threads, limit);
  threads = static_cast<unsigned>(std::clamp<int64_t>(count, 1, threads));
  std::atomic<int64_t> taken = 0;
  auto next = [&] { return taken++; };
  std::exception_ptr thrown;
  std::mutex mutex;
  auto guarded = [&] {
    const ThreadLimit own(limit > 0 && threads > 1 ? 1 : 0);
    try {
      work(next);
    } catch (...) {
      taken = count; // nobody begins anything else
      std::lock_guard<std::mutex> lock(mutex);
      if (!thrown)
        thrown = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  while (helpers.size() + 1 < threads) {
    try {
      helpers.emplace_back(guarded);
    } catch (const std::exception &) {
      break; // a machine that gives no more threads: those that there are do the work
    }
  }
  guarded();
  for (std::thread &helper : helpers)
    helper.join();
  if (thrown)
    std::rethrow_exception(thrown);
}

// Calls body(i) once for every i below `count`, in any order.
template <class Body> void parallelFor(int64_t count, unsigned threads, const Body &body) {
  parallel(count, threads, [&](const auto &next) {
    for (int64_t i = next(); i < count; i = next())
      body(i);
  });
}

} // namespace rho::dsl
