// Splits a loop over all cores of the host.
#pragma once

#include "dsl/Parallel.h"

#include <optional>

namespace rho {

// Calls body(i) once for every i in [0, count), in any order and from several threads at once.
// Results must not depend on which thread runs which i.
template <class Body> void parallelFor(int64_t count, const Body &body) {
  dsl::parallelFor(count, 0, body);
}

// The least number that any of several threads offers.
class Least {
public:
  explicit Least(int64_t none) : least(none), none(none) {} // what all are below
  void offer(int64_t number) {
    for (int64_t known = least; number < known && !least.compare_exchange_weak(known, number);) {
    }
  }
  bool isBelow(int64_t number) const { return least < number; }
  std::optional<int64_t> get() const {
    return least == none ? std::nullopt : std::optional(+least);
  }

private:
  std::atomic<int64_t> least;
  const int64_t none;
};

} // namespace rho
