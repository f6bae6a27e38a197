// Wall-clock time.
#pragma once

#include <chrono>

namespace rho {

class Stopwatch {
public:
  // Since construction or the last lap.
  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }
  // The same, and begins the next.
  double lap() {
    const double passed = milliseconds();
    start = Clock::now();
    return passed;
  }

private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
};

} // namespace rho
